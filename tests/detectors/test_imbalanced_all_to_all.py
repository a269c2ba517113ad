"""`imbalanced-all-to-all`, by hand: four ranks, steps of 1,000 µs, 1 µs of transfer for 1,000 B."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "imbalanced-all-to-all"
STEP = 1_000


@pytest.fixture
def exchanged(make_run, runs):
    """A run in which rank i sends `nbytes[i]` in one all-to-all a step, after 300 µs of compute."""

    def made(nbytes, *, received=None, description="EXPERT_MODEL_PARALLEL_GROUP", hidden=0):
        traces = {rank: runs.Trace() for rank in range(len(nbytes))}
        for number in range(5):
            at = STEP * number
            for rank, trace in traces.items():
                gets = None if received is None else received[rank]
                trace.step(number, at, STEP)
                trace.kernel(at, 300, launched=at)
                trace.collective(
                    at + 310,
                    max(nbytes[rank], gets or 0) / 1000,
                    "all_to_all",
                    launched=at + 2,
                    members=list(traces),
                    group_description=description,
                    sequence=number,
                    bytes_in=nbytes[rank],
                    bytes_out=gets,
                )
                if hidden:
                    trace.kernel(at + 310, hidden, launched=at + 3)
        return make_run(traces)

    return made


UNEVEN = [300_000, 60_000, 20_000, 20_000]


def test_a_rank_that_sends_three_times_the_mean(exchanged, finding_of):
    found = finding_of(NAME, exchanged(UNEVEN))
    # 300 kB of a mean of 100 kB: 300 µs, of which 100 would do
    assert (found.status, found.cause) == (Status.FOUND, Cause.EXPERT_IMBALANCE)
    assert found.ranks == (0,)
    assert found.scope.victims == (1, 2, 3)
    assert found.measured.value == pytest.approx(3.0)
    assert found.saving.per_step_ns.high == pytest.approx(200_000)
    assert found.title == "Rank 0 moves 3.00× the mean bytes in all-to-all"
    assert found.evidence[0].rows[0][2:] == (3, 900_000, 3.0)  # three averaged steps


def test_what_a_rank_receives_counts_too(exchanged, finding_of):
    found = finding_of(NAME, exchanged([100_000] * 4, received=UNEVEN))
    # the larger of both: 300, 100, 100 and 100 kB, mean 150
    assert found.measured.value == pytest.approx(2.0)


def test_other_exchanges_than_those_of_experts_are_data(exchanged, finding_of):
    assert finding_of(NAME, exchanged(UNEVEN, description=None)).cause is Cause.DATA_IMBALANCE


def test_a_fifth_more_than_the_mean_is_usual(exchanged, finding_of):
    below, above = [119_000, 81_000, 100_000, 100_000], [121_000, 79_000, 100_000, 100_000]
    assert finding_of(NAME, exchanged(below)).status is Status.CLEAR
    assert finding_of(NAME, exchanged(above)).status is Status.FOUND


def test_what_compute_hides_is_no_loss(exchanged, finding_of):
    assert finding_of(NAME, exchanged(UNEVEN, hidden=400)).status is Status.CLEAR


def test_even_exchanges_are_clear_and_none_is_skipped(exchanged, make_run, runs, finding_of):
    found = finding_of(NAME, exchanged([100_000] * 4))
    assert (found.status, found.measured.value) == (Status.CLEAR, 1.0)
    traces = {rank: runs.Trace() for rank in (0, 1)}
    for trace in traces.values():
        trace.step(0, 0, STEP).kernel(0, 300, launched=0)
        trace.collective(310, 100, launched=2, members=[0, 1])
    found = finding_of(NAME, make_run(traces))
    assert found.status is Status.SKIPPED
    assert "no all-to-all" in found.why


def test_ranks_that_hold_most_in_turn_are_not_named(make_run, runs, finding_of):
    traces = {rank: runs.Trace() for rank in range(3)}
    for number in range(5):
        at = STEP * number
        for rank, trace in traces.items():
            nbytes = 300_000 if rank == number % 3 else 30_000
            trace.step(number, at, STEP).kernel(at, 300, launched=at)
            values = {"members": [0, 1, 2], "sequence": number, "bytes_in": nbytes}
            trace.collective(at + 310, nbytes / 1000, "all_to_all", launched=at + 2, **values)
    found = finding_of(NAME, make_run(traces))
    # over three steps each holds 360 of 1,080 kB, in each exchange one holds 300 of 360
    assert (found.status, found.ranks) == (Status.FOUND, ())
    assert found.measured.value == pytest.approx(2.5)
    assert found.title.startswith("The fullest rank of an exchange moves 2.50×")
    assert found.confidence.level is Level.MEDIUM
