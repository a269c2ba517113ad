"""`straggler-rank`: exact figures by hand, limits from both sides, and who must not be named."""

from __future__ import annotations

import random

import pytest

from tracekit.config import Config
from tracekit.detectors import detectors, findings_of
from tracekit.findings import Cause, Level, Severity, Status, with_severity

STEP_US = 10_000


def finding_of(run, **limits):
    """The findings, with limits in place of the detector's own."""
    config = Config({"straggler-rank": limits})
    return findings_of(detectors()["straggler-rank"], run, config)


def job(
    runs,
    late,
    *,
    n_ranks=4,
    n_steps=6,
    n_collectives=4,
    transfer=50,
    kernel=1000,
    tail=None,
    is_host=False,
):
    """Steps of compute and collectives; `late(rank, step, number)` says who enters how much later.

    A rank that enters later computes for longer before, or, with `is_host`, launches later. All
    leave each collective together, `tail(…)` apart.
    """
    traces = {rank: runs.Trace() for rank in range(n_ranks)}
    for step in range(1, n_steps + 1):
        at = STEP_US * step
        for trace in traces.values():
            trace.step(step, at, STEP_US)
        for number in range(n_collectives):
            delays = [late(rank, step, number) for rank in range(n_ranks)]
            begin = at + 2000 * number
            end = begin + kernel + max(delays) + transfer
            for rank, trace in traces.items():
                enters = begin + kernel + delays[rank]
                busy = kernel if is_host else kernel + delays[rank]
                starts = enters - busy
                trace.kernel(starts, busy, "gemm", launched=(starts - 2, 1))
                leaves = end + (tail(rank, step, number) if tail else 0)
                trace.collective(
                    enters, leaves - enters, launched=(begin, 1), members=list(range(n_ranks))
                )
    return traces


def only(rank_late, us):
    return lambda rank, _step, _number: us if rank == rank_late else 0


def test_one_late_rank_is_named_with_exact_waiting_and_saving(make_run, runs):
    run = make_run(job(runs, only(2, 200)))
    (found,) = finding_of(run)
    assert found.status is Status.FOUND
    assert (found.subject, found.ranks, found.scope.victims) == ("rank 2", (2,), (0, 1, 3))
    # each step of 10,000 µs: 4 collectives in which all others wait 200 µs
    assert found.measured.value == pytest.approx(800 / 10_000, rel=1e-3)
    assert found.saving.per_step_ns.low == found.saving.per_step_ns.high == 800_000
    assert found.saving.share == pytest.approx(800 / 10_000, rel=1e-3)
    assert found.saving.gpu_hours_per_day.low == pytest.approx(4 * 24 * 0.08, rel=1e-3)
    assert found.steps == (2, 3, 4, 5)  # the first warms up, the last is cut
    assert found.title == "Rank 2 makes the others wait 800 µs a step"
    assert found.confidence.level is Level.HIGH
    assert "two estimators" in found.confidence.reason


def test_slower_kernels_are_a_slow_device(make_run, runs):
    (found,) = finding_of(make_run(job(runs, only(1, 300))))
    assert found.cause is Cause.SLOW_DEVICE
    # four kernels of 1,300 instead of 1,000 µs a step
    assert found.why == (
        "its kernels run slower, 1.2 ms a step more than its median peer; in every step"
    )


def test_later_launches_are_the_host(make_run, runs):
    (found,) = finding_of(make_run(job(runs, only(1, 300), is_host=True)))
    assert found.cause is Cause.HOST_OTHER


@pytest.mark.parametrize(("us", "is_found"), [(52, True), (48, False)])
def test_the_limit_of_waiting_from_both_sides(make_run, runs, us, is_found):
    # 4 × 52 µs are 2.08 % of a step, 4 × 48 µs 1.92 %; the limit is 2 %
    (found,) = finding_of(make_run(job(runs, only(3, us))))
    assert (found.status is Status.FOUND) == is_found
    assert found.measured.value == pytest.approx(4 * us / 10_000, rel=2e-2)
    assert found.limit.value == 0.02


@pytest.mark.parametrize(("least", "is_found"), [(16, True), (17, False)])
def test_the_limit_of_instances_from_both_sides(make_run, runs, least, is_found):
    run = make_run(job(runs, only(3, 200)))  # 4 collectives in each of 4 averaged steps
    (found,) = finding_of(run, min_instances=least)
    assert (found.status is Status.FOUND) == is_found


@pytest.mark.parametrize(("least", "is_found"), [(0.75, True), (0.76, False)])
def test_the_limit_of_steps_led_from_both_sides(make_run, runs, least, is_found):
    late = lambda rank, step, _number: 200 if (rank, step) != (3, 3) and rank == 3 else 0  # noqa: E731
    run = make_run(job(runs, late))  # leads in steps 2, 4 and 5 of 2–5
    (found,) = finding_of(run, min_steps_share=least)
    assert found.subject == ("rank 3" if is_found else "spread")


