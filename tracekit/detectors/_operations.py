"""Late workers and long stages of a pipeline job of which only coarse operations are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.savings import saving
from tracekit.detectors import finding
from tracekit.findings import (
    Cause,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Saving,
    Scope,
    Status,
)
from tracekit.replays import MAX_ERROR_SHARE
from tracekit.units import Quantity, Unit, text
from tracekit.what_if.answers import replay_of, slowdowns_of
from tracekit.what_if.changes import unchanged
from tracekit.what_if.pipeline_order import BACKWARD, FORWARD
from tracekit.what_if.slowdowns import slowest_ranks

if TYPE_CHECKING:
    from tracekit.detectors import Detector
    from tracekit.store import Run
    from tracekit.what_if.replay import Replay

MIN_EXPLAINED = 0.5
"""What explains less than half of the slowdown by stragglers is not the cause of it."""
MIN_SLOWER = 1.1
"""A worker whose forward and backward both take a tenth longer is slow, not loaded unevenly."""
MAX_WORKERS = 32
"""Rows of evidence: those at fault are the first ones."""
ASSUMES = "their operations take what those of the others do; replayed over all ranks"


def late_worker(detector: Detector, run: Run, min_step_share: float) -> Finding:
    """The slowest 3 % of the workers, where they explain most of the slowdown; else a clear one."""
    replay, slow = _replay(run), slowdowns_of(run)
    ranks = tuple(sorted(slowest_ranks(replay.work, slow)))
    gain_ns, explained = _gain(replay, pl.col("rank").is_in(ranks)), slow.worker_share or 0.0
    shown = _shown(replay, gain_ns, min_step_share)
    table = _workers(replay)
    if not _is_worth(gain_ns, replay, min_step_share) or explained < MIN_EXPLAINED:
        return finding(detector, Status.CLEAR, evidence=(table,), **shown)
    ratios = _compute(replay).filter(pl.col("rank").is_in(ranks))["ratio"].to_list()
    is_slow = min(ratios, default=0.0) >= MIN_SLOWER
    named = ", ".join(map(str, ranks[:4]))
    return finding(
        detector,
        Status.FOUND,
        subject=f"rank {named}",
        title=f"Rank {named} makes the others wait {text(gain_ns, Unit.NS)} a step",
        cause=Cause.SLOW_DEVICE if is_slow else Cause.UNKNOWN,
        ranks=ranks,
        saving=_saving(run, replay, gain_ns),
        evidence=(table,),
        scope=Scope(victims=tuple(r for r in run.ranks if r not in ranks)),
        why=f"its forward and backward take {text(max(ratios), Unit.RATIO)} of what the others' do"
        if is_slow
        else "",
        **shown,
    )


def long_stage(detector: Detector, run: Run, max_waste: float, min_step_share: float) -> Finding:
    """The stage whose workers all compute longer than those of the others; else a clear one."""
    replay = _replay(run)
    compute = _compute(replay).group_by("rank", "stage").agg(pl.col("own_ns").sum())
    stages = (
        compute.group_by("stage")
        .agg(pl.col("own_ns").median(), ranks=pl.col("rank").sort())
        .sort("own_ns", "stage", descending=[True, False])
    )
    top, mean_ns = stages.row(0, named=True), float(stages["own_ns"].to_numpy().mean())
    waste = 1 - mean_ns / top["own_ns"] if top["own_ns"] else 0.0
    gain_ns = _gain(replay, pl.col("stage") == top["stage"])
    shown = _shown(replay, gain_ns, min_step_share) | {
        "measured": Quantity(waste, Unit.SHARE),
        "limit": Quantity(max_waste, Unit.SHARE),
    }
    table = _workers(replay)
    if waste < max_waste or not _is_worth(gain_ns, replay, min_step_share):
        return finding(detector, Status.CLEAR, evidence=(table,), **shown)
    return finding(
        detector,
        Status.FOUND,
        subject=f"stage {top['stage']}",
        title=f"Stage {top['stage']} of {stages.height} computes "
        f"{text(top['own_ns'] / mean_ns - 1, Unit.SHARE)} longer than the mean stage",
        cause=Cause.STAGE_IMBALANCE,
        ranks=tuple(top["ranks"]),
        saving=_saving(run, replay, gain_ns),
        evidence=(table,),
        scope=Scope(victims=tuple(r for r in run.ranks if r not in top["ranks"])),
        why=f"its workers compute {text(top['own_ns'], Unit.NS)} a step",
        **shown,
    )


def _replay(run: Run) -> Replay:
    replay = replay_of(run)
    if replay is None:
        raise ValueError("a run of operations has a replay")
    return replay


def _gain(replay: Replay, which: pl.Expr) -> float:
    """What the mean step gains where this work takes what is usual, ns."""
    changed = unchanged(replay).usual(which)
    return replay.step_ns - float(replay.mean_step_ns([changed.scenario])[0])


def _is_worth(gain_ns: float, replay: Replay, min_step_share: float) -> bool:
    return gain_ns >= min_step_share * replay.step_ns and replay.error <= MAX_ERROR_SHARE


def _shown(replay: Replay, gain_ns: float, limit: float) -> dict[str, Any]:
    """What a finding says whether found or clear: measured, limit and confidence."""
    share = min(max(gain_ns / replay.step_ns, 0.0), 1.0)
    n_steps = replay.n_steps
    why = f"{n_steps} steps; the replay misses the measured one by {replay.error:.1%}"
    return {
        "measured": Quantity(share, Unit.SHARE),
        "limit": Quantity(limit, Unit.SHARE),
        "confidence": Confidence(Level.HIGH if n_steps > 2 else Level.MEDIUM, why),
    }


def _saving(run: Run, replay: Replay, gain_ns: float) -> Saving:
    """The gain, give or take what the replay is off by; of all ranks, recorded or not."""
    error_ns = abs(replay.step_ns - replay.measured_ns)
    low_ns, high_ns = gain_ns - error_ns, gain_ns + error_ns
    return saving(low_ns, high_ns, replay.measured_ns, run.manifest.world_size, ASSUMES)


def _compute(replay: Replay) -> pl.DataFrame:
    """Forward and backward of each worker: `own_ns` a step, `ratio` to that of the median worker.

    Rows: rank, dp, stage, type, forward before backward, by rank.
    """
    sums = (
        replay.work.filter(pl.col("type").is_in([FORWARD, BACKWARD]))
        .group_by("rank", "dp", "stage", "type")
        .agg(pl.col("own_ns").sum() / replay.n_steps)
        .sort("type", "rank", descending=[True, False])
    )
    return sums.with_columns(ratio=pl.col("own_ns") / pl.col("own_ns").median().over("type"))


def _workers(replay: Replay) -> Evidence:
    """The workers that compute longest, by type of their compute."""
    rows = (
        _compute(replay)
        .pivot(on="type", index=["rank", "dp", "stage"], values="own_ns")
        .sort(pl.sum_horizontal(pl.col("^.*compute$")), "rank", descending=[True, False])
    )
    kinds = [name for name in rows.columns if name.endswith("compute")]
    cut = f", the {MAX_WORKERS} that compute longest" if rows.height > MAX_WORKERS else ""
    return Evidence(
        title=f"Compute of workers, mean step{cut}",
        columns=(
            Column("rank"),
            Column("replica"),
            Column("stage"),
            *(Column(kind, Unit.NS) for kind in kinds),
        ),
        rows=tuple(rows.select("rank", "dp", "stage", *kinds).head(MAX_WORKERS).iter_rows()),
    )
