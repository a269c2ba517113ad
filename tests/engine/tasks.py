"""What workers of the tests run: they import this module by its name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tracekit.errors import InputError


def square(number):
    return number * number


def refuse_two(number):
    if number == 2:
        raise InputError("rank 2: not JSON", hint="Look at it")
    return number


def place(_item):
    return os.getpid(), Path.cwd(), int(os.environ["POLARS_MAX_THREADS"])


def die_at_one(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(marker):
    """Kill the worker unless an earlier try has left its mark."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.name


def rest(marker):
    marker.touch()
    time.sleep(300)


def missing_module(_item):
    import no_such_module  # noqa: PLC0415, F401
