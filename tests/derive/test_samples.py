"""What the loop told of its samples: the sum of squared lengths by rank and step."""

from __future__ import annotations

from tracekit.derive.samples import squared_lengths


def told(trace, *batches):
    for number, (step, lengths) in enumerate(batches):
        for length in lengths:
            trace.add("samples", number, 0, step=step, batch=number, length=length)
    return trace


def test_squares_are_summed_over_the_batches_of_a_step(make_run, runs):
    traces = {
        7: told(runs.Trace(), (2, [10]), (1, [3, 4]), (1, [5])),
        2: told(runs.Trace(), (1, [6])),
    }
    rows = squared_lengths(make_run(traces))
    assert rows.rows() == [(2, 1, 36.0), (7, 1, 50.0), (7, 2, 100.0)]


def test_lengths_whose_squares_are_large_are_summed_exactly(make_run, trace):
    run = make_run(told(trace, (1, [1 << 20] * 4)))
    assert squared_lengths(run).rows() == [(0, 1, float(1 << 42))]


def test_unless_all_ranks_told_nothing_is_known(make_run, runs):
    run = make_run({0: told(runs.Trace(), (1, [3])), 1: runs.Trace()})
    assert squared_lengths(run).is_empty()
    assert squared_lengths(make_run(runs.Trace())).is_empty()
