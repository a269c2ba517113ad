"""A mixture of experts, one a rank, whose router sends most tokens to one expert.

Run:
    torchrun --nproc-per-node 4 examples/moe.py
    tracekit analyze runs/moe

The report names the last rank, which hosts the popular expert and makes the others wait:
expert-imbalance.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from _shared import Arguments, joined, leave
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

import tracekit

WIDTH, TOKENS, POPULAR_SHARE = 256, 768, 0.7


class Experts(nn.Module):
    """One expert on each rank; tokens travel to theirs and back."""

    def __init__(self) -> None:
        """Make the expert of this rank."""
        super().__init__()
        self.expert = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Tokens after the expert that was chosen for each of them."""
        order = chosen.argsort()
        sent = torch.bincount(chosen, minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        n_sent, n_received = sent.tolist(), received.tolist()
        arrived = tokens.new_empty(sum(n_received), WIDTH)
        arrived = all_to_all_single(arrived, tokens[order], n_received, n_sent)
        done = tokens.new_empty(len(tokens), WIDTH)
        done = all_to_all_single(done, self.expert(arrived), n_sent, n_received)
        return done[order.argsort()]


def routed(*, is_even: bool) -> torch.Tensor:
    """The expert that each token goes to."""
    n_experts = dist.get_world_size()
    even = torch.arange(TOKENS) % n_experts
    if is_even:
        return even
    return torch.where(torch.rand(TOKENS) < POPULAR_SHARE, n_experts - 1, even)


def train(arguments: Arguments) -> None:
    """Train two layers of experts."""
    layers = nn.ModuleList(Experts() for _ in range(2))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    # Shapes tell more tokens from a slower processor.
    with tracekit.collect(arguments.run_dir, steps=8, wait=2, record_shapes=True) as c:
        for _ in range(10):
            tokens = torch.randn(TOKENS, WIDTH)
            for layer in layers:
                tokens = tokens + layer(tokens, routed(is_even=arguments.healthy))
            tokens.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            c.step()


if __name__ == "__main__":
    arguments = joined(__doc__)
    train(arguments)
    leave(arguments.run_dir)
