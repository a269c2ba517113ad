"""Idle time that the host owes, gap by gap, and what the job gains where it goes.

A stall is the host's part of a gap and the launch latency behind it: had the launch come earlier,
neither would have been. Its class is what the host did: a named class of work, as loading data,
whether or not a call had drained the queue before it; else the cause of the idle time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import activity
from tracekit.derive.averages import breakdowns, of_ranks
from tracekit.derive.cached import cached
from tracekit.derive.host_kinds import HOST_SYNC, host_class
from tracekit.derive.idle import LATENCY, idle
from tracekit.derive.kernel_kinds import COMMUNICATION, POINT_TO_POINT
from tracekit.derive.profiler_cost import profiler_ns
from tracekit.derive.steps import marks, with_step
from tracekit.derive.waits import waits
from tracekit.findings import Range
from tracekit.schema.table import DEVICE, FLAG, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

STALLS = Table(
    "stalls",
    "gap on a device of one rank that its host owes",
    (
        DEVICE,
        Column("step", I64, "", "step whose window holds the start; null outside all"),
        Column("host_step", I64, "", "step whose mark holds the end; without marks as `step`"),
        START,
        Column("host_ns", I64, "ns", "the host's part"),
        Column("stall_ns", I64, "ns", "the host's part and the launch latency behind it"),
        Column(
            "then_ns", I64, "ns", "communication that ends the gap: it may wait as long instead"
        ),
        Column("profiler_ns", I64, "ns", "part of host_ns that recording may have taken"),
        Column("class", TEXT, "", "what the host did"),
        Column("is_drained", FLAG, "", "a call had waited for the device and drained its queue"),
        Column("detail", TEXT, "", "host call in which it fell, or that came before it"),
    ),
)


def stalls(run: Run, rank: int) -> pl.LazyFrame:
    """Stalls of one rank (`STALLS`), by device and start."""
    return cached(run, STALLS, lambda: _stalls(run, rank), rank)


def all_stalls(run: Run, chosen: pl.Expr) -> pl.DataFrame:
    """Chosen stalls of all ranks, with the `rank`; by rank, device and start."""
    return of_ranks(run, stalls).filter(chosen).collect()


def _stalls(run: Run, rank: int) -> pl.DataFrame:
    parts = idle(run, rank).collect()
    is_host = pl.col("meanwhile") != ""
    end = pl.col("start_ns") + pl.col("dur_ns")
    follows = (pl.col("start_ns") == end.shift(1)) & (pl.col("device") == pl.col("device").shift(1))
    is_tail = (pl.col("cause") == LATENCY) & follows & is_host.shift(1)
    found = (
        parts.with_columns(number=is_host.cum_sum(), is_host=is_host, is_tail=is_tail)
        .filter(pl.col("is_host") | pl.col("is_tail").fill_null(value=False))
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("device", "step", "start_ns", "detail").first(),
            host_class().first().alias("class"),
            is_drained=pl.col("cause").first() == HOST_SYNC,
            host_ns=pl.col("dur_ns").first(),
            stall_ns=pl.col("dur_ns").sum(),
        )
        .with_columns(
            ends_ns=pl.col("start_ns") + pl.col("host_ns") - 1,
        )
    )
    host_parts = found.select("start_ns", end_ns=pl.col("ends_ns") + 1)
    found = _with_communication(found, activity(run, rank).collect())
    return (
        _with_host_step(found, marks(run, rank))
        .sort("number")
        .with_columns(profiler_ns=profiler_ns(run, rank, host_parts))
        .select(list(STALLS.schema))
        .sort("device", "start_ns")
    )


def _with_communication(found: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add `then_ns`, the length of the communication that ends a gap; 0 where other work does."""
    calls = (
        events.filter(pl.col("class") == COMMUNICATION)
        .group_by("device", "start_ns")
        .agg(then_ns=(pl.col("end_ns") - pl.col("start_ns")).max())
    )
    return (
        found.with_columns(gap_end_ns=pl.col("start_ns") + pl.col("stall_ns"))
        .join(
            calls,
            left_on=["device", "gap_end_ns"],
            right_on=["device", "start_ns"],
            how="left",
            validate="m:1",
            maintain_order="left",
        )
        .with_columns(pl.col("then_ns").fill_null(0))
    )


