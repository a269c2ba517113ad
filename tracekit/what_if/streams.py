"""Device events of a rank by stream: what was launched, or had ended, before a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.what_if.schedule import Ints


def numbered(events: pl.DataFrame) -> Ints:
    """The streams of device events, as numbers from 1 on."""
    place = pl.struct("device", "stream").rank("dense").cast(pl.Int64)
    found: Ints = events.select(place.alias("number"))["number"].to_numpy()
    return found


class Streams:
    """Device events by stream, to ask for the last one launched, or ended, before a time."""

    def __init__(self, events: pl.DataFrame) -> None:
        self.ends = events["end_ns"].to_numpy()
        self.correlations = events["correlation"].fill_null(-1).to_numpy()
        launched = events["launch_start_ns"].fill_null(events["start_ns"]).to_numpy()
        self.number = numbered(events) - 1
        n_streams = int(self.number.max()) + 1 if len(self.number) else 0
        self.places = [np.flatnonzero(self.number == number) for number in range(n_streams)]
        self.launched = [np.maximum.accumulate(launched[place]) for place in self.places]
        self.ended = [self.ends[place] for place in self.places]
        self.names = events["stream"].to_numpy()

    def event_of(self) -> dict[int, int]:
        """The row of the event that each correlation launched; of several the last one."""
        return {c: i for i, c in enumerate(self.correlations.tolist()) if c >= 0}

    def last_launched(self, stream: int, at_ns: int) -> int:
        """The last event of a stream launched before a time, -1 if none was."""
        n = int(np.searchsorted(self.launched[stream], at_ns, side="left"))
        return int(self.places[stream][n - 1]) if n else -1

    def last_ended(self, stream: int, launched_ns: int, ended_ns: int) -> int:
        """The last of those launched before one time that had ended at another, -1 if none had."""
        n = int(np.searchsorted(self.launched[stream], launched_ns, side="left"))
        m = int(np.searchsorted(self.ended[stream], ended_ns, side="right"))
        return int(self.places[stream][min(n, m) - 1]) if min(n, m) else -1

    def last_of_all(self, launched_ns: int, ended_ns: int) -> int:
        """Likewise the one of all streams that ended last."""
        ended = [self.last_ended(s, launched_ns, ended_ns) for s in range(len(self.places))]
        return max(ended, key=lambda e: self.ends[e] if e >= 0 else -1, default=-1)
