"""The cause of a rank's lateness, from the parts that sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.causes import (
    HOTTER_EXPERTS,
    LONGER_SEQUENCES,
    MORE,
    OTHER_MODEL,
    SLOWER,
    cause_of_lateness,
    reason,
)
from tracekit.derive.gpu_models import models
from tracekit.derive.work_classes import ATTENTION, EXPERTS, LINEAR
from tracekit.findings import Cause

if TYPE_CHECKING:
    from tracekit.derive.why_late import WhyLate
    from tracekit.store import Run

MIN_EXPLAINED_SHARE = 0.25
"""A part that explains less than this of the lateness is not its cause."""
MIN_CLASS_SHARE = 0.7
"""One class of work holds this much of the extra compute: the rest is what goes with it."""
MIN_UNEVEN, MAX_EVEN_SHARE = 0.05, 0.25
"""Attention is longer by at least this share, and matrix products by at most a quarter of that."""


def explained(run: Run, why: WhyLate) -> tuple[Cause, str]:
    """The cause, and half a sentence: the largest part, where it explains enough."""
    if why.parts.is_empty() or why.parts["extra_ns"][0] < MIN_EXPLAINED_SHARE * why.late_ns:
        return Cause.UNKNOWN, "no part of its step is long enough to explain the lateness"
    part, extra_ns = str(why.parts["part"][0]), float(why.parts["extra_ns"][0])
    if part in (SLOWER, MORE):
        part = _in_full(run, why, part)
    return cause_of_lateness(run, part), reason(part, extra_ns)


def _in_full(run: Run, why: WhyLate, part: str) -> str:
    """Which work takes longer, where it is one class of it; whose GPU it is, where all do."""
    extra_ns = {row["class"]: row["own_ns"] - row["peer_ns"] for row in why.kinds.to_dicts()}
    longer = _longer(why.kinds)
    total_ns = sum(extra_ns.values())
    if total_ns > 0 and extra_ns.get(EXPERTS, 0.0) >= MIN_CLASS_SHARE * total_ns:
        return HOTTER_EXPERTS
    attention, linear = longer.get(ATTENTION, 0.0), longer.get(LINEAR, 0.0)
    is_uneven = attention >= MIN_UNEVEN and linear <= MAX_EVEN_SHARE * attention
    if is_uneven and extra_ns[ATTENTION] >= MIN_CLASS_SHARE * total_ns:
        return LONGER_SEQUENCES
    return OTHER_MODEL if part == SLOWER and _differs(run, why) else part


def _longer(kinds: pl.DataFrame) -> dict[str, float]:
    """How much longer each class of work took than the peer's, as a share of that."""
    both = kinds.filter(pl.col("peer_ns") > 0)
    return dict(both.select("class", pl.col("own_ns") / pl.col("peer_ns") - 1).iter_rows())


def _differs(run: Run, why: WhyLate) -> bool:
    """Whether the late ranks' GPUs are of another model than all of their peers'."""
    known = models(run)
    own = {known.get(rank) for rank in why.ranks}
    peers = {known.get(rank) for rank in why.peers}
    return None not in own | peers and not own & peers
