"""`host-pause`: pauses without any call, another rank each time; steps of 100 ms, in µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "host-pause"
STEP_US, PAUSE_US = 100_000, 12_000


@pytest.fixture
def pausing(runs):
    """In each step the device works for 50 ms, waits for `pause(rank, step)` µs, and works on.

    The launch of 2 µs ends 3 µs before the device goes on; nothing else of the host is recorded.
    """

    def traces_of(pause, *, ranks=(0, 1, 2, 3), n_steps=10, devices=(0,), name=None):
        traces = {rank: runs.Trace() for rank in ranks}
        for rank, trace in traces.items():
            for step in range(1, n_steps + 1):
                at, pauses = STEP_US * step, pause(rank, step)
                trace.step(step, at - 10, STEP_US)
                if name and pauses:
                    trace.op(at + 50_000, pauses - 10, name)
                resumes = at + 50_000 + pauses
                for device in devices:
                    place = {"device": device}
                    trace.kernel(at, 50_000, launched=(at - 5, 2), **place)
                    launched = (resumes - 5, 2)
                    trace.kernel(resumes, at + STEP_US - resumes, launched=launched, **place)
        return traces

    return traces_of


def in_turn(rank, step):
    return PAUSE_US if rank == step % 4 else 0


def test_pauses_of_another_rank_each_time_with_exact_share_and_saving(
    make_run, pausing, finding_of
):
    found = finding_of(NAME, make_run(pausing(in_turn)))
    # in each of the steps 2 to 9 one rank pauses for 12 of 100 ms
    assert (found.status, found.cause) == (Status.FOUND, Cause.HOST_PAUSE)
    assert (found.ranks, found.steps) == ((0, 1, 2, 3), tuple(range(2, 10)))
    assert found.measured.value == pytest.approx(0.12)
    assert found.saving.per_step_ns.low == pytest.approx(11_997_000)  # without the latency
    assert found.saving.per_step_ns.high == pytest.approx(12_000_000)
    assert found.title == "Hosts pause for up to 12 ms, another rank each time"
    assert found.confidence.level is Level.MEDIUM
    assert found.confidence.reason.startswith("8 pauses on 4 ranks")
    assert len(found.evidence[0].rows) == 8


def test_a_fixed_pause_of_all_ranks_is_none(make_run, pausing, finding_of):
    found = finding_of(NAME, make_run(pausing(lambda *_: PAUSE_US)))
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(0.12))


def test_all_ranks_that_pause_in_some_steps_do_so_together(make_run, pausing, finding_of):
    run = make_run(pausing(lambda _rank, step: PAUSE_US if step % 4 == 0 else 0))
    assert finding_of(NAME, run).status is Status.CLEAR


def test_a_rank_that_pauses_alone_is_a_straggler(make_run, pausing, finding_of):
    run = make_run(pausing(lambda rank, _step: PAUSE_US if rank == 2 else 0))
    assert finding_of(NAME, run).status is Status.CLEAR


@pytest.mark.parametrize(("us", "is_found"), [(10_003, True), (10_002, False)])
def test_the_length_of_a_pause_from_both_sides(make_run, pausing, finding_of, us, is_found):
    # the host's part is 3 µs shorter: 10 ms and 1 µs less
    run = make_run(pausing(lambda rank, step: us if rank == step % 4 else 0))
    assert (finding_of(NAME, run).status is Status.FOUND) == is_found


@pytest.mark.parametrize(("limit", "is_found"), [(0.03, True), (0.031, False)])
def test_the_share_of_the_step_from_both_sides(make_run, pausing, finding_of, limit, is_found):
    # two of eight averaged steps hold a pause of 12 of 100 ms
    pauses = {(1, 3), (2, 7)}
    run = make_run(pausing(lambda rank, step: PAUSE_US if (rank, step) in pauses else 0))
    found = finding_of(NAME, run, min_step_share=limit)
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(0.03)


def test_one_pause_is_an_accident_and_two_are_unsure(make_run, pausing, finding_of):
    for pauses, level in (({(1, 3)}, None), ({(1, 3), (2, 7)}, Level.LOW)):
        run = make_run(
            pausing(lambda rank, step, own=pauses: PAUSE_US if (rank, step) in own else 0)
        )
        found = finding_of(NAME, run)
        assert (found.status is Status.FOUND) == (level is Level.LOW)
        assert found.status is Status.CLEAR or found.confidence.level is level


def test_pauses_outside_of_the_averaged_steps_do_not_count(make_run, pausing, finding_of):
    pauses = {(1, 1), (2, 3), (3, 10)}  # the first step warms up, the last is cut
    run = make_run(pausing(lambda rank, step: PAUSE_US if (rank, step) in pauses else 0))
    assert finding_of(NAME, run).status is Status.CLEAR


@pytest.mark.parametrize(("limit", "is_found"), [(0.75, True), (0.74, False)])
def test_the_share_of_one_rank_from_both_sides(make_run, pausing, finding_of, limit, is_found):
    # rank 1 holds six of eight pauses
    run = make_run(pausing(lambda rank, step: PAUSE_US if rank == (1 if step < 8 else 2) else 0))
    found = finding_of(NAME, run, max_rank_share=limit)
    assert (found.status is Status.FOUND) == is_found


def test_one_pause_on_two_devices_is_one(make_run, pausing, finding_of):
    pauses = {(1, 3), (2, 7), (2, 8), (2, 9)}
    run = make_run(
        pausing(lambda rank, step: PAUSE_US if (rank, step) in pauses else 0, devices=(0, 1))
    )
    found = finding_of(NAME, run, max_rank_share=0.75)
    assert found.confidence.reason.startswith("4 pauses on 2 ranks")
    assert len(found.evidence[0].rows) == 4
    # four pauses in eight steps are 6 % of the time of eight devices
    assert found.saving.gpu_hours_per_day.high == pytest.approx(8 * 24 * 0.06)


def test_a_pause_inside_an_operator_has_a_name(make_run, pausing, finding_of):
    run = make_run(pausing(in_turn, name="aten::nonzero"))
    assert finding_of(NAME, run).status is Status.CLEAR


def test_ranks_of_any_number_are_named_by_it(make_run, pausing, finding_of):
    run = make_run(
        pausing(
            lambda rank, step: PAUSE_US if rank == (7, 30)[step % 2] else 0, ranks=(2, 7, 11, 30)
        )
    )
    assert finding_of(NAME, run).ranks == (7, 30)


def test_ranks_that_do_not_pause_are_clear(make_run, pausing, finding_of):
    found = finding_of(NAME, make_run(pausing(lambda *_: 0)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_without_a_device_it_is_skipped(make_run, runs, finding_of):
    traces = {rank: runs.Trace().step(1, 0, 1_000).op(0, 400) for rank in range(2)}
    found = finding_of(NAME, make_run(traces))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("without a device, a training thread that has no processor looks")


def test_one_rank_is_skipped(make_run, pausing, finding_of):
    assert finding_of(NAME, make_run(pausing(in_turn, ranks=(0,)))).why.startswith("one rank")
