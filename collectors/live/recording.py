"""The windows of one rank: when they are, what they may take, and what is left of them on disk.

Below the folder of an attempt, each window is a run of its own, `step=000100`. What the profiler
writes waits in `raw/` there until it is converted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import facts
from tracekit.collectors.clocks.pairs import clock_pair
from tracekit.collectors.live import converter
from tracekit.collectors.live._guard import log
from tracekit.collectors.live.attempt import facts_path
from tracekit.collectors.live.identity import Identity
from tracekit.collectors.live.limits import (
    MAX_STACK_STEPS,
    Limits,
    Probe,
    allowed_steps,
    probed,
    why_no_room,
)
from tracekit.collectors.live.marks import GcMarks
from tracekit.collectors.live.profiler import StepProfiler, prepare
from tracekit.collectors.live.samples import Samples
from tracekit.collectors.live.turns import Busy
from tracekit.facts import ClockPair, Facts

if TYPE_CHECKING:
    from collections.abc import Iterable


PROBE_BEFORE = 2
"""The probe records the step this many before the first window: it ends before that warms up."""
N_BEFORE = 20
"""Durations of steps that are kept to compare a window with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which steps to record: `steps` from `wait` on, again after `every` more; null: once.

    `options` are those of `torch.profiler.profile`.
    """

    steps: int
    wait: int
    every: int | None
    options: dict[str, bool]
    limits: Limits
    keeps_raw: bool


@dataclass(slots=True)
class Recording:
    """Records the windows of one rank. `on_step` is called at the end of every step.

    `describe` says what the rank knows of itself by then.
    """

    attempt: Path
    who: Identity
    plan: Plan
    describe: Callable[[], Facts]
    step: int = 0
    _probe: Probe | None = None
    _open: _Open | None = None
    _probing: StepProfiler | None = None
    _spent_bytes: int = 0
    _next: int | None = None
    _is_quiet: bool = False
    """Whether something was recorded, or why not has been said."""
    _known: Facts | None = None
    _marks: GcMarks = field(default_factory=GcMarks)
    _before_ns: deque[int] = field(default_factory=lambda: deque(maxlen=N_BEFORE))

    def begin(self) -> None:
        """Before the first step: a window that begins at once warms up now."""
        self._write_facts()
        self._next = max(self.plan.wait, self.step + 1)
        prepare()
        self._maybe_open()

    def note(self, lengths: Iterable[int], modality: str | None) -> None:
        """What the current step trains on; kept while a window is open.

        Raises:
            TypeError, ValueError, OverflowError: these are no lengths.
        """
        if self._open is not None and self.step >= self._open.first:
            self._open.samples.add(self.step, lengths, modality)

    def _write_facts(self) -> None:
        """Write what the rank knows by now; what a job has taken down before its end is kept."""
        known = self.describe()
        if self._known is not None and self._known.groups and not known.groups:
            known = replace(known, groups=self._known.groups, layout=self._known.layout)
        self._known = known
        facts.write(facts_path(self.attempt, self.who.rank), known)

    def on_step(self, dur_ns: int) -> bool:
        """The current step took so long and has ended; whether a window has, too."""
        ended, self.step = self.step, self.step + 1
        was_open = self._open is not None
        if self._probing is not None:
            self._step_probe(self._probing)
        elif self._open is not None:
            self._step_window(self._open, ended, dur_ns)
        else:
            self._before_ns.append(dur_ns)
        if self._open is None and self._probing is None:
            self._maybe_open()
        converter.go_on()
        return was_open and self._open is None

    def close(self) -> None:
        """The loop has ended: save what a window holds so far."""
        self._next = None
        if self._probing is not None:
            self._end_probe(self._probing)
        elif self._open is not None:
            self._end_window(self._open)
        if not self._is_quiet:
            log.warning(
                "tracekit: nothing was recorded: the loop ended after %d steps, and the first "
                "window begins with step %d",
                self.step,
                self.plan.wait,
            )

    def give_up(self) -> None:
        """After a fault: stop the profiler, record nothing more."""
        self._next = None
        self._is_quiet = True
        self._marks.stop()
        for profiler in (self._probing, self._open.profiler if self._open else None):
            if profiler is not None:
                profiler.close()
        self._probing = self._open = None

    def _maybe_open(self) -> None:
        """Start what warms up in the current step: the probe, or a window."""
        first, coming = self._next, self.step + 1
        if first == coming:
            self._next = None if self.plan.every is None else first + self.plan.every
            self._open_window(first)
        elif first is not None and self._probe is None and coming == first - PROBE_BEFORE:
            self._open_probe(coming)

    def _open_probe(self, step: int) -> None:
        with suppress(Busy):
            self._probing = StepProfiler(self._probe_path, step, 1, self.plan.options)

    @property
    def _probe_path(self) -> Path:
        return self.attempt / f".probe-{self.who.rank:06d}.json"

    def _step_probe(self, profiler: StepProfiler) -> None:
        profiler.step()
        if profiler.is_saved or profiler.is_closed:
            self._end_probe(profiler)

    def _end_probe(self, profiler: StepProfiler) -> None:
        self._probing = None
        try:
            profiler.close()
            if self._probe_path.exists() and not profiler.why_cut:
                self._probe = probed(self._probe_path)
        finally:
            for path in self.attempt.glob(
                f"{self._probe_path.name}*"
            ):  # half a file where it fails
                path.unlink(missing_ok=True)

    def _open_window(self, first: int) -> None:
        n_steps, notes = self._allowed_steps()
        limits = self.plan.limits
        why = why_no_room(self.attempt, self._probe, n_steps, self._spent_bytes, limits)
        if n_steps == 0 or why:
            self._skip(first, why or notes[-1])
            return
        folder = self.attempt / f"step={first:08d}"
        path = folder / "raw" / f"rank={self.who.rank:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            profiler = StepProfiler(path, first, n_steps, self.plan.options)
        except Busy as busy:
            self._skip(first, str(busy))
            return
        for note in notes:
            log.warning("tracekit: %s", note)
        self._open = _Open(
            profiler=profiler,
            folder=folder,
            path=path,
            first=first,
            n_steps=n_steps,
            started_ns=time.time_ns(),
            clock=clock_pair(),
            notes=notes,
        )

    def _allowed_steps(self) -> tuple[int, tuple[str, ...]]:
        """How many steps a window may have, and why not all; the reason why none is the last."""
        wanted, whys = self.plan.steps, []
        if self.plan.options.get("with_stack") and wanted > MAX_STACK_STEPS:
            whys.append(f"{MAX_STACK_STEPS} steps instead of {wanted}: with_stack takes so much")
            wanted = MAX_STACK_STEPS
        n_steps, why = allowed_steps(wanted, self._probe, self.plan.limits)
        return n_steps, tuple(each for each in (*whys, why) if each)

    def _skip(self, first: int, why: str) -> None:
        log.warning("tracekit: step %d is not recorded: %s", first, why)
        self._is_quiet = True

    def _step_window(self, window: _Open, ended: int, dur_ns: int) -> None:
        if ended >= window.first:
            window.during_ns.append(dur_ns)
        window.profiler.step()
        if window.profiler.is_recording:
            self._marks.start()
        else:
            self._marks.stop()
        if window.profiler.is_saved or window.profiler.is_closed:
            self._end_window(window)

    def _end_window(self, window: _Open) -> None:
        self._open = None
        self._marks.stop()
        profiler, n_steps = window.profiler, len(window.during_ns)
        profiler.close()
        if profiler.why_cut:
            self._skip(window.first + n_steps, profiler.why_cut)
        if not (n_steps and profiler.is_saved):  # it ended while it warmed up, or in its first step
            window.path.unlink(missing_ok=True)
            return
        self._is_quiet = True
        size_bytes = window.path.stat().st_size
        self._spent_bytes += size_bytes
        facts.write(
            window.path.with_suffix(".window.json"),
            facts.Window(
                rank=self.who.rank,
                world_size=self.who.world_size,
                first_step=window.first,
                n_steps=n_steps,
                is_whole=n_steps == window.n_steps and not profiler.why_cut,
                started_ns=window.started_ns,
                ended_ns=time.time_ns(),
                size_bytes=size_bytes,
                save_ns=profiler.save_ns,
                before_ns=tuple(self._before_ns),
                during_ns=tuple(window.during_ns),
                samples=tuple(window.samples.calls),
                clocks=(window.clock, clock_pair()),
                notes=window.notes,
                keeps_raw=self.plan.keeps_raw,
            ),
        )
        self._write_facts()
        converter.start(window.folder, self.who.rank, keeps_raw=self.plan.keeps_raw)
        log.info("tracekit: %d steps from %d on are recorded", n_steps, window.first)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A window while it is recorded."""

    profiler: StepProfiler
    folder: Path
    path: Path
    first: int
    n_steps: int
    started_ns: int
    clock: ClockPair
    notes: tuple[str, ...]
    during_ns: list[int] = field(default_factory=list)
    samples: Samples = field(default_factory=Samples)
