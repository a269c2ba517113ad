"""Recording a loop: hook and handler against torch's `tensorboard_trace_handler`.

The same loop of small operators in a process of its own, recorded in the same steps by each. The
longest step is what every other rank waits for.

Run:
    python -m benchmarks.collector
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.measure import printed
from benchmarks.table import Row, is_installed, mb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TITLE = "Recording five steps of a loop"
SKIPPED = "skipped: pip install torch"
N_RUNS = 3
_LOOP = """
import json, resource, sys, time
import torch, tracekit
from torch.profiler import profile, schedule, tensorboard_trace_handler

kind, folder, n_operators = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
x = torch.ones(32, 32)
steps_ns = []

def train(step):
    began_ns = time.perf_counter_ns()
    for _ in range(60):
        y = x
        for _ in range(n_operators):
            y = y + x
        step()
        now_ns = time.perf_counter_ns()
        steps_ns.append(now_ns - began_ns)
        began_ns = now_ns

def profiled(handler):
    plan = schedule(skip_first=19, wait=0, warmup=1, active=5, repeat=1)
    with profile(schedule=plan, on_trace_ready=handler, acc_events=True) as it:
        train(it.step)

if kind == "none":
    train(lambda: None)
elif kind == "tensorboard":
    profiled(tensorboard_trace_handler(folder))
elif kind == "handler":
    profiled(tracekit.trace_handler(folder))
else:
    with tracekit.collect(folder, steps=5, wait=20, rank=0, world_size=1) as c:
        train(c.step)
ordered = sorted(steps_ns)
print(json.dumps([max(steps_ns), sum(steps_ns) / len(steps_ns), ordered[len(ordered) // 2],
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded loop: longest, mean and median step, memory of its process, bytes it leaves."""

    gap_ns: float
    mean_ns: float
    median_ns: float
    peak_bytes: float
    left_bytes: int


def rows(inputs: Inputs) -> Iterator[Row]:
    """Gap, mean step, memory and bytes, for a loop of many operators and one of few."""
    if not is_installed("torch"):
        yield Row("hook and handler", "", SKIPPED)
        return
    for n_operators in (1_000, 10_000):
        loops = {
            kind: _least(inputs.folder / f"{kind}-{n_operators}", kind, n_operators)
            for kind in ("none", "tensorboard", "handler", "hook")
        }
        yield from _compared(f"{n_operators:,} operators a step", loops)


def _compared(what: str, loops: dict[str, Recorded]) -> Iterator[Row]:
    plain, peer = loops["none"], loops["tensorboard"]
    yield Row(f"{what}, not recorded: longest step", _ms(plain.gap_ns))
    yield Row(f"{what}, not recorded: median step", _ms(plain.median_ns))
    for kind in ("handler", "hook"):
        ours = loops[kind]
        for name, own, others, shown in (
            ("longest step", ours.gap_ns, peer.gap_ns, _ms),
            ("mean step", ours.mean_ns, peer.mean_ns, _ms),
            ("memory", ours.peak_bytes, peer.peak_bytes, mb),
            ("bytes left", ours.left_bytes, peer.left_bytes, mb),
        ):
            ratio = f"{others / own:.2f} ×"
            yield Row(f"{what}, {kind}: {name}", shown(own), shown(others), ratio)


def _least(folder: Path, kind: str, n_operators: int) -> Recorded:
    """The run with the shortest longest step: what is above it is the machine's doing."""
    runs = []
    for number in range(N_RUNS):
        out = folder / str(number)
        out.mkdir(parents=True)
        said = printed([sys.executable, "-c", _LOOP, kind, str(out), str(n_operators)])
        left = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        runs.append(Recorded(*json.loads(said.splitlines()[-1]), left_bytes=left))
    return min(runs, key=lambda run: run.gap_ns)


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:,.1f} ms"


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
