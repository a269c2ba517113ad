"""What detectors on NCCL's log share: what it shows set and said, and how a finding is put."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.links import links, said, variables
from tracekit.detectors import finding
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Recommendation,
    Status,
)
from tracekit.units import Quantity, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.detectors import Detector
    from tracekit.store import Run

HOW = (
    "Run the job with NCCL_DEBUG=INFO and give its output, or the files of NCCL_DEBUG_FILE, beside "
    "the traces."
)
MAX_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is set badly: what was measured, why it is so, and what to do.

    `place` is where its connections are, `culprits` are the variables that the log shows set so
    ("NCCL_IB_DISABLE=1").
    """

    subject: str
    place: str
    title: str
    measured: Quantity
    confidence: Confidence
    ranks: tuple[int, ...]
    why: str
    culprits: tuple[str, ...]
    check: str
    commands: tuple[str, ...]

    @property
    def named(self) -> str:
        """The variables, for people; empty where none is set."""
        return " and ".join(self.culprits)

    @property
    def because(self) -> str:
        """Why it is so, with the variables."""
        if not self.culprits:
            return self.why
        return f"{self.why}; {self.named} {'is' if len(self.culprits) == 1 else 'are'} set"


def set_badly(run: Run, limiting: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that the log shows set to a value that limits ("NCCL_IB_DISABLE=1").

    Args:
        run: The run.
        limiting: By name of the variable a pattern of the values that limit.
    """
    known = variables(run)
    return tuple(
        f"{name}={known[name]}"
        for name, pattern in limiting.items()
        if name in known and re.fullmatch(pattern, known[name])
    )


def found(
    detector: Detector,
    run: Run,
    problem: Problem,
    limit: Quantity,
    evidence: tuple[Evidence, ...] = (),
) -> Finding:
    """A finding without a saving, which the log cannot tell; a variable is named only if set."""
    unset = tuple(f"unset {each.partition('=')[0]}" for each in problem.culprits)
    named = problem.named
    advice = f"The log shows {named}: take it away. " if named else ""
    return finding(
        detector,
        Status.FOUND,
        subject=problem.subject,
        title=problem.title,
        cause=Cause.TOPOLOGY_SETTING,
        ranks=problem.ranks,
        measured=problem.measured,
        limit=limit,
        confidence=problem.confidence,
        why=problem.because,
        recommendation=Recommendation(
            f"{advice}{problem.check}", Change.SETTING, (*unset, *problem.commands)
        ),
        evidence=(*evidence, ways(run), *said_of(run)),
    )


def ways(run: Run) -> Evidence:
    """Connections by place and way."""
    rows = (
        links(run)
        .group_by("place", "way", "network")
        .agg(pl.col("n_connections").sum(), n_ranks=pl.col("ranks").explode().n_unique())
        .sort("place", "n_connections", "way", descending=[False, True, False])
    )
    return Evidence(
        title="By what the ranks talk",
        columns=(
            Column("place"),
            Column("way"),
            Column("network"),
            Column("connections", Unit.COUNT),
            Column("ranks", Unit.COUNT),
        ),
        rows=tuple(rows.head(MAX_SHOWN).iter_rows()),
    )


def said_of(run: Run) -> tuple[Evidence, ...]:
    """What the log says of networks and peers, and its warnings, where it says anything."""
    rows = said(run).filter(pl.col("name") != "Bootstrap").head(MAX_SHOWN)
    if rows.is_empty():
        return ()
    return (
        Evidence(
            title="What NCCL says",
            columns=(Column("of"), Column("name"), Column("text"), Column("ranks", Unit.COUNT)),
            rows=tuple(rows.iter_rows()),
        ),
    )
