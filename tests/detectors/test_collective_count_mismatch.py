"""`collective-count-mismatch`, by hand: steps of 1,000 µs with all-reduces of 20 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Severity, Status

NAME = "collective-count-mismatch"
STEP = 1_000


@pytest.fixture
def called(make_run, runs):
    """A run in which rank r calls `count(r, step)` collectives in a step; steps 1 to 3 count."""

    def made(count, *, ranks=range(4), members=None, operation="all_reduce", **facts):
        traces = {rank: runs.Trace() for rank in ranks}
        for step in range(5):
            at = STEP * step
            for rank, trace in traces.items():
                trace.step(step, at, STEP).kernel(at, 300, launched=at)
                for i in range(count(rank, step)):
                    trace.collective(
                        at + 310 + 30 * i,
                        20,
                        operation,
                        launched=at + 2 + i,
                        members=members or list(ranks),
                    )
        return make_run(traces, **facts)

    return made


def test_a_rank_that_calls_one_less_in_each_step(called, finding_of):
    found = finding_of(NAME, called(lambda rank, _: 4 - (rank == 2)))
    assert (found.status, found.cause) == (Status.FOUND, Cause.MISSING_CALL)
    assert (found.ranks, found.severity) == ((2,), Severity.CRITICAL)
    assert found.measured.value == 1
    assert found.title == "Rank 2 calls 3 collectives a step in group 0 (4 ranks: 0–3), peers 4"
    assert found.evidence[0].rows == ((2, 3.0, -1.0), (0, 4.0, 0.0), (1, 4.0, 0.0), (3, 4.0, 0.0))


def test_a_rank_that_calls_none_counts_as_calling_none(called, finding_of):
    assert finding_of(NAME, called(lambda rank, _: 2 * (rank != 1))).ranks == (1,)


def test_a_call_on_the_other_side_of_a_mark_is_no_mismatch(called, finding_of):
    # rank 1 calls 3, 5, 4 where others call 4
    counts = {1: 3, 2: 5}
    found = finding_of(NAME, called(lambda rank, step: counts.get(step, 4) if rank == 1 else 4))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_of_two_ranks_the_one_that_calls_less_is_named_with_low_confidence(called, finding_of):
    found = finding_of(NAME, called(lambda rank, _: 4 - rank, ranks=range(2)))
    assert (found.ranks, found.confidence.level) == ((1,), Level.LOW)


def test_two_ranks_that_call_more(called, finding_of):
    found = finding_of(NAME, called(lambda rank, _: 4 + (rank in {3, 5}), ranks=range(6)))
    assert found.ranks == (3, 5)
    assert found.title.startswith("Ranks 3, 5 call 5 collectives a step")


def test_messages_and_unknown_operations_are_not_counted(called, finding_of):
    for operation in ("send", None):
        run = called(lambda rank, _: 4 - (rank == 2), operation=operation)
        assert finding_of(NAME, run).status is Status.SKIPPED


def test_groups_with_a_member_that_was_not_recorded_are_not_compared(called, finding_of):
    run = called(lambda rank, _: 4 - (rank == 2), members=[0, 1, 2, 3, 4], world_size=5)
    found = finding_of(NAME, run)
    assert found.status is Status.SKIPPED
    assert "no group all of whose members were recorded" in found.why