def _with_host_step(found: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """Add `host_step`: a batch that is loaded for a step is waited for in the window before it."""
    if recorded.is_empty():
        return found.with_columns(host_step="step")
    named = with_step(found.lazy().rename({"step": "window"}), recorded, "ends_ns").collect()
    return named.rename({"step": "host_step", "window": "step"})


def stalled(run: Run, chosen: pl.Expr) -> pl.DataFrame:
    """What chosen stalls add up to on each compared device, in each averaged step.

    Returns:
        `rank`, `device`, `step`, `dur_ns` (of the step), `pipeline`, `wait_ns` (what may wait for
        others all the same: exposed waiting, and exposed communication that could not be split,
        without messages), `sure_ns` (the host's parts without what recording may have taken, and
        without what the communication right behind a gap may wait instead), `host_ns`,
        `profiler_ns`, `stall_ns`, `n_stalls`; by rank, device and step, 0 where there was none.
    """
    sure_ns = pl.col("host_ns") - pl.col("profiler_ns") - pl.col("then_ns")
    lengths = ["sure_ns", "host_ns", "profiler_ns", "stall_ns"]
    sums = (
        all_stalls(run, chosen)
        .with_columns(sure_ns=sure_ns.clip(0))
        .group_by("rank", "device", "step")
        .agg(pl.col(lengths).sum(), n_stalls=pl.len().cast(pl.Int64))
    )
    unsplit_ns = pl.col("unsplit_communication_ns") * (1 - pl.col("message_share"))
    return (
        breakdowns(run)
        .filter("is_averaged")
        .join(messages(run), on="rank", validate="m:1")
        .select(
            "rank",
            "device",
            "step",
            "dur_ns",
            "pipeline",
            wait_ns=pl.col("exposed_waiting_ns") + unsplit_ns.round().cast(pl.Int64),
        )
        .join(sums, on=["rank", "device", "step"], how="left", validate="1:1")
        .with_columns(pl.col(*lengths, "n_stalls").fill_null(0))
        .sort("rank", "device", "step")
    )


def messages(run: Run) -> pl.DataFrame:
    """What sends and receives are to each rank: `rank`, `message_share`, `pipeline`.

    `message_share` is theirs of the communication that could not be split. A stage of a pipeline
    waits for a message whose sender waited for its own before: the wait moves with the stage, and
    hides no stall of it. `pipeline` is the group of most of them, or the rank alone.
    """
    is_message = pl.col("operation").is_in(list(POINT_TO_POINT))
    dur_ns = pl.col("dur_ns")
    found = (
        waits(run)
        .filter(pl.col("wait_ns").is_null())
        .group_by("rank")
        .agg(
            message_share=dur_ns.filter(is_message).sum() / dur_ns.sum(),
            pipeline=pl.col("group").filter(is_message).drop_nulls().mode().sort().first(),
        )
        .collect()
    )
    ranks = pl.DataFrame({"rank": list(run.ranks)}, schema={"rank": pl.Int64})
    return ranks.join(found, on="rank", how="left", validate="1:1").with_columns(
        pl.col("message_share").fill_null(0.0).fill_nan(0.0),
        pl.coalesce("pipeline", pl.format("rank {}", "rank")).alias("pipeline"),
    )


def by_rank(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean step of rows of `stalled`: `rank`, `device`, `step_ns`, `stall_ns`, `share`, `n_stalls`.

    The longest stalls first; of equal ones the lower rank.
    """
    return (
        rows.group_by("rank", "device")
        .agg(
            step_ns=pl.col("dur_ns").mean(),
            stall_ns=pl.col("stall_ns").mean(),
            n_stalls=pl.col("n_stalls").mean(),
        )
        .with_columns(share=pl.col("stall_ns") / pl.col("step_ns"))
        .select("rank", "device", "step_ns", "stall_ns", "share", "n_stalls")
        .sort("stall_ns", "rank", "device", descending=[True, False, False])
    )


def by_call(run: Run, chosen: pl.Expr) -> pl.DataFrame:
    """Chosen stalls by the host call in which they fell, a step and compared device.

    Returns:
        `detail`, `n_stalls`, `stall_ns` (both Float64, mean over ranks), `longest_ns`; the largest
        sum first.
    """
    averaged = breakdowns(run).filter("is_averaged").select("rank", "device", "step")
    return (
        all_stalls(run, chosen)
        .join(averaged, on=["rank", "device", "step"], how="semi")
        .group_by("detail")
        .agg(
            n_stalls=pl.len() / max(averaged.height, 1),
            stall_ns=pl.col("stall_ns").sum() / max(averaged.height, 1),
            longest_ns=pl.col("stall_ns").max(),
        )
        .sort("stall_ns", "detail", descending=[True, False])
    )


def removable_ns(rows: pl.DataFrame) -> Range:
    """What a step of the job gains where the stalls of all ranks go (rows of `stalled`).

    A stall of a rank costs the job nothing as long as that rank waits for another one all the same.
    So the gain of a step lies between the greatest sure stall less the waiting of its own rank, and
    the greatest stall, where stalls of the stages of one pipeline may follow each other and add up.
    Mean over steps.
    """
    in_step = (
        rows.group_by("step", "pipeline", "rank")
        .agg(
            low_ns=(pl.col("sure_ns") - pl.col("wait_ns")).clip(0).max(),
            high_ns=pl.col("stall_ns").max(),
        )
        .group_by("step", "pipeline")
        .agg(pl.col("low_ns").max(), pl.col("high_ns").sum())
        .group_by("step")
        .agg(pl.col("low_ns", "high_ns").max())
    )
    low_ns, high_ns = in_step["low_ns"].mean(), in_step["high_ns"].mean()
    if not isinstance(low_ns, float) or not isinstance(high_ns, float):
        return Range(0.0, 0.0)
    return Range(low_ns, high_ns)
