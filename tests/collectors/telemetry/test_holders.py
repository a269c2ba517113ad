"""Other holders of the performance counters, from a /proc of our own and the real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tracekit.collectors.telemetry.holders import holders


@pytest.fixture
def proc(tmp_path):
    """A /proc with processes of these command lines, by pid."""

    def write(commands):
        for pid, command in commands.items():
            folder = tmp_path / str(pid)
            folder.mkdir()
            (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in command))
        (tmp_path / "meminfo").write_text("")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        (["/usr/bin/nv-hostengine", "-n"], "dcgmi profile --pause"),
        (["dcgm-exporter"], "dcgmi profile --pause"),
        (["dcgmi", "dmon", "-e", "1002"], "dcgmi profile --pause"),
        (["/opt/nvidia/nsys", "profile", "python"], "Start the job without nsys."),
        (["ncu", "python"], "Start the job without ncu."),
    ],
    ids=lambda value: Path(value[0]).name if isinstance(value, list) else "",
)
def test_a_program_that_holds_the_counters_is_named_with_its_cure(proc, command, fix):
    (found,) = holders(proc({7: ["python", "train.py"], 12: command, 13: []}), {})
    assert (found.name, found.pid, found.fix) == (Path(command[0]).name, 12, fix)
    assert found.breaks.endswith(".")


def test_programs_come_in_order_of_pid(proc):
    found = holders(proc({100: ["dcgm-exporter"], 9: ["nv-hostengine"]}), {})
    assert [holder.pid for holder in found] == [9, 100]


def test_an_argument_that_names_a_program_is_not_that_program(proc):
    assert holders(proc({5: ["grep", "nsys"]}), {}) == ()


def test_the_environment_names_what_is_loaded_into_the_job(proc):
    environment = {"CUDA_INJECTION64_PATH": "/x/libcupti_user.so", "NSYS_B": "", "NSYS_A": ""}
    injected, nsys = holders(proc({}), environment)
    assert "/x/libcupti_user.so" in injected.breaks
    assert (injected.pid, injected.fix) == (None, "unset CUDA_INJECTION64_PATH")
    assert nsys.name == "NSYS_A"  # one line for all of them


def test_a_variable_that_is_empty_loads_nothing(proc):
    assert holders(proc({}), {"CUDA_INJECTION64_PATH": ""}) == ()


def test_without_proc_there_is_no_program(tmp_path):
    assert holders(tmp_path / "none", {}) == ()


def test_a_process_of_this_machine_is_found(tmp_path, wait_for):
    program = tmp_path / "nv-hostengine"
    program.symlink_to("/bin/sleep")

    def pids():
        return [holder.pid for holder in holders(Path("/proc"), os.environ)]

    with subprocess.Popen([program, "60"]) as running:
        try:
            wait_for(lambda: running.pid in pids())
        finally:
            running.kill()
