"""How sure it is that a rank was late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.instances import NOT_RECORDED
from tracekit.derive.profiler_cost import costly_options
from tracekit.findings import Cause, Confidence, Level
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.detectors._straggler_seen import Seen

N_CALLS, N_EXACT_CALLS, EXACT_ERROR_SHARE, MAX_ERROR_SHARE = 10, 5, 0.1, 0.3
"""Medium confidence takes ten late calls, or five whose error is a tenth of the lateness."""


def _has_unknown_splits(calls: pl.DataFrame) -> bool:
    """Whether most lateness was seen in all-to-all calls that may be uneven: nothing says."""
    is_unknown = (pl.col("operation") == "all_to_all") & pl.col("bytes_in").is_null()
    return 2 * calls.filter(is_unknown)["late_ns"].clip(0).sum() > calls["late_ns"].clip(0).sum()


def how_sure(
    seen: Seen, own: pl.DataFrame, n_late: int, error_share: float, cause: Cause
) -> Confidence:
    """How sure it is; `own` are the calls of the late ranks in which they were late."""
    error = text(error_share, Unit.SHARE)
    what = f"late in {n_late} collectives; their error is {error} of the lateness"
    n_least = N_EXACT_CALLS if error_share <= EXACT_ERROR_SHARE else N_CALLS
    doubts = {
        "; ranks are missing, and one may be later still": bool(seen.run.manifest.missing_ranks),
        "; one step only": seen.n_steps == 1,
        "; splits of its all-to-all calls are not recorded": _has_unknown_splits(own),
        "; its group is not recorded: calls pair by order": (own["group"] == NOT_RECORDED).any(),
        "": n_late < n_least or error_share > MAX_ERROR_SHARE,
    }
    for doubt, is_there in doubts.items():
        if is_there:
            return Confidence(Level.LOW, f"{what}{doubt}")
    more = "; what it did instead is not recorded" if cause is Cause.UNKNOWN else ""
    if own["entered_ns"].is_null().any():
        return Confidence(Level.MEDIUM, f"{what}; without a common clock{more}")
    options = costly_options(seen.run) if cause is Cause.SLOW_HOST else ()
    if options:
        slowed = f"recorded with {', '.join(options)}, which slows hosts"
        return Confidence(Level.MEDIUM, f"{what}; {slowed}")
    level = Level.MEDIUM if cause is Cause.UNKNOWN else Level.HIGH
    return Confidence(level, f"{what}; two estimators on a common clock agree{more}")
