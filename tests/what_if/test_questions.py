"""Questions that cannot be answered are refused, with what is there instead."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.errors import InputError, UsageError
from tracekit.what_if.answers import asked
from tracekit.what_if.changes import unchanged
from tracekit.what_if.job import job
from tracekit.what_if.questions import scaled

STEP = 1000


@pytest.fixture
def run(make_run, runs):
    """Two ranks with one kernel a step."""
    traces = {rank: runs.Trace() for rank in range(2)}
    for trace in traces.values():
        for number in range(4):
            at = STEP * number
            trace.step(number, at, STEP)
            trace.kernel(at + 10, 800, "gemm", launched=(at + 4, 4))
            trace.call(at + 12, 799, "cudaStreamSynchronize", role="sync")
    return make_run(traces)


@pytest.mark.parametrize(
    "factor", ["-1", "nan", "inf", "1e308", "1e7", "1_0", "", "x", "0x2", "--1", "٣"]
)
def test_a_factor_is_a_number_that_leaves_one(run, factor):
    with pytest.raises(UsageError, match="FACTOR a number from 0 to 1,000,000"):
        scaled(unchanged(job(run)), f"kernel={factor}")


@pytest.mark.parametrize("rank", ["9", "", "-1", "x", "²", "9" * 30])
def test_a_rank_has_work_here(run, rank):
    with pytest.raises(UsageError, match="no work of rank") as refused:
        scaled(unchanged(job(run)), f"kernel@{rank}=2")
    assert refused.value.hint == "Ranks here: 0, 1."


@pytest.mark.parametrize("work", ["kernel:", "kernel:softmax", "gemm:", ":gemm", "nothing"])
def test_work_that_is_not_there_is_no_work_at_all(run, work):
    with pytest.raises(UsageError, match="no such work here") as refused:
        scaled(unchanged(job(run)), f"{work}=2")
    assert "kernel:gemm" in refused.value.hint


def test_spaces_around_a_rank_do_not_matter(run):
    replay = job(run)
    changed = [scaled(unchanged(replay), text).own_ns for text in ("kernel@1=2", "kernel @ 1 = 2")]
    assert (changed[0] == changed[1]).all()


def test_what_is_asked_twice_is_changed_once(run):
    twice = asked(run, ["kernel=0.5", " kernel=0.5"], ["straggler:1", "straggler:1"])
    once = asked(run, ["kernel=0.5"], ["straggler:1"])
    assert twice.replay.answers == once.replay.answers
    assert len(once.replay.answers) == 3


def test_a_straggler_needs_others_that_ran_the_same_steps(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(2)}
    for rank, trace in traces.items():
        for number in range(4):
            trace.step(number + 100 * rank, STEP * number, STEP)
            trace.kernel(STEP * number + 10, 800, "gemm", launched=(STEP * number + 4, 4))
    with pytest.raises(UsageError, match="no step in common"):
        asked(make_run(traces), [], ["straggler:1"])
    with pytest.raises(UsageError, match="no other rank"):
        asked(make_run({0: traces[0]}), [], ["straggler:0"])


def operations(n_steps=3, **changed):
    """One worker that computes forward and backward in each step."""
    rows = pl.DataFrame(
        {
            "dp_rank": [0] * (2 * n_steps),
            "stage": [0] * (2 * n_steps),
            "step": [step for step in range(n_steps) for _ in range(2)],
            "optype": ["forward-compute", "backward-compute"] * n_steps,
            "start_ts": [0.0, 1.0 + 0.0] * n_steps,
            "duration": [value for step in range(n_steps) for value in (1.0, 1.0 + step)],
        }
    )
    return rows.with_columns(**changed)


@pytest.fixture
def replayed(tmp_path):
    """What is said of a table of operations."""

    def replay(rows, **how):
        rows.write_parquet(tmp_path / "job.parquet")
        return tracekit.replay(tmp_path / "job.parquet", engine="local:1", **how)

    return replay


def test_only_the_steps_asked_for_are_replayed(replayed):
    assert replayed(operations(), steps=(0, 1)).replay.step_ns == pytest.approx(2e9)
    assert replayed(operations(), steps=(2, 3)).replay.step_ns == pytest.approx(4e9)
    assert replayed(operations()).replay.step_ns == pytest.approx(3e9)
    with pytest.raises(UsageError, match="no step in 7:9"):
        replayed(operations(), steps=(7, 9))


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_operations_that_take_no_time_cannot_be_compared(replayed, start):
    rows = operations(duration=pl.lit(0.0))
    rows = rows.with_columns(start_ts=pl.col("start_ts") if not start else pl.lit(start))
    with pytest.raises(InputError, match="take no time"):
        replayed(rows)


@pytest.mark.parametrize("column", ["start_ts", "duration", "stage", "step", "dp_rank"])
def test_a_column_of_texts_is_named(replayed, column):
    with pytest.raises(InputError, match=f"column {column}: must be numbers"):
        replayed(operations().with_columns(pl.lit("a").alias(column)))


@pytest.mark.parametrize("column", ["start_ts", "duration"])
@pytest.mark.parametrize("value", [float("inf"), 1e12])
def test_a_time_beyond_all_time_is_none(replayed, column, value):
    with pytest.raises(InputError, match=r"6 with no (start|duration)"):
        replayed(operations().with_columns(pl.lit(value).alias(column)))
