"""Who else holds the performance counters of the GPUs, what that breaks, and how to end it.

The counters of a GPU have one holder at a time. A second one fails, or the first loses events
without a word, so this is looked up before a capture. Only processes of this PID namespace are
seen: from inside a container, those of the host are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DCGM_BREAKS = (
    "While it watches profiling fields (DCGM_FI_PROF_*) it holds the GPU's counters: "
    "CUPTI metrics and Nsight fail, and traces can lose their GPU events."
)
_DCGM_FIX = "dcgmi profile --pause"
_NSIGHT_BREAKS = (
    "It is the one subscriber CUPTI allows in the processes it watches: "
    "their PyTorch profiler records no GPU events."
)
_NCU_BREAKS = (
    "It replays each kernel while it reads the counters: "
    "times are not those of the job, and the PyTorch profiler records no GPU events."
)
_PROGRAMS = {
    "nv-hostengine": (_DCGM_BREAKS, _DCGM_FIX),
    "dcgm-exporter": (_DCGM_BREAKS, _DCGM_FIX),
    "dcgmi": (_DCGM_BREAKS, _DCGM_FIX),
    "nsys": (_NSIGHT_BREAKS, "Start the job without nsys."),
    "ncu": (_NCU_BREAKS, "Start the job without ncu."),
}
_INJECTION = "CUDA_INJECTION64_PATH"


@dataclass(frozen=True, slots=True)
class Holder:
    """One program, or variable of the environment, that holds the counters or may do so."""

    name: str
    pid: int | None
    breaks: str
    fix: str


def holders(proc: Path, environment: Mapping[str, str]) -> tuple[Holder, ...]:
    """Programs that run now, in order of pid, then what the environment loads into the job.

    Args:
        proc: The folder `/proc`; where it cannot be read, no program is found.
        environment: Variables the job starts with.
    """
    return (*_running(proc), *_injected(environment))


def _running(proc: Path) -> Iterator[Holder]:
    try:
        pids = sorted(int(folder.name) for folder in proc.iterdir() if folder.name.isdigit())
    except OSError:
        return
    for pid in pids:
        name = _program(proc / str(pid))
        if name in _PROGRAMS:
            yield Holder(name, pid, *_PROGRAMS[name])


def _program(process: Path) -> str:
    """Name of the file a process started from; empty where it is gone."""
    try:
        started = (process / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return ""
    return Path(started.decode(errors="replace")).name


def _injected(environment: Mapping[str, str]) -> Iterator[Holder]:
    if environment.get(_INJECTION):
        breaks = (
            f"CUDA loads {environment[_INJECTION]} into each process: where that subscribes "
            "to CUPTI, the PyTorch profiler records no GPU events."
        )
        yield Holder(_INJECTION, None, breaks, f"unset {_INJECTION}")
    under_nsys = sorted(name for name in environment if name.startswith("NSYS_"))
    if under_nsys:
        yield Holder(under_nsys[0], None, _NSIGHT_BREAKS, "Start the job without nsys.")
