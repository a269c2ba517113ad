"""Public traces of eight ranks that are healthy, and kernels of today's NCCL alone."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.derive.activity import activity
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.findings import Severity, Status

DECODE = "ModelTC+lightllm/test/model"
CLEAN = (
    f"{DECODE}/logs/*/*_309*.json.gz",
    f"{DECODE}/logs_sglang/*/*_3154*.json.gz",
    f"{DECODE}/logs_sglang/*/*_3307*.json.gz",
)
"""One decode step each. The steps of the other two public sets of eight ranks are not alike."""
TORCHREC = "pytorch+torchrec/examples/golden_training/trace/sst_long_a2a_optimizer_2"


@pytest.fixture
def public(traces, tmp_path, runs):
    """Convert public files."""
    return lambda pattern: runs.converted(traces / "traces" / pattern, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", CLEAN)
def test_s35_a_clean_set_of_eight_ranks_gets_no_more_than_notes(public, pattern):
    run = public(pattern)
    assert run.ranks == tuple(range(8))
    spans = [
        activity(run, rank)
        .select(dur_ns=pl.col("end_ns").max() - pl.col("start_ns").min())
        .collect()
        .item()
        for rank in run.ranks
    ]
    assert max(spans) / min(spans) < 1.02  # that is what makes it clean
    result = tracekit.analyze(run, engine="local:1")
    assert all(found.status is not Status.FAILED for found in result.findings)
    assert {found.severity for found in result.findings} <= {None, Severity.INFO}
    assert any(found.status is Status.CLEAR for found in result.findings)


def test_s29_names_of_todays_nccl_are_communication(public):
    run = public(TORCHREC)
    result = tracekit.analyze(run, engine="local:1")
    assert min(parts.overlapped_ns + parts.exposed_communication_ns for parts in result.whole) > 0
    for rank in run.ranks:
        is_nccl = pl.col("name").str.contains("nccl")
        kernels = run.scan("kernels", rank).filter(is_nccl).select("name", "kind").collect()
        assert kernels["name"].str.starts_with("ncclDevKernel_").all()
        assert kernels["kind"].unique().to_list() == [COMMUNICATION]
        assert run.scan("collectives", rank).select(pl.len()).collect().item() == kernels.height
