"""What a replay of a run says, as a result holds it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import msgspec

MIN_LAUNCHED_SHARE = 0.95
"""Work whose launch is not in the file stays where it was: with less nothing can move."""
MAX_ERROR_SHARE = 0.05
"""A replay that misses the measured step by more claims no saving (DEFINITIONS 6)."""
SLOWEST_SHARE = 0.03
"""Of the workers, those whose share of the slowdown is asked for (arXiv 2505.05713, Eq. 5)."""


def n_slowest(n_workers: int) -> int:
    """How many workers the slowest 3 % are, rounded up."""
    return ceil(SLOWEST_SHARE * n_workers - 1e-9)  # 3 % of 100 is a little more than 3 in a double


class Slowdowns(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "slowdown": "S",
        "by_type": "S_t",
        "by_dp": "S_dp",
        "by_stage": "S_stage",
        "by_worker": "S_w",
        "worker_share": "M_W",
        "last_stage_share": "M_S",
    },
):
    """Slowdown by stragglers, by what makes them (DEFINITIONS 6, arXiv 2505.05713).

    `slowdown` = T / T_ideal: the replayed step against one in which all operations of a type take
    the same time. `by_type`, `by_dp`, `by_stage`, `by_worker` ("dp,stage"): T with real durations
    there alone, / T_ideal. `worker_share`, `last_stage_share`: the part of T - T_ideal that goes
    when the slowest 3 % of the workers, or the last stage, become ideal; None where T - T_ideal is
    under 1 % of T. `waste` = 1 - 1/S; `replay_error` = |T - T_real| / T_real.
    """

    slowdown: float
    by_type: dict[str, float]
    by_dp: dict[str, float]
    by_stage: dict[str, float]
    by_worker: dict[str, float]
    worker_share: float | None
    last_stage_share: float | None
    waste: float
    replay_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyTree:
    """Parallel efficiency of the replayed mean step as a product of four shares (DEFINITIONS 7).

    Load balance × serialization × orchestration × transfer = mean C / T; the bars in ns (mean
    compute, imbalance, serialization, orchestration, transfer) sum to `step_ns`. `clock_share` is
    mean f / f_max while busy: times it the product is the global efficiency, and mean compute less
    that share of it is what clocks cost. None where clocks were not sampled.
    """

    load_balance_share: float
    serialization_share: float
    orchestration_share: float
    transfer_share: float
    mean_compute_ns: float
    imbalance_ns: float
    serialization_ns: float
    orchestration_ns: float
    transfer_ns: float
    step_ns: float
    clock_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPath:
    """What a kind of work of one rank takes of the critical path, ns a step.

    The path's longest piece of it began at `start_ns` and ended at `end_ns` (since the run's
    epoch, as recorded; null for latency).
    """

    rank: int
    kind: str
    type: str
    per_step_ns: float
    start_ns: int | None
    end_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """How much later work of a kind could end without the step ending later, ns.

    `critical_share` is the share of its time that has no slack.
    """

    kind: str
    type: str
    total_ns: float
    median_slack_ns: float
    critical_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a change would make of the mean step: the question and the replayed step, ns."""

    question: str
    step_ns: float
    gained_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay of the averaged steps says.

    `step_ns` is the replayed mean step, `measured_ns` the measured one; `error_share` is what they
    differ by. `is_inferred`: dependencies had to be guessed from times. `launched_share` of the
    device's events have their launch in the file; others stay where they were. Above
    `MAX_ERROR_SHARE` nothing is claimed from it. `critical_path` is the longest path through the
    steps `path_of` says, of `path_step_ns` in the mean: as recorded, or with the last change asked.
    """

    step_ns: float
    measured_ns: float
    error_share: float
    is_inferred: bool
    launched_share: float
    tree: EfficiencyTree | None
    path_step_ns: float
    path_of: str
    critical_path: tuple[OnPath, ...]
    slack: tuple[Slack, ...]
    answers: tuple[Answer, ...]

    @property
    def is_trusted(self) -> bool:
        """Whether savings may be claimed from it."""
        return self.error_share <= MAX_ERROR_SHARE and self.launched_share >= MIN_LAUNCHED_SHARE
