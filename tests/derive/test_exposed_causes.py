"""What exposed transfer is owed to, by hand: steps of 1,000 µs, one group of two ranks."""

from __future__ import annotations

from tracekit.derive.exposed_causes import BYTES, exposed_causes

STEP = 1_000


def by_cause(run):
    """Exposed µs of rank 0 in an averaged step, by cause."""
    rows = exposed_causes(run).filter(rank=0, step=3)
    return {row["cause"]: row["exposed_ns"] / 1000 for row in rows.iter_rows(named=True)}


def job(runs, calls, *, n_steps=8):
    """Collectives (start, µs, bytes) of each step, after 100 µs of compute; copies beside some."""
    traces = {rank: runs.Trace() for rank in (0, 1)}
    for number in range(n_steps):
        at = STEP * number
        for trace in traces.values():
            trace.step(number, at, STEP).kernel(at, 100, launched=at)
            for i, (start, dur, nbytes, is_beside) in enumerate(calls(number)):
                trace.collective(
                    at + start,
                    dur,
                    launched=at + 2 + i,
                    members=[0, 1],
                    sequence=10 * number + i,
                    bytes_in=nbytes,
                )
                if is_beside:
                    trace.copy(at + start, dur, launched=at + 9)
    return traces


def test_what_nothing_else_explains_is_the_bytes(make_run, runs):
    run = make_run(job(runs, lambda _: [(110, 200, 1 << 20, False)]))
    assert by_cause(run) == {BYTES: 200.0}


def test_a_copy_beside_a_transfer_takes_what_it_takes_longer(make_run, runs):
    # alone 100 µs, beside a copy 250
    calls = [(110, 100, 1 << 20, False), (300, 250, 1 << 20, True)]
    run = make_run(job(runs, lambda _: calls))
    assert by_cause(run) == {"contention": 150.0, BYTES: 200.0}


def test_a_tail_takes_what_it_takes_longer(make_run, runs):
    # in step 3 one transfer takes 400 µs, else 100
    run = make_run(job(runs, lambda n: [(110, 400 if n == 3 else 100, 1 << 20, False)]))
    assert by_cause(run) == {"network-tail": 300.0, BYTES: 100.0}


def test_causes_add_up_to_what_is_exposed(make_run, runs):
    calls = [(110, 100, 1 << 20, False), (300, 250, 1 << 20, True)]
    run = make_run(job(runs, lambda _: calls))
    assert sum(by_cause(run).values()) == 350.0
