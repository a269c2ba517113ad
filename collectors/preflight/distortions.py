"""Variables that make a job run otherwise than it does without them, so that its times mislead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTORTIONS = {
    "AMD_SERIALIZE_COPY": "the host waits for each copy",
    "AMD_SERIALIZE_KERNEL": "the host waits for each kernel",
    "CUDA_LAUNCH_BLOCKING": "the host waits for each kernel",
    "HIP_LAUNCH_BLOCKING": "the host waits for each kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "each tensor allocates device memory, which synchronises",
    "TORCH_CUDNN_V8_API_DEBUG": "cuDNN's choices are written out for each convolution",
    "TORCH_CUDNN_V8_API_DISABLED": "convolutions use an older way into cuDNN",
    "TORCH_NCCL_BLOCKING_WAIT": "the host waits for each collective",
}
OFF = ("", "0", "false", "no", "off")


def _look(machine: Machine) -> Iterator[Answer]:
    n_set = 0
    for name, effect in DISTORTIONS.items():
        value = machine.environment.get(name, "")
        if value.lower() not in OFF:
            n_set += 1
            text = f"{name}={value}: {effect}, so the trace is not that of the job without it."
            yield Answer(Group.CONFLICT, State.NOTE, text, f"unset {name}")
    for name, value in (("TORCH_DISTRIBUTED_DEBUG", "DETAIL"), ("NCCL_DEBUG", "TRACE")):
        if machine.environment.get(name, "").upper() == value:
            n_set += 1
            text = f"{name}={value}: each collective is checked or written out, which takes time."
            yield Answer(Group.CONFLICT, State.NOTE, text, f"{name}=INFO")
    if not n_set:
        yield Answer(Group.CONFLICT, State.OK, "No variable that is set distorts the times.")


CHECK = Check(id="distortions", look=_look)
