"""`on_trace_ready=tracekit.trace_handler(run_dir)`, for a loop that has a profiler already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tracekit import facts
from tracekit.collectors.clocks.pairs import clock_pair
from tracekit.collectors.live import arguments, converter
from tracekit.collectors.live._guard import quiet
from tracekit.collectors.live.attempt import claimed, facts_path, job_key
from tracekit.collectors.live.identity import identity
from tracekit.collectors.live.surroundings import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.collectors.live.arguments import Given
    from tracekit.collectors.live.identity import Identity


def trace_handler(
    run_dir: str | Path,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    layout: Mapping[str, int] | None = None,
    attempt: int | None = None,
    keep_raw: bool = False,
) -> Callable[[Any], None]:
    """Make a handler for `on_trace_ready` of `torch.profiler.profile`.

    Each trace becomes a run below `run_dir`, named by the step at which it was saved, so that all
    ranks of one window share it. The handler never raises, and does not wait for the conversion,
    which a process of its own does.

    Args:
        run_dir: where to write; the same on all ranks.
        rank: of this process; by default what torch.distributed or the launcher says.
        world_size: likewise.
        layout: see `collect`.
        attempt: see `collect`.
        keep_raw: see `collect`.

    Raises:
        UsageError: an argument does not fit.
    """
    return _Handler(
        arguments.folder(run_dir),
        arguments.given(rank, world_size, layout, attempt),
        keeps_raw=bool(keep_raw),
    )


class _Handler:
    """Saves each trace that it is called with; the rank is looked up at the first."""

    def __init__(self, run_dir: Path, given: Given, *, keeps_raw: bool) -> None:
        self._run_dir = run_dir
        self._given = given
        self._keeps_raw = keeps_raw
        self._place: tuple[Path, Identity] | None = None

    def __call__(self, profile: Any) -> None:
        with quiet("a trace is lost"):
            if self._place is None:
                who = identity(self._given.rank, self._given.world_size)
                folder = claimed(self._run_dir, who.rank, self._given.attempt, job_key())
                self._place = folder, who
            self._save(profile, *self._place)

    def _save(self, profile: Any, attempt: Path, who: Identity) -> None:
        step = int(getattr(profile, "step_num", 0))
        folder = attempt / f"step={step:08d}"
        path = folder / "raw" / f"rank={who.rank:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        started_ns = time.time_ns()
        profile.export_chrome_trace(str(path))
        ended_ns = time.time_ns()
        window = facts.Window(
            rank=who.rank,
            world_size=who.world_size,
            first_step=step,
            n_steps=0,
            is_whole=True,
            started_ns=started_ns,
            ended_ns=ended_ns,
            size_bytes=path.stat().st_size,
            save_ns=ended_ns - started_ns,
            clocks=(clock_pair(),),
        )
        facts.write(path.with_suffix(".window.json"), window)
        facts.write(facts_path(attempt, who.rank), described(who, attempt, self._given.layout))
        converter.start(folder, who.rank, keeps_raw=self._keeps_raw)
