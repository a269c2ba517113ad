"""Jobs of gloo ranks that record themselves, for real."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.errors import InputError
from tracekit.findings import Cause, Status

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.timed
def test_two_lines_record_all_ranks_and_name_the_late_one(torchrun, tmp_path):
    said = torchrun(
        tmp_path / "run", "--late", 0.4
    )  # far above what two busy processors make of a step
    assert {rank: each["heavy"] for rank, each in said.items()} == {0: [], 1: []}
    run = tracekit.open_run(tmp_path / "run")
    assert run.ranks == (0, 1)
    assert run.manifest.missing_ranks == ()
    assert run.manifest.layout == {"dp": 2}
    facts = run.capture(1).facts
    assert (facts.rank, facts.launcher, facts.backend) == (1, "torchrun", "gloo")
    assert [group.ranks for group in facts.groups] == [(0, 1)]
    assert facts.layout.place == {"dp": 1}
    assert facts.versions["torch"].startswith("2.")
    assert run.scan("steps", 1).collect()["step"].to_list() == [5, 6, 7, 8, 9]
    samples = run.scan("samples", 1).filter(pl.col("step") == 6).collect()
    assert samples["length"].to_list() == [20, 20]
    marks = run.scan_all("annotations").filter(pl.col("name") == "tracekit.phase forward")
    assert marks.collect().height == 10
    assert not list((tmp_path / "run").rglob("raw/*"))  # all is converted, nothing is left
    result = tracekit.analyze(tmp_path / "run", engine="local:1")
    straggler = [f for f in result.findings if f.id == "straggler-rank" and f.ranks == (1,)]
    assert [(f.status, f.cause) for f in straggler] == [(Status.FOUND, Cause.HOST_OTHER)]


def test_processes_of_mp_spawn_record_too(python, jobs, tmp_path):
    python(jobs, tmp_path / "run", "--meet", tmp_path / "meet")
    run = tracekit.open_run(tmp_path / "run")
    assert run.ranks == (0, 1)
    assert run.capture(1).facts.launcher is None


@pytest.mark.timed
def test_a_job_killed_before_its_window_says_so(torchrun, tmp_path):
    torchrun(tmp_path / "run", "--kill-at", 2, fails=True)
    with pytest.raises(InputError, match="recorded nothing yet: 2 ranks began"):
        tracekit.open_run(tmp_path / "run")


@pytest.mark.timed
@pytest.mark.parametrize(
    ("step", "after"),
    [(9, "attempt=0/step=*/raw/rank=000001.json"), (11, "attempt=0/step=*/manifest.json")],
)
def test_a_killed_job_leaves_a_run_that_convert_completes(torchrun, tmp_path, step, after):
    torchrun(tmp_path / "run", "--kill-at", step, "--kill-after", after, fails=True)
    run = tracekit.convert(tmp_path / "run")
    assert 1 in run.ranks  # torchrun ends rank 0 too, wherever it is by then
    assert not list((tmp_path / "run").rglob("raw/*.json"))


def test_a_relaunched_job_is_another_attempt(torchrun, tmp_path):
    for _ in range(2):
        torchrun(tmp_path / "run")
    run = tracekit.open_run(tmp_path / "run")
    assert run.manifest.name == "attempt=1/step=00000005"
    assert run.manifest.other_runs == ("attempt=0/step=00000005",)
    ranks = sorted((tmp_path / "run").glob("attempt=*/ranks/*.json"))
    assert len(ranks) == 4


def test_windows_come_again_after_every_so_many_steps(torchrun, tmp_path):
    options = '{"steps": 2, "wait": 4, "every": 6}'
    torchrun(tmp_path / "run", "--options", options, "--n-steps", 20)
    windows = sorted((tmp_path / "run/attempt=0").glob("step=*"))
    assert [each.name for each in windows] == ["step=00000004", "step=00000010", "step=00000016"]
    assert [tracekit.open_run(each).ranks for each in windows] == [(0, 1)] * 3
