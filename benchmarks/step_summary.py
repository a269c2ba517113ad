"""Cost of the summary of every step: the same loop with and without it, in turns.

A step does some work on the host, then sleeps for 100 ms, as a job waits for a device: what is
measured finds its caches cold.

Run:
    python -m benchmarks.step_summary
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.table import Row, bound, needs
from tracekit.collectors.live.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TITLE = "Summary of steps"
N_BLOCKS = 40
"""Pairs of one block with and one without; the order within a pair changes."""
N_WARM = 3
"""Steps in which the models and their largest parts are found."""
N_STEPS = 10
WAIT_S = 0.1
N_LAYERS = 40
MOST_CPU_MS = 0.5
N_RESAMPLED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A step of some: the median of its time, since other processes delay some; the mean of CPU."""

    wall_ns: float
    cpu_ns: float


def rows(inputs: Inputs) -> Iterator[Row]:
    """Step time with its interval, CPU of the training thread, bytes, each for a step."""
    what = "the summary of a step: time, CPU, bytes"
    yield from needs("torch", "pip install torch", _rows(inputs), what)


def _rows(inputs: Inputs) -> Iterator[Row]:
    pairs = _pairs(inputs.folder)
    wall_ms = [(on.wall_ns - off.wall_ns) / 1e6 for on, off in pairs]
    cpu_ms = [(on.cpu_ns - off.cpu_ns) / 1e6 for on, off in pairs]
    least_ms = (min(on.cpu_ns for on, _ in pairs) - min(off.cpu_ns for _, off in pairs)) / 1e6
    usual_ms = statistics.median(off.wall_ns for _, off in pairs) / 1e6
    n_lines, n_bytes = _written(inputs.folder)
    blocks = f"{N_BLOCKS} pairs of {N_STEPS} steps"
    yield Row(
        f"step time, {blocks}: difference, 95 % interval",
        _interval(wall_ms),
        f"{usual_ms:.1f} ms without",
    )
    yield Row(f"CPU of the training thread a step, {blocks}: difference", _interval(cpu_ms))
    yield Row(
        "CPU of the training thread a step: difference of the least blocks",
        f"{least_ms:.3f} ms",
        "",
        f"{least_ms / usual_ms:.2%} of the step",
        bound(least_ms, "ms", most=MOST_CPU_MS),
    )
    yield Row("a line", f"{n_bytes / n_lines:,.0f} bytes")


def _pairs(folder: Path) -> list[tuple[Block, Block]]:
    """Blocks with and without the summary."""
    step = _loop()
    _block(step, None)
    found = []
    for number in range(N_BLOCKS):
        blocks = {}
        for has_summary in (True, False) if number % 2 else (False, True):
            steps = Steps(folder / "summaries", number) if has_summary else None
            blocks[has_summary] = _block(step, steps)
            if steps is not None:
                steps.close()
        found.append((blocks[True], blocks[False]))
    return found


def _block(step: Callable[[], None], steps: Steps | None) -> Block:
    """Some steps after those that warm up."""
    wall_ns, cpu_ns = [], []
    for number in range(N_WARM + N_STEPS):
        began_ns, began_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        step()
        if steps is not None:
            steps.end(number, time.perf_counter_ns() - began_ns)
        wall_ns.append(time.perf_counter_ns() - began_ns)
        cpu_ns.append(time.thread_time_ns() - began_cpu_ns)
    return Block(
        wall_ns=statistics.median(wall_ns[N_WARM:]), cpu_ns=statistics.fmean(cpu_ns[N_WARM:])
    )


def _loop() -> Callable[[], None]:
    """One step of a small model with more parts than are timed."""
    import torch  # noqa: PLC0415 - may be missing

    torch.set_num_threads(1)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(N_LAYERS)
    ]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.ones(8, 64), batch_size=8)

    def step() -> None:
        for batch in loader:
            model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(WAIT_S)

    return step


def _written(folder: Path) -> tuple[int, int]:
    """Lines and bytes of all blocks, without those of steps that warmed up."""
    lines = [
        line
        for path in (folder / "summaries" / "steps").glob("rank=*.jsonl")
        for line in path.read_bytes().splitlines(keepends=True)[N_WARM:]
    ]
    return len(lines), sum(map(len, lines))


def _interval(differences: list[float]) -> str:
    """Mean and its 95 % interval, by drawing the pairs again and again."""
    drawn = random.Random(0)  # noqa: S311 - no secret
    means = sorted(
        statistics.fmean(drawn.choices(differences, k=len(differences))) for _ in range(N_RESAMPLED)
    )
    low, high = means[int(0.025 * N_RESAMPLED)], means[int(0.975 * N_RESAMPLED)]
    return f"{statistics.fmean(differences):+.3f} ms ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
