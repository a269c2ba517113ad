"""Processes that run beside the ranks of one host: the sampler of devices, the clock's.

The first rank of a host starts them. They end with the job whatever becomes of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tracekit.collectors.live._guard import quiet

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collectors.live.identity import Identity

END_S = 5.0
"""How long the end of the loop waits for each: the clock is measured once more."""


def telemetry_file(attempt: Path, host: str) -> Path:
    """Where the sampler of a host writes."""
    return attempt / "telemetry" / f"host={host}.jsonl"


class Beside:
    """The processes of this host; none on a rank that is not its first."""

    def __init__(self, attempt: Path, who: Identity, *, every_s: float | None) -> None:
        """Start them.

        Args:
            attempt: folder of the attempt.
            who: this process.
            every_s: period of the sampler; null: no sampler.
        """
        self._processes: list[subprocess.Popen[bytes]] = []
        if who.local_rank != 0:
            return
        parent = ["--parent", str(_first_of_job(who))]
        if every_s is not None:
            out = telemetry_file(attempt, who.host)
            out.parent.mkdir(parents=True, exist_ok=True)
            command = ["tracekit.collectors.telemetry", str(out), "--every-s", str(every_s)]
            self._start([*command, "--keep-latest", *parent])
        if not _is_one_host(who.world_size):
            serve = ["--serve"] if who.rank == 0 else []
            self._start(["tracekit.collectors.clocks", str(attempt), *serve, *parent])

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with quiet("a process beside the job goes on"):
                process.wait(END_S)

    def _start(self, command: list[str]) -> None:
        self._processes.append(
            subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


def _first_of_job(who: Identity) -> int:
    """The process whose end is the end of the job on this host, and whose children are its ranks.

    torchrun ends with its ranks; another parent, such as a shell, may live for ever.
    """
    return os.getppid() if who.launcher == "torchrun" else os.getpid()


def _is_one_host(world_size: int) -> bool:
    """Whether all ranks surely run on this host; a launcher may not say."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local) == world_size
    return world_size == 1 or os.environ.get("MASTER_ADDR", "") in {"localhost", "127.0.0.1"}
