"""How far the members of each group got, from dumps of flight recorders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.hangs import hang, progress, records, wrapped
from tracekit.standstill import GroupProgress, Standstill

if TYPE_CHECKING:
    from tracekit.derive.hangs import Blocked
    from tracekit.store import Run

MAX_GROUPS = 64


def standstill(run: Run) -> Standstill | None:
    """Where the job stands; None of a run without dumps."""
    if run.n_rows("flight_groups") == 0:
        return None
    found = hang(run)
    in_call: dict[str, Blocked] = {}
    for each in (*found.blocked, *found.joined):
        in_call.setdefault(each.group, each)
    rows = _by_group(run)
    return Standstill(
        groups=tuple(
            _progress(row, in_call.get(row["label"]))
            for row in rows.head(MAX_GROUPS).iter_rows(named=True)
        ),
        n_groups=rows.height,
        wrapped=wrapped(run),
    )


def _by_group(run: Run) -> pl.DataFrame:
    latest = (
        records(run)
        .filter(~pl.col("is_message"))
        .group_by("label", "rank")
        .agg(pl.col("created_ns").max())
    )
    called, created = pl.col("enqueued").fill_null(0), pl.col("created_ns")
    is_last = called == called.min()
    return (  # a member that has a dump and called nothing yet is behind those that did
        progress(run)
        .join(latest, on=["label", "rank"], how="left", validate="1:1")
        .sort("label", "rank")
        .group_by("label", maintain_order=True)
        .agg(
            pl.col("description").drop_nulls().first(),
            n_members=pl.col("members").drop_nulls().first().list.len(),
            n_dumps=pl.len(),
            last_called=pl.col("enqueued").max(),
            last_ended=pl.col("completed").max(),
            calls_behind=called.max() - called.min(),
            is_known=pl.col("enqueued").is_not_null().all(),
            behind=pl.col("rank").filter(is_last & (called < called.max())),
            behind_ns=created.max() - created.filter(is_last).max(),
        )
        .filter((pl.col("last_called") > 0) & (pl.col("n_members").fill_null(2) > 1))
        .sort("calls_behind", "label", descending=[True, False])
    )


def _progress(row: dict[str, Any], call: Blocked | None) -> GroupProgress:
    named = None
    if call is not None:
        named = f"{call.operation} {'' if call.sequence is None else call.sequence}".strip()
    return GroupProgress(
        group=row["label"],
        description=row["description"],
        n_members=row["n_members"],
        n_dumps=row["n_dumps"],
        last_called=row["last_called"],
        last_ended=row["last_ended"],
        behind=tuple(row["behind"]),
        calls_behind=row["calls_behind"] if row["is_known"] else None,
        behind_ns=row["behind_ns"] if row["behind"] else None,
        in_call=named,
        n_waiting=len(call.ranks) if call is not None else 0,
    )