@pytest.mark.parametrize(
    ("share", "subjects"), [(0.49, ["rank 1", "rank 4"]), (0.51, ["rotating"])]
)
def test_two_ranks_that_share_the_waiting_are_both_named_up_to_the_limit(
    make_run, runs, share, subjects
):
    def late(rank, _step, number):
        return 200 if rank == (1 if number % 2 else 4) else 0

    found = finding_of(make_run(job(runs, late, n_ranks=6)), min_caused_share=share)
    assert [f.subject for f in found] == subjects
    assert sorted({rank for f in found for rank in f.ranks}) == [1, 4]


def test_ranks_of_one_host_that_are_late_together_are_one_finding(make_run, runs):
    (found,) = finding_of(make_run(job(runs, lambda r, _s, _n: 200 if r >= 6 else 0, n_ranks=8)))
    assert (found.subject, found.ranks) == ("ranks 6, 7", (6, 7))
    assert found.scope.victims == (0, 1, 2, 3, 4, 5)
    assert found.saving.per_step_ns.low == 800_000


def test_a_tie_names_nobody(make_run, runs):
    (found,) = finding_of(make_run(job(runs, lambda *_: 0)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0)


def test_lateness_inside_the_spread_of_the_ends_names_nobody(make_run, runs):
    generator = random.Random(1)
    # late by 60 µs, but the ends of the collectives lie up to 200 µs apart
    run = make_run(job(runs, only(2, 60), tail=lambda *_: generator.randrange(200)))
    (found,) = finding_of(run)
    assert found.status is Status.CLEAR


def test_one_rank_has_nobody_to_wait_for_it(make_run, runs):
    (found,) = finding_of(make_run(job(runs, only(0, 500), n_ranks=1)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("one rank")


def test_without_collectives_it_is_skipped_and_says_how_to_record_them(make_run, trace):
    (found,) = finding_of(make_run(trace.kernel(0, 10)))
    assert found.status is Status.SKIPPED
    assert found.why.startswith("the traces hold no collectives. Record whole steps")


def test_missing_ranks_make_it_unsure(make_run, runs):
    (found,) = finding_of(make_run(job(runs, only(2, 200)), n_missing=2))
    assert found.confidence.level is Level.LOW
    assert "one may be later still" in found.confidence.reason


def test_one_averaged_step_makes_it_unsure(make_run, runs):
    run = make_run(job(runs, only(2, 400), n_steps=2, n_collectives=5))
    (found,) = finding_of(run)
    assert (found.status, found.confidence.level) == (Status.FOUND, Level.LOW)
    assert found.confidence.reason.endswith("one step only")


@pytest.mark.parametrize(("n_steps", "level"), [(8, Level.HIGH), (6, Level.LOW)])
def test_once_a_step_is_enough_where_the_error_is_small(make_run, runs, n_steps, level):
    # 6 averaged steps with one collective each, or 4
    (found,) = finding_of(make_run(job(runs, only(2, 600), n_steps=n_steps, n_collectives=1)))
    assert (found.status, found.confidence.level) == (Status.FOUND, level)


def test_ranks_that_lead_a_step_each_take_turns(make_run, runs):
    late = lambda rank, step, _number: 250 if rank == step % 4 else 0  # noqa: E731
    (found,) = finding_of(make_run(job(runs, late)))
    assert (found.subject, found.ranks) == ("rotating", (0, 1, 2, 3))
    assert found.measured.value == pytest.approx(1000 / 10_000, rel=1e-2)
    assert found.saving.per_step_ns.low == pytest.approx(1_000_000, rel=1e-6)
    assert (found.confidence.level, found.cause) == (Level.MEDIUM, Cause.SLOW_DEVICE)


def test_two_steps_with_another_leader_each_are_chance(make_run, runs):
    late = lambda rank, step, _number: 250 if rank == step % 4 else 0  # noqa: E731
    (found,) = finding_of(make_run(job(runs, late, n_steps=4)))
    assert (found.subject, found.ranks, found.saving) == ("spread", (), None)
    assert with_severity(found).severity is Severity.INFO  # a note, and nobody is blamed
    assert found.measured.value > found.limit.value


@pytest.mark.parametrize("seed", range(4))
def test_jitter_is_no_straggler_and_no_turn(make_run, runs, seed):
    generator = random.Random(seed)
    late = lambda *_: generator.expovariate(1 / 40)  # noqa: E731
    (found,) = finding_of(make_run(job(runs, late, n_ranks=8)))
    assert found.status is Status.CLEAR
