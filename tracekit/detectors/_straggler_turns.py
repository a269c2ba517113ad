"""Ranks that take turns at making the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.averages import breakdowns
from tracekit.derive.culprits import MIN_VICTIM_SHARE
from tracekit.derive.savings import saving
from tracekit.derive.why_late import was_held_up
from tracekit.detectors import Detector, finding, number
from tracekit.detectors._straggler_causes import explained
from tracekit.detectors._straggler_tables import by_rank, parts_of_lateness, work_by_class
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Status
from tracekit.units import Quantity, Unit

if TYPE_CHECKING:
    from tracekit.detectors._straggler_seen import Seen

MIN_STALL_SHARE = 0.01
"""A delay of one rank alone by less of a step is jitter."""
MIN_TURNS = 3
"""Fewer steps than this in which ranks stall are chance."""
MIN_PAUSE_NS = 10_000_000
"""A host that is gone for so long, outside of any operator, is paused."""


def in_turns(
    detector: Detector,
    seen: Seen,
    *,
    min_step_share: float,
    min_steps_share: float,
    max_inherited_share: float,
) -> Finding | None:
    """Ranks take turns: in most steps one or another stalls all others, and not the same.

    Args:
        detector: whose finding it is.
        seen: what is looked at.
        min_step_share: the stalls of a step cost the others this share of it.
        min_steps_share: so many of the steps have such stalls.
        max_inherited_share: who is held up elsewhere for more of its lateness has no turn.
    """
    leaders = _stalls(seen).filter(pl.col("step_ns") >= min_step_share * seen.step_ns)
    ranks = seen.late.join(leaders.select("culprit"), on="culprit", how="semi")["rank"]
    n_least = max(MIN_TURNS, min_steps_share * seen.n_steps)
    n_steps = leaders["step"].n_unique()
    if leaders["culprit"].n_unique() < 2 or n_steps < n_least or len(seen.run.ranks) < 3:
        return None
    in_step = leaders.unique("step", keep="first", maintain_order=True)
    low_ns = number(in_step["gain_step_ns"].sum()) / seen.n_steps
    wait_ns = number(in_step["step_ns"].sum()) / seen.n_steps
    high_ns = wait_ns + _uncovered_in_turns_ns(seen, leaders)
    own = in_main_group(seen.late.join(leaders, on=["step", "culprit"], how="semi"))
    why = seen.why(own)
    if was_held_up(why, max_inherited_share):
        return None
    cause, reason = explained(seen.run, why)
    a_turn_ns = number(why.parts["extra_ns"].max()) * seen.n_steps / leaders.height
    if cause is Cause.HOST_OTHER and a_turn_ns >= MIN_PAUSE_NS:
        cause = Cause.HOST_PAUSE
    low_ns, assumes = seen.shared(low_ns, cause, str(own["group"][0]), 1)
    level = Level.LOW if cause is Cause.UNKNOWN else Level.MEDIUM
    return finding(
        detector,
        Status.FOUND,
        subject="rotating",
        title="Ranks take turns at making the others wait",
        cause=cause,
        ranks=tuple(ranks.unique().sort()),
        steps=tuple(leaders["step"].unique().sort()),
        measured=Quantity(min(wait_ns / seen.step_ns, 1.0), Unit.SHARE),
        limit=Quantity(min_step_share, Unit.SHARE),
        confidence=Confidence(
            level, f"{ranks.n_unique()} ranks stall the others by turns, in {n_steps} steps"
        ),
        saving=saving(low_ns, high_ns, seen.step_ns, seen.means.height, assumes),
        evidence=(
            by_rank(seen.usable, seen.late),
            parts_of_lateness(why),
            _leaders(leaders),
            *work_by_class(why),
        ),
        why=f"where a rank stalls the others, {reason}",
    )


def _stalls(seen: Seen) -> pl.DataFrame:
    """What each culprit costs in a step by delays that are no jitter: by 1 % of a step each.

    Stalls of one group follow each other, so those of a step add up; those of two groups happen at
    the same time, and the larger sum counts.

    Returns:
        `step`, `culprit`, `victim_ns` (most that one rank waits for it), `step_ns` (sum over
        culprits of one group) and `gain_step_ns` (of what its least victim gains); by step, then
        culprit.
    """
    here = ["step", "culprit"]
    stalls = seen.calls.filter(pl.col("gain_ns") >= MIN_STALL_SHARE * seen.step_ns)
    in_group = (
        stalls.with_columns(sure_ns=pl.col("gain_ns") - pl.col("error_ns"))
        .group_by(*here, "group")
        .agg(pl.col("victim_ns", "gain_ns", "sure_ns").sum())
        .sort(*here, "gain_ns", "group", descending=[False, False, True, False])
    )
    main = in_group.unique(here, keep="first", maintain_order=True).select(*here, "group")
    is_victim = pl.col("gain_ns") >= MIN_VICTIM_SHARE * pl.col("gain_ns").max().over(here)
    culprits = (
        in_group.join(seen.usable.select("rank", "group").unique(), on="group")
        .join(seen.late.select("culprit", "rank").unique(), on=["culprit", "rank"], how="anti")
        .sort(*here, "rank", "group")
        .group_by(*here, "rank", maintain_order=True)
        .agg(pl.col("victim_ns", "gain_ns", "sure_ns").sum())
        .filter(is_victim)
        .group_by(here)
        .agg(pl.col("victim_ns").max(), pl.col("sure_ns").min())
        .sort(here)
        .join(main, on=here, validate="1:1", maintain_order="left")
    )
    in_step = ["step", "group"]
    return culprits.with_columns(
        step_ns=pl.col("victim_ns").sum().over(in_step).max().over("step"),
        gain_step_ns=pl.col("sure_ns").sum().over(in_step).max().over("step"),
    ).drop("group", "sure_ns")


def in_main_group(late: pl.DataFrame) -> pl.DataFrame:
    """Late arrivals in the group that holds most of the lateness."""
    totals = late.group_by("group").agg(pl.col("late_ns").sum())
    main = totals.sort("late_ns", "group", descending=[True, False]).head(1)
    return late.join(main.select("group"), on="group", how="semi")


def _leaders(leaders: pl.DataFrame) -> Evidence:
    """Who stalled the others in each step, and what it cost them."""
    return Evidence(
        title="Who stalled the others, step by step",
        columns=(
            Column("step"),
            Column("rank"),
            Column("others' exposed waiting, median victim", Unit.NS),
        ),
        rows=tuple(leaders.select("step", "culprit", "victim_ns").iter_rows()),
    )


def _uncovered_in_turns_ns(seen: Seen, leaders: pl.DataFrame) -> float:
    """Transfers a step that lie bare on others and under compute on the rank that leads it."""
    first = (
        leaders.sort("victim_ns", "culprit", descending=[True, False])
        .unique("step", keep="first", maintain_order=True)
        .select("step", "culprit")
    )
    transfers = (
        breakdowns(seen.run)
        .filter("is_averaged")
        .select("rank", "step", "exposed_transfer_ns")
        .join(first, on="step", validate="m:1")
    )
    is_leader = pl.col("rank") == pl.col("culprit")
    transfer_ns = pl.col("exposed_transfer_ns")
    bare = transfers.group_by("step").agg(
        bare_ns=transfer_ns.filter(~is_leader).median() - transfer_ns.filter(is_leader).median()
    )
    return number(bare["bare_ns"].clip(0).sum()) / seen.n_steps
