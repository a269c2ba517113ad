"""Processes that run beside the ranks of one host: the sampler of devices, the clock's.

The first rank of a host starts them. They end with it, however it ends: torchrun, which starts it
again, gets new ones.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracekit.collectors.live._guard import quiet
from tracekit.collectors.live.processes import started

if TYPE_CHECKING:
    import subprocess
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
        parent = ["--parent", str(os.getpid())]
        if every_s is not None:
            out = telemetry_file(attempt, who.host)
            out.parent.mkdir(parents=True, exist_ok=True)
            job = ["--job", str(_first_of_job(who))]
            sampling = [str(out), "--every-s", str(every_s), "--keep-latest", *parent, *job]
            self._processes.append(started("tracekit.collectors.telemetry", *sampling))
        if not _is_one_host(who.world_size):
            serve = ["--serve"] if who.rank == 0 else []
            asking = [str(attempt), *serve, *parent]
            self._processes.append(started("tracekit.collectors.clocks", *asking))

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with quiet("a process beside the job goes on"):
                process.wait(END_S)


def _first_of_job(who: Identity) -> int:
    """The process whose children are the ranks of this host: torchrun, else this one alone.

    Another parent, such as a shell, may have children that are not of the job.
    """
    return os.getppid() if who.launcher == "torchrun" else os.getpid()


def _is_one_host(world_size: int) -> bool:
    """Whether all ranks surely run on this host; a launcher may not say."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local) == world_size
    return world_size == 1 or os.environ.get("MASTER_ADDR", "") in {"localhost", "127.0.0.1"}
