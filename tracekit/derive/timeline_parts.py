"""What lay in stretches of the timelines of late ranks and of their peers, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity
from tracekit.derive.causes import COMMUNICATION, COPIES, LONGER_SAMPLES, MORE, SLOWER
from tracekit.derive.host_kinds import host_class
from tracekit.derive.idle import idle
from tracekit.derive.intervals import covered_ns
from tracekit.derive.kernel_kinds import COMMUNICATION as COMMUNICATING
from tracekit.derive.samples import squared_lengths
from tracekit.derive.work_classes import work_class

if TYPE_CHECKING:
    from tracekit.store import Run

UNNAMED = "idle, no cause recorded"
_SAME = ["name", "work"]


def length(prefix: str) -> pl.Expr:
    """Length of the stretch with this prefix: "" for a late rank's, "peer_" for its peer's."""
    return pl.col(f"{prefix}end_ns") - pl.col(f"{prefix}start_ns")


def cut(run: Run, intervals: pl.DataFrame) -> pl.DataFrame:
    """What lay in the intervals of some ranks: `part`, `dur_ns`; the parts fill them exactly."""
    rows = [
        _cut_rank(run, int(rank), own)
        for (rank,), own in intervals.partition_by("rank", as_dict=True).items()
    ]
    return pl.concat(rows).group_by("part").agg(pl.col("dur_ns").sum()).sort("part")


def _cut_rank(run: Run, rank: int, intervals: pl.DataFrame) -> pl.DataFrame:
    events = activity(run, rank).collect()
    is_compute = pl.col("class") == COMPUTE
    is_busy = is_compute | (pl.col("class") == COMMUNICATING)
    compute, busy, everything = (
        int(covered_ns(intervals, chosen, "device").sum())
        for chosen in (events.filter(is_compute), events.filter(is_busy), events)
    )
    causes = (
        idle(run, rank)
        .with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"), part=host_class())
        .select("part", "device", "start_ns", "end_ns")
        .collect()
    )
    parts = {
        "compute": compute,
        COMMUNICATION: busy - compute,
        COPIES: everything - busy,
    }
    for (part,), rows in causes.partition_by("part", as_dict=True).items():
        parts[str(part)] = int(covered_ns(intervals, rows, "device").sum())
    whole = int(intervals.select(length("").sum()).item())
    parts[UNNAMED] = whole - sum(parts.values())
    return pl.DataFrame(
        {"part": list(parts), "dur_ns": list(parts.values())},
        schema={"part": pl.String, "dur_ns": pl.Int64},
    )


def kernels_of(run: Run, pairs: pl.DataFrame) -> pl.DataFrame:
    """Compute of late ranks and of their peers by kernel: `is_own`, name, work, class, n, sum."""
    both = pl.concat(
        [
            pairs.select("rank", "device", "start_ns", "end_ns", is_own=pl.lit(value=True)),
            pairs.select(
                rank="peer",
                device="peer_device",
                start_ns="peer_start_ns",
                end_ns="peer_end_ns",
                is_own=pl.lit(value=False),
            ),
        ]
    )
    rows = []
    for (rank, is_own), own in both.partition_by("rank", "is_own", as_dict=True).items():
        inside = own.select("device", opens_ns="start_ns", closes_ns="end_ns").sort("opens_ns")
        rows.append(
            activity(run, int(rank))
            .filter(pl.col("class") == COMPUTE)
            .sort("start_ns")
            .join_asof(
                inside.lazy(),
                left_on="start_ns",
                right_on="opens_ns",
                by="device",
                strategy="backward",
                check_sortedness=False,
            )
            .filter(pl.col("start_ns") < pl.col("closes_ns"))
            .select(
                *_SAME,
                dur_ns=pl.col("end_ns") - pl.col("start_ns"),
                is_own=pl.lit(is_own),
                **{"class": work_class()},
            )
        )
    return (
        pl.concat(rows)
        .group_by("is_own", "class", *_SAME)
        .agg(n=pl.len().cast(pl.Int64), sum_ns=pl.col("dur_ns").sum())
        .sort("is_own", "class", *_SAME, nulls_last=True)
        .collect()
    )


def with_kernels(own: pl.DataFrame, peer: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Parts of both, with compute as kernels that are slower and kernels that are more.

    The same kernels are slower by as much as they take longer on average, as often as both ran
    them; all else is more of them.
    """
    parts = own.join(peer, on="part", how="full", coalesce=True, suffix="_peer").select(
        "part",
        own_ns=pl.col("dur_ns").fill_null(0).cast(pl.Float64),
        peer_ns=pl.col("dur_ns_peer").fill_null(0).cast(pl.Float64),
    )
    compute = parts.filter(part="compute")
    mine, theirs = kernels.filter("is_own"), kernels.filter(~pl.col("is_own"))
    both = mine.join(theirs, on=["class", *_SAME], nulls_equal=True, suffix="_peer")
    longer_ns = pl.col("sum_ns") / pl.col("n") - pl.col("sum_ns_peer") / pl.col("n_peer")
    slower_ns = float(both.select((pl.min_horizontal("n", "n_peer") * longer_ns).sum()).item())
    more_ns = float((compute["own_ns"] - compute["peer_ns"]).sum()) - slower_ns
    split = pl.DataFrame(
        [(SLOWER, slower_ns, 0.0), (MORE, more_ns, 0.0)],
        schema=parts.schema,
        orient="row",
    )
    return pl.concat([parts.filter(pl.col("part") != "compute"), split])


def with_longer_samples(
    parts: pl.DataFrame, kernels: pl.DataFrame, run: Run, pairs: pl.DataFrame
) -> pl.DataFrame:
    """Take what longer samples explain out of slower and more kernels, if the loop told."""
    told = squared_lengths(run)
    both = pairs.join(told, on=["rank", "step"], validate="m:1").join(
        told.rename({"rank": "peer", "told": "peer_told"}), on=["peer", "step"], validate="m:1"
    )
    peer_told = float(both["peer_told"].sum())
    if both.height < pairs.height or peer_told <= 0:
        return parts
    usual_ns = float(kernels.filter(~pl.col("is_own"))["sum_ns"].sum())
    left_ns = max(float(both["told"].sum()) / peer_told - 1, 0.0) * usual_ns
    moved = {}
    for part in (SLOWER, MORE):
        extra_ns = float(parts.filter(part=part)["own_ns"].sum())
        moved[part] = min(max(extra_ns, 0.0), left_ns)
        left_ns -= moved[part]
    moved[LONGER_SAMPLES] = -sum(moved.values())
    row = pl.DataFrame([(LONGER_SAMPLES, 0.0, 0.0)], schema=parts.schema, orient="row")
    change_ns = pl.col("part").replace_strict(moved, default=0.0, return_dtype=pl.Float64)
    return pl.concat([parts, row]).with_columns(own_ns=pl.col("own_ns") - change_ns)


def by_class(kernels: pl.DataFrame) -> pl.DataFrame:
    """Sum of the durations of both by class of work: `class`, `own_ns`, `peer_ns`."""
    is_own, sum_ns = pl.col("is_own"), pl.col("sum_ns").cast(pl.Float64)
    return (
        kernels.group_by("class")
        .agg(own_ns=sum_ns.filter(is_own).sum(), peer_ns=sum_ns.filter(~is_own).sum())
        .sort("class")
    )
