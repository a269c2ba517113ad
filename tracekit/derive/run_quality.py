"""Checks of the capture that need all ranks: who is missing, what differs, what did not match."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.waits import waits
from tracekit.store import Check, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

INFO, WARNING = "info", "warning"
N_NAMED = 8
"""Missing ranks that are named before they are only counted."""


def run_checks(run: Run, breakdowns: pl.DataFrame) -> tuple[Check, ...]:
    """What weakens figures of the run as a whole; `breakdowns` are the rows of all ranks."""
    return (*_rank_checks(run), *_step_checks(run, breakdowns), *_matching_checks(run))


def _rank_checks(run: Run) -> Iterator[Check]:
    missing = run.manifest.missing_ranks
    if missing:
        named = ", ".join(map(str, missing[:N_NAMED])) + (" …" if len(missing) > N_NAMED else "")
        yield Check(
            check="missing ranks",
            severity=WARNING,
            count=len(missing),
            detail=f"rank {named} not analysed: whoever it made wait cannot be told",
        )
    if not has_device_events(run):
        yield Check(
            check="no device events",
            severity=INFO,
            count=1,
            detail="the training thread stands for the device: operators are compute, gloo calls "
            "communication",
        )
    captures = run.manifest.captures
    for check, differing, detail in (
        ("profiler options differ", {c.flags for c in captures}, "ranks were slowed differently"),
        (
            "versions differ",
            {tuple(sorted(c.versions.items())) for c in captures},
            "of drivers or libraries between ranks",
        ),
    ):
        if len(differing) > 1:
            yield Check(check=check, severity=WARNING, count=len(differing), detail=detail)


def _step_checks(run: Run, breakdowns: pl.DataFrame) -> Iterator[Check]:
    steps = breakdowns.drop_nulls("step")
    if steps.is_empty():
        return
    if run.n_rows("steps") == 0:
        yield Check(
            check="no step marks",
            severity=INFO,
            count=1,
            detail=f"steps come from: {steps['source'][0]}; prof.step() records them",
        )
    by_rank = steps.group_by("rank").agg(pl.col("step").unique().sort())
    if by_rank["step"].n_unique() > 1:
        yield Check(
            check="step sets differ",
            severity=INFO,
            count=by_rank.height,
            detail="ranks recorded different steps; those that all have are compared",
        )


def _matching_checks(run: Run) -> Iterator[Check]:
    unmatched = waits(run).filter(pl.col("instance").is_null()).select(pl.len()).collect().item()
    if unmatched:
        yield Check(
            check="collectives not matched",
            severity=INFO,
            count=unmatched,
            detail="no partner on another rank: they are not split into waiting and transfer",
        )
