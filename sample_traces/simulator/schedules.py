"""Pipeline schedules: in which order a stage runs its micro-batches forward and backward.

Sources: GPipe (arXiv 1811.06965), 1F1B (PipeDream, arXiv 1806.03377), interleaved 1F1B over several
model chunks a stage (Megatron-LM, arXiv 2104.04473).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tracekit.sample_traces.simulator.job import Job


class Turn(NamedTuple):
    """One pass of a micro-batch through one model chunk of a stage."""

    is_forward: bool
    micro_batch: int
    chunk: int = 0


def turns(job: Job, stage: int) -> list[Turn]:
    """The turns of a stage in one step, in order."""
    n = job.n_micro_batches * job.n_chunks
    forward = [_turn(job, number, is_forward=True) for number in range(n)]
    backward = [_turn(job, number, is_forward=False) for number in range(n)]
    n_warm = min(_n_warm(job, stage), n)
    order = forward[:n_warm]
    for number in range(n - n_warm):
        order += [forward[n_warm + number], backward[number]]
    return order + backward[n - n_warm :]


def _n_warm(job: Job, stage: int) -> int:
    """Forward turns before the first backward one."""
    match job.schedule:
        case "gpipe":
            return job.n_micro_batches
        case "1f1b":
            return job.n_pp - 1 - stage
        case "interleaved":
            return 2 * (job.n_pp - 1 - stage) + (job.n_chunks - 1) * job.n_pp


def _turn(job: Job, number: int, *, is_forward: bool) -> Turn:
    """The number-th forward or backward turn: `n_pp` micro-batches a chunk, chunk after chunk."""
    a_round = job.n_pp * job.n_chunks
    chunk = number % a_round // job.n_pp if job.n_chunks > 1 else 0
    micro_batch = number
    if job.n_chunks > 1:
        micro_batch = number // a_round * job.n_pp + number % job.n_pp
    return Turn(is_forward, micro_batch, chunk if is_forward else job.n_chunks - 1 - chunk)
