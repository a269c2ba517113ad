"""Two loader workers that take longer for a batch than two steps: every second step waits.

Run:
    torchrun --nproc-per-node 2 examples/input_stall.py
    tracekit analyze runs/input_stall

The report says that the ranks wait for input every 2 steps; cause: input-pipeline.
"""

from __future__ import annotations

import time

import torch
from _shared import Arguments, joined, leave
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import tracekit

WIDTH, BATCH, N_WORKERS, N_STEPS = 512, 1024, 2, 14
READ_S = 0.9


class Batches(Dataset[torch.Tensor]):
    """Batches on a storage that takes a while to answer."""

    def __init__(self, read_s: float) -> None:
        """Keep how long one read takes."""
        self._read_s = read_s

    def __len__(self) -> int:
        """How many batches there are."""
        return N_STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        """One batch, when the storage has answered."""
        time.sleep(self._read_s)
        return torch.full((BATCH, WIDTH), index / N_STEPS)


def train(arguments: Arguments) -> None:
    """Train on batches that workers load ahead, as far as they can."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    read_s = 0.0 if arguments.healthy else READ_S
    loader = DataLoader(Batches(read_s), batch_size=None, num_workers=N_WORKERS)
    with tracekit.collect(arguments.run_dir, steps=N_STEPS - 3, wait=2) as c:
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__)
    train(arguments)
    leave(arguments.run_dir)
