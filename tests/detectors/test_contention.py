"""`contention`, by hand: two reductions a step of 1,000 µs, a copy beside the second one."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Status

NAME = "contention"
STEP = 1_000


@pytest.fixture
def beside(make_run, runs):
    """Reductions from 300 µs on for `alone` µs, and from 600 on for `beside`, that beside a copy.

    The copy covers `share` of it; `what` runs in place of the copy. In other than every `every`-th
    step there is none, and both take `alone`.
    """

    def made(alone, beside, *, share=1.0, what="copy", n_steps=6, every=1, sizes=None):
        traces = {rank: runs.Trace() for rank in (0, 1)}
        for number in range(n_steps):
            at, is_beside = STEP * number, number % every == 0
            second = beside if is_beside else alone
            for trace in traces.values():
                trace.step(number, at, STEP)
                trace.kernel(at, 290, launched=at)
                for i, (begins, dur) in enumerate(((300, alone), (600, second))):
                    trace.collective(
                        at + begins,
                        dur,
                        launched=at + 2 + i,
                        members=[0, 1],
                        sequence=2 * number + i,
                        bytes_in=(sizes or (1 << 20, 1 << 20))[i],
                    )
                if not is_beside:
                    continue
                if what == "copy":
                    trace.copy(at + 600, beside * share, "DtoH", launched=at + 6)
                else:
                    trace.kernel(at + 600, beside * share, launched=at + 6)
        return make_run(traces)

    return made


def test_a_reduction_that_takes_twice_as_long_beside_a_copy(beside, finding_of):
    found = finding_of(NAME, beside(100, 200))
    assert (found.status, found.cause, found.subject) == (Status.FOUND, Cause.CONTENTION, "copies")
    assert found.measured.value == pytest.approx(2.0)
    # 200 µs, nothing of it beside compute, of which 100 would do
    assert found.saving.per_step_ns.low == pytest.approx(100_000)
    assert found.title == "Collectives take 2.00× as long while copies run beside them"
    row = ("0 (2 ranks: 0–1)", "all_reduce", 1 << 20, 6, 200_000.0, 6, 100_000.0)
    assert found.evidence[0].rows == (row,)


def test_compute_that_hides_all_of_it_costs_nothing(beside, finding_of):
    assert finding_of(NAME, beside(100, 200, what="kernel")).status is Status.CLEAR


def test_compute_beside_most_of_it_costs_what_sticks_out(beside, finding_of):
    found = finding_of(NAME, beside(100, 200, what="kernel", share=0.6))
    assert found.subject == "compute"
    assert found.saving.per_step_ns.low == pytest.approx(80_000)  # 200 less 120 hidden


def test_a_copy_beside_a_little_of_it_is_neither_beside_nor_alone(beside, finding_of):
    assert finding_of(NAME, beside(100, 200, share=0.3)).status is Status.CLEAR


def test_a_quarter_longer_is_usual(beside, finding_of):
    assert finding_of(NAME, beside(100, 125)).status is Status.CLEAR
    assert finding_of(NAME, beside(100, 135)).status is Status.FOUND


def test_other_sizes_are_not_compared(beside, finding_of):
    assert finding_of(NAME, beside(100, 200, sizes=(1 << 20, 2 << 20))).status is Status.CLEAR


def test_three_calls_are_too_few(beside, finding_of):
    assert finding_of(NAME, beside(100, 200, n_steps=3)).status is Status.CLEAR


def test_what_copies_explain_is_no_tail(beside, finding_of):
    # 6 of 24 transfers take three times as long, each beside a copy
    run = beside(100, 300, n_steps=12, every=2)
    assert finding_of(NAME, run).status is Status.FOUND
    assert finding_of("network-tail", run).status is Status.CLEAR
