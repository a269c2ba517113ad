"""What a replay costs: all scenarios of a job at once, against one after another; and its error.

Run:
    python -m benchmarks.what_if [PATH ...]

Without a path a pipeline of 4 replicas × 4 stages × 32 micro-batches × 44 steps is made up, as
large as the job "AR" of arXiv 2505.05713. Each path is a file of pipeline operations, or traces of
ranks. CPU seconds are those of one process. The plain way re-simulates the job for each scenario:
it walks the operations one by one, in order of dependency. The error is the mean of |T_sim - T| / T
over steps; of traces also of a graph that knows no waits between streams (blind).
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import tracekit
from tracekit.schema import OPS
from tracekit.what_if.answers import replay_of
from tracekit.what_if.job import made
from tracekit.what_if.pipeline import pipeline
from tracekit.what_if.replay import Scenario
from tracekit.what_if.slowdowns import slowdowns

if TYPE_CHECKING:
    from tracekit.what_if.replay import Replay
    from tracekit.what_if.schedule import Floats

N_DP, N_STAGES, N_MICRO_BATCHES, N_STEPS = 4, 4, 32, 44
N_PLAIN = 3
"""Scenarios that the plain way is timed for; the others take as long."""
MS = 1_000_000


def main(paths: list[str]) -> None:
    """Print a row a job."""
    print(
        "| job | operations | scenarios | at once, CPU s | plain, CPU s | ratio | error | blind |"
    )
    print("|---|---|---|---|---|---|---|---|")
    if not paths:
        started_s = time.process_time()
        replay = pipeline(made_up())
        _row("made up", replay, time.process_time() - started_s, ("–", "–"))
    for path in paths:
        with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
            run = tracekit.convert(path, Path(folder) / "run", engine="local:1")
            started_s = time.process_time()
            found = replay_of(run)
            taken_s = time.process_time() - started_s
            if found is None:
                print(f"| {Path(path).name} | nothing to replay | | | | | | |")
            else:
                blind = None if run.n_rows("ops") else made(run, has_stream_waits=False)
                errors = (_error(found), "–" if blind is None else _error(blind))
                _row(Path(path).name, found, taken_s, errors)


def _error(replay: Replay) -> str:
    """Mean of |T_sim - T| / T over the steps of all ranks."""
    simulated = replay.step_times_ns([Scenario(replay.own_ns)])[:, 0]
    return f"{np.abs(simulated / replay.steps['dur_ns'].to_numpy() - 1).mean():.2%}"


def _row(name: str, replay: Replay, made_s: float, errors: tuple[str, str]) -> None:
    started_s = time.process_time()
    found = slowdowns(replay)
    at_once_s = made_s + time.process_time() - started_s
    n_scenarios = 4 + sum(map(len, (found.by_type, found.by_dp, found.by_stage)))
    plain_s = made_s + n_scenarios * _plain_s(replay)
    print(
        f"| {name} | {replay.work.height:,} | {n_scenarios} | {at_once_s:.2f} | {plain_s:.1f} | "
        f"{plain_s / at_once_s:.0f} × | {errors[0]} | {errors[1]} |",
        flush=True,
    )


def _plain_s(replay: Replay) -> float:
    """CPU seconds of one scenario, walked node by node."""
    started_s = time.process_time()
    for _ in range(N_PLAIN):
        reached = _walked(replay, replay.own_ns)
    taken_s = (time.process_time() - started_s) / N_PLAIN
    both = replay.reached_ns([Scenario(replay.own_ns)])[:, 0]
    if not np.allclose(reached, both):
        raise AssertionError("the two ways differ")
    return taken_s


def _walked(replay: Replay, own_ns: Floats) -> list[float]:
    """When each node is reached, one node after another."""
    graph, taken_ns = replay.graph, replay.edge_ns(own_ns).tolist()
    onward = defaultdict(list)
    n_open = [0] * graph.n_nodes
    for edge, (source, target) in enumerate(
        zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    ):
        onward[source].append((target, edge))
        n_open[target] += 1
    ready = [node for node, n in enumerate(n_open) if n == 0]
    reached = [0.0 if n == 0 else -np.inf for n in n_open]
    while ready:
        node = ready.pop()
        for target, edge in onward[node]:
            reached[target] = max(reached[target], reached[node] + taken_ns[edge])
            n_open[target] -= 1
            if not n_open[target]:
                ready.append(target)
    return reached


def made_up(n_micro_batches: int = N_MICRO_BATCHES, n_steps: int = N_STEPS) -> pl.DataFrame:
    """Operations of a pipeline that runs all forwards, then all backwards; durations by chance."""
    generator = random.Random(1)  # noqa: S311 - a simulation
    rows = []
    for step in range(n_steps):
        for dp in range(N_DP):
            for stage in range(N_STAGES):
                worker = (stage * N_DP + dp, dp, stage, step)
                rows += _worker(worker, n_micro_batches, generator)
    schema = pl.Schema({"rank": pl.Int64(), **OPS.schema})
    return pl.DataFrame(rows, schema=schema)


def _worker(
    worker: tuple[int, int, int, int], n_micro_batches: int, generator: random.Random
) -> list[dict[str, object]]:
    rank, dp, stage, step = worker
    rows: list[dict[str, object]] = []
    now_ns = 0

    def add(kind: str, sequence: int, dur_ms: float, *, is_chunked: bool = True) -> None:
        nonlocal now_ns
        dur_ns = round(dur_ms * MS * generator.uniform(0.95, 1.05))
        place = {"rank": rank, "dp": dp, "stage": stage, "step": step, "type": kind}
        chunk = {"chunk": 0, "model_chunk": stage} if is_chunked else {}
        times = {"start_ns": now_ns, "end_ns": now_ns + dur_ns, "dur_ns": dur_ns}
        rows.append(place | chunk | times | {"sequence": sequence})
        now_ns += dur_ns

    add("params-all-gather", 0, 5)
    for number in range(n_micro_batches):
        if stage > 0:
            add("forward-recv", number, 1)
        add("forward-compute", number, 200)
        if stage < N_STAGES - 1:
            add("forward-send", number, 1)
    for number in range(n_micro_batches):
        if stage < N_STAGES - 1:
            add("backward-recv", number, 1)
        add("backward-compute", number, 400)
        if stage > 0:
            add("backward-send", number, 1)
    add("gc", 0, 0, is_chunked=False)
    add("grads-reduce-scatter", 0, 50)
    add("optimizer-clip-main-grad", 0, 5, is_chunked=False)
    add("optimizer", 0, 20, is_chunked=False)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
