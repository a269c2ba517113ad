"""What other programs say, asked so that none of them can hang or break a check."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.collectors.preflight import Machine

PROGRAM_TIMEOUT_S = 10.0


class Silent(Exception):  # noqa: N818 - as often an answer as an error
    """A program gave no answer; the message says why."""


class Missing(Silent):
    """There is no such program."""


def output(machine: Machine, *command: str, timeout_s: float = PROGRAM_TIMEOUT_S) -> str:
    """What a program prints, found by the PATH of the machine.

    Raises:
        Missing: it is not there.
        Silent: it fails, or takes too long.
    """
    path = shutil.which(command[0], path=machine.environment.get("PATH"))
    if path is None:
        raise Missing(f"{command[0]} is not installed")
    try:
        done = subprocess.run(  # noqa: S603 - commands of this package, without a shell
            [path, *command[1:]],
            env=dict(machine.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Silent(f"no answer within {timeout_s:.0f} s") from None
    except OSError as error:
        raise Silent(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Silent(lines[-1] if lines else f"it ended with {done.returncode}")
    return done.stdout


def said_by_python(machine: Machine, code: str, timeout_s: float) -> Any:
    """The JSON that a program in the machine's Python prints as its last line.

    Raises:
        Silent: it fails, or takes too long.
    """
    lines = output(machine, machine.python, "-c", code, timeout_s=timeout_s).splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        raise Silent("it printed no answer") from None
