"""Four ranks train a small model on the CPU; the data loader of one of them is slow.

Run:
    torchrun --nproc-per-node 4 examples/slow_input.py --output traces
    tracekit analyze traces

The report names the slow rank and its input pipeline. Needs torch (CPU is enough); the demo's
embedded sample was recorded by this script.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

FEATURES = 256
BATCH = 64


class SlowSamples(Dataset[torch.Tensor]):
    """Random samples, each of which takes a while to load."""

    def __init__(self, n_samples: int, load_s: float) -> None:
        """Keep how many there are and how long one takes."""
        self._n_samples = n_samples
        self._load_s = load_s

    def __len__(self) -> int:
        """How many samples there are."""
        return self._n_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sample, after its loading time."""
        time.sleep(self._load_s)
        return torch.full((FEATURES,), float(index % 7))


def train(output: Path, slow_rank: int, n_steps: int, batch_load_s: float) -> None:
    """Train and record steps; the slow rank spends `batch_load_s` more on each batch."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, 1))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    load_s = batch_load_s / BATCH if rank == slow_rank else 0.0
    loader = DataLoader(SlowSamples((n_steps + 3) * BATCH, load_s), batch_size=BATCH)
    steps = schedule(wait=1, warmup=1, active=n_steps, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps) as profiler:
        for batch in loader:
            loss = parallel(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    output.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(output / f"rank{rank}.json.gz"))


def main() -> None:
    """Join the process group and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("traces"))
    parser.add_argument("--slow-rank", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--load-ms", type=float, default=40.0)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments.output, arguments.slow_rank, arguments.steps, arguments.load_ms / 1e3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
