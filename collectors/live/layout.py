"""The parallel layout, from whoever knows it: the user, Megatron, DeepSpeed, a device mesh, DDP.

Sizes say how many ranks each dimension has (`tp`, `pp`, `dp`, `cp`, `ep`, or the names of a mesh),
`place` where this rank stands. Nothing is imported that the job did not import.
"""

from __future__ import annotations

import gc
import sys
from math import prod
from typing import TYPE_CHECKING, Any

from tracekit.facts import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MEGATRON = {
    "tp": "tensor_model_parallel",
    "pp": "pipeline_model_parallel",
    "dp": "data_parallel",
    "cp": "context_parallel",
    "ep": "expert_model_parallel",
}
_DEEPSPEED = {
    "dp": "data_parallel",
    "tp": "model_parallel",
    "ep": "expert_parallel",
    "sp": "sequence_parallel",
}


def layout(rank: int, world_size: int, given: Mapping[str, int] | None = None) -> Layout:
    """The layout of the job as seen by this rank; without any source it is empty.

    Args:
        rank: of this process.
        world_size: of the job.
        given: sizes by dimension, the one whose ranks are neighbours first, as in
            `{"tp": 4, "dp": 8}`.
    """
    if given:
        return from_sizes(rank, world_size, given)
    sources: tuple[Callable[[], Layout | None], ...] = (from_megatron, from_deepspeed, from_modules)
    for source in sources:
        try:
            found = source()
        except Exception:  # noqa: BLE001, S112 - of another version: the next one may know
            continue
        if found is not None:
            return found
    return Layout()


def from_sizes(rank: int, world_size: int, sizes: Mapping[str, int]) -> Layout:
    """Place of a rank in a layout that the user gives.

    Sizes that do not multiply to the world are kept without a place.
    """
    place, rest = {}, rank
    for name, size in sizes.items():
        place[name] = rest % size
        rest //= size
    is_whole = prod(sizes.values()) == world_size
    return Layout(sizes=dict(sizes), place=place if is_whole else {}, source="given")


def from_megatron() -> Layout | None:
    """What Megatron-Core's parallel state says, once it is initialised."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    if state is None or not state.model_parallel_is_initialized():
        return None
    sizes, place = {}, {}
    for name, words in _MEGATRON.items():
        size = _called(state, f"get_{words}_world_size")
        if size is not None and (size > 1 or name == "dp"):
            sizes[name] = size
            place[name] = _called(state, f"get_{words}_rank") or 0
    return Layout(sizes=sizes, place=place, source="Megatron")


def from_deepspeed() -> Layout | None:
    """What DeepSpeed's groups say."""
    groups: Any = sys.modules.get("deepspeed.utils.groups")
    if groups is None:
        return None
    sizes, place = {}, {}
    for name, words in _DEEPSPEED.items():
        size = _called(groups, f"_get_{words}_world_size")
        if size is not None and (size > 1 or name == "dp"):
            sizes[name] = size
            place[name] = _called(groups, f"_get_{words}_rank") or 0
    return Layout(sizes=sizes, place=place, source="DeepSpeed") if sizes else None


def from_modules() -> Layout | None:
    """What the job's objects say: its largest device mesh, else how FSDP or DDP spreads a model.

    Looks at every object that Python tracks, once: some tens of ms.
    """
    mesh_type = _loaded("torch.distributed.device_mesh", "DeviceMesh")
    fsdp_type = _loaded("torch.distributed.fsdp", "FullyShardedDataParallel")
    ddp_type = _loaded("torch.nn.parallel.distributed", "DistributedDataParallel")
    kinds = tuple(kind for kind in (mesh_type, fsdp_type, ddp_type) if kind is not None)
    found: list[Any] = [each for each in gc.get_objects() if type(each) in kinds]
    meshes = [each for each in found if type(each) is mesh_type and each.mesh_dim_names]
    if meshes:
        return _of_mesh(max(meshes, key=lambda mesh: (int(mesh.mesh.numel()), mesh.ndim)))
    for kind, source in ((fsdp_type, "FSDP"), (ddp_type, "DDP")):
        for each in found:
            if type(each) is kind:
                group = each.process_group
                place = {"dp": int(group.rank())}
                return Layout(sizes={"dp": int(group.size())}, place=place, source=source)
    return None


def _of_mesh(mesh: Any) -> Layout:
    names = [str(name).lower() for name in mesh.mesh_dim_names]
    sizes = dict(zip(names, map(int, mesh.mesh.shape), strict=True))
    place = mesh.get_coordinate()
    return Layout(
        sizes=sizes,
        place=dict(zip(names, map(int, place), strict=True)) if place is not None else {},
        source="device mesh",
    )


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _called(module: Any, function: str) -> int | None:
    """The number that a function of another library gives; null where it has none."""
    try:
        return int(getattr(module, function)())
    except Exception:  # noqa: BLE001 - not initialised, another version, no such dimension
        return None
