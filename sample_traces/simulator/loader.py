"""A data loader of a rank: worker processes make batches, a thread pins them, a queue holds them.

Batch i comes from worker i mod n, as in torch's DataLoader, and is made only when fewer than
`n_prefetched` of that worker's batches wait. So where workers are too slow, the batches of all of
them arrive together, and every n-th step waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.sample_traces.simulator.operations import (
    PROCESS,
    Await,
    Begin,
    End,
    HostWork,
    Operation,
    Program,
    Signal,
)

if TYPE_CHECKING:
    from tracekit.sample_traces.simulator.job import Job, Loader

PIN = 3
"""Thread number of the one that copies batches to pinned memory."""
_NAME = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def feeding(job: Job, loader: Loader, rank: int) -> Program:
    """Programs of the worker processes and of the pin-memory thread of one rank."""
    workers: Program = {PROCESS + worker: [] for worker in range(loader.n_workers)}
    pin: list[Operation] = []
    for number, step in enumerate(job.steps):
        worker = workers[PROCESS + _in_epoch(loader, number) % loader.n_workers]
        if _in_epoch(loader, number) < loader.n_workers:  # its first batch of this epoch
            worker.append(Await(f"epoch {number - _in_epoch(loader, number)} {number}"))
            startup_ns = loader.startup_ns + job.faults.startup_ns
            worker.append(HostWork(dur_ns=startup_ns if loader.steps_per_epoch else 0))
        waits_for = number - loader.n_workers * loader.n_prefetched
        if waits_for >= number - _in_epoch(loader, number):
            worker.append(Await(f"taken {waits_for}"))
        extra_ns = job.faults.load_ns + job.faults.loader_ns.get((rank, step), 0)
        worker += [HostWork(dur_ns=loader.load_ns + extra_ns), Signal(f"made {number}")]
        pin += [
            Await(f"made {number}"),
            HostWork(dur_ns=loader.pin_ns),
            Signal(f"batch {number}"),
        ]
    return {**workers, PIN: pin}


def next_batch(job: Job, loader: Loader, step: int) -> list[Operation]:
    """What the training thread does for the batch of a step; at an epoch's start the loader ends.

    The call that finds the old epoch at its end is recorded like the others.
    """
    number = step - job.first_step
    first = number - _in_epoch(loader, number)
    begun: list[Operation] = []
    if number == first:
        if number:
            begun = [Begin(name=_NAME, category="annotation"), HostWork(dur_ns=40_000), End()]
        n_started = min(
            loader.n_workers, loader.steps_per_epoch or job.n_steps, job.n_steps - first
        )
        begun += [Signal(f"epoch {first} {first + worker}") for worker in range(n_started)]
    return [
        *begun,
        Begin(name=_NAME, category="annotation"),
        Await(f"batch {number}"),
        Signal(f"taken {number}"),
        End(),
    ]


def _in_epoch(loader: Loader, number: int) -> int:
    """Place of a batch in its epoch."""
    return number % loader.steps_per_epoch if loader.steps_per_epoch else number
