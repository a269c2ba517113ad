"""One rank sends more tokens to experts than its peers, and every exchange waits for its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Cause
from tracekit.sample_traces import Planted, Scenario, Truth
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.recorded import recorded

if TYPE_CHECKING:
    from pathlib import Path

RANK = 2


def build(folder: Path, seed: int, severity: float) -> Truth:
    """Four expert ranks; rank 2 moves 1 + 1.5 × severity of an even share, the others the rest."""
    share = 1 + 1.5 * severity
    factors = dict.fromkeys(range(4), (4 - share) / 3) | {RANK: share}
    job = Job(
        n_ep=4,
        seed=seed,
        faults=Faults(exchange_factor=factors) if severity else Faults(),
    )
    saving_ns = recorded(job, folder).saving_ns
    if not severity:
        return Truth()
    planted = Planted(
        id="imbalanced-all-to-all",
        cause=Cause.EXPERT_IMBALANCE,
        ranks=(RANK,),
        saving_ns=saving_ns,
    )
    # What each rank waits in uneven exchanges cannot be told from their transfers.
    return Truth(findings=(planted,), skipped=("straggler-rank",))


SCENARIO = Scenario(
    id="uneven-exchanges", title="One rank moves more bytes in all-to-all", build=build
)
