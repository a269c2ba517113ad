"""Who waited for whom, as a result holds it: pairs, ranks, steps and meetings (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive import waiting_tables
from tracekit.derive.waiting_tables import waiting
from tracekit.waiting import Arrival, StepLateness, WaitedFor


def job(runs, us, *, ranks=range(4), n_steps=6, per_step=1, tail=None, hidden=0):
    """Steps of 1,000 µs with `per_step` meetings of 1,000 / `per_step` µs.

    Before each, rank r computes for `us(r, step)` µs; all leave it 40 µs before the next, but for
    `tail(r, step)` µs. For the last `hidden` µs before they leave, another kernel computes. Steps 2
    to n − 1 are averaged.
    """
    traces = {rank: runs.Trace() for rank in ranks}
    for rank, trace in traces.items():
        for step in range(1, n_steps + 1):
            trace.step(step, 1_000 * step, 1_000)
            for number in range(per_step):
                at = 1_000 * step + number * 1_000 / per_step
                enters, leaves = at + us(rank, step), at + 1_000 / per_step - 40
                trace.kernel(at, us(rank, step), launched=(1_000 * step + number, 0.5))
                leaves += tail(rank, step) if tail else 0
                trace.collective(enters, leaves - enters, members=list(ranks))
                if hidden:
                    trace.kernel(leaves - hidden, hidden, stream=8)
    return traces


def late(*ranks, us=200, usual=400):
    return lambda rank, _step: usual + (us if rank in ranks else 0)


def pairs(found):
    return {(each.culprit, each.victim): each.per_step_ns for each in found.matrix}


def test_all_wait_for_the_late_rank(make_run, runs):
    found = waiting(make_run(job(runs, late(3))))
    assert found.matrix == tuple(
        WaitedFor(culprit=3, victim=victim, per_step_ns=200_000) for victim in (0, 1, 2)
    )
    assert found.total_per_step_ns == 600_000


def test_each_wait_is_shared_among_the_late_in_proportion(make_run, runs):
    us = {2: 400, 5: 400, 6: 400, 7: 520, 30: 600}
    run = make_run(job(runs, lambda rank, _step: us[rank], ranks=us), world_size=64)
    found = waiting(run)
    # late by 120 and 200 µs; three wait 200 each. Rank 7 waits for 30 too, but is late itself
    assert pairs(found) == {
        (culprit, victim): each_ns
        for culprit, each_ns in ((7, 75_000), (30, 125_000))
        for victim in (2, 5, 6)
    }
    assert found.total_per_step_ns == 600_000


def test_the_matrix_sums_to_the_total_and_to_what_the_ranks_cause(make_run, runs):
    def us(rank, step):
        return 400 + (37 * rank + 53 * step) % 101 + (150 if rank == step % 5 else 0)

    found = waiting(make_run(job(runs, us, ranks=range(5), n_steps=9)))
    assert sum(each.per_step_ns for each in found.matrix) == pytest.approx(found.total_per_step_ns)
    caused_ns = {each.rank: each.caused_ns for each in found.ranks}
    for culprit, each_ns in caused_ns.items():
        own = [each.per_step_ns for each in found.matrix if each.culprit == culprit]
        assert sum(own) == pytest.approx(each_ns, abs=5)  # each pair and step is a whole ns
    in_steps = sum(each.caused_ns for each in found.by_step) / 7
    assert in_steps == pytest.approx(sum(caused_ns.values()))


def test_waiting_under_compute_is_left_out(make_run, runs):
    # all enter within 200 µs, and compute from 160 µs after the first of them on
    found = waiting(make_run(job(runs, late(3), hidden=400)))
    assert set(pairs(found).values()) == {160_000}


def test_ranks_with_what_they_computed_waited_and_caused(make_run, runs):
    found = waiting(make_run(job(runs, lambda r, step: 600 if (r, step % 2) == (3, 0) else 400)))
    first, last = found.ranks[0], found.ranks[3]
    assert (first.rank, first.pipeline, first.stage) == (0, 0, 0)
    assert (first.compute_ns, first.waiting_ns) == (400_000, 100_000)  # late in two of four steps
    assert (first.caused_ns, first.late_ns, first.course) == (0, 0, "")
    assert (last.compute_ns, last.waiting_ns) == (500_000, 0)
    assert (last.caused_ns, last.late_ns, last.course) == (300_000, 100_000, "now and then")
    assert found.by_step == tuple(
        StepLateness(rank=3, step=step, late_ns=200_000, caused_ns=600_000) for step in (2, 4)
    )


def test_late_in_every_step_is_fixed(make_run, runs):
    assert waiting(make_run(job(runs, late(1)))).ranks[1].course == "fixed"


def test_steps_that_are_not_averaged_do_not_count(make_run, runs):
    found = waiting(make_run(job(runs, lambda r, step: 600 if (r, step) == (3, 1) else 400)))
    assert (found.matrix, found.by_step, found.meetings) == ((), (), ())
    assert found.total_per_step_ns == 0
    assert len(found.ranks) == 4


def test_meetings_in_which_most_waiting_was_caused_of_different_culprits_first(make_run, runs):
    extra = {(3, 2): 200, (3, 3): 180, (1, 4): 60, (3, 5): 160}
    found = waiting(make_run(job(runs, lambda rank, step: 400 + extra.get((rank, step), 0))))
    assert [(each.culprit, each.step) for each in found.meetings] == [(3, 2), (1, 4), (3, 3)]
    assert {each.group for each in found.meetings} == {"0 (4 ranks: 0–3)"}


def meeting(make_run, runs, per_step):
    """The meetings of step 3, of which the last rank 0 leaves 5 µs late."""

    def us(rank, step):
        return 200 + (150 if (rank, step) == (2, 3) else 0)

    def tail(rank, step):
        return 5 if (rank, step) == (0, 3) else 0

    traces = job(runs, us, ranks=(0, 1, 2), per_step=per_step, tail=tail)
    return waiting(make_run(traces)).meetings[0]


def test_a_meeting_on_a_common_clock(make_run, runs):
    found = meeting(make_run, runs, 2)
    assert (found.is_aligned, found.step, found.operation) == (True, 3, "all_reduce")
    assert (found.start_ns, found.transfer_ns) == (3_200_000, 110_000)
    # clocks are fitted to whole ns
    assert found.error_ns == pytest.approx(5_000, abs=1)
    for arrival, (entered_ns, left_ns) in zip(
        found.arrivals, ((0, 265_000), (0, 260_000), (150_000, 260_000)), strict=True
    ):
        assert arrival.entered_ns == pytest.approx(entered_ns, abs=1)
        assert arrival.left_ns == pytest.approx(left_ns, abs=1)
    assert [each.rank for each in found.arrivals if each.is_late] == [2]


def test_without_a_common_clock_all_leave_together(make_run, runs):
    found = meeting(make_run, runs, 1)  # six meetings tell nothing of clocks
    assert not found.is_aligned
    assert found.arrivals == (
        Arrival(rank=0, entered_ns=0, left_ns=765_000, is_late=False),
        Arrival(rank=1, entered_ns=5_000, left_ns=765_000, is_late=False),
        Arrival(rank=2, entered_ns=155_000, left_ns=765_000, is_late=True),
    )


def test_of_a_large_meeting_the_first_and_the_last_are_kept(make_run, runs, monkeypatch):
    monkeypatch.setattr(waiting_tables, "N_ARRIVALS", 4)
    us = {rank: 400 + 10 * rank for rank in range(6)} | {6: 700}
    found = waiting(make_run(job(runs, lambda rank, _step: us[rank], ranks=us)))
    assert [each.rank for each in found.meetings[0].arrivals] == [0, 1, 5, 6]


def test_where_the_training_thread_stands_for_the_device(make_run, runs):
    traces = {rank: runs.Trace() for rank in range(3)}
    for rank, trace in traces.items():
        us = 300 + 200 * (rank == 2)
        for step in range(1, 6):
            trace.step(step, 1_000 * step, 1_000).op(1_000 * step, us)
            trace.gloo(1_000 * step + us, 900 - us, members=range(3))
    found = waiting(make_run(traces))
    assert pairs(found) == {(2, 0): 200_000, (2, 1): 200_000}


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_without_collectives_to_compare_there_is_nothing(make_run, runs, n_ranks):
    traces = {rank: runs.Trace().kernel(0, 10) for rank in range(n_ranks)}
    assert waiting(make_run(traces)) is None
    assert waiting(make_run({rank: runs.Trace() for rank in range(n_ranks)})) is None
    alone = make_run(job(runs, late(0), ranks=(0,)))
    assert waiting(alone) is None
