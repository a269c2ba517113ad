"""Transfers that take longer while copies or compute run beside them than alone.

Of an instance counts the member with most beside it: one that is slow holds all up. Beside means
during the transfer, the end of the call; what runs while a member waits takes nothing from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import COMPUTE, COPY, activity, device_of_call
from tracekit.derive.cached import remembered
from tracekit.derive.intervals import covered_ns
from tracekit.derive.traffic import comparable
from tracekit.derive.waits import waits_of

if TYPE_CHECKING:
    from tracekit.store import Run

BESIDE_SHARE, ALONE_SHARE = 0.5, 0.1
"""A transfer runs beside something for half of it or more, alone with at most a tenth of it."""
MIN_CALLS = 4
"""Of fewer, the median is that of one or two unlucky calls."""
MIN_RATIO = 1.3
"""Compute beside a transfer takes up to a fifth of its speed on healthy devices."""
_SAME = ("group", "operation", "size_bytes", "sender", "receiver")


@remembered
def contended(run: Run) -> pl.DataFrame:
    """Instances that ran beside copies or compute, where such ones take longer than alone.

    Copies are asked first: what runs beside both is theirs.

    Returns:
        `instance`, `group`, `operation`, `size_bytes`, `beside` ("copies" or "compute"),
        `transfer_ns`, `beside_ns` and `alone_ns` (medians of both kinds), `n_alone`; by instance.
    """
    transfer = pl.col("transfer_ns")
    beside = pl.col("beside")
    alone = beside == "nothing"
    kind = pl.when(~alone).then(beside)
    return (
        comparable(run)
        .filter(pl.col("size_bytes") > 0)
        .collect()
        .join(_beside(run), on="instance", validate="1:1")
        .drop_nulls("beside")
        .with_columns(
            alone_ns=transfer.filter(alone).median().over(_SAME),
            n_alone=alone.sum().over(_SAME),
            beside_ns=transfer.median().over(*_SAME, kind),
            n_beside=pl.len().over(*_SAME, kind),
        )
        .filter(
            ~alone
            & (pl.min_horizontal("n_alone", "n_beside") >= MIN_CALLS)
            & (pl.col("beside_ns") >= MIN_RATIO * pl.col("alone_ns"))
        )
        .select(
            "instance",
            "group",
            "operation",
            "size_bytes",
            "beside",
            "transfer_ns",
            "beside_ns",
            "alone_ns",
            "n_alone",
        )
        .sort("instance")
    )


def _beside(run: Run) -> pl.DataFrame:
    """What each instance ran beside: "copies", "compute", "nothing", or null where little of it."""
    share = {name: pl.col(f"{name}_share") for name in (COPY, COMPUTE)}
    shares = pl.concat([_shares(run, rank) for rank in run.ranks])
    return (
        shares.group_by("instance")
        .agg(part.max() for part in share.values())
        .select(
            "instance",
            beside=pl.when(share[COPY] >= BESIDE_SHARE)
            .then(pl.lit("copies"))
            .when(share[COMPUTE] >= BESIDE_SHARE)
            .then(pl.lit("compute"))
            .when(pl.max_horizontal(*share.values()) <= ALONE_SHARE)
            .then(pl.lit("nothing")),
        )
    )


def _shares(run: Run, rank: int) -> pl.DataFrame:
    """What copies and compute cover of the transfer in each matched call of a rank."""
    end_ns = pl.col("start_ns") + pl.col("dur_ns")
    own = comparable(run).select("instance", own_ns="transfer_ns")
    parts = (
        waits_of(run, rank)
        .drop_nulls("instance")
        .join(own, on="instance", validate="m:1")
        .select(
            "instance",
            device=device_of_call(run),
            start_ns=end_ns - pl.min_horizontal("dur_ns", "own_ns"),
            end_ns=end_ns,
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .collect()
    )
    events = activity(run, rank).select("device", "class", "start_ns", "end_ns").collect()
    length = parts["end_ns"] - parts["start_ns"]
    return parts.select("instance").with_columns(
        (covered_ns(parts, events.filter(pl.col("class") == name), "device") / length).alias(
            f"{name}_share"
        )
        for name in (COPY, COMPUTE)
    )
