"""One use of torch's profiler: some steps of a loop into one file, whatever version torch has."""

from __future__ import annotations

import inspect
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.collectors.live.turns import Busy, Turn, is_enabled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EXPERIMENTAL = {"enable_cuda_sync_events": True}
"""Options that torch has under this name in some versions only: synchronisations are recorded. With
`trace_only`, no Python object is made for each event; Python stacks need them, and torch records
collections of garbage with stacks only."""


def prepare() -> None:
    """Start and stop the profiler once: its first start takes about a second, here not in a step.

    Only that of the host: what a device's takes is left to the probe.
    """
    from torch import profiler  # noqa: PLC0415

    try:
        turn = Turn(lambda: None)
    except Busy:
        return
    try:
        activities = [profiler.ProfilerActivity.CPU]
        with turn.calling(), _no_warnings(), profiler.profile(activities=activities):
            pass
    finally:
        turn.end()


class StepProfiler:
    """Records the steps `first` to `first + n_steps - 1` into `path`.

    The step before them warms the profiler up. Call `step` at the end of every step from that one
    on, with no step left out, until `is_closed`.
    """

    def __init__(self, path: Path, first: int, n_steps: int, options: dict[str, bool]) -> None:
        """Start warming up; the current step is `first - 1`.

        Args:
            path: of the JSON to write.
            first: the first step recorded, in the loop's own numbers.
            n_steps: how many.
            options: of `torch.profiler.profile`, such as `record_shapes`.

        Raises:
            Busy: another profiler of torch is running.
        """
        from torch import profiler  # noqa: PLC0415

        self._path = path
        self.is_recording = False
        self.is_saved = False
        self.why_cut = ""
        self.save_ns = 0
        self._is_sound = True
        has_stacks = options.get("with_stack", False)
        wanted = EXPERIMENTAL | {"trace_only": not has_stacks, "record_python_gc_info": has_stacks}
        self._profile: Any = None
        self._turn = Turn(self._give_way)
        try:
            with self._calling():
                self._profile = profiler.profile(
                    schedule=_schedule(profiler.ProfilerAction, first, n_steps),
                    on_trace_ready=self._save,
                    experimental_config=experimental(wanted),
                    **options,
                )
                self._profile.step_num = first - 1  # marks carry the loop's own numbers
                self._profile.start()
        except BaseException:  # Ctrl-C, too
            self._turn.end()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is recorded; `why_cut` says why if not all was."""
        return self._profile is None

    def step(self) -> None:
        """The current step has ended."""
        if self._profile is None:
            return
        if not self._turn.is_of_this_thread():
            self.why_cut = "step() was called on another thread"
            self.close()
            return
        self._is_sound = False  # to stop what a fault kept from starting ends the whole process
        with self._calling():
            self._profile.step()
        self._is_sound = True
        recording = type(self._profile.current_action)
        self.is_recording = self._profile.current_action in {
            recording.RECORD,
            recording.RECORD_AND_SAVE,
        }

    def close(self) -> None:
        """Stop; what was recorded so far is saved if it is not yet, on the thread that began."""
        self.is_recording = False
        profile, self._profile = self._profile, None
        if profile is None:
            return
        try:
            if self._turn.is_of_this_thread() and (self._is_sound or is_enabled()):
                with self._calling():
                    profile.stop()
        finally:
            profile.profiler = None  # the events, which a cycle would keep for long
            self._turn.end()

    def _give_way(self) -> None:
        self.why_cut = "another profiler of torch began in this process"
        self.close()

    @contextmanager
    def _calling(self) -> Iterator[None]:
        with self._turn.calling(), _no_warnings():
            yield

    def _save(self, profile: Any) -> None:
        if self.is_saved:
            return
        started_ns = time.perf_counter_ns()
        # A rank that was ready earlier may have been converted, and have taken its folder away.
        self._path.parent.mkdir(exist_ok=True)
        profile.export_chrome_trace(str(self._path))
        self.save_ns = time.perf_counter_ns() - started_ns
        self.is_saved = True


@contextmanager
def _no_warnings() -> Iterator[None]:
    """What torch warns of is meant so here; where warnings are errors, its profiler breaks down."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def experimental(wanted: dict[str, bool]) -> Any:
    """The experimental options that this torch has; None where it has none of them."""
    try:
        from torch._C._profiler import _ExperimentalConfig  # noqa: PLC0415
    except ImportError:
        return None
    described = (_ExperimentalConfig.__init__.__doc__ or "") + _signature(_ExperimentalConfig)
    known = {name: value for name, value in wanted.items() if name in described}
    return _ExperimentalConfig(**known) if known else None


def _signature(kind: Any) -> str:
    try:
        return str(inspect.signature(kind))
    except (TypeError, ValueError):  # a compiled class: its docstring has the signature
        return ""


def _schedule(action: Any, first: int, n_steps: int) -> Callable[[int], Any]:
    """Warm up in the step before the first, save at the end of the last."""

    def at(step: int) -> Any:
        if step == first - 1:
            return action.WARMUP
        if first <= step < first + n_steps - 1:
            return action.RECORD
        return action.RECORD_AND_SAVE if step == first + n_steps - 1 else action.NONE

    return at
