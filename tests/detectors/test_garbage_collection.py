"""`garbage-collection`: stalls under recorded collections, by hand; steps of 10 ms, in µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "garbage-collection"
STEP_US = 10_000


@pytest.fixture
def collecting(runs):
    """In each step the device works for 5 ms, then waits for `pause(rank, step)` µs, and works.

    The host collects for all of that time but 5 µs, and then launches within 2 µs: 3 µs are
    launch latency.
    """

    def traces_of(pause, *, mark="gc", ranks=(0, 1), n_steps=6, together=False):
        traces = {rank: runs.Trace() for rank in ranks}
        for rank, trace in traces.items():
            for step in range(1, n_steps + 1):
                at, stalls = STEP_US * step, pause(rank, step)
                trace.step(step, at - 10, STEP_US).kernel(at, 5_000, launched=(at - 5, 2))
                resumes = at + 5_000 + stalls
                if stalls and mark:
                    trace.annotation(at + 5_000, stalls - 5, mark)
                if together:
                    leaves = at + 5_000 + max(pause(each, step) for each in ranks) + 20
                    members = list(ranks)
                    call = (resumes - 5, 2)
                    trace.collective(resumes, leaves - resumes, launched=call, members=members)
                    resumes = leaves
                trace.kernel(resumes, at + STEP_US - resumes, launched=(at + 5_000 + stalls - 4, 1))
        return traces

    return traces_of


def test_a_rank_that_collects_with_exact_share_and_saving(make_run, collecting, finding_of):
    found = finding_of(NAME, make_run(collecting(lambda rank, _step: 1_000 if rank else 0)))
    assert (found.status, found.cause, found.ranks) == (
        Status.FOUND,
        Cause.GARBAGE_COLLECTION,
        (1,),
    )
    assert found.measured.value == pytest.approx(0.1)
    assert found.saving.per_step_ns.low == pytest.approx(997_000)  # without the latency
    assert found.saving.per_step_ns.high == pytest.approx(1_000_000)
    assert found.steps == (2, 3, 4, 5)
    assert found.title == "Garbage collection holds the job up for 1 ms a step"
    assert found.confidence.level is Level.HIGH
    assert found.why == "the host collects garbage while its device has nothing to run"
    assert found.evidence[1].rows[0] == (2, 1, 1_000_000)


def test_ranks_that_collect_in_turn_hold_each_other_up(make_run, collecting, finding_of):
    run = make_run(collecting(lambda rank, step: 1_000 if step % 2 == rank else 0, together=True))
    found = finding_of(NAME, run)
    # each rank is held up in half of the steps, the job in all of them
    assert found.measured.value == pytest.approx(0.1)
    assert (found.ranks, found.steps) == ((0, 1), (2, 3, 4, 5))
    assert found.why.endswith("; 2 ranks take turns")


def test_ranks_that_collect_together_do_not_take_turns(make_run, collecting, finding_of):
    run = make_run(collecting(lambda rank, step: 1_000 + (100 if step % 2 == rank else 0)))
    found = finding_of(NAME, run)
    assert (found.status, found.ranks) == (Status.FOUND, (0, 1))
    assert found.why == "the host collects garbage while its device has nothing to run"


def test_of_ranks_held_up_as_long_the_lower_is_shown(make_run, collecting, finding_of):
    found = finding_of(NAME, make_run(collecting(lambda *_: 1_000, ranks=(4, 9, 30))))
    assert {row[1] for row in found.evidence[1].rows} == {4}
    assert found.ranks == (4, 9, 30)


@pytest.mark.parametrize(("us", "is_found"), [(100, True), (99, False)])
def test_the_share_of_the_step_from_both_sides(make_run, collecting, finding_of, us, is_found):
    found = finding_of(NAME, make_run(collecting(lambda rank, _step: us if rank else 0)))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(us / STEP_US)


def test_a_collection_in_some_steps_counts_as_often(make_run, collecting, finding_of):
    found = finding_of(NAME, make_run(collecting(lambda _r, step: 2_000 if step == 4 else 0)))
    assert found.measured.value == pytest.approx(0.05)
    assert found.steps == (4,)


@pytest.mark.parametrize("mark", ["gc", "Python GC", "tracekit.gc"])
def test_marks_of_collections(make_run, collecting, finding_of, mark):
    run = make_run(collecting(lambda *_: 1_000, mark=mark))
    assert finding_of(NAME, run).status is Status.FOUND


def test_a_pause_without_a_mark_is_no_collection(make_run, collecting, finding_of):
    found = finding_of(NAME, make_run(collecting(lambda *_: 1_000, mark=None)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("no collection of garbage is marked in the traces")


def test_a_collection_under_which_the_device_works_costs_nothing(make_run, collecting, finding_of):
    traces = collecting(lambda *_: 0)
    traces[0].annotation(31_000, 2_000, "gc")
    found = finding_of(NAME, make_run(traces))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_one_rank_may_collect(make_run, collecting, finding_of):
    found = finding_of(NAME, make_run(collecting(lambda *_: 1_000, ranks=(0,))))
    assert (found.status, found.ranks) == (Status.FOUND, (0,))


def test_where_the_training_thread_stands_for_the_device(make_run, trace, finding_of):
    for step in range(1, 6):
        trace.step(step, 1_000 * step, 1_000).op(1_000 * step, 800)
        trace.annotation(1_000 * step + 800, 200, "gc")
    found = finding_of(NAME, make_run(trace))
    assert (found.status, found.measured.value) == (Status.FOUND, pytest.approx(0.2))


def test_without_events_it_is_skipped(make_run, runs, finding_of):
    assert finding_of(NAME, make_run({0: runs.Trace(), 1: runs.Trace()})).status is Status.SKIPPED
