"""Whose fault a wait for a message is: the first link of the chain, not the last (µs)."""

from __future__ import annotations

import pytest

from tracekit.derive.origins import wait_origins
from tracekit.sample_traces.simulator.job import Faults, Job
from tracekit.sample_traces.simulator.noise import NONE
from tracekit.sample_traces.simulator.recorded import recorded


def chain(runs, busy_us, *, ahead_us=(0, 0, 0)):
    """Six steps of three ranks: each computes, then passes a message on to the next.

    `busy_us` is how long each computes before it sends; clocks are ahead by `ahead_us`.
    """
    traces = {rank: runs.Trace() for rank in range(3)}
    for step in range(1, 7):
        at = 10_000 * step
        for rank, trace in traces.items():
            trace.step(step, at - 100 + ahead_us[rank], 10_000)
            trace.kernel(at - 50 + ahead_us[rank], 50, launched=at - 60 + ahead_us[rank])
        arrived = at
        for rank in range(3):
            begins = arrived
            here = begins + ahead_us[rank]
            traces[rank].kernel(here, busy_us[rank], launched=here - 40)
            ready = begins + busy_us[rank]
            if rank < 2:
                arrived = message_between(traces, rank, ready, at, ahead_us)
    return traces


def message_between(traces, rank, ready, at, ahead_us):
    """The rank sends when it is ready; the next one waits for it since the start of the step."""
    ends = ready + 10
    for who, operation, enters in ((rank, "send", ready), (rank + 1, "recv", at)):
        enters_here, ends_here = enters + ahead_us[who], ends + ahead_us[who]
        peers = {"source_rank": rank, "destination_rank": rank + 1}
        traces[who].collective(
            enters_here,
            ends_here - enters_here,
            operation,
            launched=enters_here - 5,
            members=[0, 1, 2],
            **peers,
        )
    return ends


def caused_us(run):
    """Waiting a step in µs by (origin, who waited), of steps that all ranks have."""
    rows = wait_origins(run)
    steps = rows["step"].n_unique()
    sums = {}
    for rank, _, origin, dur_ns in rows.iter_rows():
        sums[origin, rank] = sums.get((origin, rank), 0) + dur_ns / 1000 / steps
    return {pair: round(us) for pair, us in sums.items()}


def test_the_last_rank_waits_for_the_first_where_the_one_between_waits_itself(make_run, runs):
    # Rank 0 computes 600 µs, rank 1 100 µs: rank 2 waits 700 µs and a transfer, 600 of it for 0.
    found = caused_us(make_run(chain(runs, (600, 100, 50))))
    assert found == {
        (0, 1): 600,
        (0, 2): pytest.approx(600, abs=1),
        (1, 2): pytest.approx(110, abs=1),
    }


def test_clocks_of_ranks_need_not_agree(make_run, runs):
    same = caused_us(make_run(chain(runs, (600, 100, 50))))
    assert caused_us(make_run(chain(runs, (600, 100, 50), ahead_us=(0, 7_300, -3_100)))) == same


def test_waiting_under_compute_is_no_wait(make_run, runs):
    traces = chain(runs, (600, 100, 50))
    for step in range(1, 7):
        at = 10_000 * step
        traces[2].kernel(at, 700, "other", launched=at - 40)
    found = caused_us(make_run(traces))
    assert found[0, 2] + found.get((1, 2), 0) <= 20  # what is left of 720 µs after 700 of compute


def test_without_messages_there_is_nothing_to_follow(make_run, trace):
    assert wait_origins(make_run({0: trace.kernel(0, 10)})).is_empty()


@pytest.mark.parametrize("slow", [None, 0, 1, 2, 3])
def test_in_a_pipeline_the_slow_stage_causes_most_and_in_an_even_one_all_alike(
    tmp_path, slow, runs
):
    faults = Faults(compute_factor={} if slow is None else {slow: 1.5})
    job = Job(n_dp=1, n_pp=4, n_micro_batches=8, seed=1, noise=NONE, faults=faults)
    recorded(job, tmp_path)
    rows = wait_origins(runs.converted(tmp_path, tmp_path / "run"))
    sums = rows.group_by("origin").sum()
    caused = dict(sums.select("origin", "dur_ns").iter_rows())
    if slow is None:
        assert max(caused.values()) <= 1.2 * min(caused.values())
    else:
        others = sorted(ns for rank, ns in caused.items() if rank != slow)
        assert caused[slow] > 1.25 * others[-1]
