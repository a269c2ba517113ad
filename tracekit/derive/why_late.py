"""Why a rank was late: from the last point at which it met its group to its late arrival.

That point is the end of a collective of the group under which none of the late rank's compute ran:
it resumed there, together with the others. Without one, it is where each entered the group's first
collective of the step before, the same place in the program of all (what it was late there by is
carried on); else the start of the step. From there both the late rank's device and that of the
median peer are cut into compute, communication, copies and idle time by cause. The differences,
and the lateness that was there at the start, sum to the lateness. Of late arrivals between two such
points only the latest counts: one delay shows in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, activity, device_of_call
from tracekit.derive.causes import (
    CARRIED,
    COMMUNICATION,
    INHERITED,
)
from tracekit.derive.intervals import covered_ns
from tracekit.derive.steps import spans
from tracekit.derive.timeline_parts import (
    by_class,
    cut,
    kernels_of,
    length,
    with_kernels,
    with_longer_samples,
)

if TYPE_CHECKING:
    from tracekit.store import Run

AT_ONCE_NS = 5_000
"""What is launched right behind a collective may start so long before it."""


@dataclass(frozen=True, slots=True)
class WhyLate:
    """What a late rank did instead, in ns a step; `late_ns` is how much later than that peer.

    `parts` has `part`, `own_ns`, `peer_ns`, `extra_ns` (own − peer), Float64, the largest extra
    first; the extras sum to `late_ns`. `kinds` compares the compute among them by class of work
    (`class`, `own_ns`, `peer_ns`). `ranks` were late, `peers` median.
    """

    late_ns: float
    parts: pl.DataFrame
    kinds: pl.DataFrame
    ranks: tuple[int, ...]
    peers: tuple[int, ...]


def why_late(run: Run, late: pl.DataFrame, calls: pl.DataFrame, n_steps: int) -> WhyLate:
    """Cut the time before late arrivals into parts.

    Args:
        run: the run.
        late: late arrivals in one group (rows of `LATENESS`). Ranks late together count once, by
            the latest, and are nobody's peers there.
        calls: all calls of that group (rows of `WAITS`).
        n_steps: how many steps the arrivals are from.
    """
    latest = late.sort("late_ns", "rank", descending=[True, False]).unique(
        "instance", keep="first", maintain_order=True
    )
    pairs = pl.concat(
        [
            _compared(run, int(rank), rows, calls, late.select("instance", "rank"))
            for (rank,), rows in latest.partition_by("rank", as_dict=True).items()
        ]
    )
    own = cut(run, pairs.select("number", "rank", "device", "start_ns", "end_ns"))
    peer = cut(
        run,
        pairs.select(
            "number",
            rank="peer",
            device="peer_device",
            start_ns="peer_start_ns",
            end_ns="peer_end_ns",
        ),
    )
    start_ns = pl.col("late_ns") - (length("") - length("peer_"))
    handed_on = pairs.select(
        carried_ns=start_ns.filter("is_carried").sum(),
        inherited_ns=start_ns.filter(~pl.col("is_carried")).sum(),
    )
    kernels = kernels_of(run, pairs)
    parts = with_kernels(own, peer, kernels)
    at_start = pl.DataFrame(
        [
            (INHERITED, float(handed_on["inherited_ns"][0] or 0), 0.0),
            (CARRIED, float(handed_on["carried_ns"][0] or 0), 0.0),
        ],
        schema=parts.schema,
        orient="row",
    )
    parts = pl.concat([parts, at_start])
    parts = with_longer_samples(parts, kernels, run, pairs)
    per_step = 1 / max(n_steps, 1)
    figures = [pl.col("own_ns") * per_step, pl.col("peer_ns") * per_step]
    return WhyLate(
        late_ns=float(pairs["late_ns"].sum()) * per_step,
        parts=parts.with_columns(figures)
        .with_columns(extra_ns=pl.col("own_ns") - pl.col("peer_ns"))
        .sort("extra_ns", "part", descending=[True, False]),
        kinds=by_class(kernels).with_columns(figures),
        ranks=tuple(pairs["rank"].unique().sort()),
        peers=tuple(pairs["peer"].unique().sort()),
    )


def was_held_up(why: WhyLate, max_share: float) -> bool:
    """Whether more than a share of the lateness was there at the start, or is communication.

    Where that is more than any part in which the rank does what its peers do not, somebody else
    kept it waiting.
    """
    extra_ns, is_handed_on = pl.col("extra_ns"), pl.col("part").is_in([COMMUNICATION, INHERITED])
    sums = why.parts.select(
        handed_on=extra_ns.filter(is_handed_on).sum(),
        own=extra_ns.filter(~is_handed_on).max(),
    )
    handed_on_ns = float(sums["handed_on"][0])
    return handed_on_ns > max(max_share * why.late_ns, float(sums["own"][0] or 0.0))


def _compared(
    run: Run, rank: int, late: pl.DataFrame, calls: pl.DataFrame, at_fault: pl.DataFrame
) -> pl.DataFrame:
    """Spans of one late rank and of its median peer before the latest of its arrivals.

    Returns:
        `number` (the instance), `late_ns` (later than that peer), and for each of the two its rank,
        device, start and end.
    """
    arrivals = _latest(run, rank, late, calls)
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    met = calls.select(sync="instance", rank="rank", met_ns=end_ns)
    entered = calls.select(
        before="instance", rank="rank", entered_before_ns=pl.col("start_ns") - AT_ONCE_NS
    )
    steps = _opened(run, calls["rank"].unique().to_list())
    members = (
        arrivals.select("instance", "sync", "before", "step")
        .join(
            calls.select("instance", "rank", "device", "dur_ns", end_ns="start_ns"), on="instance"
        )
        .join(met, on=["sync", "rank"], how="left", validate="m:1")
        .join(entered, on=["before", "rank"], how="left", validate="m:1")
        .join(steps, on=["rank", "step"], how="left", validate="m:1")
        .with_columns(
            start_ns=pl.coalesce("met_ns", "entered_before_ns", "opens_ns"),
            device=device_of_call(run),
        )
        .filter(pl.col("start_ns") <= pl.col("end_ns"))
    )
    position = pl.int_range(pl.len()).over("instance")
    peers = (
        members.join(at_fault, on=["instance", "rank"], how="anti")
        .with_columns(took_ns=length(""))
        .sort("instance", "took_ns", "rank")
        .filter(position == (pl.len().over("instance") - 1) // 2)
    )
    place = ["device", "start_ns", "end_ns"]
    return (
        members.filter(rank=rank)
        .join(
            peers.select(
                "instance",
                peer="rank",
                peer_dur_ns="dur_ns",
                **{f"peer_{name}": name for name in place},
            ),
            on="instance",
            validate="1:1",
        )
        # Both leave together: who is inside for less time came later by as much.
        .with_columns(late_ns=pl.col("peer_dur_ns") - pl.col("dur_ns"))
        .select(
            "rank",
            "late_ns",
            "step",
            *place,
            "peer",
            *(f"peer_{name}" for name in place),
            is_carried=pl.col("met_ns").is_null() & pl.col("entered_before_ns").is_not_null(),
            number="instance",
        )
        .sort("number")
    )


def _latest(run: Run, rank: int, late: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Late arrivals with `sync`, the call where the rank last met its group: the latest of each.

    A meeting longer ago than the step before is none; then `before` is the group's first call of
    the step before, in which the rank was late or not.
    """
    own = calls.filter(rank=rank).with_columns(
        device=device_of_call(run), ends_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    compute = activity(run, rank).filter(pl.col("class") == COMPUTE).collect()
    at_end = own.select("device", start_ns=pl.col("ends_ns") - 1, end_ns="ends_ns")
    is_sync = covered_ns(at_end, compute, "device") == 0
    steps = _opened(run, [rank]).with_columns(
        earliest_ns=pl.col("opens_ns").shift(1).fill_null(pl.col("opens_ns"))
    )
    steps = _with_call_before(steps, own)
    return (
        own.with_columns(is_sync=is_sync)
        .sort("start_ns")
        .with_columns(
            sync=pl.when("is_sync").then("instance").shift(1).forward_fill(),
            met_ns=pl.when("is_sync").then("ends_ns").shift(1).forward_fill(),
        )
        .select("instance", "sync", "met_ns")
        .join(late.select("instance", "step", "late_ns"), on="instance", validate="1:1")
        .join(steps, on="step", how="left", validate="m:1")
        .with_columns(
            sync=pl.when(pl.col("met_ns") >= pl.col("earliest_ns").fill_null(0)).then("sync")
        )
        .sort("late_ns", "instance", descending=[True, False])
        .unique(["step", "sync"], keep="first", maintain_order=True)
    )


def _with_call_before(steps: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """`step`, `earliest_ns` and `before`, the first call of the step before, by step.

    Later ones may queue behind it, while compute runs on: the first is where the program is.
    """
    return (
        steps.sort("earliest_ns")
        .join_asof(
            own.select(before="instance", began_ns="start_ns").sort("began_ns"),
            left_on="earliest_ns",
            right_on="began_ns",
            strategy="forward",
        )
        .select(
            "step",
            "earliest_ns",
            before=pl.when(pl.col("began_ns") < pl.col("opens_ns")).then("before"),
        )
    )


def _opened(run: Run, ranks: list[int]) -> pl.DataFrame:
    """`rank`, `step`, `opens_ns`, by both."""
    return pl.concat(
        [
            spans(run, rank).select(pl.lit(rank, dtype=pl.Int64).alias("rank"), "step", "opens_ns")
            for rank in sorted(ranks)
        ]
    ).collect()
