"""How much of a step stragglers cost, and which: S, S_t, S_dp, S_stage, S_w, M_W, M_S."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import InputError
from tracekit.replays import Slowdowns, n_slowest
from tracekit.what_if.replay import Scenario

if TYPE_CHECKING:
    from tracekit.what_if.replay import Replay

LEAST_SLOWDOWN_SHARE = 0.01
"""Below it the shares divide by noise, and are not defined."""
MESSAGE_NAMES = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}
"""Both ends of a message are one type in published results."""


def slowdowns(replay: Replay) -> Slowdowns:
    """All slowdowns of a job, each a mean over its steps.

    Raises:
        InputError: its steps take no time.
    """
    work = replay.work
    labels = (work["type"].replace(MESSAGE_NAMES), work["dp"], work["stage"])
    names = [label.unique().sort().to_list() for label in labels]
    everything = pl.repeat(value=True, n=work.height, eager=True)
    of_one = (label == name for label, own in zip(labels, names, strict=True) for name in own)
    kept = chain((everything, ~everything), of_one)  # T, T_ideal, and that of each type, …
    step_ns = replay.mean_step_ns(_kept(replay, rows) for rows in kept)
    real_ns, ideal_ns = step_ns[:2]
    if not (real_ns > 0 and ideal_ns > 0 and replay.measured_ns > 0):
        raise InputError(
            "the replayed steps take no time: nothing in them can be compared",
            hint="Durations must be recorded: of operations in seconds, most of them above 0.",
        )
    ratios = iter((step_ns[2:] / ideal_ns).tolist())
    by_type, by_dp, by_stage = ({name: next(ratios) for name in own} for own in names)
    workers = work.select("rank", "dp", "stage").unique().sort("rank").rows()
    by_worker = {(dp, stage): min(by_dp[dp], by_stage[stage]) for _, dp, stage in workers}
    is_slowest = work["rank"].is_in(_slowest(workers, by_worker))
    is_last = work["stage"] == work["stage"].max()
    fixed_ns = replay.mean_step_ns([_kept(replay, ~is_slowest), _kept(replay, ~is_last)])
    extra_ns = real_ns - ideal_ns
    is_defined = extra_ns >= LEAST_SLOWDOWN_SHARE * real_ns
    shares = ((real_ns - fixed_ns) / extra_ns).tolist() if is_defined else [None, None]
    return Slowdowns(
        slowdown=float(real_ns / ideal_ns),
        by_type=_texts(by_type),
        by_dp=_texts(by_dp),
        by_stage=_texts(by_stage),
        by_worker={f"{dp},{stage}": ratio for (dp, stage), ratio in by_worker.items()},
        worker_share=shares[0],
        last_stage_share=shares[1],
        waste=float(1 - ideal_ns / real_ns),
        replay_error=abs(float(real_ns) - replay.measured_ns) / replay.measured_ns,
    )


def slowest_ranks(work: pl.DataFrame, found: Slowdowns) -> list[int]:
    """Ranks of the workers whose share of the slowdown is `worker_share`, the slowest first."""
    workers = work.select("rank", "dp", "stage").unique().sort("rank").rows()
    return _slowest(workers, {(dp, s): found.by_worker[f"{dp},{s}"] for _, dp, s in workers})


def _kept(replay: Replay, rows: pl.Series) -> Scenario:
    """These rows of work take their own time, all others what is usual."""
    return Scenario(np.where(rows.to_numpy(), replay.own_ns, replay.usual_ns))


def _slowest(
    workers: list[tuple[int, int, int]], by_worker: dict[tuple[int, int], float]
) -> list[int]:
    """Ranks of the workers that slow the job most; of equal ones the lower rank."""
    ranked = sorted(workers, key=lambda worker: (-by_worker[worker[1:]], worker[0]))
    return [rank for rank, _, _ in ranked[: n_slowest(len(workers))]]


def _texts(named: dict[Any, float]) -> dict[str, float]:
    """Keys as text, the largest first."""
    return {str(key): named[key] for key in sorted(named, key=lambda key: -named[key])}
