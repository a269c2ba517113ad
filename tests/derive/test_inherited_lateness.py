"""Lateness of a rank that waited for another group: whose it is, in ns worked out by hand."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.derive.culprits import by_instance, inherited_ns, ranked_culprits, with_culprit

COLUMNS = ["rank", "instance", "step", "group", "start_ns", "late_ns", "error_ns", "n_late"]
AHEAD = {0: 0, 1: 7_000_000_000, 2: -3_000_000_000}
"""Clocks of the hosts, in ns."""


def calls(clock):
    """Ranks 0, 1, 2 meet in `data`, at 100 and 300; between, rank 0 waits 50 in `tensor`, 1 for 5.

    Rank 2 waits 1,000 in `tensor` too, but after all that.
    """
    rows = [
        *((rank, 1, "data", 100, 0) for rank in range(3)),
        *((rank, 2, "data", 300, 0) for rank in range(3)),
        (0, 3, "tensor", 200, 50),
        (1, 4, "tensor", 200, 5),
        (2, 5, "tensor", 900, 1_000),
    ]
    return pl.DataFrame(
        [
            (rank, instance, group, start_ns + clock.get(rank, 0), wait_ns)
            for rank, instance, group, start_ns, wait_ns in rows
        ],
        schema=["rank", "instance", "group", "start_ns", "wait_ns"],
        orient="row",
    )


@pytest.mark.parametrize("clock", [{}, AHEAD], ids=["one clock", "clocks apart"])
def test_a_rank_waits_between_its_own_late_arrivals(clock):
    unsplit = pl.DataFrame({"rank": [0, 1, 2], "unsplit_ns": [0, 0, 0]})
    own = pl.DataFrame({"instance": [1, 2]})
    waited_ns = inherited_ns(calls(clock), unsplit, own, [0], "data")
    assert waited_ns == {0: 50 - (5 + 0) / 2}  # less the median of ranks 1 and 2


def test_each_rank_of_a_culprit_is_looked_at_alone():
    unsplit = pl.DataFrame({"rank": [2], "unsplit_ns": [3]})
    own = pl.DataFrame({"instance": [1, 2]})
    waited_ns = inherited_ns(calls({}), unsplit, own, [0, 1], "data")
    assert waited_ns == {0: 50 - 3, 1: 5 - 3}


def test_without_peers_all_waiting_counts():
    unsplit = pl.DataFrame({"rank": [0], "unsplit_ns": [0]})
    own = pl.DataFrame({"instance": [1, 2]})
    assert inherited_ns(calls({}), unsplit, own, [0, 1, 2], "data") == {0: 50, 1: 5, 2: 0}


def test_one_delay_in_a_group_outweighs_jitter_in_many_calls_of_another():
    # Rank 0 is late by 1 ns in three calls of `tensor`, and by 100 ns in one of `data`.
    rows = [(1, "tensor", 1), (2, "tensor", 1), (3, "tensor", 1), (4, "data", 100)]
    late = with_culprit(
        pl.DataFrame(
            [(0, i, 1, group, i, late_ns, 0, 1) for i, group, late_ns in rows],
            schema=[
                "rank",
                "instance",
                "step",
                "group",
                "start_ns",
                "late_ns",
                "error_ns",
                "n_late",
            ],
            orient="row",
        ).with_columns(*(pl.lit(1.0).alias(f"{name}_ns") for name in ("caused", "victim", "next")))
    )
    members = pl.DataFrame({"rank": [0, 1, 0, 1], "group": ["tensor", "tensor", "data", "data"]})
    found = ranked_culprits(late, by_instance(late), members, n_steps=1, min_lead_share=0.25)
    assert found["group"].to_list() == ["data"]
