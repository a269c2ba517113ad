"""All that a replay says of a run, ready for a result."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.averages import mean_steps
from tracekit.derive.cached import remembered
from tracekit.derive.device_clocks import clock_share
from tracekit.errors import InputError, UsageError
from tracekit.replays import Answer, OnPath, Replayed, Slack, Slowdowns
from tracekit.what_if.changes import unchanged
from tracekit.what_if.critical_path import critical_path, slack_ns
from tracekit.what_if.efficiency_tree import efficiency_tree
from tracekit.what_if.job import job
from tracekit.what_if.pipeline import pipeline
from tracekit.what_if.questions import makes_usual, removed, scaled
from tracekit.what_if.slowdowns import slowdowns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replays import EfficiencyTree
    from tracekit.store import Run
    from tracekit.what_if.changes import Changes
    from tracekit.what_if.replay import Replay, Scenario

log = logging.getLogger(__name__)

CRITICAL_NS = 1_000
"""Work with less slack is on the critical path, or as good as."""
MAX_ON_PATH = 24
DEVICE_WORK = ("compute", "communication", "copy")


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Slowdowns by stragglers, and what the replay says besides; of which run, and its ranks.

    `other_runs` are names of runs that lay beside it.
    """

    slowdowns: Slowdowns
    replay: Replayed
    run: str
    ranks: tuple[int, ...]
    other_runs: tuple[str, ...] = ()


def asked(run: Run, scale: Sequence[str] = (), remove: Sequence[str] = ()) -> WhatIf | None:
    """Replay a run, as recorded and with each change asked for; None where nothing can be replayed.

    Args:
        run: the run.
        scale: `WORK=FACTOR` each, as `questions` reads them.
        remove: what is gone, likewise.

    Raises:
        InputError: what was recorded cannot be a schedule.
        UsageError: a question is not one, or asks for what is not there.
    """
    replay = replay_of(run)
    if replay is None:
        return None
    # asked twice, a thing is changed once
    scale, remove = (tuple(dict.fromkeys(map(str.strip, texts))) for texts in (scale, remove))
    found = slowdowns_of(run)  # refuses steps that take no time
    changes = {f"scale {text}": scaled(unchanged(replay), text) for text in scale}
    changes |= {f"remove {text}": removed(unchanged(replay), text, run) for text in remove}
    if len(changes) > 1:
        changes["all together"] = _together(run, replay, scale, remove)
    answers = _answers(replay, changes)
    last = next(reversed(changes.values())).scenario if changes else None
    return WhatIf(
        slowdowns=found,
        replay=_replayed(run, replay, answers, last),
        run=run.manifest.name,
        ranks=run.ranks,
        other_runs=run.manifest.other_runs,
    )


@remembered
def slowdowns_of(run: Run) -> Slowdowns:
    """The slowdowns of a run that can be replayed.

    Raises:
        InputError: it cannot.
    """
    replay = replay_of(run)
    if replay is None:
        raise InputError("nothing in the run can be replayed")
    return slowdowns(replay)


@remembered
def replay_of(run: Run) -> Replay | None:
    """The replay of a run: of its pipeline operations, else of its traces.

    Raises:
        InputError: what was recorded cannot be a schedule.
    """
    if run.n_rows("ops"):
        return _pipeline(run)
    return job(run)


def _pipeline(run: Run) -> Replay:
    """The replay of pipeline operations; steps that do not fit are left out, and said."""
    try:
        replay = pipeline(_ops(run))
    except InputError as error:
        missing = run.manifest.missing_ranks
        if not missing:
            raise
        listed = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        why = f"{error!s}; ranks not asked for or not read: {listed}"
        raise InputError(why, hint=error.hint) from error
    if replay.n_steps_left_out:
        log.warning(
            "%d steps are not replayed: not all replicas recorded the same operations in them",
            replay.n_steps_left_out,
        )
    return replay


def _ops(run: Run) -> pl.DataFrame:
    """Pipeline operations of the steps that are asked for."""
    ops = run.scan_all("ops").collect()
    if run.steps is None:
        return ops
    first, end = run.steps
    chosen = ops.filter((pl.col("step") >= first) & (pl.col("step") < end))
    if chosen.is_empty():
        known = ops["step"].unique().sort().to_list()
        raise UsageError(
            f"no step in {first}:{end}",
            hint=f"The steps here are {known[0]} to {known[-1]}; A:B leaves B out.",
        )
    return chosen


