"""Why the step is no shorter: the efficiency of the replayed step as a product of four shares."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from markupsafe import Markup

from tracekit.findings import Column
from tracekit.reports.components import table
from tracekit.reports.flow import Bar, flow
from tracekit.reports.replayed import EFFICIENCY_TREE, trusted
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.replays import EfficiencyTree
    from tracekit.results import Result

ORDER = 25
TITLE = EFFICIENCY_TREE

COLUMNS = (Column("Share"), Column("Value", Unit.SHARE), Column("100 % where"))
HEADS = ("part of the step", "time", "of the step", "what it is")


def render(result: Result, /) -> Markup | None:
    """The product and the bars that add up to the step; None without a replay to be trusted."""
    replay = trusted(result)
    if replay is None or replay.tree is None or replay.tree.step_ns <= 0:
        return None
    tree = replay.tree
    shares = _shares(tree)
    whole = tree.mean_compute_ns / tree.step_ns
    product = " \u00d7 ".join(
        f"{label.lower()} {text(share, Unit.SHARE)}" for label, share, _ in shares
    )
    rows = [*shares, ("Parallel efficiency", whole, "the whole step is compute on every rank")]
    if tree.clock_share is not None:
        rows += [
            ("Clock", tree.clock_share, "busy devices run at the highest clock they may"),
            ("Global efficiency", whole * tree.clock_share, "both"),
        ]
    return (
        Markup('<p class="sentence">{} of the replayed step is compute: {}.</p>').format(
            text(whole, Unit.SHARE), product
        )
        + table("Efficiency, from the replayed mean step", COLUMNS, rows)
        + flow("Mean step, from compute to its end", HEADS, _bars(tree), are_words=True)
    )


def _shares(tree: EfficiencyTree) -> list[tuple[str, float, str]]:
    return [
        ("Load balance", tree.load_balance_share, "all ranks compute equally long"),
        (
            "Serialization",
            tree.serialization_share,
            "with free transfers and hosts, the rank that computes longest would never wait",
        ),
        ("Orchestration", tree.orchestration_share, "hosts launch work before devices run out"),
        ("Transfer", tree.transfer_share, "data moves at no cost, or behind compute"),
    ]


def _bars(tree: EfficiencyTree) -> list[Bar]:
    """Each part where the one before it ends, and the step that they add up to."""
    clock = 1.0 if tree.clock_share is None else tree.clock_share
    compute = [
        ("Mean compute", tree.mean_compute_ns * clock, "a device computes, mean of all ranks")
    ]
    if tree.clock_share is not None:
        lost_ns = tree.mean_compute_ns * (1 - clock)
        compute.append(("Clock", lost_ns, "computing longer, for clocks below the highest"))
    parts = (
        *compute,
        ("Imbalance", tree.imbalance_ns, "the rank that computes longest does so this much longer"),
        ("Serialization", tree.serialization_ns, "waiting for work of other ranks and streams"),
        ("Orchestration", tree.orchestration_ns, "waiting for hosts to launch"),
        ("Transfer", tree.transfer_ns, "waiting for data to move"),
    )
    ends = [0.0, *accumulate(ns for _, ns, _ in parts)]
    bars = [
        Bar(
            head=label,
            value=text(ns, Unit.NS),
            start_ns=ends[i],
            end_ns=ends[i + 1],
            kind="more" if i else "own",
            also=(text(ns / tree.step_ns, Unit.SHARE), meaning),
        )
        for i, (label, ns, meaning) in enumerate(parts)
    ]
    total = Bar(
        head="Mean step, replayed",
        value=text(tree.step_ns, Unit.NS),
        start_ns=0.0,
        end_ns=tree.step_ns,
        kind="total",
        also=(text(1.0, Unit.SHARE), ""),
    )
    return [*bars, total]
