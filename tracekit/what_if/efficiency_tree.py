"""The efficiency tree: POP metrics, extended to GPUs, from the replayed mean step T.

T_1 is T with transfers that take no time, T_2 is T_1 with a host that takes none either, C the
compute time of a device. PE = (mean C / max C) × (max C / T_2) × (T_2 / T_1) × (T_1 / T).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.replays import EfficiencyTree
from tracekit.what_if.changes import IS_HOST, unchanged

if TYPE_CHECKING:
    from tracekit.what_if.replay import Replay


def efficiency_tree(
    replay: Replay,
    mean_compute_ns: float,
    max_compute_ns: float,
    clock_share: float | None = None,
) -> EfficiencyTree | None:
    """The tree of a replay; None without compute.

    Args:
        replay: the job.
        mean_compute_ns: C, the mean over devices, of the mean step.
        max_compute_ns: that of the device which computes longest.
        clock_share: mean f / f_max of busy devices, where clocks were sampled.
    """
    if max_compute_ns <= 0:
        return None
    instant = unchanged(replay).scaled(pl.col("class") == "communication", 0.0)
    scenarios = [instant.scenario, instant.scaled(IS_HOST, 0.0).scenario]
    no_transfer_ns, no_host_ns = replay.mean_step_ns(scenarios).tolist()
    step_ns = max(replay.step_ns, max_compute_ns)
    no_transfer_ns = min(max(no_transfer_ns, max_compute_ns), step_ns)
    no_host_ns = min(max(no_host_ns, max_compute_ns), no_transfer_ns)
    return EfficiencyTree(
        load_balance_share=mean_compute_ns / max_compute_ns,
        serialization_share=max_compute_ns / no_host_ns,
        orchestration_share=no_host_ns / no_transfer_ns,
        transfer_share=no_transfer_ns / step_ns,
        mean_compute_ns=mean_compute_ns,
        imbalance_ns=max_compute_ns - mean_compute_ns,
        serialization_ns=no_host_ns - max_compute_ns,
        orchestration_ns=no_transfer_ns - no_host_ns,
        transfer_ns=step_ns - no_transfer_ns,
        step_ns=step_ns,
        clock_share=clock_share,
    )
