"""What the steps of a window train on: lengths of samples, as the loop tells them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from tracekit.collectors.live.marks import clean
from tracekit.facts import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LENGTHS = 1_000_000
"""Of one window; a call counts as one more."""
MAX_LENGTH = 2**63 - 1
"""The tables hold no larger one."""


@dataclass(slots=True)
class Samples:
    """The calls of one window, in their order."""

    calls: list[Sample] = field(default_factory=list)
    _n_lengths: int = 0

    def add(self, step: int, lengths: Iterable[int], modality: str | None) -> None:
        """Keep one call: the step trains on samples of these lengths.

        Raises:
            TypeError, ValueError, OverflowError: these are no lengths, or too many.
        """
        room = MAX_LENGTHS - self._n_lengths
        if room <= 0:
            raise ValueError(f"a window keeps {MAX_LENGTHS:,}")
        whole = tuple(map(int, islice(lengths, room)))
        wrong = next((each for each in whole if not 0 <= each <= MAX_LENGTH), None)
        if wrong is not None:
            raise ValueError(f"{wrong} is no length")
        self._n_lengths += len(whole) + 1
        called = None if modality is None else clean(str(modality))
        self.calls.append(Sample(step=step, at_ns=time.time_ns(), lengths=whole, modality=called))
