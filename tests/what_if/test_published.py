"""Slowdowns of the published jobs equal the published results (arXiv 2505.05713), to 1e-6."""

from __future__ import annotations

import json

import pytest

import tracekit

FOLDER = "traces/ByteDance-Seed+StragglerAnalysis/data"
JOBS = ("AR", "ST")


@pytest.fixture(scope="module")
def answers(traces):
    folder = traces / FOLDER
    return {job: tracekit.replay(folder / f"trace-{job}.parquet", engine="local:1") for job in JOBS}


def published(traces, name):
    return json.loads((traces / FOLDER / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("job", JOBS)
def test_the_slowdown_of_the_job(job, answers, traces):
    theirs = published(traces, f"result-{job}")
    assert answers[job].slowdowns.slowdown == pytest.approx(theirs["blocking_slowdown"], rel=1e-6)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("field", "theirs"), [("by_type", "optype"), ("by_dp", "dp_rank"), ("by_stage", "stage")]
)
def test_the_slowdown_by_what_makes_it(job, field, theirs, answers, traces):
    expected = published(traces, f"result-{job}")[f"blocking_decompose_by_{theirs}"]
    assert getattr(answers[job].slowdowns, field) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("job", JOBS)
def test_the_slowdown_by_worker_is_the_smaller_of_its_replica_and_stage(job, answers):
    found = answers[job].slowdowns
    assert found.by_worker == {
        f"{dp},{stage}": min(found.by_dp[dp], found.by_stage[stage])
        for dp, stage in (key.split(",") for key in found.by_worker)
    }
    assert len(found.by_worker) == len(found.by_dp) * len(found.by_stage)


@pytest.mark.parametrize("job", JOBS)
def test_the_shares_of_the_slowest_workers_and_of_the_last_stage(job, answers, traces):
    found = answers[job].slowdowns
    workers, last = published(traces, f"mw-{job}")["rem"], published(traces, f"ms-{job}")["rem"]
    assert found.worker_share == pytest.approx(workers, rel=1e-6)
    assert found.last_stage_share == pytest.approx(last, rel=1e-6)


@pytest.mark.parametrize("job", JOBS)
def test_waste_and_error_follow(job, answers, traces):
    found = answers[job].slowdowns
    assert found.waste == pytest.approx(1 - 1 / found.slowdown)
    launch = published(traces, f"result-{job}")["launch_slowdown"]
    assert found.replay_error == pytest.approx(1 - 1 / launch, rel=1e-3)


def test_the_path_of_the_slowed_worker_is_its_own(answers):
    replay = answers["AR"].replay
    first = replay.critical_path[0]
    assert (first.rank, first.kind) == (0, "compute")
    of_worker = sum(each.per_step_ns for each in replay.critical_path if each.rank == 0)
    assert of_worker > 0.9 * replay.step_ns


def test_making_the_slowed_worker_like_the_others_halves_the_step(traces):
    path = traces / FOLDER / "trace-AR.parquet"
    found = tracekit.replay(path, remove=["straggler:0"], engine="local:1")
    (answer,) = found.replay.answers
    theirs = published(traces, "mw-AR")["trem"]
    assert answer.step_ns == pytest.approx(theirs * 1e9, rel=1e-6)
