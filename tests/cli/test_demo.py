"""`tracekit demo`: real captures in the package, each of which has one late rank."""

from __future__ import annotations

import pytest

from tracekit.cli.demo import SAMPLES
from tracekit.sample_traces import DEMOS


def test_every_sample_in_the_package_can_be_chosen():
    assert tuple(DEMOS) == SAMPLES


@pytest.mark.slow
def test_longer_sequences_are_told_from_a_slow_host(here, tracekit):
    done = tracekit("demo", "--sample", "longer-sequences")
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert "Critical: Rank 3 makes the others wait" in said
    assert "sequence-length-imbalance" in said
    assert (here / "tracekit-demo/report.html").is_file()
