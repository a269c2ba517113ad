"""Variables that decide what is recorded: what they are, and what to set them to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A variable, under each of its names, and what is amiss with a value.

    Attributes:
        names: the name of today first.
        bad: values that are amiss; an empty text means that it is not set.
        why: what goes wrong then; it ends a sentence.
        fix: what to do then.
    """

    names: tuple[str, ...]
    bad: tuple[str, ...]
    why: str
    fix: str


WISHES = (
    _Wish(
        names=("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        bad=("0",),
        why="the flight recorder is off, and a hang leaves no trace",
        fix="TORCH_FR_BUFFER_SIZE=2000",
    ),
    _Wish(
        names=("TORCH_NCCL_DUMP_ON_TIMEOUT",),
        bad=("", "0", "false"),
        why="a hang may end the job without a dump of its collectives",
        fix="TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    ),
    _Wish(
        names=("TORCH_NCCL_ENABLE_TIMING",),
        bad=("1", "true"),
        why="each collective records two more events on the device",
        fix="unset TORCH_NCCL_ENABLE_TIMING, unless dumps need durations: traces have them anyway",
    ),
    _Wish(
        names=("NCCL_DEBUG",),
        bad=("", "VERSION", "WARN"),
        why="rings, transports and algorithms of NCCL are written nowhere",
        fix="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,NET NCCL_DEBUG_FILE=nccl.%h.%p",
    ),
    _Wish(
        names=("TEARDOWN_CUPTI",),
        bad=("1",),
        why="CUPTI is unloaded after each capture, which has crashed jobs on eight H100",
        fix="unset TEARDOWN_CUPTI",  # https://github.com/jax-ml/jax/issues/40260
    ),
    _Wish(
        names=("OMP_NUM_THREADS",),
        bad=("1",),
        why="work on the host has one thread for each rank, as torchrun sets it",
        fix="OMP_NUM_THREADS= processors of the host / ranks on it",
    ),
    _Wish(
        names=("CUDA_DEVICE_MAX_CONNECTIONS",),
        bad=("1",),
        why="kernels of all streams start in the order of their launches",
        fix="unset CUDA_DEVICE_MAX_CONNECTIONS, unless Megatron's overlap asks for it",
    ),
)


def _look(machine: Machine) -> Iterator[Answer]:
    for wish in WISHES:
        set_names = [name for name in wish.names if name in machine.environment]
        name = (set_names or wish.names)[0]
        value = machine.environment.get(name, "").strip()
        said = f"{name}={value}" if value else f"{name} is not set"
        if value.upper() in {bad.upper() for bad in wish.bad}:
            yield Answer(Group.SET, State.NOTE, f"{said}: {wish.why}.", wish.fix)
        else:
            yield Answer(Group.SET, State.OK, f"{said}.")


CHECK = Check(id="variables", look=_look)
