"""What the search for a straggler looks at."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.derive.patterns import Pattern, pattern
from tracekit.derive.why_late import WhyLate, why_late
from tracekit.detectors import number
from tracekit.findings import Cause
from tracekit.store import Run

ASSUMES = (
    "the late rank enters with the others; upper bound: what lies behind the collective is taken "
    "to move up with it"
)


MOVED_ASSUMES = (
    "high end: the late rank enters with the others; low end: what it has more is shared among "
    "all; upper bound: what lies behind the collective is taken to move up with it"
)
_MOVED = (
    Cause.DATA_IMBALANCE,
    Cause.SEQUENCE_LENGTH_IMBALANCE,
    Cause.EXPERT_IMBALANCE,
    Cause.MODALITY_IMBALANCE,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is compared: late arrivals by culprit, all calls with waits, and the mean step."""

    run: Run
    late: pl.DataFrame
    calls: pl.DataFrame
    usable: pl.DataFrame
    means: pl.DataFrame
    steps: tuple[int, ...]

    @property
    def n_steps(self) -> int:
        """How many steps are averaged over; at least 1."""
        return max(len(self.steps), 1)

    @property
    def step_ns(self) -> float:
        """Mean step over all ranks and devices."""
        return number(self.means["dur_ns"].mean())

    @property
    def waiting_ns(self) -> float:
        """Most that any rank waits exposed in the mean step: waits of two streams may coincide."""
        return min(number(self.means["exposed_waiting_ns"].max()), self.step_ns)

    def course(self, culprit: int) -> Pattern:
        """How the lateness of a culprit goes over the averaged steps."""
        own = self.calls.filter(pl.col("culprit") == culprit)
        late_ns = dict(own.group_by("step").agg(pl.col("late_ns").sum()).iter_rows())
        return pattern([float(late_ns.get(step, 0)) for step in self.steps])

    def shared(self, low_ns: float, cause: Cause, group: str, n_late: int) -> tuple[float, str]:
        """The low end of a saving with its assumption: work that one has more goes to the others.

        `n_late` ranks of the group had more of it at once.
        """
        if cause not in _MOVED:
            return low_ns, ASSUMES
        n_ranks = self.usable.filter(group=group)["rank"].n_unique()
        return low_ns * max(n_ranks - n_late, 0) / max(n_ranks, 1), MOVED_ASSUMES

    def why(self, late: pl.DataFrame) -> WhyLate:
        """What late ranks did instead, before arrivals in one group (rows of `late`)."""
        calls = self.usable.join(late.select("group").unique(), on="group", how="semi")
        return why_late(self.run, late, calls, self.n_steps)
