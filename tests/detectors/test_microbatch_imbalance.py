"""`microbatch-imbalance`: the longest micro-batch of a pipeline, by hand; steps of 2,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "microbatch-imbalance"
STEP_US, FORWARD, BACKWARD = 2_000, 1, 2


@pytest.fixture
def pipeline(runs):
    """Ranks that send to the next; each runs the `forward` turns and then the `backward` ones (µs).

    Autograd's thread launches backward turns. Messages of 5 µs lie between all turns.
    """

    def traces_of(forward, backward=None, *, ranks=(0, 1), n_steps=5, launched=True):
        traces = {rank: runs.Trace() for rank in ranks}
        for position, (rank, trace) in enumerate(traces.items()):
            peer = ranks[(position + 1) % len(ranks)]
            own = forward(rank) if callable(forward) else forward
            turns = [(FORWARD, us) for us in own]
            turns += [(BACKWARD, us) for us in backward or [2 * us for us in own]]
            for step in range(1, n_steps + 1):
                at = begins = STEP_US * step
                trace.step(step, at, STEP_US)
                for number, (thread, us) in enumerate(turns):
                    call = (at + 2 * number, 0.5) if launched or not number else None
                    trace.kernel(begins, us, launched=call, thread=thread)
                    call = (at + 2 * number + 1, 0.5) if launched else None
                    place = {"destination_rank": peer, "members": None}
                    trace.collective(begins + us, 5, "send", launched=call, **place)
                    begins += us + 5
        return traces

    return traces_of


def test_the_longest_micro_batch_with_exact_excess_and_saving(make_run, pipeline, finding_of):
    found = finding_of(NAME, make_run(pipeline([40, 40, 40, 80], ranks=(3, 5, 9))))
    # both passes take 120 µs and once 240: 90 more than the mean, in two places of three stages
    assert (found.status, found.cause) == (Status.FOUND, Cause.MICROBATCH_IMBALANCE)
    assert (found.ranks, found.steps) == ((3,), (2, 3, 4))
    assert found.measured.value == pytest.approx(180 / 2_000)
    assert found.saving.per_step_ns.low == pytest.approx(90_000)
    assert found.saving.per_step_ns.high == pytest.approx(180_000)
    assert found.title == "Uneven micro-batches cost up to 180 µs of each step"
    assert found.confidence.reason.startswith(
        "forward and backward of a micro-batch correlate by 1"
    )
    assert found.evidence[0].rows[0] == (2, 3, 80_000, 160_000)


@pytest.mark.parametrize(("extra", "is_found"), [(18, True), (17, False)])
def test_the_share_of_the_step_from_both_sides(make_run, pipeline, finding_of, extra, is_found):
    # two stages: 3 · (18 − 4.5) are 40.5 µs, 3 · (17 − 4.25) are 38.25; the limit is 40
    found = finding_of(NAME, make_run(pipeline([40, 40, 40, 40 + extra])))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(2.25 * extra / STEP_US)


@pytest.mark.parametrize(("third", "is_found"), [(114, True), (116, False)])
def test_the_correlation_from_both_sides(make_run, pipeline, finding_of, third, is_found):
    # forward 0, 0, 0, 1 with backward 0, 0, y, 1: r = 0.905 for y = 0.425, 0.895 for y = 0.45
    run = make_run(pipeline([40, 40, 40, 80], [80, 80, third, 160]))
    assert (finding_of(NAME, run).status is Status.FOUND) == is_found


def test_a_delay_of_one_pass_is_no_long_batch(make_run, pipeline, finding_of):
    found = finding_of(NAME, make_run(pipeline([40, 40, 40, 40], [80, 80, 80, 200])))
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(0.045))


def test_equal_micro_batches_are_clear(make_run, pipeline, finding_of):
    found = finding_of(NAME, make_run(pipeline([40] * 4)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_the_stage_whose_micro_batches_differ_most_is_named(make_run, pipeline, finding_of):
    run = make_run(pipeline(lambda rank: [40, 40, 40, 100 if rank == 1 else 80]))
    assert finding_of(NAME, run).ranks == (1,)


def test_a_stage_that_is_slow_as_a_whole_has_even_micro_batches(make_run, pipeline, finding_of):
    run = make_run(pipeline(lambda rank: [80 if rank else 40] * 4))
    assert finding_of(NAME, run).status is Status.CLEAR


def test_one_step_makes_it_unsure(make_run, pipeline, finding_of):
    found = finding_of(NAME, make_run(pipeline([40, 40, 40, 80], n_steps=2)))
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)


def test_without_messages_there_is_no_pipeline(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(lambda *_: [("gemm", 400)])))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("ranks exchange no messages that name their peers: no pipeline")


@pytest.mark.parametrize(
    ("forward", "facts"),
    [
        ([40] * 4, {"launched": False}),
        ([40], {}),  # one micro-batch
        ([40] * 4, {"backward": [80] * 3}),  # as when activations are computed once more
    ],
)
def test_turns_that_cannot_be_told_apart_skip_it(make_run, pipeline, finding_of, forward, facts):
    found = finding_of(NAME, make_run(pipeline(forward, **facts)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("forward and backward turns of the micro-batches cannot be told")


def test_one_rank_or_no_events_are_skipped(make_run, pipeline, runs, finding_of):
    assert finding_of(NAME, make_run(pipeline([40], ranks=(0,)))).why.startswith("one rank")
    found = finding_of(NAME, make_run({0: runs.Trace(), 1: runs.Trace()}))
    assert found.status is Status.SKIPPED
