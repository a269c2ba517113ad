"""`sequence-length-imbalance`: attention that differs alone, by hand; steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "sequence-length-imbalance"


def batches(attention, linear=None, *, usual=200):
    """Work of ranks: `usual` µs of matrix products and of attention but for the ranks named."""

    def work(rank, _step):
        products = (linear or {}).get(rank, usual)
        return [("gemm", products), ("flash_fwd", attention.get(rank, usual))]

    return work


def test_the_rank_with_long_sequences_with_exact_excess_and_saving(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(batches({3: 400}))))
    # attention takes 250 µs on the mean rank, 200 on the median one; the others wait 200
    assert (found.status, found.cause) == (Status.FOUND, Cause.SEQUENCE_LENGTH_IMBALANCE)
    assert (found.ranks, found.steps) == ((3,), (2, 3, 4))
    assert found.measured.value == pytest.approx(0.15)
    assert found.saving.per_step_ns.low == pytest.approx(150_000)
    assert found.saving.per_step_ns.high == pytest.approx(200_000)
    assert found.saving.gpu_hours_per_day.high == pytest.approx(4 * 24 * 0.2)
    assert found.why == (
        "attention of the longest rank takes 60.0 % more than the mean, its matrix products 0.0 % "
        "more"
    )
    assert found.evidence[0].rows[0] == (3, 400_000, 200_000)
    assert found.evidence[1].rows[0] == (2, 0, 3, 400_000, 250_000)


def test_ranks_that_get_long_sequences_in_turn(make_run, job, finding_of):
    def work(rank, step):
        return batches({step % 4: 400})(rank, step)

    found = finding_of(NAME, make_run(job(work)))
    # totals of ranks 0, 2 and 3 are equal, yet each step waits for one of them
    assert (found.status, found.ranks) == (Status.FOUND, (0, 2, 3))
    assert found.measured.value == pytest.approx(0.15)


def test_no_rank_is_named_where_more_than_four_take_turns(make_run, job, finding_of):
    def work(rank, step):
        return batches({step % 8: 400})(rank, step)

    found = finding_of(NAME, make_run(job(work, ranks=range(8), n_steps=10)))
    assert (found.status, found.ranks) == (Status.FOUND, ())
    assert found.measured.value == pytest.approx(0.175)  # 400 − 225 µs


@pytest.mark.parametrize(("extra", "is_found"), [(27, True), (26, False)])
def test_the_share_of_the_step_from_both_sides(make_run, job, finding_of, extra, is_found):
    # three quarters of 27 µs are 20.25, of 26 they are 19.5; the limit is 20
    found = finding_of(NAME, make_run(job(batches({1: 100 + extra}, usual=100))))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(0.75 * extra / 1_000)


@pytest.mark.parametrize(("extra", "is_found"), [(56, True), (55, False)])
def test_the_unevenness_from_both_sides(make_run, job, finding_of, extra, is_found):
    # 42 µs over a mean of 414 are 10.1 %, 41.25 over 413.75 are 9.97 %
    found = finding_of(NAME, make_run(job(batches({1: 400 + extra}, usual=400))))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(73, True), (72, False)])
def test_threads_that_stand_for_devices_may_differ_more(
    make_run, host_job, finding_of, extra, is_found
):
    def work(rank, _step):
        attention = 200 + (extra if rank == 1 else 0)
        return [("aten::mm", 200), ("aten::scaled_dot_product_attention", attention)]

    # 54.75 µs over a mean of 218.25 are 25.1 %, 54 over 218 are 24.8 %; the limit is 25 %
    found = finding_of(NAME, make_run(host_job(work)))
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("extra", "is_found"), [(88, True), (89, False)])
def test_products_that_are_uneven_too_from_both_sides(make_run, job, finding_of, extra, is_found):
    # attention is 60 % over its mean; products 66 µs over 222 (29.7 %) or 66.75 over 222.25 (30.03)
    run = make_run(job(batches({3: 400}, {3: 200 + extra})))
    assert (finding_of(NAME, run).status is Status.FOUND) == is_found


def test_a_device_slow_in_everything_is_no_matter_of_lengths(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(batches({3: 300}, {3: 300}))))
    assert found.status is Status.CLEAR
    assert found.measured.value == pytest.approx(0.075)


def test_equal_batches_are_clear(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(batches({}))))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_ranks_of_any_number_are_named_by_it(make_run, job, finding_of):
    run = make_run(job(batches({11: 400}), ranks=(2, 5, 11, 40)), world_size=64)
    assert finding_of(NAME, run).ranks == (11,)


def test_an_even_stage_of_a_pipeline_is_not_at_fault(make_run, job, finding_of):
    traces = job(batches({3: 400}))
    for rank, trace in traces.items():  # 0 sends to 2, 1 to 3
        for step in range(1, 6):
            trace.collective(
                1_000 * step + 970, 5, "send", destination_rank=(rank + 2) % 4, members=None
            )
    found = finding_of(NAME, make_run(traces))
    assert (found.status, found.ranks) == (Status.FOUND, (3,))
    assert found.measured.value == pytest.approx(0.1)  # of ranks 2 and 3: 400 − 300 µs


def test_steps_in_which_all_are_equal_name_nobody(make_run, job, finding_of):
    def work(rank, step):
        return batches({3: 400} if step == 3 else {})(rank, step)

    assert finding_of(NAME, make_run(job(work))).ranks == (3,)


@pytest.mark.parametrize(
    ("told", "level", "said"),
    [
        ({0: 100, 1: 100, 2: 100, 3: 150}, Level.HIGH, "correlate by 1.00"),
        ({0: 150, 1: 100, 2: 100, 3: 100}, Level.MEDIUM, "correlate by -0.33"),
        ({0: 100, 1: 100, 2: 100}, Level.MEDIUM, "lengths were not told"),  # not by all ranks
    ],
)
def test_lengths_that_the_loop_told_make_it_sure(make_run, job, finding_of, told, level, said):
    traces = job(batches({3: 400}))
    for rank, length in told.items():
        for step in range(1, 6):
            traces[rank].add("samples", 1_000 * step, 0, step=step, batch=0, length=length)
    found = finding_of(NAME, make_run(traces))
    assert found.confidence.level is level
    assert said in found.confidence.reason


def test_one_step_makes_it_unsure(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(batches({3: 400}), n_steps=2)))
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)


def test_ranks_that_nobody_waits_for_save_nothing_for_sure(make_run, job, finding_of):
    traces = job(batches({3: 400}))
    for trace in traces.values():
        trace.rows["collectives"].clear()
        trace.rows["kernels"] = [r for r in trace.rows["kernels"] if r["kind"] != "communication"]
    found = finding_of(NAME, make_run(traces))
    assert found.saving.per_step_ns.low == 0
    assert found.saving.per_step_ns.high == pytest.approx(200_000)


def test_without_attention_it_is_skipped(make_run, job, runs, finding_of):
    for traces in (job(lambda *_: [("gemm", 400)]), {0: runs.Trace(), 1: runs.Trace()}):
        found = finding_of(NAME, make_run(traces))
        assert found.status is Status.SKIPPED
        assert found.why.startswith("no attention kernel in the averaged steps. Record")


def test_one_rank_is_skipped(make_run, job, finding_of):
    found = finding_of(NAME, make_run(job(batches({}), ranks=(0,))))
    assert (found.status, found.why[:8]) == (Status.SKIPPED, "one rank")
