"""`no-communication-seen`: a note about captures without collectives."""

from __future__ import annotations

from tracekit.findings import Severity, Status

NAME = "no-communication-seen"


def traces(runs, talking, n_ranks=4):
    found = {}
    for rank in range(n_ranks):
        found[rank] = runs.Trace().kernel(0, 100, launched=0)
        if rank in talking:
            found[rank].collective(200, 50)
    return found


def test_no_rank_recorded_communication(make_run, runs, finding_of):
    found = finding_of(NAME, make_run(traces(runs, ())))
    assert (found.status, found.severity) == (Status.FOUND, Severity.INFO)
    assert found.title == "No communication was recorded on any rank of 4"
    assert found.evidence[0].rows[0] == (0, 1, 0)


def test_ranks_without_it_are_named(make_run, runs, finding_of):
    found = finding_of(NAME, make_run(traces(runs, (0, 1, 3))))
    assert found.ranks == (2,)
    assert found.title == "No communication was recorded on rank 2 of 4"


def test_all_ranks_recorded_some(make_run, runs, finding_of):
    assert finding_of(NAME, make_run(traces(runs, range(4)))).status is Status.CLEAR


def test_one_rank_of_a_job_of_one_is_skipped(make_run, runs, finding_of):
    found = finding_of(NAME, make_run(traces(runs, (), n_ranks=1)))
    assert found.status is Status.SKIPPED


def test_one_trace_of_a_larger_job_counts(make_run, runs, finding_of):
    run = make_run(traces(runs, (), n_ranks=1), world_size=8, n_missing=7)
    assert finding_of(NAME, run).status is Status.FOUND
