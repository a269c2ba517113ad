"""Show the ranks of a running job live: which is slow, silent, or steps behind the others."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from tracekit.cli._following import Rank, Seen

TAKES = ()
MAX_NAMED = 5
"""Ranks behind that are named in a line."""
N_OTHER_LINES = 7
"""Of the terminal, which the table leaves: the lines above and below it, and its heading."""
PLAIN_WIDTH = 120
ON_DEVICE = "On device"
LARGEST_PART = "Largest part"
NO_SUMMARY = "Ranks that keep no summary of steps, as under trace_handler or with summary=False"


@click.command(epilog="Example: tracekit watch runs/my-job")
@click.argument("run_dir", metavar="RUN_DIR", type=click.Path(path_type=Path))
@click.option("--attempt", type=int, metavar="N", help="Of the job; by default the newest.")
@click.option(
    "--every-s", type=click.FloatRange(min=0.1), default=1.0, help="Seconds between two looks."
)
@click.option(
    "--show",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Ranks to show, slowest or longest silent first.",
)
@click.option("--once", is_flag=True, help="Print one table and end, as without a terminal.")
def command(*, run_dir: Path, attempt: int | None, every_s: float, show: int, once: bool) -> None:
    """Show the ranks of a job that records itself into RUN_DIR, until Ctrl-C.

    Each rank writes a line for every step: how long it took, what took most of it, how often its
    thread waited or was preempted. Means are those of the last 20 steps. Where a device was timed,
    its mean step is shown too, and the largest part is its own. A rank that is silent for longer
    than its steps take is in a long step, or has ended.
    """
    from rich.console import Console  # noqa: PLC0415 - `--help` does without

    from tracekit.cli._following import Following, attempt_folder  # noqa: PLC0415

    following = Following(attempt_folder(run_dir, attempt))
    if once or not sys.stdout.isatty():
        console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
        console.print(view(following.read(), show))
        return

    def look() -> Seen:
        nonlocal following
        folder = attempt_folder(run_dir, attempt)
        if folder != following.folder:  # the job has begun again
            following = Following(folder)
        return following.read()

    with suppress(KeyboardInterrupt):
        _follow(Console(), look, show, every_s)


def _follow(console: Console, look: Callable[[], Seen], show: int, every_s: float) -> None:
    from rich.live import Live  # noqa: PLC0415

    def now() -> RenderableType:
        return view(look(), min(show, max(console.height - N_OTHER_LINES, 1)))

    with Live(now(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(now(), refresh=True)


def view(seen: Seen, show: int) -> RenderableType:
    """The summary, the ranks that hold up most, and how many are not shown."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    behind = seen.behind()
    rows = [_cells(each, behind.get(each.rank, 0)) for each in seen.ranks[:show]]
    if all(each.device_ns is None for each in seen.ranks):
        for row in rows:
            del row[ON_DEVICE]
    table = Table(box=None, pad_edge=False)
    for title in rows[0] if rows else ():
        is_part = title == LARGEST_PART  # the only one that a narrow terminal cuts
        table.add_column(
            title,
            justify="left" if is_part else "right",
            no_wrap=not is_part,
            ratio=1 if is_part else None,
        )
    for row in rows:
        cells = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in row.values()]
        table.add_row(*cells)
    lines = [Text(_summary(seen)), Text(_lag(seen, behind))]
    if n_waiting := sum(each.step is None and each.has_summary for each in seen.ranks):
        lines.append(Text(f"Ranks on which no step has ended: {n_waiting:,}"))
    if n_without := sum(not each.has_summary for each in seen.ranks):
        lines.append(Text(f"{NO_SUMMARY}: {n_without:,}"))
    n_left = len(seen.ranks) - show
    left = (
        [Text(f"Ranks that hold up less: {n_left:,} (--show {len(seen.ranks)})")]
        if n_left > 0
        else []
    )
    return Group(*lines, *([table] if seen.ranks else []), *left)


def _summary(seen: Seen) -> str:
    n_ranks, stepped = len(seen.ranks), [each for each in seen.ranks if each.step is not None]
    whole = f"{n_ranks:,} of {seen.world_size:,}" if seen.world_size else f"{n_ranks:,}"
    text = f"Attempt {seen.attempt}: {whole} ranks"
    if stepped:
        numbers = [each.step for each in stepped if each.step is not None]
        slowest = max(stepped, key=lambda each: each.mean_ns)
        mean_ns = sum(each.mean_ns for each in stepped) / len(stepped)
        text += (
            f", steps {min(numbers):,} to {max(numbers):,}, mean step {_dur(mean_ns)}, "
            f"slowest: rank {slowest.rank} with {_dur(slowest.mean_ns)}"
        )
    return text


def _lag(seen: Seen, behind: dict[int, int]) -> str:
    if not behind:
        return "No rank is behind the others"
    others = f"the others, which are at step {seen.others_step():,}"
    named = [f"rank {rank} by {n_steps:,}" for rank, n_steps in list(behind.items())[:MAX_NAMED]]
    more = f" and {len(behind) - MAX_NAMED:,} more ranks" if len(behind) > MAX_NAMED else ""
    return f"Behind {others}, in steps: {', '.join(named)}{more}"


def _cells(each: Rank, n_behind: int) -> dict[str, str]:
    """A row of the table, by the titles of its columns."""
    ended = each.step is not None
    return {
        "Rank": str(each.rank),
        "Step": "-" if each.step is None else f"{each.step:,}",
        "Behind": f"{n_behind:,}" if n_behind else "-",
        "Mean step": _dur(each.mean_ns) if ended else "-",
        ON_DEVICE: "-" if each.device_ns is None else _dur(each.device_ns),
        "Silent": _dur(each.silent_ns),
        LARGEST_PART: _part(each),
        "Share": f"{each.part_share:.0%}" if each.part else "-",
        "Waits": f"{each.waits_per_step:,.1f}" if ended else "-",
        "Preempted": f"{each.preempted_per_step:,.1f}" if ended else "-",
    }


def _part(each: Rank) -> str:
    if each.step is None:
        return "no step has ended" if each.has_summary else "-"
    return f"device: {each.part}" if each.part_is_on_device else each.part or "-"


def _dur(dur_ns: float) -> str:
    """A duration in the unit that suits it."""
    if dur_ns < 1e9:
        return f"{dur_ns / 1e6:,.1f} ms"
    if dur_ns < 600e9:
        return f"{dur_ns / 1e9:,.1f} s"
    return f"{dur_ns / 60e9:,.0f} min"
