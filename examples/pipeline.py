"""Stages of a pipeline on as many ranks; the last one has more layers than the others.

Run:
    torchrun --nproc-per-node 4 examples/pipeline.py
    tracekit analyze runs/pipeline

The report begins with the stage that computes longer than the others, and what equal stages buy. It
has no name for the rest of the bubble.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from _shared import Arguments, joined, leave
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import tracekit

WIDTH, BATCH, N_MICROBATCHES, N_LAYERS, N_MORE = 512, 1024, 4, 2, 4
SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def train(arguments: Arguments) -> None:
    """Train with a stage on each rank."""
    rank, n_stages = dist.get_rank(), dist.get_world_size()
    is_last = rank == n_stages - 1
    n_layers = N_LAYERS + (N_MORE if is_last and not arguments.healthy else 0)
    module = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(n_layers))
    )
    stage = PipelineStage(module, rank, n_stages, torch.device("cpu"))
    schedule = SCHEDULES[arguments.schedule](stage, N_MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with tracekit.collect(arguments.run_dir, steps=8, wait=2, layout={"pp": n_stages}) as c:
        for _ in range(10):
            batch = torch.randn(BATCH, WIDTH)
            inputs = (batch,) if rank == 0 else ()
            schedule.step(*inputs, target=batch if is_last else None)
            optimizer.step()
            optimizer.zero_grad()
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__, schedule=tuple(SCHEDULES))
    train(arguments)
    leave(arguments.run_dir)
