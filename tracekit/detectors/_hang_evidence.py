"""Evidence of a job that stands still: how far each rank got, what waits, and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.hangs import Blocked, Hang, progress, records, threads
from tracekit.detectors import rank_list
from tracekit.findings import Column, Evidence
from tracekit.units import Unit

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_ROWS, MAX_FRAMES = 32, 12


def behind(run: Run, found: Hang) -> Evidence:
    """How far ranks at fault got in their groups, and how far the others did."""
    reached = progress(run)
    latest = (
        records(run).filter(~pl.col("is_message")).group_by("label", "rank")
        .agg(pl.col("created_ns").max())
    )  # fmt: skip
    furthest = pl.col("enqueued").max().over("label"), pl.col("completed").max().over("label")
    rows = (
        reached.join(latest, on=["label", "rank"], how="left")
        .with_columns(
            furthest[0].alias("most_enqueued"),
            furthest[1].alias("most_completed"),
            behind_ns=pl.col("created_ns").max().over("label") - pl.col("created_ns"),
        )
        .filter(
            pl.col("rank").is_in(list(found.faults))
            & pl.col("label").is_in([each.group for each in found.blocked])
        )
        .sort("rank", "label")
        .head(MAX_ROWS)
    )
    return Evidence(
        title="How far the ranks at fault got",
        columns=(
            Column("rank"),
            Column("fault"),
            Column("group"),
            Column("last called"),
            Column("others"),
            Column("last ended"),
            Column("others ended"),
            Column("behind", Unit.NS),
        ),
        rows=tuple(
            (
                row["rank"],
                found.faults[row["rank"]].value,
                f"{row['description'] or ''} {row['label']}".strip(),
                row["enqueued"],
                row["most_enqueued"],
                row["completed"],
                row["most_completed"],
                row["behind_ns"],
            )
            for row in rows.iter_rows(named=True)
        ),
    )


def waiting(calls: tuple[Blocked, ...]) -> Evidence:
    """Which ranks wait in which call, and for whom."""
    return Evidence(
        title="Calls that wait, the first one first",
        columns=(
            Column("group"),
            Column("operation"),
            Column("number"),
            Column("ranks that wait"),
            Column("for ranks"),
        ),
        rows=tuple(
            (
                each.group,
                each.operation,
                each.sequence,
                rank_list(list(each.ranks)),
                rank_list(list(each.missing)) or None,
            )
            for each in calls[:MAX_ROWS]
        ),
    )


def stacks(run: Run, ranks: tuple[int, ...]) -> tuple[Evidence, ...]:
    """Where the ranks at fault were, and where they made their last call, if stacks were kept."""
    is_at_fault = pl.col("rank").is_in(list(ranks))
    now = threads(run).filter(is_at_fault).select("rank", name=pl.lit("now"), stack="stack")
    last = (
        records(run)
        .filter(is_at_fault & pl.col("stack").is_not_null())
        .group_by("rank", maintain_order=True)
        .last()
        .select("rank", name="last call: " + pl.col("name"), stack="stack")
    )
    found = pl.concat([now, last]).sort("rank", maintain_order=True).head(MAX_ROWS)
    if found.is_empty():
        return ()
    return (
        Evidence(
            title="Where the ranks at fault are",
            columns=(Column("rank"), Column("when"), Column("stack, innermost first")),
            rows=tuple(
                (rank, name, "\n".join(stack.split("\n")[:MAX_FRAMES]))
                for rank, name, stack in found.iter_rows()
            ),
        ),
    )
