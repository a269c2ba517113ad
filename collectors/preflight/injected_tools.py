"""Tools that the environment loads into the job's processes, where they trace or replace calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator

ALLOCATORS = ("libjemalloc", "libmimalloc", "libtcmalloc")
"""Preloaded for speed; they trace nothing."""
ROCM_TOOLS = ("HSA_TOOLS_LIB", "ROCP_TOOL_LIB", "ROCP_TOOL_LIBRARIES")
"""Set by rocprof: its tool and the profiler of torch exclude each other."""
LISTENERS = {
    "NVTX_INJECTION64_PATH": "it receives the ranges that the job marks",
    "NCCL_PROFILER_PLUGIN": "NCCL has room for one plugin only, so no other can be recorded",
}


def _look(machine: Machine) -> Iterator[Answer]:
    environment = machine.environment
    traced = [name for name in ROCM_TOOLS if environment.get(name)]
    for name in traced:
        text = f"{name} loads {environment[name]}: the profiler of torch may see no device events."
        yield Answer(Group.CONFLICT, State.PROBLEM, text, f"unset {name}")
    loaded = [name for name in LISTENERS if environment.get(name, "none") not in {"", "none"}]
    for name in loaded:
        text = f"{name} loads {environment[name]}: {LISTENERS[name]}."
        yield Answer(Group.CONFLICT, State.NOTE, text, f"unset {name}, unless you want its output")
    preloaded = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    strange = [path for path in preloaded if not Path(path).name.startswith(ALLOCATORS)]
    if strange:
        text = f"LD_PRELOAD loads {', '.join(strange)}, which may slow down what it replaces."
        fix = "unset LD_PRELOAD, unless the job needs it"
        yield Answer(Group.CONFLICT, State.NOTE, text, fix)
    if not (traced or loaded or strange):
        text = "The environment loads no other tool into the job."
        yield Answer(Group.CONFLICT, State.OK, text)


CHECK = Check(id="injected-tools", look=_look)
