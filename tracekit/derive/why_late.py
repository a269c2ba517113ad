"""Why a rank was late: its mean step against the median peer's, part by part.

The late rank's extra time is where its step differs from its peers': the same kernels slower, more
or bigger kernels, copies, or its device idle for a cause on the host. The peers' extra time is the
waiting. Where the training thread stands for the device, slow operators mean a slow host.

A call that drains the queue drains it on all ranks: where the late rank then loads data, it is the
loading in which it differs, though the idle time itself is owed to the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, compared_devices, mean_steps
from tracekit.derive.cached import remembered
from tracekit.derive.host_kinds import host_class
from tracekit.derive.idle import idle
from tracekit.derive.kernel_totals import differences
from tracekit.findings import Cause
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.store import Run

_CAUSES = {
    "same kernels slower": Cause.SLOW_DEVICE,
    "more or bigger kernels": Cause.DATA_IMBALANCE,
    "copies": Cause.COPY_IN_OUT,
    "host-sync": Cause.HOST_SYNC,
    "input-pipeline": Cause.INPUT_PIPELINE,
    "allocator": Cause.ALLOCATOR,
    "compilation": Cause.COMPILATION,
    "checkpoint": Cause.CHECKPOINT,
    "cpu-optimizer": Cause.CPU_OPTIMIZER,
    "garbage-collection": Cause.GARBAGE_COLLECTION,
    "launch-overhead": Cause.LAUNCH_OVERHEAD,
    "host-other": Cause.HOST_OTHER,
}


_REASONS = {
    "same kernels slower": "its kernels run slower",
    "more or bigger kernels": "it has more or bigger kernels to run",
    "copies": "it copies more",
    "host-sync": "its host waits for the device",
    "input-pipeline": "it waits for its input",
    "allocator": "its allocator goes back to the driver",
    "compilation": "it compiles",
    "checkpoint": "it writes a checkpoint",
    "cpu-optimizer": "its optimizer runs on the CPU",
    "garbage-collection": "its Python collects garbage",
    "launch-overhead": "its host launches slowly",
    "host-other": "its host does something that no operator records",
}


def reason(part: str, extra_ns: float) -> str:
    """Half a sentence for people: what the late rank does, and how much longer than its peers."""
    what = _REASONS.get(part, f"its device is idle ({part})")
    return f"{what}, {text(extra_ns, Unit.NS)} a step more than its median peer"


def cause_of(part: str) -> Cause:
    """Cause of a part of a step or of idle time; unknown where the trace cannot tell."""
    return _CAUSES.get(part, Cause.UNKNOWN)


def cause_of_lateness(run: Run, part: str) -> Cause:
    """Cause of a rank's lateness: one that launches more slowly than its peers has a slow host."""
    if part == "launch-overhead":
        return Cause.SLOW_HOST
    return cause_of_slowness(run) if part == "same kernels slower" else cause_of(part)


def cause_of_slowness(run: Run) -> Cause:
    """Cause of the same work taking longer: the device, or the host where there is no device."""
    return Cause.SLOW_DEVICE if has_device_events(run) else Cause.SLOW_HOST


def differences_from_peers(run: Run, ranks: tuple[int, ...], members: list[int]) -> pl.DataFrame:
    """The mean step of some ranks (their median) against the median of their peers, in ns a step.

    Args:
        run: the run.
        ranks: the ranks in question.
        members: who they are compared with, themselves among them: another stage of a pipeline has
            other work. Ranks that do not enter the averages are left out.

    Returns:
        `part` (same kernels slower, more or bigger kernels, copies, or a cause of idle time),
        `own_ns`, `peer_ns`, `extra_ns` (own − peer), all Float64; extra first.
    """
    averaged = mean_steps(run)["rank"].unique().to_list()
    chosen = [rank for rank in {*members, *ranks} if rank in averaged]
    parts = _parts_by_rank(run).filter(pl.col("rank").is_in(chosen))
    is_own = pl.col("rank").is_in(list(ranks))
    own_ns, peer_ns = pl.col("dur_ns").filter(is_own), pl.col("dur_ns").filter(~is_own)
    return (
        parts.group_by("part")
        .agg(own_ns=own_ns.median(), peer_ns=peer_ns.median())
        .with_columns(pl.col("own_ns", "peer_ns").fill_null(0.0))
        .with_columns(extra_ns=pl.col("own_ns") - pl.col("peer_ns"))
        .sort("extra_ns", "part", descending=[True, False])
    )


def _parts_by_rank(run: Run) -> pl.DataFrame:
    """`rank`, `part`, `dur_ns` (Float64, a step): every rank has every part that occurs."""
    steps = averages(run).steps
    kernels = differences(run, steps)
    n_steps = max(len(steps), 1)
    copies = mean_steps(run).group_by("rank").agg(dur_ns=pl.col("exposed_copy_ns").sum())
    idle_ns = pl.col("dur_ns") / n_steps
    table = pl.concat(
        [
            kernels.select("rank", part=pl.lit("same kernels slower"), dur_ns="slower_ns"),
            kernels.select("rank", part=pl.lit("more or bigger kernels"), dur_ns="more_ns"),
            copies.select("rank", part=pl.lit("copies"), dur_ns="dur_ns"),
            idle_by_cause(run, by_host_class=True).select("rank", part="cause", dur_ns=idle_ns),
        ]
    )
    return (
        table.select("part")
        .unique()
        .join(pl.DataFrame({"rank": list(run.ranks)}), how="cross")
        .join(table, on=["rank", "part"], how="left", validate="1:1")
        .with_columns(pl.col("dur_ns").fill_null(0.0))
    )


@remembered
def idle_by_cause(run: Run, *, by_host_class: bool = False) -> pl.DataFrame:
    """Idle time of each rank by cause in its averaged steps: `rank`, `cause`, `detail`, `dur_ns`.

    Devices that the averages leave out are left out here. `by_host_class` tells kinds of host work
    apart (`host_class`).

    `detail` is the host call in which the longest idle part of that cause fell. Sorted by rank,
    longest first.
    """
    named = (host_class() if by_host_class else pl.col("cause")).alias("cause")
    steps, devices = averages(run).steps, compared_devices(run)
    return (
        pl.concat(
            [
                idle(run, rank)
                .filter(pl.col("step").is_in(list(steps)) & pl.col("device").is_in(devices[rank]))
                .sort("dur_ns", descending=True)
                .group_by(named, maintain_order=True)
                .agg(pl.col("dur_ns").sum(), pl.col("detail").first())
                .select(pl.lit(rank, dtype=pl.Int64).alias("rank"), "cause", "detail", "dur_ns")
                for rank in run.ranks
            ]
        )
        .sort("rank", "dur_ns", "cause", descending=[False, True, False])
        .collect()
    )
