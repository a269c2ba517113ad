"""How far each rank got in each communicator by the counts of NCCL's RAS, and who waits for whom.

Ranks of a communicator call the same operations, so that who counts fewer is behind. A rank that
has made a call which another has not waits in it, sooner or later: it is behind elsewhere because
it waits, and not at fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.cached import remembered

if TYPE_CHECKING:
    from tracekit.store import Run

IN_PROGRESS = 7
"""ncclInProgress: no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Ranks at fault by what the last answer shows, and how far all have come.

    `behind` are behind others and wait for nobody; `stuck` are those of them that made no call
    since the answer before, while others are ahead; `silent` did not answer; `failed` have an error
    or were aborted. `reached` has a row a communicator and rank: `communicator`, `n_members`,
    `rank`, `n_calls` (null: silent), `most_calls`, `is_silent`, `is_dead`.
    """

    behind: tuple[int, ...]
    stuck: tuple[int, ...]
    silent: tuple[int, ...]
    failed: tuple[int, ...]
    n_answers: int
    reached: pl.DataFrame


@remembered
def call_progress(run: Run) -> Progress:
    """What the answers of RAS in a run show; empty where there is none."""
    every = _by_member(run)
    last = every.filter(pl.col("snapshot") == pl.col("snapshot").max())
    reached = last.with_columns(most_calls=pl.col("n_calls").max().over("communicator"))
    is_behind = pl.col("n_calls") < pl.col("most_calls")
    has_laggard = is_behind.any().over("communicator") | pl.col("is_silent").any().over(
        "communicator"
    )
    waits = _ranks(reached.filter(~is_behind & has_laggard))
    behind = tuple(sorted(_ranks(reached.filter(is_behind)) - waits))
    before = every.filter(pl.col("snapshot") == pl.col("snapshot").max() - 1)
    moved = last.join(before, on=["communicator", "rank"], how="inner", suffix="_before").filter(
        pl.col("n_calls") > pl.col("n_calls_before")
    )
    n_answers = every["snapshot"].n_unique()
    is_error = ~pl.col("error").is_in([0, IN_PROGRESS]) | pl.col("is_aborted")
    return Progress(
        behind=behind,
        stuck=tuple(rank for rank in behind if n_answers > 1 and rank not in _ranks(moved)),
        silent=tuple(sorted(_ranks(last.filter("is_silent")))),
        failed=tuple(sorted(_ranks(last.filter(is_error)))),
        n_answers=n_answers,
        reached=reached.sort("communicator", "rank"),
    )


def _by_member(run: Run) -> pl.DataFrame:
    """All operations of a member together, by answer, communicator and rank."""
    return (
        run.scan_all("communicator_counts")
        .group_by("snapshot", "communicator", "rank")
        .agg(
            pl.col("n_members", "error").max(),
            pl.col("is_silent", "is_dead", "is_aborted").any(),
            n_calls=pl.when(pl.col("n_calls").count() > 0).then(pl.col("n_calls").sum()),
        )
        .collect()
    )


def _ranks(rows: pl.DataFrame) -> set[int]:
    return set(rows["rank"].to_list())
