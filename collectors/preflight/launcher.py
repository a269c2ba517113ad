"""What started this process, and whether rank and world size can be read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.live.identity import launched
from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNS = {
    "torchrun": ("TORCHELASTIC_RUN_ID",),
    "Slurm": ("SLURM_JOB_ID",),
    "mpirun": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "Ray": ("RAY_JOB_ID", "RAY_ADDRESS"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST",),
}
"""Variables by which each can be told."""


def _look(machine: Machine) -> Iterator[Answer]:
    seen = [
        name
        for name, signs in SIGNS.items()
        if any(machine.environment.get(sign) for sign in signs)
    ]
    started = f"Started under {' and '.join(seen)}" if seen else "No launcher is seen here"
    _, numbers = launched(machine.environment)
    if numbers is not None:
        text = f"{started}: this is rank {numbers[0]} of {numbers[1]}."
        yield Answer(Group.RECORD, State.OK, text)
        return
    text = f"{started}; rank and world size are not in the environment."
    fix = "Run it as the job runs, as in: srun tracekit doctor; or set RANK, WORLD_SIZE, LOCAL_RANK"
    yield Answer(Group.RECORD, State.NOTE, text, fix)


CHECK = Check(id="launcher", look=_look)
