"""`tracekit analyze`: from traces to result and report, its output folder and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tracekit.results import read_result


def mtimes(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_traces_becomes_a_run_a_result_and_a_report(job, here, tracekit):
    done = tracekit("analyze", job())
    assert done.exit_code == 0
    output = here / "tracekit-job"
    assert sorted(path.name for path in output.iterdir()) == ["report.html", "result.json", "run"]
    assert "Report: tracekit-job/report.html" in done.stdout
    result = read_result(output / "result.json")
    assert [facts.rank for facts in result.run.ranks] == [0, 1]
    assert result.run.steps == (0, 1, 2, 3)


def test_piped_it_writes_nothing_to_standard_error(job, tracekit):
    assert tracekit("analyze", job()).stderr == ""


def test_the_summary_fits_one_screen(job, tracekit):
    assert len(tracekit("analyze", job()).stdout.splitlines()) <= 40


def test_quiet_prints_where_the_report_is_and_no_more(job, tracekit):
    done = tracekit("analyze", job(), "--quiet")
    assert done.output == "Report: tracekit-job/report.html\n"


def test_json_prints_the_result_and_nothing_else(job, here, tracekit):
    done = tracekit("analyze", job(), "--json")
    assert done.stdout_bytes == (here / "tracekit-job/result.json").read_bytes()
    assert json.loads(done.stdout)["run"]["world_size"] == 2
    assert done.stderr == ""


def test_json_holds_no_number_that_is_not_finite(job, tracekit):
    def refuse(constant):
        raise AssertionError(constant)

    json.loads(tracekit("analyze", job(), "--json").stdout, parse_constant=refuse)


@pytest.mark.parametrize("how", ["glob", "list", "zip", "one file", "output"])
def test_sources_of_every_kind_are_read(job, here, tracekit, how):
    source = job()
    paths = [source / "rank0.json", source / "rank1.json"]
    if how == "zip":
        with zipfile.ZipFile(here / "job.zip", "w") as packed:
            for path in paths:
                packed.write(path, f"traces/{path.name}")
    elif how == "output":
        tracekit("analyze", source, "--output", here / "out")
    arguments = {
        "glob": [f"{source}/rank*.json"],
        "list": paths,
        "zip": [here / "job.zip"],
        "one file": paths[:1],
        "output": [here / "out"],
    }[how]
    done = tracekit("analyze", *arguments, "--json")
    assert done.exit_code == 0
    ranks = [facts["rank"] for facts in json.loads(done.stdout)["run"]["ranks"]]
    assert ranks == ([0] if how == "one file" else [0, 1])


def test_an_unchanged_source_is_used_again(job, here, tracekit):
    source = job()
    tracekit("analyze", source)
    before = mtimes(here / "tracekit-job/run")
    tracekit("analyze", source)
    assert mtimes(here / "tracekit-job/run") == before


def test_the_output_may_not_lie_inside_the_source(job, tracekit):
    source = job()
    done = tracekit("analyze", source, "--output", source / "out")
    assert done.exit_code == 2
    assert "lies inside the source" in done.stderr
    assert not (source / "out").exists()


def test_from_inside_the_source_it_writes_beside_it(job, tracekit, monkeypatch, tmp_path):
    source = job()
    (source / "deeper").mkdir()
    monkeypatch.chdir(source / "deeper")
    before = sorted(source.rglob("*"))
    assert tracekit("analyze", "..").exit_code == 0
    assert sorted(source.rglob("*")) == before
    assert (tmp_path / "tracekit-job/report.html").is_file()


def test_a_link_to_the_source_does_not_lead_into_it(job, here, tracekit):
    source = job()
    (here / "link").symlink_to(source)
    assert tracekit("analyze", source, "--output", here / "link/out").exit_code == 2
    assert not (source / "out").exists()


def test_a_source_without_a_place_outside_asks_for_output(tracekit, monkeypatch):
    monkeypatch.chdir("/")
    done = tracekit("analyze", "/")
    assert done.exit_code == 2
    assert "--output DIR" in done.stderr


def test_the_source_is_only_read(job, tracekit):
    source = job()
    for path in (*source.iterdir(), source):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat() for path in (source, *source.rglob("*"))}
    assert tracekit("analyze", source).exit_code == 0
    after = {path: path.stat() for path in (source, *source.rglob("*"))}
    for path, stat in before.items():
        assert (after[path].st_mtime_ns, after[path].st_size) == (stat.st_mtime_ns, stat.st_size)
    source.chmod(0o755)


def test_a_folder_that_holds_something_else_is_not_written_to(job, here, tracekit):
    (here / "out/run").mkdir(parents=True)
    (here / "out/run/thesis.tex").write_text("x", "utf-8")
    done = tracekit("analyze", job(), "--output", "out")
    assert done.exit_code == 2
    assert "not a run of tracekit" in done.stderr
    assert [path.name for path in (here / "out/run").iterdir()] == ["thesis.tex"]


def test_a_run_that_was_killed_in_its_first_rank_is_taken_up(job, here, tracekit):
    (here / "out/run/kernels").mkdir(parents=True)
    (here / "out/run/kernels/rank=000000.tmp").write_bytes(b"PAR1")
    assert tracekit("analyze", job(), "--output", "out").exit_code == 0


@pytest.mark.parametrize("severity", ["info", "warning", "critical"])
def test_fail_on_ends_with_1_where_a_finding_is_as_severe(job, here, tracekit, severity):
    order = ["info", "warning", "critical"]
    done = tracekit("analyze", job(), "--json", "--fail-on", severity)
    found = [
        finding["severity"]
        for finding in json.loads(done.stdout)["findings"]
        if finding["status"] == "found"
    ]
    is_as_severe = any(order.index(each) >= order.index(severity) for each in found)
    assert done.exit_code == int(is_as_severe)
    assert (here / "tracekit-job/report.html").is_file()


def test_steps_are_half_open(job, tracekit):
    result = json.loads(tracekit("analyze", job(), "--json", "--steps", "1:3").stdout)
    assert result["run"]["averaged_steps"] == [1, 2]


def test_ranks_limit_the_analysis(job, tracekit):
    result = json.loads(tracekit("analyze", job(n_ranks=4), "--json", "--ranks", "0,2-3").stdout)
    assert [facts["rank"] for facts in result["run"]["ranks"]] == [0, 2, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "3"],
        ["--steps", "3:3"],
        ["--steps", "a:b"],
        ["--ranks", ""],
        ["--ranks", "5-3"],
        ["--ranks", "x"],
        ["--ranks", "7"],
        ["--fail-on", "never"],
        ["--rank-from", "("],
        ["--run", "nothing"],
        ["--engine", "local:0"],
        ["--engine", "slurm"],
        ["--nothing"],
    ],
)
def test_bad_use_ends_with_2_and_one_line(job, tracekit, arguments):
    done = tracekit("analyze", job(), *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(("Error: ", "Usage: "))


def test_no_path_is_bad_use(tracekit):
    assert tracekit("analyze").exit_code == 2


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.json", b"", "empty"),
        ("a.json", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.json", b"<!DOCTYPE html>", "HTML"),
        ("a.json", b'{"traceEvents": 5}', "no list of events"),
        ("a.json", b'{"traceEvents": []}', "list of events is empty"),
        ("a.json", b'{"traceEvents": ' + b"[" * 99_999, "before its first event ends"),
        ("a.json", b'{"traceEvents": [{"ph": "X", "na', "before its first event ends"),
        ("a.json.gz", b"\x1f\x8b\x08\x00", "empty"),
        ("a.zip", b"PK\x05\x06" + bytes(18), "no file in it"),
        ("a.bin", b"\x00" * 99, "not a trace"),
    ],
)
def test_unusable_input_ends_with_3_and_one_line(here, tracekit, name, content, what):
    (here / name).write_bytes(content)
    done = tracekit("analyze", here / name)
    assert done.exit_code == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Error: ")
    assert what in done.stderr
    assert len(lines) <= 2
    assert [path.name for path in here.iterdir()] == [name]


def test_a_folder_that_was_there_before_stays_after_a_failure(here, tracekit):
    (here / "a.json").write_bytes(b'{"traceEvents": []}')
    (here / "out").mkdir()
    assert tracekit("analyze", "a.json", "--output", "out").exit_code == 3
    assert (here / "out").is_dir()


@pytest.mark.parametrize("path", ["nothing", "nothing/*.json", "x" * 5000])
def test_a_wrong_path_ends_with_3(here, tracekit, path):
    done = tracekit("analyze", path)
    assert done.exit_code == 3
    assert done.stderr.startswith("Error: ")
    assert list(here.iterdir()) == []


def test_an_empty_folder_ends_with_3(here, tracekit):
    (here / "empty").mkdir()
    assert tracekit("analyze", "empty").exit_code == 3


def test_several_runs_are_listed_and_one_is_picked(job, tracekit):
    source = job("both/big", n_ranks=3)
    job("both/small")
    done = tracekit("analyze", source.parent, "--json")
    result = json.loads(done.stdout)
    assert result["run"]["world_size"] == 3
    assert any("run small: 2 of 2 ranks" in other for other in result["source"]["others"])
    assert result["source"]["other_runs"] == ["small"]
    shown = tracekit("analyze", source.parent).stdout
    assert "! This path holds 1 other run; pick one with --run NAME." in shown
    done = tracekit("analyze", source.parent, "--json", "--run", "small")
    assert json.loads(done.stdout)["run"]["world_size"] == 2


def test_a_damaged_file_among_good_ones_is_named_in_the_report(job, here, tracekit):
    source = job(n_ranks=3)
    (source / "rank2.json").write_text('{"traceEvents": [{"ph": "M"}]}', "utf-8")
    done = tracekit("analyze", source)
    assert done.exit_code == 0
    assert "rank2.json" in (here / "tracekit-job/report.html").read_text("utf-8")
    result = read_result(here / "tracekit-job/result.json")
    assert result.run.missing_ranks == (2,)
    assert any("rank2.json" in other for other in result.source.others)


def test_a_place_that_cannot_be_written_to_is_one_line(job, here, tracekit):
    (here / "file").touch()
    done = tracekit("analyze", job(), "--output", here / "file/out")
    assert done.exit_code == 3
    assert done.stderr == f"Error: {here / 'file/out/run'}: Not a directory\n"


def test_a_damaged_run_is_one_line(job, here, tracekit):
    tracekit("convert", job(), "run")
    for path in (here / "run/kernels").iterdir():
        path.write_bytes(b"x" * 50)
    done = tracekit("analyze", "run")
    assert done.exit_code == 3
    assert "rank=000000.parquet: cannot be read" in done.stderr


def test_a_run_whose_rows_are_damaged_is_one_line(job, here, tracekit):
    tracekit("convert", job(), "run")
    path = here / "run/kernels/rank=000000.parquet"
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56  # the first pages; the footer is whole
    path.write_bytes(data)
    done = tracekit("analyze", "run")
    assert done.exit_code == 3
    assert len(done.stderr.splitlines()) == 2
    assert "damaged" in done.stderr


def test_a_run_with_names_cannot_be_redacted_any_more(job, tracekit):
    tracekit("convert", job(), "run")
    done = tracekit("analyze", "run", "--redact")
    assert done.exit_code == 2
    assert "--redact" in done.stderr


def test_names_that_would_act_on_a_page_do_not(job, here, tracekit):
    source = job()
    for path in source.iterdir():
        text = path.read_text("utf-8").replace('"gemm"', '"</script><script>alert(1)</script>"')
        path.write_text(text.replace("ProfilerStep#", "ProfilerStep#"), "utf-8")
    assert tracekit("analyze", source).exit_code == 0
    assert "<script>alert(1)" not in (here / "tracekit-job/report.html").read_text("utf-8")


def test_limits_of_unknown_detectors_are_refused_by_name(job, here, tracekit):
    (here / "tracekit.toml").write_text("[detectors.no-such]\nx = 1\n", "utf-8")
    done = tracekit("analyze", job(), "--config", "tracekit.toml")
    assert done.exit_code != 0
    assert "no-such" in done.stderr


@pytest.mark.slow
def test_workers_do_the_same_as_one_process(job, tracekit):
    source = job(n_ranks=3)
    results = []
    for engine in ("local:1", "local:3"):
        done = tracekit("analyze", source, "--json", "--engine", engine, "--output", engine[-1])
        result = json.loads(done.stdout)
        del result["created"]
        results.append(result)
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_who_reads_half_of_it_gets_no_traceback(job):
    tracekit = Path(sys.executable).with_name("tracekit")
    command = f"{tracekit} analyze {job()} --json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == '{\n "schema'
    assert "Traceback" not in done.stderr
