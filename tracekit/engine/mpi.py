"""Ranks on the processes of an MPI job: the first one runs the command, the others its tasks.

MPI ends all processes of a job when one is killed; what was converted until then is kept.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.engine import Engine, Work
from tracekit.engine._mapping import InProcess
from tracekit.engine._worker import OnWorkers
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

_LAUNCHER = "mpi4py.futures"
_COMMAND = f"mpirun -n 4 python -m {_LAUNCHER} -m tracekit analyze FOLDER --engine mpi"
_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_TASKS_PER_NODE")
"""How many processes share this machine, as Open MPI, MPICH and Slurm say."""


@contextmanager
def _start(rest: str | None, work: Work) -> Iterator[Executor]:
    """An executor over the other processes of the job, which stay for the next block."""
    if rest is not None:
        raise UsageError(f"--engine mpi:{rest}: mpi takes nothing", hint=f"Run: {_COMMAND}")
    if _LAUNCHER not in sys.orig_argv:
        raise UsageError("--engine mpi: not started as a job of MPI", hint=f"Run: {_COMMAND}")
    from mpi4py import MPI  # noqa: PLC0415 - the launcher has it
    from mpi4py.futures import MPIPoolExecutor  # noqa: PLC0415

    n_processes = MPI.COMM_WORLD.Get_size()
    if n_processes == 1:
        raise UsageError(
            "--engine mpi: the job has one process, and none to work beside it",
            hint=f"Run: {_COMMAND}",
        )
    if work.n_tasks <= 1:
        yield InProcess()
        return
    with MPIPoolExecutor() as pool:
        executor = OnWorkers(pool, work, n_beside=_n_beside(n_processes))
        try:
            yield executor
        finally:
            executor.close()


def _n_beside(n_processes: int) -> int:
    """How many processes share a machine; all of them where nobody says."""
    for name in _LOCAL_SIZES:
        first = os.environ.get(name, "").partition("(")[0].partition(",")[0]
        if first.isdigit():
            return int(first)
    return n_processes


ENGINE = Engine(id="mpi", forms=("mpi",), start=_start)
