"""`modality-imbalance`: encoders that take unequally long, by hand; steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "modality-imbalance"


@pytest.fixture
def encoders(job):
    """A vision encoder for `encoder(rank, step)` µs, then all else: 300 µs or as `rest` says.

    The host launches each kernel 1 µs after the one before: the encoder's under its span.
    """

    def traces_of(encoder, *, rest=None, span="vision encoder", ranks=range(4), n_steps=5):
        def work(rank, step):
            return [("conv", encoder(rank, step)), ("gemm", (rest or {}).get(rank, 300))]

        traces = job(work, ranks=ranks, n_steps=n_steps)
        for trace in traces.values():
            for step in range(1, n_steps + 1):
                trace.annotation(1_000 * step - 0.2, 0.7, span)
        return traces

    return traces_of


def images(rank_most, us, usual=200):
    return lambda rank, _step: us if rank == rank_most else usual


def test_the_rank_with_most_images_with_exact_excess_and_saving(make_run, encoders, finding_of):
    found = finding_of(NAME, make_run(encoders(images(2, 360))))
    # the encoder takes 240 µs on the mean rank, 200 on the median one; the others wait 160
    assert (found.status, found.cause) == (Status.FOUND, Cause.MODALITY_IMBALANCE)
    assert (found.ranks, found.steps) == ((2,), (2, 3, 4))
    assert found.measured.value == pytest.approx(0.12)
    assert found.saving.per_step_ns.low == pytest.approx(120_000)
    assert found.saving.per_step_ns.high == pytest.approx(480_000)  # its backward pass is 320 µs
    assert found.why == (
        "the encoder of the longest rank takes 50.0 % more than the mean, all else 0.0 % more"
    )
    assert found.evidence[0].rows[0] == (2, 360_000, 300_000)
    assert found.evidence[1].rows[0] == (2, 2, 360_000, 240_000)


def test_ranks_that_get_images_in_turn(make_run, encoders, finding_of):
    found = finding_of(
        NAME, make_run(encoders(lambda rank, step: 360 if rank == step % 4 else 200))
    )
    assert (found.status, found.ranks) == (Status.FOUND, (0, 2, 3))
    assert found.measured.value == pytest.approx(0.12)


@pytest.mark.parametrize(("extra", "is_found"), [(27, True), (26, False)])
def test_the_share_of_the_step_from_both_sides(make_run, encoders, finding_of, extra, is_found):
    # three quarters of 27 µs are 20.25, of 26 they are 19.5; the limit is 20
    found = finding_of(NAME, make_run(encoders(images(1, 100 + extra, 100))))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(0.75 * extra / 1_000)


@pytest.mark.parametrize(("extra", "is_found"), [(56, True), (55, False)])
def test_the_unevenness_from_both_sides(make_run, encoders, finding_of, extra, is_found):
    # 42 µs over a mean of 414 are 10.1 %, 41.25 over 413.75 are 9.97 %
    found = finding_of(NAME, make_run(encoders(images(1, 400 + extra, 400))))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(109, True), (110, False)])
def test_other_work_that_is_uneven_too_from_both_sides(
    make_run, encoders, finding_of, extra, is_found
):
    # the encoder is 50 % over its mean; all else 81.75 µs over 327.25 (24.98 %), or 82.5 over 327.5
    found = finding_of(NAME, make_run(encoders(images(2, 360), rest={2: 300 + extra})))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(73, True), (72, False)])
def test_threads_that_stand_for_devices_may_differ_more(
    make_run, host_job, finding_of, extra, is_found
):
    def work(rank, _step):
        return [("aten::convolution", 200 + (extra if rank == 1 else 0)), ("aten::mm", 300)]

    traces = host_job(work)
    for trace in traces.values():
        for step in range(1, 6):
            trace.annotation(1_000 * step - 1, 50, "vision encoder")
    # 54.75 µs over a mean of 218.25 are 25.1 %, 54 over 218 are 24.8 %; the limit is 25 %
    assert (finding_of(NAME, make_run(traces)).status is Status.FOUND) == is_found


def test_a_device_slow_in_everything_has_no_more_images(make_run, encoders, finding_of):
    found = finding_of(NAME, make_run(encoders(images(2, 300), rest={2: 450})))
    assert found.status is Status.CLEAR


def test_equal_encoders_are_clear(make_run, encoders, finding_of):
    found = finding_of(NAME, make_run(encoders(images(0, 200))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_ranks_without_an_encoder_are_not_compared(make_run, encoders, finding_of):
    traces = encoders(images(11, 360), ranks=(2, 5, 11, 40))
    for rank in (2, 40):
        is_encoder = [row["name"] == "vision encoder" for row in traces[rank].rows["annotations"]]
        assert sum(is_encoder) == 5
        traces[rank].rows["annotations"] = [
            row for row in traces[rank].rows["annotations"] if row["name"] != "vision encoder"
        ]
    found = finding_of(NAME, make_run(traces, world_size=64))
    assert found.ranks == (11,)
    assert found.measured.value == pytest.approx(0.08)  # of ranks 5 and 11: 360 − 280 µs


def test_one_step_makes_it_unsure(make_run, encoders, finding_of):
    found = finding_of(NAME, make_run(encoders(images(2, 360), n_steps=2)))
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)


@pytest.mark.parametrize("span", ["text encoder", "forward", "clip_grad_norm", "division"])
def test_without_a_span_that_names_an_encoder_it_is_skipped(make_run, encoders, finding_of, span):
    found = finding_of(NAME, make_run(encoders(images(2, 360), span=span)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("no span in the traces names an encoder of images")


def test_a_span_without_a_kernel_names_no_encoder(make_run, job, finding_of):
    traces = job(lambda *_: [("gemm", 400)])
    for trace in traces.values():
        trace.annotation(5_500, 50, "vision encoder")
    assert finding_of(NAME, make_run(traces)).status is Status.SKIPPED


def test_one_rank_or_no_events_are_skipped(make_run, encoders, runs, finding_of):
    assert finding_of(NAME, make_run(encoders(images(0, 200), ranks=(0,)))).why[:8] == "one rank"
    found = finding_of(NAME, make_run({0: runs.Trace(), 1: runs.Trace()}))
    assert found.status is Status.SKIPPED