def _together(run: Run, replay: Replay, scale: Sequence[str], remove: Sequence[str]) -> Changes:
    changes = unchanged(replay)
    # What is made usual forgets what changed it before, so that comes first.
    for text in sorted(remove, key=lambda text: not makes_usual(text)):
        changes = removed(changes, text, run)
    for text in scale:
        changes = scaled(changes, text)
    return changes


def _answers(replay: Replay, changes: dict[str, Changes]) -> tuple[Answer, ...]:
    if not changes:
        return ()
    step_ns = replay.mean_step_ns([each.scenario for each in changes.values()]).tolist()
    return tuple(
        Answer(question=question, step_ns=ns, gained_ns=replay.step_ns - ns)
        for question, ns in zip(changes, step_ns, strict=True)
    )


def _replayed(
    run: Run, replay: Replay, answers: tuple[Answer, ...], scenario: Scenario | None
) -> Replayed:
    return Replayed(
        step_ns=replay.step_ns,
        measured_ns=replay.measured_ns,
        error_share=replay.error,
        is_inferred=replay.is_inferred,
        launched_share=replay.launched_share,
        tree=_tree(run, replay),
        path_step_ns=answers[-1].step_ns if answers else replay.step_ns,
        path_of=answers[-1].question if answers else "as recorded",
        critical_path=_on_path(replay, scenario),
        slack=_slack(replay),
        answers=answers,
    )


def _tree(run: Run, replay: Replay) -> EfficiencyTree | None:
    """The tree of the mean step; compute of pipeline workers is theirs, as they were recorded."""
    if not run.n_rows("ops"):
        compute_ns, share = mean_steps(run)["compute_ns"].to_numpy(), clock_share(run)
    else:
        is_compute = pl.col("class") == "compute"
        busy = replay.work.filter(is_compute).group_by("rank").agg(pl.col("own_ns").sum())
        compute_ns, share = busy["own_ns"].to_numpy() / replay.n_steps, None
    return efficiency_tree(replay, float(compute_ns.mean()), float(compute_ns.max()), share)


def _on_path(replay: Replay, scenario: Scenario | None) -> tuple[OnPath, ...]:
    """The path's parts by rank and type, ns a step, the largest first, `MAX_ON_PATH` at most."""
    rows = (
        critical_path(replay, scenario)
        .group_by("rank", "class", "type")
        .agg(
            pl.col("on_path_ns").sum() / replay.n_steps,
            pl.col("start_ns").sort_by("on_path_ns").last(),
            pl.col("end_ns").sort_by("on_path_ns").last(),
        )
        .sort("on_path_ns", "rank", "type", descending=[True, False, False])
        .head(MAX_ON_PATH)
    )
    return tuple(
        OnPath(
            rank=row["rank"],
            kind=row["class"],
            type=row["type"],
            per_step_ns=row["on_path_ns"],
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
        )
        for row in rows.iter_rows(named=True)
    )


def _slack(replay: Replay) -> tuple[Slack, ...]:
    """Slack of the device's work in the averaged steps, by type."""
    slack = pl.Series(np.maximum(slack_ns(replay), 0.0), nan_to_null=True)
    is_critical = pl.col("slack_ns") < CRITICAL_NS
    rows = (
        replay.work.with_columns(slack_ns=slack)
        .filter(
            pl.col("class").is_in(DEVICE_WORK)
            & pl.col("step").is_in(replay.steps["step"].unique().implode())
            & pl.col("slack_ns").is_finite()
        )
        .group_by("class", "type")
        .agg(
            total_ns=pl.col("own_ns").sum().cast(pl.Float64) / replay.n_steps,
            median_slack_ns=pl.col("slack_ns").median(),
            critical_ns=pl.col("own_ns").filter(is_critical).sum().cast(pl.Float64)
            / replay.n_steps,
        )
        .filter(pl.col("total_ns") > 0)
        .sort("critical_ns", "total_ns", "type", descending=[True, True, False])
    )
    return tuple(
        Slack(
            kind=row["class"],
            type=row["type"],
            total_ns=row["total_ns"],
            median_slack_ns=row["median_slack_ns"],
            critical_share=row["critical_ns"] / row["total_ns"],
        )
        for row in rows.iter_rows(named=True)
    )
