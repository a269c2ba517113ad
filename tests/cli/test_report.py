"""`tracekit report`: a page from a result alone, or one line that says what is wrong with it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tracekit.cli import main
from tracekit.findings import Finding, Status
from tracekit.results import RankFacts, Result, RunFacts, Source, write_result


@pytest.fixture
def result_json(tmp_path):
    facts = RankFacts(rank=0, host=None, gpu_model=None, backend=None, devices=(0,))
    result = Result(
        tracekit_version="0.1.0",
        created="2026-01-01T00:00:00Z",
        source=Source(path="traces", files=()),
        run=RunFacts(
            world_size=1, ranks=(facts,), missing_ranks=(), steps=(), step_source="none",
            averaged_steps=(), averaged_why="there is no step", devices=(), layout={},
            clock_error_ns=None, device_kind="gpu", step_ns=0.0, n_gpus=1,
        ),
        headline=("Nothing was found.", "Nothing to save.", "Record more steps."),
        efficiency=None,
        breakdown=(),
        whole=(),
        findings=(
            Finding(id="idle-gpu", subject="run", status=Status.SKIPPED, title="T", why="no steps"),
        ),
        quality=(),
    )  # fmt: skip
    write_result(result, tmp_path / "result.json")
    return tmp_path / "result.json"


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_the_report_lands_beside_the_result(result_json):
    done = report(result_json)
    path = result_json.with_name("report.html")
    assert done.output == f"Report: {path}\n"
    assert "Nothing was found." in path.read_text(encoding="utf-8")


def test_the_report_lands_where_it_is_asked_for(result_json, tmp_path):
    path = tmp_path / "page.html"
    assert report(result_json, "--output", path).exit_code == 0
    assert path.exists()
    assert not (tmp_path / "report.html").exists()


def test_the_folder_of_a_result_will_do(result_json, tmp_path):
    done = report(tmp_path)
    assert done.output == f"Report: {tmp_path / 'report.html'}\n"
    result_json.unlink()
    done = report(tmp_path)
    assert done.exit_code == 3
    assert done.stderr.startswith(f"Error: {result_json}: No such file")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema_version": 1}', "[" * 99_999, "\x00"])
def test_what_is_no_result_is_an_error_in_one_line(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    done = report(path)
    assert done.exit_code == 3
    assert done.stderr.startswith(f"Error: {path}: not a result of tracekit")
    assert "Hint: " in done.stderr
