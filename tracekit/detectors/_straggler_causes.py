"""The cause of a rank's lateness, from the parts that sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import averages
from tracekit.derive.causes import (
    CARRIED,
    HELD_BACK,
    HOTTER_EXPERTS,
    LONGER_SEQUENCES,
    MORE,
    MORE_IMAGES,
    OTHER_MODEL,
    SLOWER,
    cause_of_lateness,
    reason,
)
from tracekit.derive.device_clocks import is_held_back
from tracekit.derive.encoder_work import encoder_extra_ns
from tracekit.derive.expert_work import expert_extra_ns
from tracekit.derive.gpu_models import models
from tracekit.derive.kernel_totals import more_work_ns
from tracekit.derive.work_classes import ATTENTION, EXPERTS, class_at_fault
from tracekit.findings import Cause

if TYPE_CHECKING:
    from tracekit.derive.why_late import WhyLate
    from tracekit.store import Run

MIN_EXPLAINED_SHARE = 0.25
"""A part that explains less than this of the lateness is not its cause."""

MIN_EXPERT_SHARE = 0.5
"""Experts that are longer by half of the lateness are its cause."""

MIN_ENCODER_SHARE = 0.7
"""An encoder whose both passes are longer by so much of the longer kernels is their cause."""


def explained(run: Run, why: WhyLate) -> tuple[Cause, str]:
    """The cause, and half a sentence: the largest part, where it explains enough.

    What a rank carries on from one collective to the next has the same cause.
    """
    parts = why.parts.filter(pl.col("part") != CARRIED)
    if parts.height and parts["part"][0] == MORE and not _has_more(run, why):
        parts = parts.filter(pl.col("part") != MORE)
    if parts.is_empty() or parts["extra_ns"][0] < MIN_EXPLAINED_SHARE * why.late_ns:
        return Cause.UNKNOWN, "no part of its step is long enough to explain the lateness"
    part, extra_ns = str(parts["part"][0]), float(parts["extra_ns"][0])
    if part in (SLOWER, MORE):
        part = _in_full(run, why, part)
    return cause_of_lateness(run, part), reason(run, part, extra_ns)


def _has_more(run: Run, why: WhyLate) -> bool:
    """Whether the late ranks have more work in whole steps, too, by a quarter of what is seen.

    Where ranks never met, one that is behind still runs what its peer has done before.
    """
    more_ns = more_work_ns(run, why.ranks, why.peers, averages(run).steps)
    return more_ns >= MIN_EXPLAINED_SHARE * float(why.parts.filter(part=MORE)["extra_ns"][0])


def _in_full(run: Run, why: WhyLate, part: str) -> str:
    """Which work takes longer, where it is one class of it; whose GPU it is, where all do."""
    own_ns = dict(why.kinds.select("class", "own_ns").iter_rows())
    work = class_at_fault(own_ns, dict(why.kinds.select("class", "peer_ns").iter_rows()))
    if expert_extra_ns(run, why.ranks) >= MIN_EXPERT_SHARE * why.late_ns:
        return HOTTER_EXPERTS
    if work is not None:
        return {EXPERTS: HOTTER_EXPERTS, ATTENTION: LONGER_SEQUENCES}[work]
    longer_ns = float(why.parts.filter(pl.col("part").is_in([SLOWER, MORE]))["extra_ns"].sum())
    if encoder_extra_ns(run, why.ranks) >= MIN_ENCODER_SHARE * longer_ns > 0:
        return MORE_IMAGES
    if part != SLOWER:
        return part
    if _differs(run, why):
        return OTHER_MODEL
    return HELD_BACK if is_held_back(run, why.ranks, why.peers) else part


def _differs(run: Run, why: WhyLate) -> bool:
    """Whether the late ranks' GPUs are of another model than all of their peers'."""
    known = models(run)
    own = {known.get(rank) for rank in why.ranks}
    peers = {known.get(rank) for rank in why.peers}
    return None not in own | peers and not own & peers
