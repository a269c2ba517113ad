"""What fixing each finding buys, by replay: the job without what was found, over all its ranks."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.averages import mean_steps
from tracekit.derive.savings import saving
from tracekit.findings import Status
from tracekit.replays import MAX_ERROR_SHARE, MIN_LAUNCHED_SHARE
from tracekit.what_if.changes import unchanged
from tracekit.what_if.job import alone, job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.detectors import Detector
    from tracekit.findings import Finding
    from tracekit.store import Run
    from tracekit.what_if.changes import Changes
    from tracekit.what_if.replay import Replay

log = logging.getLogger(__name__)

MAX_ERROR_OF_SAVING = 0.25
"""A replay that misses the step by more than this share of a saving says nothing about it."""
LEAST_ALONE = 0.9
"""Where ranks gain by what others do, as in a pipeline, one alone gains less: no upper figure."""
LOUD_SHARE = 0.01
"""A finding that its detector is not sure saves this much does not become louder by a replay."""
MIN_MET_SHARE = 0.9
"""Of the time in communication, how much must be tied to other ranks: else a replay cannot show
what their waiting costs."""


def replayed(
    run: Run, findings: tuple[Finding, ...], detectors: Mapping[str, Detector]
) -> tuple[Finding, ...]:
    """The findings with the savings that a replay gives, where it can be trusted.

    A replay that fails leaves them as they are.
    """
    if not any(_has_cure(finding, detectors) for finding in findings):
        return findings
    try:
        return _replayed(run, findings, detectors)
    except Exception as error:
        is_debugged = log.isEnabledFor(logging.DEBUG)
        log.warning("savings are not replayed: %s", error, exc_info=is_debugged)
        return findings


def _replayed(
    run: Run, findings: tuple[Finding, ...], detectors: Mapping[str, Detector]
) -> tuple[Finding, ...]:
    whole = job(run)
    why = "nothing to replay" if whole is None else _why_not(run, whole)
    if whole is None or why:
        log.info("savings are not replayed: %s", why)
        return findings
    cures: list[tuple[Changes, ...]] = [
        _cured(run, whole, finding, detectors[finding.id]) if _has_cure(finding, detectors) else ()
        for finding in findings
    ]
    if not any(cures):
        return findings
    gains = iter(_gained_ns(whole, [each for changes in cures for each in changes]))
    lonely = alone(run)
    found = []
    for finding, changes in zip(findings, cures, strict=True):
        if not changes:
            found.append(finding)
            continue
        gained_ns = [next(gains) for _ in changes]
        alone_ns = _alone_ns(whole, lonely, finding, changes)
        is_bound = detectors[finding.id].is_bound
        found.append(
            _with_saving(run, finding, whole, gained_ns, is_bound=is_bound, alone_ns=alone_ns)
        )
    return tuple(found)


def _cured(run: Run, replay: Replay, finding: Finding, detector: Detector) -> tuple[Changes, ...]:
    """The job without what was found; nothing where the cure fails: others go on."""
    if detector.cure is None:
        return ()
    try:
        return detector.cure(unchanged(replay), run, finding)
    except Exception as error:
        is_debugged = log.isEnabledFor(logging.DEBUG)
        log.warning("no cure of %s: %s", finding.id, error, exc_info=is_debugged)
        return ()


def _has_cure(finding: Finding, detectors: Mapping[str, Detector]) -> bool:
    return (
        finding.status is Status.FOUND
        and finding.saving is not None
        and finding.id in detectors
        and detectors[finding.id].cure is not None
    )


def _why_not(run: Run, replay: Replay) -> str:
    """Why savings are not to be replayed; empty where they are."""
    if replay.error > MAX_ERROR_SHARE:
        return f"the replay misses the step by {replay.error:.1%}"
    mean_ns = float(mean_steps(run)["dur_ns"].to_numpy().mean())
    if abs(replay.measured_ns - mean_ns) > MAX_ERROR_SHARE * mean_ns:
        return "the steps that were replayed, the first ones, are not like all"
    if replay.launched_share < MIN_LAUNCHED_SHARE:
        return f"only {replay.launched_share:.0%} of the device's work has its launch in the file"
    calls = replay.work.filter(pl.col("class") == "communication")
    whole_ns = (pl.col("end_ns") - pl.col("start_ns")).sum()
    met = calls.filter(pl.col("instance").is_not_null())
    total_ns, met_ns = (float(each.select(whole_ns).item()) for each in (calls, met))
    if len(run.ranks) > 1 and met_ns < MIN_MET_SHARE * total_ns:
        return f"only {met_ns / total_ns:.0%} of the communication is matched between ranks"
    return ""


def _gained_ns(replay: Replay, changes: list[Changes]) -> list[float]:
    """By how much each change makes the mean step shorter, ns."""
    step_ns = replay.mean_step_ns([each.scenario for each in changes])
    gained: list[float] = (replay.step_ns - step_ns).tolist()
    return gained


def _alone_ns(
    replay: Replay, lonely: Replay | None, finding: Finding, changes: tuple[Changes, ...]
) -> float | None:
    """What the slowest rank at fault would gain if its waits for others stayed as they are, ns.

    Args:
        replay: the job, from which `changes` were made.
        lonely: the same work, of which communication takes its waiting too, and ranks never meet.
        finding: whose ranks; all, where it names none.
        changes: those that cure it; the one counts that gains most.
    """
    if lonely is None:
        return None
    own = [unchanged(lonely).scenario]
    own += [
        unchanged(lonely).timed(lonely.own_ns + each.own_ns - replay.own_ns).scenario
        for each in changes
    ]
    times = lonely.step_times_ns(own)
    gains = lonely.steps.with_columns(gain=pl.Series((times[:, :1] - times[:, 1:]).max(axis=1)))
    ranks = finding.ranks or tuple(gains["rank"].unique())
    of_rank = gains.filter(pl.col("rank").is_in(ranks)).group_by("rank").agg(pl.col("gain").mean())
    return max(0.0, float(of_rank["gain"].to_numpy().max())) if of_rank.height else None


def _with_saving(
    run: Run,
    finding: Finding,
    replay: Replay,
    gains: list[float],
    *,
    is_bound: bool,
    alone_ns: float | None,
) -> Finding:
    """The saving as replayed, give or take what the replay is off by."""
    if finding.saving is None:
        return finding
    error_ns = abs(replay.step_ns - replay.measured_ns)
    if error_ns > MAX_ERROR_OF_SAVING * finding.saving.per_step_ns.high:
        return finding
    low_ns, high_ns = min(gains) - error_ns, max(gains) + error_ns
    own = finding.saving.per_step_ns
    if is_bound:
        low_ns, high_ns = min(own.low, max(low_ns, 0.0)), min(own.high, high_ns)
    if finding.saving.share < LOUD_SHARE:
        low_ns = min(low_ns, own.low)
    how = "at most what a replay over all ranks gains" if is_bound else "replayed over all ranks"
    means = mean_steps(run)
    step_ns = float(np.mean(means["dur_ns"].to_numpy()))
    found = saving(
        low_ns,
        high_ns,
        step_ns,
        means.height,
        f"{finding.saving.assumes.partition('; upper bound')[0]}; {how}",
    )
    replayed_ns = max(0.0, *gains)
    if is_bound:  # what is there to hide behind is the detector's to say
        replayed_ns = min(replayed_ns, found.per_step_ns.high)
    if alone_ns is not None and alone_ns < LEAST_ALONE * replayed_ns:
        alone_ns = None
    return replace(finding, saving=replace(found, replayed_ns=replayed_ns, alone_ns=alone_ns))
