"""`tracekit convert`: a run folder from traces, kept where it is and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.store import open_run


def test_it_says_what_was_read(job, tracekit):
    done = tracekit("convert", job(), "run")
    assert done.exit_code == 0
    assert done.stdout.startswith("Run: run (2 of 2 ranks, 40 events, ")
    assert open_run("run").ranks == (0, 1)


def test_what_was_left_out_is_named(job, tracekit):
    source = job()
    (source / "notes.txt").write_text("hello", "utf-8")
    done = tracekit("convert", source, "run")
    assert done.exit_code == 0
    assert "notes.txt: not a trace" in done.stderr


def test_rank_from_names_the_ranks(job, tracekit):
    source = job()
    for rank, path in enumerate(sorted(source.iterdir())):
        text = path.read_text("utf-8").replace('"distributedInfo"', '"unknown"')
        (source / f"node{rank}.json").write_text(text, "utf-8")
        path.unlink()
    refused = tracekit("convert", source, "run")
    assert refused.exit_code == 3
    assert "--rank-from" in refused.stderr
    assert tracekit("convert", source, "run", "--rank-from", r"node(\d+)").exit_code == 0
    assert open_run("run").ranks == (0, 1)


def test_a_run_inside_its_source_is_refused(job, tracekit):
    source = job()
    assert tracekit("convert", source, source / "run").exit_code == 2
    assert not (source / "run").exists()


def test_a_folder_of_something_else_is_not_filled(job, here, tracekit):
    (here / "home").mkdir()
    (here / "home/thesis.tex").touch()
    done = tracekit("convert", job(), "home")
    assert done.exit_code == 2
    assert [path.name for path in (here / "home").iterdir()] == ["thesis.tex"]


def test_a_damaged_manifest_is_mended_by_converting_again(job, here, tracekit):
    source = job()
    tracekit("convert", source, "run")
    (here / "run/manifest.json").write_text("{", "utf-8")
    assert tracekit("analyze", "run").exit_code == 3
    assert tracekit("convert", source, "run").exit_code == 0
    assert tracekit("analyze", "run").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local:1", "local:2"])
def test_ctrl_c_ends_in_one_line_and_leaves_a_folder_to_go_on_with(job, here, tracekit, engine):
    source = job(n_ranks=3)
    (here / "slow.py").write_text(
        "import sys, time\n"
        "from tracekit.collectors import kineto\n"
        "batches = kineto.batches\n"
        "def slow(path, reading):\n"
        "    if path.name == 'rank2.json':\n"
        "        print('ready', flush=True)\n"
        "        for _ in range(6000):\n"
        "            time.sleep(0.01)\n"
        "    return batches(path, reading)\n"
        "kineto.batches = slow\n"
        "from tracekit.cli import main\n"
        "if __name__ == '__main__':\n"
        "    main(sys.argv[1:])\n",
        "utf-8",
    )
    command = [sys.executable, "slow.py", "convert", str(source), "run", "--engine", engine]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to workers, too
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("Interrupted: ")
    assert "Traceback" not in errors
    assert not list(Path("run").rglob("rank=000002.parquet"))
    assert tracekit("convert", source, "run").exit_code == 0
    assert open_run("run").ranks == (0, 1, 2)
