"""Adapters do not reach GPU memory: 3 GB/s between nodes where nccl-tests measured 20."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.nccl_log import Setup, write_baseline, write_log
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

N_RANKS, HEALTHY_GB_S, SLOW_GB_S = 8, 20.0, 3.0
GRADIENT_BYTES = 64 << 20
RANKS = tuple(range(N_RANKS))


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Two nodes of four data-parallel ranks; NCCL's log and nccl-tests lie beside their traces."""
    busbw_gb_s = HEALTHY_GB_S + (SLOW_GB_S - HEALTHY_GB_S) * severity
    job = Job(
        n_dp=N_RANKS,
        gradient_bytes=GRADIENT_BYTES,
        gradient_ns=round(GRADIENT_BYTES * 2 * (N_RANKS - 1) / N_RANKS / HEALTHY_GB_S),
        seed=seed,
        faults=Faults(group_factor={"dp0.0": HEALTHY_GB_S / busbw_gb_s}) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    network = "NET/IB/0" if severity else "NET/IB/0/GDRDMA"
    setup = Setup(
        world_size=N_RANKS,
        n_local=N_RANKS // 2,
        network=network,
        said=("NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",),
    )
    write_log(folder / "job.log", setup)
    measured = {1 << n: HEALTHY_GB_S for n in range(20, 28)}
    write_baseline(folder / "all_reduce_perf.txt", setup, measured)
    if not severity:
        return Truth()
    cause = Cause.TOPOLOGY_SETTING
    slow = Planted(id="low-bus-bandwidth", cause=cause, ranks=RANKS, saving_ns=saving_ns)
    # one ring: the last rank of a node sends to the first of the next, which lists it
    listed = Planted(id="slow-transport", cause=cause, ranks=(0, N_RANKS // 2), is_note=True)
    return Truth(findings=(slow, listed))


SCENARIO = Scenario(id="no-gpu-direct", title="Adapters do not reach GPU memory", build=build)
