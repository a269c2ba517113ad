"""What a process runs in: versions, devices, process groups, the variables that matter.

Nothing is imported that the job did not import, and no context is made on a device.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tracekit.collectors.live.identity import process_groups
from tracekit.collectors.live.layout import layout
from tracekit.facts import Device, Facts, Group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.collectors.live.identity import Identity

_PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "RCCL_", "GLOO_", "KINETO_", "PYTORCH_", "UCX_")
_NAMES = frozenset(
    {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "GPU_MAX_HW_QUEUES",
        "HIP_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "ROCR_VISIBLE_DEVICES",
        "SLURM_JOB_ID",
        "SLURM_JOB_NUM_NODES",
        "SLURM_NODEID",
        "TEARDOWN_CUPTI",
        "TOKENIZERS_PARALLELISM",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_RUN_ID",
    }
)
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")
_LIBRARIES = {
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
    "megatron.core": "megatron-core",
    "transformers": "transformers",
    "vllm": "vllm",
}
"""Modules and the packages that bring them: a version is noted where the job has imported one."""
MAX_GROUPS = 256
"""Those of a layout are some dozens; a job that makes one a step has any number."""


def described(who: Identity, attempt: Path, given: Mapping[str, int] | None) -> Facts:
    """All that this rank knows of itself by now."""
    return Facts(
        rank=who.rank,
        local_rank=who.local_rank,
        world_size=who.world_size,
        host=who.host,
        pid=os.getpid(),
        attempt=int(attempt.name.rpartition("=")[2]),
        launcher=who.launcher,
        backend=who.backend,
        devices=devices(),
        groups=groups(),
        layout=layout(who.rank, who.world_size, given),
        versions=versions(),
        environment=environment(),
    )


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that change speed, by an allow-list; a name that sounds secret is left out."""
    return {
        name: value.encode("utf-8", "replace").decode()  # any bytes may stand there
        for name, value in sorted(variables.items())
        if (name in _NAMES or name.startswith(_PREFIXES))
        and not any(word in name for word in _SECRETS)
    }


def versions() -> dict[str, str]:
    """Versions of what the job uses, as far as it is imported."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        for name in ("cuda", "hip", "xpu"):
            version = getattr(torch.version, name, None)
            if version:
                found[name] = str(version)
        nccl = _nccl(torch)
        if nccl:
            found["nccl"] = nccl
    for module, package in _LIBRARIES.items():
        if module in sys.modules:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
    return found


def _nccl(torch: Any) -> str | None:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # noqa: BLE001 - a build without it raises many things
        return None


def devices() -> tuple[Device, ...]:
    """The device this process uses, by UUID; none where it has not touched CUDA yet."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return ()
    index = int(torch.cuda.current_device())
    facts = torch.cuda.get_device_properties(index)
    uuid = getattr(facts, "uuid", None)
    return (
        Device(
            index=index,
            uuid=f"GPU-{uuid}" if uuid is not None else None,
            name=facts.name,
            memory_bytes=facts.total_memory,
            sm_count=facts.multi_processor_count,
        ),
    )


def groups() -> tuple[Group, ...]:
    """The first process groups this rank knows, with all their ranks: a trace may cut the list."""
    dist = process_groups()
    if dist is None:
        return ()
    world: Any = sys.modules["torch.distributed.distributed_c10d"]
    found = []
    ranks = list(world._world.pg_group_ranks.items())  # noqa: SLF001 - no other way
    for group, members in ranks[:MAX_GROUPS]:
        found.append(
            Group(
                name=str(world._world.pg_names.get(group, "")),  # noqa: SLF001
                description=str(getattr(group, "group_desc", "")),
                backend=str(dist.get_backend(group)),
                ranks=tuple(sorted(members)),
            )
        )
    return tuple(found)
