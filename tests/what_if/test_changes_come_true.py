"""What the replay predicts of a change, against the simulator's own run of the changed job.

The replay sees only the traces of the job as it was; the simulator runs the job as it would be.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

import tracekit
from tracekit.sample_traces.simulator.engine import simulate
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import mean_step_ns, recorded
from tracekit.sample_traces.simulator.training import programs
from tracekit.what_if.changes import unchanged
from tracekit.what_if.job import job as replay_of
from tracekit.what_if.questions import intervals_of, removed

COMPUTE = pl.col("class") == "compute"
LAYERS = COMPUTE & (pl.col("type") != "optimizer")
OPTIMIZER = pl.col("type") == "optimizer"
GRADIENTS = (pl.col("class") == "communication") & pl.col("group").str.starts_with("dp")
OTHERS = (pl.col("class") == "communication") & ~pl.col("group").str.starts_with("dp")

DDP = Job(n_dp=4, n_layers=8)
UNSYNCED = replace(DDP, is_synced=False)
GRID = Job(n_dp=2, n_tp=2, n_layers=8)
PIPELINE = Job(n_dp=2, n_pp=4, n_micro_batches=8, n_layers=8)
INTERLEAVED = Job(n_dp=2, n_pp=2, n_chunks=2, schedule="interleaved", n_micro_batches=4, n_layers=8)
GPIPE = Job(n_dp=2, n_pp=2, schedule="gpipe", n_micro_batches=4, n_layers=8)
EXPERTS = Job(n_dp=4, n_ep=4, n_layers=8)
SMALL = Job(n_dp=2, n_pieces=8, forward_ns=300_000, backward_ns=600_000, call_ns=12_000, n_layers=8)
GRAPHED = Job(n_dp=2, is_graphed=True, n_layers=8)
SLOW = replace(DDP, faults=Faults(compute_factor={2: 1.4}))
SLOW_OF_TWO = replace(DDP, n_dp=2, faults=Faults(compute_factor={1: 1.4}))
SLOW_STAGE = replace(PIPELINE, faults=Faults(compute_factor={3: 1.4}))
STARVED = replace(DDP, loader_ns=20_000_000)
HELD_UP = replace(PIPELINE, faults=Faults(loader_ns={(0, s): 30_000_000 for s in DDP.steps}))


def layers(job, factor):
    """The job with layers that take `factor` times as long."""
    forward, backward = round(job.forward_ns * factor), round(job.backward_ns * factor)
    return replace(job, forward_ns=forward, backward_ns=backward)


def scale(which, factor):
    return lambda changes, _run: changes.scaled(which, factor)


def without_waits(changes, _run):
    return changes.without_waits(pl.lit(value=True))


def without(name):
    return lambda changes, run: removed(changes, name, run)


CASES = {
    "ddp: layers × 0.5": (DDP, layers(DDP, 0.5), scale(LAYERS, 0.5)),
    "ddp: layers × 2": (DDP, layers(DDP, 2), scale(LAYERS, 2)),
    "ddp: gradients × 4": (DDP, replace(DDP, gradient_ns=6_000_000), scale(GRADIENTS, 4)),
    "ddp: no gradients": (DDP, replace(DDP, gradient_ns=0), scale(GRADIENTS, 0)),
    "ddp: optimizer × 4": (DDP, replace(DDP, optimizer_ns=2_400_000), scale(OPTIMIZER, 4)),
    "ddp: no sync": (DDP, UNSYNCED, without_waits),
    "unsynced: layers × 0.5": (UNSYNCED, layers(UNSYNCED, 0.5), scale(LAYERS, 0.5)),
    "unsynced: gradients × 2": (
        UNSYNCED,
        replace(UNSYNCED, gradient_ns=3_000_000),
        scale(GRADIENTS, 2),
    ),
    "grid: layers × 0.5": (GRID, layers(GRID, 0.5), scale(LAYERS, 0.5)),
    "grid: tensor parallel × 3": (GRID, replace(GRID, tensor_ns=180_000), scale(OTHERS, 3)),
    "grid: gradients × 2": (GRID, replace(GRID, gradient_ns=3_000_000), scale(GRADIENTS, 2)),
    "pipeline: layers × 0.5": (PIPELINE, layers(PIPELINE, 0.5), scale(LAYERS, 0.5)),
    "pipeline: layers × 2": (PIPELINE, layers(PIPELINE, 2), scale(LAYERS, 2)),
    "pipeline: messages × 3": (
        PIPELINE,
        replace(PIPELINE, activation_ns=450_000),
        scale(OTHERS, 3),
    ),
    "interleaved: layers × 0.5": (INTERLEAVED, layers(INTERLEAVED, 0.5), scale(LAYERS, 0.5)),
    "gpipe: messages × 5": (GPIPE, replace(GPIPE, activation_ns=750_000), scale(OTHERS, 5)),
    "experts: exchange × 3": (EXPERTS, replace(EXPERTS, exchange_ns=360_000), scale(OTHERS, 3)),
    "experts: experts × 0.5": (
        EXPERTS,
        replace(EXPERTS, expert_ns=200_000),
        scale(pl.col("name").str.contains("grouped_gemm"), 0.5),
    ),
    "small kernels: layers × 0.5": (SMALL, layers(SMALL, 0.5), scale(LAYERS, 0.5)),
    "small kernels: layers × 4": (SMALL, layers(SMALL, 4), scale(LAYERS, 4)),
    "small kernels: no sync": (SMALL, replace(SMALL, is_synced=False), without_waits),
    "graphs: layers × 0.5": (GRAPHED, layers(GRAPHED, 0.5), scale(LAYERS, 0.5)),
    "slow rank: healthy": (
        SLOW,
        DDP,
        scale(COMPUTE & (pl.col("rank") == 2), 1 / 1.4),
    ),
    "slow stage: healthy": (
        SLOW_STAGE,
        PIPELINE,
        scale(COMPUTE & (pl.col("rank") == 3), 1 / 1.4),
    ),
    "slow rank: like its peers": (SLOW, DDP, without("straggler:2")),
    "slow rank of two: like its peer": (
        SLOW_OF_TWO,
        replace(DDP, n_dp=2),
        without("straggler:1"),
    ),
    "starved: no loading": (STARVED, replace(DDP, loader_ns=0), without("input-pipeline")),
    "held up: no loading on one rank": (
        HELD_UP,
        PIPELINE,
        lambda changes, run: changes.without_host({0: intervals_of(run, 0, "input-pipeline")}),
    ),
}


@pytest.fixture(scope="module")
def replays(tmp_path_factory):
    """The run of a job and its replay, made once."""
    made = {}

    def replay(job):
        key = repr(job)
        if key not in made:
            folder = tmp_path_factory.mktemp("job")
            (folder / "traces").mkdir()
            recorded(job, folder / "traces")
            run = tracekit.convert(folder / "traces", folder / "run", engine="local:1")
            made[key] = run, replay_of(run)
        return made[key]

    return replay


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_change_gives_the_step_that_the_simulator_runs(name, replays):
    job, changed, change = CASES[name]
    run, replay = replays(job)
    assert replay.step_ns == pytest.approx(replay.measured_ns, rel=0.005)
    (predicted_ns,) = replay.mean_step_ns([change(unchanged(replay), run).scenario])
    true_ns = mean_step_ns(simulate(programs(changed)))
    assert predicted_ns == pytest.approx(true_ns, rel=0.05)
