"""What a collective costs to start and by the byte: latency + time by the byte, fitted to medians.

Each size enters with the median of its transfers, weighted by its calls; errors count relative to
the time, so that sizes of kilobytes say the one and sizes of gigabytes the other. Neither may be
negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_SIZES = 3
MIN_SPAN = 4.0
"""The largest size over the smallest: sizes that lie closer together do not tell the two apart."""


@dataclass(frozen=True, slots=True)
class Line:
    """`latency_ns` + `ns_per_byte` × bytes, and its mean relative error."""

    latency_ns: float
    ns_per_byte: float
    error_share: float


def line(
    sizes_bytes: Sequence[float], medians_ns: Sequence[float], calls: Sequence[int]
) -> Line | None:
    """The line through the medians; None where sizes are too few or lie too close together."""
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(medians_ns, float)
    is_used = (sizes > 0) & (times > 0)
    sizes, times, weights = sizes[is_used], times[is_used], np.asarray(calls, float)[is_used]
    if len(sizes) < MIN_SIZES or sizes.max() < MIN_SPAN * sizes.min():
        return None
    candidates = [_fitted(sizes, times, weights, use) for use in ((0, 1), (0,), (1,))]
    _, latency_ns, ns_per_byte = min(each for each in candidates if each is not None)
    errors = np.abs((latency_ns + ns_per_byte * sizes) / times - 1)
    return Line(latency_ns, ns_per_byte, float(np.average(errors, weights=weights)))


def _fitted(
    sizes: np.ndarray, times: np.ndarray, weights: np.ndarray, use: tuple[int, ...]
) -> tuple[float, float, float] | None:
    """Squared error, latency, ns a byte with these terms (0, 1); None where one is negative."""
    terms = np.stack([1 / times, sizes / times], axis=1)[:, list(use)]
    root = np.sqrt(weights)
    found, *_ = np.linalg.lstsq(terms * root[:, None], root, rcond=None)
    if (found < 0).any():
        return None
    both = np.zeros(2)
    both[list(use)] = found
    squares = float((weights * (terms @ found - 1) ** 2).sum())
    return squares, float(both[0]), float(both[1])
