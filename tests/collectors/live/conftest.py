"""Real jobs of gloo ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("jobs.py")
LAUNCHERS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID",
)  # fmt: skip


@pytest.fixture
def torchrun():
    """Run jobs.py with so many ranks under torchrun; gives what the ranks printed, by rank."""

    def run(*arguments, n_ranks=2, script=JOB, fails=False, **environment):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        done = subprocess.run(
            [*command, f"--nproc-per-node={n_ranks}", str(script), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            env={k: v for k, v in os.environ.items() if k not in LAUNCHERS} | environment,
        )
        assert (done.returncode != 0) == fails, done.stderr
        # A job that fails is one that was killed, not one whose ranks did not come to meet.
        assert ("SIGKILL" in done.stderr) == fails, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {each["rank"]: each for each in said}

    return run


@pytest.fixture
def python():
    """Run a script that starts its ranks itself."""

    def run(*arguments):
        subprocess.run(
            [sys.executable, *map(str, arguments)], check=True, capture_output=True, timeout=240
        )

    return run


@pytest.fixture
def jobs():
    """Path of jobs.py."""
    return JOB
