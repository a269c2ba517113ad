"""`network-tail`, by hand: two ranks, steps of 1,000 µs with two reductions of 100 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Status

NAME = "network-tail"
STEP = 1_000


@pytest.fixture
def reduced(make_run, runs):
    """A run in which the reductions at `slow` (step, number) take `us`; others take 100 µs.

    `late` is how much later rank 1 enters, `hidden` runs compute beside the second reduction.
    """

    def made(slow, us=300, *, late=0, hidden=0, n_steps=8, bytes_in=1024):
        traces = {rank: runs.Trace() for rank in range(2)}
        for step in range(n_steps):
            for rank, trace in traces.items():
                at = STEP * step
                trace.step(step, at, STEP)
                trace.kernel(at, 100, launched=at)
                for number in (0, 1):
                    begins = at + 110 + 400 * number
                    took = us if (step, number) in slow else 100
                    own = late if rank else 0
                    trace.collective(
                        begins + own,
                        took + late - own,
                        launched=at + 2 + number,
                        members=[0, 1],
                        sequence=2 * step + number,
                        bytes_in=bytes_in,
                    )
                    if hidden and number:
                        trace.kernel(begins, hidden, launched=at + 5)
        return make_run(traces)

    return made


SLOW = {(2, 0), (4, 0), (6, 0)}


def test_calls_that_take_three_times_as_long_as_usual(reduced, finding_of):
    found = finding_of(NAME, reduced(SLOW))
    assert (found.status, found.cause) == (Status.FOUND, Cause.NETWORK_TAIL)
    # 200 µs more in three of the six averaged steps of 1,000 µs
    assert found.measured.value == pytest.approx(600 / 6 / 1_000, rel=1e-3)
    assert found.saving.per_step_ns.low == pytest.approx(600_000 / 6, rel=1e-3)
    assert found.title == "3 collectives took 3.00× as long as usual, with nobody late"
    assert found.evidence[0].rows[0][3:] == (3, 300_000.0, 100_000.0, 600_000.0)
    assert [row[0] for row in found.evidence[1].rows] == [2, 4, 6]


def test_a_late_rank_makes_no_tail(reduced, finding_of):
    assert finding_of(NAME, reduced((), late=250)).measured.value == 0


def test_what_compute_hides_costs_nothing(reduced, finding_of):
    slow = {(2, 1), (4, 1), (6, 1)}
    assert finding_of(NAME, reduced(slow, hidden=310)).status is Status.CLEAR


def test_two_slow_calls_may_be_chance(reduced, finding_of):
    assert finding_of(NAME, reduced({(2, 0), (4, 0)}, us=900)).status is Status.CLEAR


def test_less_than_twice_as_long_is_usual(reduced, finding_of):
    assert finding_of(NAME, reduced(SLOW, us=190)).measured.value == 0


def test_few_calls_have_no_tail(reduced, finding_of):
    found = finding_of(NAME, reduced((), n_steps=3))
    assert found.status is Status.SKIPPED
    assert "fewer than 8 transfers of a kind" in found.why


def test_transfers_of_unknown_sizes_are_not_compared(reduced, finding_of):
    assert finding_of(NAME, reduced(SLOW, bytes_in=None)).status is Status.SKIPPED


def test_collectives_of_hosts_share_their_processors(make_run, runs, finding_of):
    traces = {0: runs.Trace(), 1: runs.Trace()}
    for step in range(10):
        for trace in traces.values():
            trace.step(step, STEP * step, STEP)
            trace.op(STEP * step, 100)
            trace.gloo(STEP * step + 110, 600 if step in (3, 5, 7) else 100)
    found = finding_of(NAME, make_run(traces))
    assert (found.status, found.why[:23]) == (Status.SKIPPED, "no step of a device is ")
