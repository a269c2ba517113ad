"""Who this process is in its job: rank, world, host, launcher."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAUNCHERS = (  # name, variables of rank, world size, rank on the host
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
MAX_RANK = 999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Rank, world size, rank on the host, host, launcher and backend of this process."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    launcher: str | None = None
    backend: str | None = None


def identity(
    rank: int | None = None,
    world_size: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Identity:
    """Who this process is: as given, else as torch.distributed knows, else as its launcher says.

    A process that none of them names is rank 0 of 1.

    Raises:
        ValueError: the rank is too large for the names of files.
    """
    dist = process_groups()
    launcher, numbers = launched(environment)
    known = numbers[:2] if numbers is not None else (0, 1)
    if dist is not None:
        known = dist.get_rank(), dist.get_world_size()
    rank = known[0] if rank is None else rank
    world_size = known[1] if world_size is None else world_size
    if rank > MAX_RANK:
        raise ValueError(f"rank {rank}: ranks go up to {MAX_RANK}")
    local = numbers[2] if numbers is not None else _local_rank(environment)
    return Identity(
        rank=rank,
        world_size=max(world_size, rank + 1),
        local_rank=local if local is not None else _device_index() or 0,
        host=socket.gethostname(),
        launcher=launcher,
        backend=str(dist.get_backend()) if dist is not None else None,
    )


def knows_rank() -> bool:
    """Whether this process knows its rank by now: one of mp.spawn learns it from its own code."""
    return process_groups() is not None or launched(os.environ)[1] is not None


def launched(environment: Mapping[str, str]) -> tuple[str | None, tuple[int, int, int] | None]:
    """Name of the launcher, and rank, world size and rank on the host where it sets them."""
    for name, *variables in _LAUNCHERS:
        values = [environment.get(variable, "") for variable in variables]
        if all(value.isdecimal() for value in values):
            rank, world_size, local = map(int, values)
            return name, (rank, world_size, local)
    return None, None


def process_groups() -> Any | None:
    """torch.distributed, if its default group is there; importing nothing that the job did not."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist


def _local_rank(environment: Mapping[str, str]) -> int | None:
    value = environment.get("LOCAL_RANK", "")
    return int(value) if value.isdecimal() else None


def _device_index() -> int | None:
    """The current CUDA device: what a process of mp.spawn has instead of a local rank."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.current_device())
