"""What a replay of a run says, as a result holds it."""

from __future__ import annotations

import msgspec


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
