"""Processes of tracekit that a job starts: they neither hinder it nor import what is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO

_NOT_INHERITED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Tools that watch the job are not meant for these processes."""
_INSTALLED = ("site-packages", "dist-packages")


def started(module: str, *arguments: str, said: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Run a module of tracekit; what it says goes to this file, else nowhere.

    It belongs to a session of its own, so that Ctrl-C in the job leaves it to finish, and without
    the current folder on its path (-P): a `select.py` of the job's would be taken for Python's.

    Raises:
        OSError: it cannot be started.
    """
    out = subprocess.DEVNULL if said is None else said
    return subprocess.Popen(  # noqa: S603 - our own modules
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        env=_environment(),
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """The job's, and one thread for Polars: what runs beside a job must not take its cores."""
    kept = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
    kept["POLARS_MAX_THREADS"] = "1"
    root = Path(str(sys.modules["tracekit"].__file__)).absolute().parents[1]
    if root.name not in _INSTALLED:  # a checkout, which only the job may have on its path
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (kept.get("PYTHONPATH"), str(root))))
    return kept
