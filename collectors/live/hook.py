"""`with tracekit.collect(run_dir) as c: … c.step()`: records some steps of a training loop.

Nothing here raises into the loop, waits for another rank, or imports Polars.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from tracekit.collectors.live import arguments, converter
from tracekit.collectors.live._guard import log, quiet
from tracekit.collectors.live.attempt import claimed, job_key
from tracekit.collectors.live.beside import Beside
from tracekit.collectors.live.flight_recorder import Watchdog
from tracekit.collectors.live.identity import identity, knows_rank, process_groups
from tracekit.collectors.live.marks import clean, marked
from tracekit.collectors.live.recording import Plan, Recording
from tracekit.collectors.live.steps import Steps
from tracekit.collectors.live.surroundings import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from tracekit.collectors.live.arguments import Given
    from tracekit.collectors.live.limits import Limits

FINISH_S = 300.0
"""How long the end of the loop waits for conversions; they go on after that."""
PHASE = "tracekit.phase"
"""Name of the mark of a phase, followed by the phase's own."""


def collect(
    run_dir: str | Path,
    *,
    steps: int = 5,
    every: int | None = None,
    wait: int = 10,
    rank: int | None = None,
    world_size: int | None = None,
    layout: Mapping[str, int] | None = None,
    attempt: int | None = None,
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_stack: bool = False,
    keep_raw: bool = False,
    limits: Limits | None = None,
    summary: bool = True,
    telemetry_every_s: float | None = 1.0,
    enabled: bool = True,
) -> Collection:
    """Record some steps of a training loop on every rank, into a folder that all ranks share.

    Each window of steps becomes a run below `run_dir`, which `tracekit analyze` takes. Converting
    is done by a process of its own.

    Args:
        run_dir: where to write; the same on all ranks.
        steps: how many steps a window has. Its first and its last may be cut on a device, so that
            of five three are averaged.
        every: from the start of one window to the next, in steps; null: one window.
        wait: steps before the first window: those in which a job warms up.
        rank: of this process; by default what torch.distributed or the launcher says.
        world_size: likewise.
        layout: sizes of parallel dimensions, those of neighbouring ranks first, where the job does
            not tell: `{"tp": 4, "dp": 8}`.
        attempt: number of this launch of the job; by default found.
        record_shapes: shapes of operators' inputs: traces a half larger, recording twice as dear.
        profile_memory: what the allocator does.
        with_stack: Python stacks; at most three steps then.
        keep_raw: keep the profiler's JSON, about sixty times the size of the run.
        limits: how much may be recorded.
        summary: keep a summary of every step, for `tracekit watch`: below 0.5 ms a step.
        telemetry_every_s: period at which devices and host are sampled, by a process of each host;
            null: not at all.
        enabled: false records nothing: for a switch on the command line of a job.

    Raises:
        UsageError: an argument does not fit. Nothing else is ever raised, by this or the methods.
    """
    n_steps = arguments.whole("steps", steps)
    plan = Plan(
        steps=n_steps,
        wait=arguments.whole("wait", wait),
        every=None if every is None else arguments.whole("every", every, n_steps + 1),
        options={
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
        },
        limits=arguments.limits(limits),
        keeps_raw=bool(keep_raw),
    )
    given = arguments.given(rank, world_size, layout, attempt)
    every_s = arguments.period_s(telemetry_every_s)
    beside = _Beside(has_summary=bool(summary), telemetry_every_s=every_s)
    return Collection(arguments.folder(run_dir), plan, given, beside, is_enabled=bool(enabled))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What is recorded beside the windows."""

    has_summary: bool
    telemetry_every_s: float | None


class Collection:
    """What `collect` gives: call `step` at the end of every step."""

    def __init__(
        self, run_dir: Path, plan: Plan, given: Given, beside: _Beside, *, is_enabled: bool
    ) -> None:
        """Nothing happens before the first step: only then does torch know the ranks."""
        self._run_dir = run_dir
        self._plan = plan
        self._given = given
        self._wanted = beside
        self._is_off = not is_enabled
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._steps: Steps | None = None
        self._watchdog: Watchdog | None = None
        self._beside: Beside | None = None
        self._is_inside = False
        """Whether step() is at work; at its start, whether Ctrl-C kept the last one from ending."""
        self._step_began_ns = 0
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        """Begin; a process that does not know its rank yet begins with its first step."""
        if not self._is_off and (self._given.rank is not None or knows_rank()):
            self._begin()
        self._step_began_ns = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Save what a window holds, and wait for the conversions of this rank."""
        self._close()

    def step(self) -> None:
        """The current step has ended. Call it once a step, on every rank."""
        if not self._is_off and self._pid == os.getpid():
            if self._is_inside:
                log.warning("tracekit: recording is given up: step() was interrupted")
                with self._quiet("recording is given up"):
                    self._give_up()
            else:
                self._advance(time.perf_counter_ns() - self._step_began_ns)
        self._step_began_ns = time.perf_counter_ns()

    def samples(self, lengths: Iterable[int], *, modality: str | None = None) -> None:
        """Say what this step trains on: the length of each sample in tokens, frames or the like.

        With it, uneven batches are told from a slow device.
        """
        if self._recording is not None:
            with self._quiet("the lengths of a batch are not kept"):
                self._recording.note(lengths, modality)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark a part of the step, such as "rollout", "update" or "evaluation"."""
        label = mark = None
        if self._recording is not None:
            with self._quiet("a phase is not marked"):
                label = clean(str(name))
                mark = marked(f"{PHASE} {label}")
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            with self._quiet("a phase is not marked"):
                if mark is not None:
                    mark.__exit__(None, None, None)
                if label is not None and self._steps is not None:
                    self._steps.add_phase(label, time.perf_counter_ns() - began_ns)

    def _quiet(
        self, what: str, undo: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        return quiet(what, undo, self._said)

    def _begin(self, step: int = 0) -> None:
        """Start recording; the current step is this one."""
        with self._quiet("recording could not begin", self._give_up):
            who = identity(self._given.rank, self._given.world_size)
            folder = claimed(self._run_dir, who.rank, self._given.attempt, job_key())
            describe = partial(described, who, folder, self._given.layout)
            self._recording = Recording(folder, who, self._plan, describe, step=step)
            if self._wanted.has_summary:
                self._steps = Steps(folder, who.rank)
            if process_groups() is not None:
                self._watchdog = Watchdog(folder, who.rank)
            with quiet("devices and clocks are not sampled"):
                self._beside = Beside(folder, who, every_s=self._wanted.telemetry_every_s)
            self._recording.begin()

    def _advance(self, dur_ns: int) -> None:
        self._is_inside = True
        if self._recording is None:
            self._begin(step=1)
        else:
            with self._quiet("recording is given up", self._give_up):
                self._end_step(self._recording, dur_ns)
        self._is_inside = False

    def _end_step(self, recording: Recording, dur_ns: int) -> None:
        if self._steps is not None:
            self._steps.end(recording.step, dur_ns)
        if self._watchdog is not None:
            self._watchdog.step()
        if recording.on_step(dur_ns) and self._watchdog is not None:
            self._watchdog.save()

    def _give_up(self) -> None:
        self._is_off = True
        self._close_beside()
        if self._recording is not None:
            self._recording.give_up()

    def _close_beside(self) -> None:
        for each in (self._steps, self._watchdog, self._beside):
            if each is not None:
                with quiet("the end of what runs beside the loop"):
                    each.close()
        self._steps = self._watchdog = self._beside = None

    def _close(self) -> None:
        recording, self._recording = self._recording, None
        was_off, self._is_off = self._is_off, True
        if self._pid != os.getpid():  # a fork of the job, whose loop goes on elsewhere
            return
        if recording is None:
            if not was_off:
                log.warning("tracekit: nothing was recorded: step() was never called")
            return
        with quiet("the last window is lost", recording.give_up):
            recording.close()
        self._close_beside()
        with quiet("conversion goes on after the job"):
            converter.finish(FINISH_S)
