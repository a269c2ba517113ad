"""`on_trace_ready=tracekit.trace_handler(run_dir)`, for a loop that has a profiler already."""

from __future__ import annotations

import time
from functools import partial
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
    folder_of_run = arguments.folder(run_dir)
    given = arguments.given(rank, world_size, layout, attempt)
    where: dict[str, tuple[Path, Identity]] = {}

    def handle(profile: Any) -> None:
        with quiet("a trace is lost"):
            if not where:
                who = identity(given.rank, given.world_size)
                where["it"] = claimed(folder_of_run, who.rank, given.attempt, job_key()), who
            folder, who = where["it"]
            describe = partial(described, who, folder, given.layout)
            _save(profile, folder, who, describe, keeps_raw=keep_raw)

    return handle


def _save(
    profile: Any,
    attempt: Path,
    who: Identity,
    describe: Callable[[], facts.Facts],
    *,
    keeps_raw: bool,
) -> None:
    step = int(getattr(profile, "step_num", 0))
    folder = attempt / f"step={step:08d}"
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    path = folder / "raw" / f"rank={who.rank:06d}.json"
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
    facts.write(facts_path(attempt, who.rank), describe())
    converter.start(folder, who.rank, keeps_raw=keeps_raw)
