"""In which phase of a step each collective was called: forward, backward or optimizer.

The autograd engine launches the backward pass from a thread of its own, so that what another thread
than the training thread launches is backward; what is launched inside an `Optimizer.step` mark is
the optimizer's, and the rest forward. Without a second thread that launches compute forward and
backward cannot be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity, training_thread
from tracekit.derive.averages import averaged, averages
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.groups import groups
from tracekit.derive.intervals import union
from tracekit.derive.kernel_kinds import COMMUNICATION

if TYPE_CHECKING:
    from tracekit.store import Run

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_STEP_OF_OPTIMIZER = r"Optimizer\.step|optimizer_step"
_CALL = ["device", "stream", "start_ns"]


@remembered
def phases(run: Run) -> pl.DataFrame:
    """Communication of a mean step of a rank by phase, dimension and operation.

    Returns:
        `phase` (null: not known), `dimension`, `operation`, `n_calls`, `step_ns`,
        `exposed_wait_ns`, `exposed_transfer_ns`, `exposed_unsplit_ns`, `hidden_ns`: means over
        ranks and averaged steps (Float64); by phase, the longest first.
    """
    calls = averaged(run, call_exposure)
    n_parts = max(1, len(averages(run).steps) * calls["rank"].n_unique())
    called = pl.concat([_of_rank(run, rank) for rank in run.ranks])
    is_split = pl.col("wait_ns").is_not_null()
    parts = {
        "step_ns": pl.col("dur_ns"),
        "exposed_wait_ns": pl.col("exposed_wait_ns"),
        "exposed_transfer_ns": pl.col("exposed_transfer_ns").filter(is_split),
        "exposed_unsplit_ns": pl.col("exposed_ns").filter(~is_split),
        "hidden_ns": pl.col("dur_ns") - pl.col("exposed_ns"),
    }
    rank_of = {FORWARD: 0, BACKWARD: 1, OPTIMIZER: 2}
    return (
        calls.join(called, on=["rank", *_CALL], how="left", validate="m:1")
        .join(groups(run).select("group", "dimension"), on="group", how="left", validate="m:1")
        .group_by("phase", "dimension", "operation")
        .agg(
            n_calls=pl.len() / n_parts,
            **{name: part.sum() / n_parts for name, part in parts.items()},
        )
        .sort(
            pl.col("phase").replace_strict(rank_of, default=3, return_dtype=pl.Int64),
            pl.col("step_ns"),
            pl.col("operation"),
            descending=[False, True, False],
        )
    )


def _of_rank(run: Run, rank: int) -> pl.DataFrame:
    """The phase of each communication kernel of a rank: `rank`, its place, `phase`."""
    main = training_thread(run, rank)
    events = activity(run, rank)
    threads = (
        events.filter(pl.col("class") == COMPUTE)
        .select(pl.col("launch_thread").drop_nulls().n_unique())
        .collect()
        .item()
    )
    updates = union(
        run.scan("annotations", rank)
        .filter(pl.col("name").str.contains(_STEP_OF_OPTIMIZER) & pl.col("thread").is_not_null())
        .select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    ).rename({"start_ns": "opens_ns", "end_ns": "closes_ns"})
    thread = pl.col("launch_thread")
    is_update = (pl.col("launch_start_ns") < pl.col("closes_ns")).fill_null(value=False)
    phase = (
        pl.when(thread.is_null())
        .then(None)
        .when(is_update)
        .then(pl.lit(OPTIMIZER))
        .when(pl.lit(threads < 2 or main is None))
        .then(None)
        .when(thread == (-1 if main is None else main))
        .then(pl.lit(FORWARD))
        .otherwise(pl.lit(BACKWARD))
    )
    return (
        events.filter(pl.col("class") == COMMUNICATION)
        .sort("launch_start_ns")
        .join_asof(updates, left_on="launch_start_ns", right_on="opens_ns", strategy="backward")
        .select(pl.lit(rank, pl.Int64).alias("rank"), *_CALL, phase=phase)
        .unique(["rank", *_CALL])
        .collect()
    )
