"""Healthy jobs stay silent: nothing above a note, whatever the jitter of a seed.

Each rank computes with 2 % spread, leaves 5 % of the step idle and 8 % of it in exposed
communication, and enters collectives some tens of µs before or after the others.
"""

from __future__ import annotations

import random

import pytest

import tracekit
from tracekit.findings import Severity, Status

STEP_US, N_STEPS = 20_000, 7


def ddp(runs, seed, *, n_ranks=4, n_buckets=5):
    """A forward pass, then a backward pass under which all but the last bucket are reduced."""
    generator = random.Random(seed)
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    members = list(range(n_ranks))
    for step in range(1, N_STEPS + 1):
        at = STEP_US * step
        for trace in traces.values():
            trace.step(step, at, STEP_US)
        compute = {rank: 17_000 * generator.uniform(0.99, 1.01) for rank in members}
        for bucket in range(n_buckets):
            is_last = bucket == n_buckets - 1
            ready = {r: at + compute[r] * (bucket + 5) / (n_buckets + 4) for r in members}
            transfer = 1_500 if is_last else 800
            end = max(ready.values()) + transfer
            for rank, trace in traces.items():
                tail = generator.uniform(0, 8)
                enters = ready[rank]
                trace.collective(enters, end + tail - enters, launched=enters - 60, members=members)
        for rank, trace in traces.items():
            n_kernels = 40
            each = compute[rank] / n_kernels
            for number in range(n_kernels):
                starts = at + number * each
                trace.kernel(starts, each * 0.98, "gemm", launched=(at + number * 20, 8))
            trace.kernel(at + 19_000, 600, "multi_tensor_apply", launched=(at + 900, 8))
    return traces


def fsdp(runs, seed, *, n_ranks=8, n_layers=12):
    """Each layer gathers its parameters under the layer before it; ranks enter with jitter."""
    generator = random.Random(seed)
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    members = list(range(n_ranks))
    layer_us = STEP_US / n_layers
    for step in range(1, N_STEPS + 1):
        for trace in traces.values():
            trace.step(step, STEP_US * step, STEP_US)
        for layer in range(n_layers):
            at = STEP_US * step + layer * layer_us
            enters = {rank: at + 0.5 * layer_us + generator.gauss(0, 15) for rank in members}
            operation = "all_gather" if layer % 2 else "reduce_scatter"
            end = max(enters.values()) + 0.44 * layer_us  # 8 % of the layer lie bare
            for rank, trace in traces.items():
                busy = 0.87 * layer_us * generator.uniform(0.98, 1.0)
                trace.kernel(at, busy, "gemm", launched=(at - 100, 8))
                tail = generator.uniform(0, 8)
                starts = enters[rank]
                trace.collective(
                    starts, end + tail - starts, operation, launched=starts - 200, members=members
                )
    return traces


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("job", [ddp, fsdp])
def test_a_healthy_job_gets_no_warning(make_run, runs, job, seed):
    result = tracekit.analyze(make_run(job(runs, seed)), engine="local:1")
    loud = [
        (found.id, found.title, found.saving)
        for found in result.findings
        if found.severity in {Severity.WARNING, Severity.CRITICAL}
    ]
    assert loud == []
    assert all(found.status is not Status.FAILED for found in result.findings)


@pytest.mark.parametrize("seed", range(2))
def test_the_same_job_with_one_slow_rank_names_it_though_no_step_gets_shorter(make_run, runs, seed):
    traces = ddp(runs, seed)
    slow = runs.Trace()
    for table, rows in ddp(runs, seed)[2].rows.items():
        for row in rows:
            if table in {"kernels", "collectives"} and row.get("kind", "communication") == (
                "communication"
            ):
                late_ns = min(700_000, row["dur_ns"] - 1000)  # enters 700 µs later than planned
                row["start_ns"] += late_ns
                row["dur_ns"] -= late_ns
            slow.rows[table].append(row)
    result = tracekit.analyze(make_run(traces | {2: slow}), engine="local:1")
    named = [f for f in result.findings if f.id == "straggler-rank"]
    assert [f.ranks for f in named] == [(2,)]
    # hosts launch by a clock of their own here: what the rank is late by is slack of the devices
    assert named[0].severity is Severity.INFO
    assert named[0].saving.per_step_ns.high < 0.01 * STEP_US * 1000
