"""The map over ranks on the processes of a real MPI job."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tracekit.engine import open_engine
from tracekit.errors import UsageError


@pytest.fixture(scope="module")
def mpirun(worker_environment):
    """Run a program of Python as a job of so many processes, in a folder."""
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("no mpirun")

    def run(folder, n_processes, *arguments):
        return subprocess.run(
            [
                *(program, "--allow-run-as-root", "--oversubscribe", "-n", str(n_processes)),
                *(sys.executable, *arguments),
            ],
            cwd=folder,
            env=worker_environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def analyze(*arguments):
    """The command, started as the hint of the error says."""
    return ("-m", "mpi4py.futures", "-m", "tracekit", "analyze", *map(str, arguments))


@pytest.mark.slow
def test_an_analysis_is_that_of_one_process(mpirun, healthy_traces, same_output, tmp_path):
    done = mpirun(tmp_path, 3, *analyze(healthy_traces, "--engine", "mpi", "--output", "out"))
    assert done.returncode == 0, done.stderr
    assert "Report: out/report.html" in done.stdout
    same_output(tmp_path / "out")
    assert not list(tmp_path.rglob(".seen-*"))


def test_an_error_keeps_its_words_and_its_exit_code(mpirun, tmp_path):
    done = mpirun(tmp_path, 2, *analyze(tmp_path / "nothing", "--engine", "mpi"))
    assert done.returncode == 3
    assert f"Error: {tmp_path / 'nothing'}: no such file or folder" in done.stderr


SCRIPT = """
from pathlib import Path
import tasks
from tracekit.engine import map_ranks, open_engine

with open_engine("mpi", n_tasks=2, folder=Path.cwd()) as executor:
    map_ranks(tasks.die_at_one, [0, 1], executor=executor)
"""


@pytest.fixture
def script(tmp_path):
    """A program whose second task kills its process."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_a_killed_process_ends_the_job_with_a_word(mpirun, script, tmp_path):
    done = mpirun(tmp_path, 3, "-m", "mpi4py.futures", script)
    assert done.returncode != 0
    assert "exited on signal 9" in done.stderr


def test_a_job_of_one_process_is_bad_use(mpirun, script, tmp_path):
    done = mpirun(tmp_path, 1, "-m", "mpi4py.futures", script)
    assert "the job has one process, and none to work beside it" in done.stderr


def test_a_job_without_the_launcher_is_bad_use(mpirun, script, tmp_path):
    done = mpirun(tmp_path, 2, script)
    assert "--engine mpi: not started as a job of MPI" in done.stderr
    assert "Hint: Run: mpirun -n 4 python -m mpi4py.futures -m tracekit" in done.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [("mpi", "not started as a job of MPI"), ("mpi:4", "mpi takes nothing")],
)
def test_outside_of_a_job_the_command_is_named(spec, message):
    with pytest.raises(UsageError, match=message) as caught, open_engine(spec, n_tasks=4):
        pass
    assert "mpirun -n 4 python -m mpi4py.futures -m tracekit" in caught.value.hint
