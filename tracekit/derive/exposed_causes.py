"""What exposed transfer is owed to: faults with a name of their own first, then the bytes.

Each transfer of an averaged step is shared out in this order, each cause taking what is left at
most: gradients that are reduced again in the last micro-batch (`gradient_sync`), reductions that
hold compute back (`held_compute`), starts that a bucket would save (`small_calls`), uneven
exchanges (`uneven_exchanges`), copies or compute beside (`contention`), places slower than their
peers (`peer_transfers`), less bandwidth than nccl-tests reached (`bandwidths`), the tail
(`transfer_tails`). What remains is what the bytes take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.bandwidths import against_baselines
from tracekit.derive.cached import remembered
from tracekit.derive.contention import contended
from tracekit.derive.gradient_sync import repeated_reductions
from tracekit.derive.held_compute import held
from tracekit.derive.peer_transfers import against_peers, of_groups, of_links
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.derive.small_calls import small_calls
from tracekit.derive.transfer_tails import tails
from tracekit.derive.uneven_exchanges import exchanges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.store import Run

BYTES = "bytes"
"""Exposed for no other reason than how much is sent, and when."""
MIN_RATIO = 1.3
"""Places that take less than that much longer than their peers are as fast as they."""
MIN_RATIO_TO_MEASURED = 2.0
"""Collectives of a job reach half of what nccl-tests do, which run alone and warm."""
ALL = 1.0


@remembered
def exposed_causes(run: Run) -> pl.DataFrame:
    """Exposed transfer of averaged steps by cause.

    Returns:
        `rank`, `step`, `group`, `operation`, `cause` (a cause of findings, or `BYTES`),
        `exposed_ns`, and `extra_ns`: what transfers take longer for the cause, hidden or not, which
        holds up those after them; sorted by rank, step, group, operation and cause.
    """
    calls = shown_transfers(run).select(
        *_PLACE,
        "instance",
        whole_ns=pl.col("transfer_ns").fill_null(0).cast(pl.Float64),
        left_ns=pl.col("exposed_transfer_ns").fill_null(0).cast(pl.Float64),
    )
    parts = []
    if calls.height and has_device_events(run):
        for cause, claims in _claims(run):
            if claims.height:
                calls, part = _taken(calls, cause, claims)
                parts.append(part)
    rest = _summed(calls.with_columns(cause=pl.lit(BYTES), extra_ns=pl.lit(0.0)))
    return pl.concat([rest, *parts]).sort(*_PLACE, "cause", nulls_last=True)


_PLACE = ("rank", "step", "group", "operation")


def _taken(
    calls: pl.DataFrame, cause: str, claims: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What is left of the calls when a cause has taken what it claims; and what it took."""
    share = pl.col("claim_share")
    taken = pl.min_horizontal("left_ns", pl.coalesce("claim_ns", pl.col("left_ns") * share, 0.0))
    claimed = calls.join(
        claims.unique(["rank", "instance"]),
        on=["rank", "instance"],
        how="left",
        validate="m:1",
        nulls_equal=False,
    ).with_columns(
        taken_ns=taken, extra_ns=pl.coalesce("claim_ns", pl.col("whole_ns") * share, 0.0)
    )
    left = claimed.select(*_CALL, left_ns=pl.col("left_ns") - pl.col("taken_ns"))
    own = claimed.select(*_PLACE, "extra_ns", left_ns="taken_ns", cause=pl.lit(cause))
    return left, _summed(own)


_CALL = (*_PLACE, "instance", "whole_ns")


def _summed(parts: pl.DataFrame) -> pl.DataFrame:
    return (
        parts.group_by(*_PLACE, "cause")
        .agg(  # whole ns: sums of fractions depend on their order
            exposed_ns=pl.col("left_ns").round().cast(pl.Int64).sum(),
            extra_ns=pl.col("extra_ns").round().cast(pl.Int64).sum(),
        )
        .filter((pl.col("exposed_ns") > 0) | (pl.col("extra_ns") > 0))
    )


def _claims(run: Run) -> Iterator[tuple[str, pl.DataFrame]]:
    """What each cause claims of a call: `rank`, `instance`, and ns or a share of what shows."""
    is_held = pl.col("is_held")
    extra = pl.col("transfer_ns") - pl.col("alone_ns")
    tail = pl.col("transfer_ns") - pl.col("usual_ns")
    uneven = 1 - pl.col("mean_bytes") / pl.col("max_bytes")
    yield "repeated-work", _claim(repeated_reductions(run), share=pl.lit(ALL))
    yield "serialized-streams", _claim(held(run).filter(is_held), share=pl.lit(ALL))
    yield "small-messages", _claim(small_calls(run), ns=pl.col("exposed_gain_ns"))
    yield "data-imbalance", _claim(exchanges(run), share=uneven)
    yield "contention", _claim(_of_members(run, contended(run)), ns=extra)
    yield "slow-group", _claim(_of_members(run, _slow(of_groups(run))), share=_LONGER)
    yield "slow-link", _claim(_of_members(run, _slow(of_links(run))), share=_LONGER)
    yield "topology-setting", _claim(_of_members(run, _below_measured(run)), share=_LONGER)
    yield "network-tail", _claim(_of_members(run, tails(run)), ns=tail)


_LONGER = 1 - pl.col("usual_ns") / pl.col("p50_ns")


def _slow(placed: pl.DataFrame) -> pl.DataFrame:
    return _longer(placed, against_peers(placed), MIN_RATIO)


def _below_measured(run: Run) -> pl.DataFrame:
    known = against_baselines(run).rename({"group": "place"})
    return _longer(of_groups(run), known, MIN_RATIO_TO_MEASURED)


def _longer(placed: pl.DataFrame, known: pl.DataFrame, min_ratio: float) -> pl.DataFrame:
    """Transfers of places that take `min_ratio` times as long as they would usually."""
    same = ("place", "operation", "size_bytes")
    is_slow = pl.col("p50_ns") >= min_ratio * pl.col("usual_ns")
    slow = known.filter(is_slow).select(*same, "p50_ns", "usual_ns")
    return placed.select("instance", *same).join(slow, on=same, validate="m:1")


def _of_members(run: Run, instances: pl.DataFrame) -> pl.DataFrame:
    """The rows of instances, once for each rank that shows some of their transfer."""
    members = shown_transfers(run).select("rank", "instance").drop_nulls().unique()
    return members.join(instances, on="instance", validate="m:1")


def _claim(
    rows: pl.DataFrame, *, ns: pl.Expr | None = None, share: pl.Expr | None = None
) -> pl.DataFrame:
    none = pl.lit(None, dtype=pl.Float64)
    return rows.drop_nulls("instance").select(
        "rank",
        "instance",
        claim_ns=none if ns is None else ns.cast(pl.Float64).clip(lower_bound=0.0),
        claim_share=none if share is None else share.clip(0.0, 1.0),
    )
