"""FSDP2 in which rank 0 alone computes a metric in Python after each step, as for a log.

Run:
    torchrun --nproc-per-node 2 examples/fsdp2.py
    tracekit analyze runs/fsdp2

The report names rank 0 and says that its host does something that no operator records: host-other.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from _shared import Arguments, joined, leave
from torch import nn
from torch.distributed.fsdp import fully_shard

import tracekit

WIDTH, BATCH, TOKENS, N_SYMBOLS = 64, 12, 320, 64


def edit_distance(first: list[int], second: list[int]) -> int:
    """Fewest changes of single symbols that make one sequence the other."""
    row = list(range(len(second) + 1))
    for i, symbol in enumerate(first, start=1):
        corner, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (symbol != other))
    return row[-1]


def train(arguments: Arguments) -> None:
    """Train a model in shards, gathered layer by layer; rank 0 measures its predictions."""
    layers = [
        nn.TransformerEncoderLayer(
            WIDTH, nhead=2, dim_feedforward=128, dropout=0.0, batch_first=True
        )
        for _ in range(2)
    ]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, N_SYMBOLS))
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    measures = dist.get_rank() == 0 and not arguments.healthy
    with tracekit.collect(arguments.run_dir, steps=8, wait=2) as c:
        for _ in range(10):
            batch = torch.randn(BATCH, TOKENS, WIDTH)
            symbols = torch.randint(N_SYMBOLS, (BATCH, TOKENS))
            scores = model(batch)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), symbols.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if measures:
                predicted = scores.argmax(-1).tolist()
                for first, second in zip(predicted, symbols.tolist(), strict=True):
                    edit_distance(first, second)
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__)
    train(arguments)
    leave(arguments.run_dir)
