"""A machine in a folder: nothing is amiss with it until a test says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tracekit.collectors.preflight import Machine, checks

STATUS = "Name:\tpython\nNSpid:\t4711\nCapEff:\t0000000000000000\n"
MOUNTS = "22 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n"


class Fake:
    """The folders and programs of a machine, to be changed one by one."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "dev/shm").mkdir(parents=True)
        self.machine = Machine(
            environment={"PATH": str(folder / "bin")},
            python=str(folder / "bin/python"),
            proc=folder / "proc",
            sysfs=folder / "sys",
            dev=folder / "dev",
        )
        self.write("proc/self/status", STATUS)
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", MOUNTS)
        self.write("proc/1/comm", "systemd\n")

    def write(self, path, text):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def program(self, name, script):
        """Put a shell script where the machine looks for programs."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def python_says(self, value):
        """Let the machine's Python print this, whatever it is asked."""
        self.write("said.json", json.dumps(value))
        self.program("python", f'read -r line < {self.folder}/said.json; echo "$line"')

    def set(self, **variables):
        self.machine = replace(self.machine, environment={**self.machine.environment, **variables})

    def nvidia(self, *uuids):
        for k, uuid in enumerate(uuids):
            text = f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 18\nGPU UUID: \t {uuid}\n"
            self.write(f"proc/driver/nvidia/gpus/0000:0{k}:00.0/information", text)


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path)


@pytest.fixture
def ask(fake):
    """What a check says of the machine: its answers, all of one text for each state."""

    def look(check_id):
        found = tuple(checks()[check_id].look(fake.machine))
        assert all(each.text.endswith(".") and "\n" not in each.text for each in found)
        assert all("\n" not in each.fix for each in found)
        return [(str(each.state), each.text, each.fix) for each in found]

    return look
