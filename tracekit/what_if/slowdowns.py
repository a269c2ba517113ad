"""How much of a pipeline step stragglers cost, and which: S, S_t, S_dp, S_stage, S_w, M_W, M_S."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replays import Slowdowns
from tracekit.what_if.schedule import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.what_if.pipeline import Pipeline
    from tracekit.what_if.schedule import Floats, Ints

    Bools = NDArray[np.bool_]

SLOWEST_SHARE = 0.03
"""Of the workers, those whose share of the slowdown is asked for (arXiv 2505.05713, Eq. 5)."""
LEAST_SLOWDOWN_SHARE = 0.01
"""Below it the shares divide by noise, and are not defined."""
MESSAGE_NAMES = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}
"""Both ends of a message are one type in published results."""
MAX_CELLS = 1 << 24
"""Nodes × scenarios at a time: 128 MB of times."""


def slowdowns(pipeline: Pipeline) -> Slowdowns:
    """All slowdowns of a job, each a mean over its steps."""
    ops = pipeline.ops
    n_ops = ops.height
    labels = (ops["type"].replace(MESSAGE_NAMES), ops["dp"], ops["stage"])
    names = [label.unique().sort().to_list() for label in labels]
    masks = [np.ones(n_ops, np.bool_), np.zeros(n_ops, np.bool_)]
    masks += [
        (label == name).to_numpy()
        for label, own in zip(labels, names, strict=True)
        for name in own
    ]
    step_ns = mean_step_ns(pipeline, masks)
    real_ns, ideal_ns = step_ns[:2]
    ratios = iter((step_ns[2:] / ideal_ns).tolist())
    by_type, by_dp, by_stage = ({name: next(ratios) for name in own} for own in names)
    workers = ops.select("rank", "dp", "stage").unique().sort("rank").rows()
    by_worker = {(dp, stage): min(by_dp[dp], by_stage[stage]) for _, dp, stage in workers}
    slowest = _slowest(workers, by_worker)
    is_slowest, is_last = ops["rank"].is_in(slowest), ops["stage"] == ops["stage"].max()
    fixed_ns = mean_step_ns(pipeline, [(~is_slowest).to_numpy(), (~is_last).to_numpy()])
    extra_ns = real_ns - ideal_ns
    is_defined = extra_ns >= LEAST_SLOWDOWN_SHARE * real_ns
    shares = [float(gained) for gained in (real_ns - fixed_ns) / extra_ns] if is_defined else None
    measured_ns = float(pipeline.real_step_ns.mean())
    return Slowdowns(
        slowdown=float(real_ns / ideal_ns),
        by_type=_texts(by_type),
        by_dp=_texts(by_dp),
        by_stage=_texts(by_stage),
        by_worker={f"{dp},{stage}": ratio for (dp, stage), ratio in by_worker.items()},
        worker_share=shares[0] if shares else None,
        last_stage_share=shares[1] if shares else None,
        waste=float(1 - ideal_ns / real_ns),
        replay_error=abs(float(real_ns) - measured_ns) / measured_ns,
    )


def mean_step_ns(pipeline: Pipeline, masks: Sequence[Bools]) -> Floats:
    """Mean replayed step for each mask: operations in it take their own time, others the usual."""
    n = max(1, MAX_CELLS // pipeline.graph.n_nodes)
    chunks = [masks[start : start + n] for start in range(0, len(masks), n)]
    return np.concatenate([_replayed(pipeline, np.stack(chunk, axis=1)) for chunk in chunks])


def _replayed(pipeline: Pipeline, masks: Bools) -> Floats:
    """Mean step of scenarios given as columns, ns."""
    ops, carries = pipeline.ops, pipeline.carries
    real_ns = np.append(ops["real_ns"].to_numpy(), 0.0)[:, None]
    ideal_ns = np.append(ops["ideal_ns"].to_numpy(), 0.0)[:, None]
    is_real = np.concatenate((masks, np.zeros((1, masks.shape[1]), np.bool_)))
    each_ns = np.where(is_real, real_ns, ideal_ns)  # the last row is for edges that carry nothing

    def weights(edges: Ints) -> Floats:
        return each_ns[carries[edges]]

    reached = times(pipeline.graph, weights, masks.shape[1])[: ops.height]
    steps = np.searchsorted(pipeline.steps, ops["step"].to_numpy())
    order = np.argsort(steps, kind="stable")
    first = np.searchsorted(steps[order], np.arange(len(pipeline.steps)))
    return np.maximum.reduceat(reached[order], first, axis=0).mean(axis=0)


def _slowest(
    workers: list[tuple[int, int, int]], by_worker: dict[tuple[int, int], float]
) -> list[int]:
    """Ranks of the workers that slow the job most; of equal ones the lower rank."""
    ranked = sorted(workers, key=lambda worker: (-by_worker[worker[1:]], worker[0]))
    n = math.ceil(SLOWEST_SHARE * len(workers) - 1e-9)
    return [rank for rank, _, _ in ranked[:n]]


def _texts(named: dict[Any, float]) -> dict[str, float]:
    """Keys as text, the largest first."""
    return {str(key): named[key] for key in sorted(named, key=lambda key: -named[key])}
