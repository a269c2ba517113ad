"""`tracekit docs`: pages of a checkout; what it writes is tested with the documents."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tracekit.cli import main


@pytest.mark.parametrize("readme", [None, "# Another project"])
@pytest.mark.parametrize("check", [[], ["--check"]])
def test_outside_a_checkout_it_says_so(here, readme, check):
    if readme:
        (here / "README.md").write_text(readme, "utf-8")
    before = sorted(here.iterdir())
    done = CliRunner().invoke(main, ["docs", *check])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {here}: not a checkout of tracekit")
    assert "--root DIR" in done.stderr
    assert sorted(here.iterdir()) == before
