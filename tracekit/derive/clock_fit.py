"""Offset and drift of clocks from the ends of events that end at once on all of them.

Model: y[c, h] = t[c] + a[h] + b[h] x[c, h] + e, with y the end of event c on clock h, x = y less a
fixed origin, and a = b = 0 for one clock of each connected component. The t are eliminated, the
2 H unknowns are solved for at once, and events that fit badly count less (Huber's weights): ends
have a heavy tail, and least squares with a drift term follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Numbers = NDArray[np.int64]

HUBER = 1.345
"""In units of the spread: 95 % as good as least squares where the noise is normal."""
MAD_TO_SPREAD = 1.4826
"""Spread of normal noise for its median absolute deviation."""
N_ROUNDS = 20
LEAST_SPREAD_NS = 1.0
"""Stamps are whole ns: a smaller spread is none, and weights need one."""
MIN_DRIFT_S = 2.0
MIN_DRIFT_EVENTS = 20
"""Below either of these a line follows the noise: offsets only."""


@dataclass(frozen=True, slots=True)
class Block:
    """Events that the same clocks saw.

    `clocks` are their numbers (m), `ends_ns` when each ended by each, since some origin (n × m).
    """

    clocks: Numbers
    ends_ns: Doubles


@dataclass(frozen=True, slots=True)
class Fit:
    """Offset and drift of each clock against that of its component, and how well they fit.

    Corrected time = t − offset_ns − drift · t, with t since the origin of the blocks. `error_ns` is
    three times the spread of the clock's residuals (1.4826 · median), null (NaN) where it has none.
    """

    offset_ns: Doubles
    drift: Doubles
    error_ns: Doubles
    component: Numbers
    n_events: Numbers


def fitted(n_clocks: int, blocks: list[Block]) -> Fit:
    """Fit the clocks 0 … n − 1 to the blocks; one that shares no event stays as it is.

    Of each component the clock with the lowest number is the reference.
    """
    component = _components(n_clocks, blocks)
    n_events = np.zeros(n_clocks, dtype=np.int64)
    for block in blocks:
        n_events[block.clocks] += block.ends_ns.shape[0]
    free = np.flatnonzero(component != np.arange(n_clocks))
    drifts = free[[_may_drift(int(component[clock]), component, blocks) for clock in free]]
    offset_ns, drift = np.zeros(n_clocks), np.zeros(n_clocks)
    if free.size:
        weights = [np.ones_like(block.ends_ns) for block in blocks]
        for _ in range(N_ROUNDS):
            offset_ns, drift = _solved(n_clocks, free, drifts, blocks, weights)
            left = [
                _residuals(block, offset_ns, drift, w)
                for block, w in zip(blocks, weights, strict=True)
            ]
            spread = max(MAD_TO_SPREAD * _median(np.abs(e) for e in left), LEAST_SPREAD_NS)
            weights = [
                np.minimum(1.0, HUBER * spread / np.maximum(np.abs(e), LEAST_SPREAD_NS))
                for e in left
            ]
        errors = _errors(n_clocks, blocks, left)
    else:
        errors = np.full(n_clocks, np.nan)
    return Fit(offset_ns, drift, errors, component, n_events)


def _components(n_clocks: int, blocks: list[Block]) -> Numbers:
    """The lowest clock that each one is joined with, through others or directly."""
    lowest = np.arange(n_clocks)
    changed = True
    while changed:
        before = lowest.copy()
        for block in blocks:
            lowest[block.clocks] = lowest[block.clocks].min()
        changed = bool((lowest != before).any())
    return lowest


def _may_drift(component: int, components: Numbers, blocks: list[Block]) -> bool:
    """Whether the events of a component are enough, and span long enough, for a drift."""
    own = [block.ends_ns for block in blocks if components[block.clocks[0]] == component]
    n_events = sum(ends.shape[0] for ends in own)
    span_ns = max(ends[:, 0].max() for ends in own) - min(ends[:, 0].min() for ends in own)
    return n_events >= MIN_DRIFT_EVENTS and bool(span_ns >= MIN_DRIFT_S * 1e9)


def _solved(
    n_clocks: int, free: Numbers, drifts: Numbers, blocks: list[Block], weights: list[Doubles]
) -> tuple[Doubles, Doubles]:
    """Weighted least squares for offsets in ns and drifts; those that are not free stay 0."""
    matrix = np.zeros((2 * n_clocks, 2 * n_clocks))
    right = np.zeros(2 * n_clocks)
    for block, w in zip(blocks, weights, strict=True):
        x_s = block.ends_ns * 1e-9  # seconds: then offsets and drifts are of one size
        total = w.sum(axis=1, keepdims=True)
        both = np.hstack([w, w * x_s])
        away_ns = block.ends_ns - (w * block.ends_ns).sum(axis=1, keepdims=True) / total
        index = np.concatenate([block.clocks, n_clocks + block.clocks])
        part = -both.T @ (both / total)
        n = block.clocks.size
        own = np.arange(n)
        part[own, own] += w.sum(axis=0)
        part[own, n + own] += (w * x_s).sum(axis=0)
        part[n + own, own] += (w * x_s).sum(axis=0)
        part[n + own, n + own] += (w * x_s * x_s).sum(axis=0)
        matrix[np.ix_(index, index)] += part
        right[index] += (both * np.hstack([away_ns, away_ns])).sum(axis=0)
    wanted = np.concatenate([free, n_clocks + drifts])
    found = np.zeros(2 * n_clocks)
    inner = matrix[np.ix_(wanted, wanted)]
    try:
        found[wanted] = np.linalg.solve(inner, right[wanted])
    except np.linalg.LinAlgError:  # drifts that no event tells apart
        found[wanted] = np.linalg.lstsq(inner, right[wanted])[0]
    return found[:n_clocks], found[n_clocks:] * 1e-9


def _residuals(block: Block, offset_ns: Doubles, drift: Doubles, weights: Doubles) -> Doubles:
    """How far each corrected end is from the weighted mean of its event."""
    corrected = block.ends_ns * (1 - drift[block.clocks]) - offset_ns[block.clocks]
    mean_ns = (weights * corrected).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    away: Doubles = corrected - mean_ns
    return away


def _errors(n_clocks: int, blocks: list[Block], left: list[Doubles]) -> Doubles:
    errors = np.full(n_clocks, np.nan)
    for clock in range(n_clocks):
        own = [
            np.abs(e[:, block.clocks == clock])
            for block, e in zip(blocks, left, strict=True)
            if clock in block.clocks
        ]
        if own:
            errors[clock] = 3 * MAD_TO_SPREAD * _median(own)
    return errors


def _median(parts: Iterable[Doubles]) -> float:
    return float(np.median(np.concatenate([part.ravel() for part in parts])))
