"""Rollouts and updates by turns; the prompts of the last rank lead to much longer answers.

Run:
    torchrun --nproc-per-node 4 examples/rl.py
    tracekit analyze runs/rl

The report names the last rank, for which the others wait in their update, and says that it has
longer sequences: sequence-length-imbalance. The phases are in the trace, but no finding names one
yet.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from _shared import Arguments, joined, leave
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tracekit

WIDTH, BATCH, N_SYMBOLS = 256, 32, 128
TOKENS, LONG_TOKENS = 40, 160


class Policy(nn.Module):
    """A recurrent language model, small enough for a CPU."""

    def __init__(self) -> None:
        """Make its three parts."""
        super().__init__()
        self.embedding = nn.Embedding(N_SYMBOLS, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, N_SYMBOLS)

    def forward(self, symbols: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Scores of the next symbol, and the state after it."""
        state = self.cell(self.embedding(symbols), state)
        return self.head(state), state


@torch.no_grad()
def rollout(policy: nn.Module, n_tokens: int) -> torch.Tensor:
    """Answers of so many tokens, sampled one by one."""
    symbols, state = torch.zeros(BATCH, dtype=torch.long), torch.zeros(BATCH, WIDTH)
    answers = []
    for _ in range(n_tokens):
        scores, state = policy(symbols, state)
        symbols = torch.multinomial(scores.softmax(-1), 1).squeeze(-1)
        answers.append(symbols)
    return torch.stack(answers)


def train(arguments: Arguments) -> None:
    """Sample answers, then learn from the first tokens of each."""
    is_last = dist.get_rank() == dist.get_world_size() - 1
    n_tokens = LONG_TOKENS if is_last and not arguments.healthy else TOKENS
    policy = DistributedDataParallel(Policy())
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    with tracekit.collect(arguments.run_dir, steps=10, wait=2) as c:
        for _ in range(12):
            with c.phase("rollout"):
                answers = rollout(policy.module, n_tokens)
            c.samples([n_tokens] * BATCH)
            with c.phase("update"):
                scores, _ = policy(answers[:TOKENS].flatten(), torch.zeros(TOKENS * BATCH, WIDTH))
                reward = torch.rand(TOKENS * BATCH)
                chosen = scores.log_softmax(-1).gather(1, answers[:TOKENS].reshape(-1, 1))
                (-reward * chosen.squeeze(1)).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__)
    train(arguments)
    leave(arguments.run_dir)
