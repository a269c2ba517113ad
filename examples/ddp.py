"""DDP in which the last rank gets longer sequences than the others, who wait for it.

Run:
    torchrun --nproc-per-node 4 examples/ddp.py
    tracekit analyze runs/ddp

The report names the last rank, which has longer sequences: sequence-length-imbalance. The lengths
told with `c.samples` tell that from a slow processor.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from _shared import Arguments, joined, leave
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tracekit

WIDTH, BATCH, TOKENS, TIMES_LONGER = 128, 8, 64, 3


def train(arguments: Arguments) -> None:
    """Train on random sequences; those of the last rank are several times as long."""
    is_last = dist.get_rank() == dist.get_world_size() - 1
    n_tokens = TOKENS * (TIMES_LONGER if is_last and not arguments.healthy else 1)
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=512, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, num_layers=3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tracekit.collect(arguments.run_dir, steps=8, wait=2) as c:
        for _ in range(10):
            batch = torch.randn(BATCH, n_tokens, WIDTH)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            c.samples([n_tokens] * BATCH)
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__)
    train(arguments)
    leave(arguments.run_dir)
