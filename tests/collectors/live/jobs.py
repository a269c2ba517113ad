"""A small training job: `torchrun … jobs.py RUN_DIR [--late S] [--kill-at N] …`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import tracekit


def train(args: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(4)])
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tracekit.collect(args.run_dir, **json.loads(args.options)) as c:
        for step in range(args.n_steps):
            if rank == world - 1 and args.late:
                time.sleep(args.late)
            with c.phase("forward"):
                loss = model(torch.randn(16, 128)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            c.samples([10 * (rank + 1), 20])
            c.step()
            if rank == world - 1 and step == args.kill_at:
                wait_for(args.run_dir, args.kill_after)
                os.kill(os.getpid(), signal.SIGKILL)
    heavy = {"polars", "pyarrow", "msgspec"} & set(sys.modules)
    sys.stdout.write(json.dumps({"rank": rank, "heavy": sorted(heavy)}) + "\n")


def wait_for(run_dir: str, pattern: str | None) -> None:
    """Until such a file is there, for a minute at most."""
    for _ in range(1200):
        if pattern is None or list(Path(run_dir).glob(pattern)):
            return
        time.sleep(0.05)


def spawned(rank: int, args: argparse.Namespace) -> None:
    """One process of mp.spawn, which sets no variable of the environment."""
    dist.init_process_group("gloo", init_method=f"file://{args.meet}", rank=rank, world_size=2)
    train(args)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir")
    parser.add_argument("--options", default='{"steps": 5, "wait": 5}')
    parser.add_argument("--n-steps", type=int, default=12)
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--kill-after", help="a file below RUN_DIR that must be there first")
    parser.add_argument("--meet", help="file through which processes of mp.spawn meet")
    args = parser.parse_args()
    if args.meet:
        torch.multiprocessing.spawn(spawned, (args,), nprocs=2)
        return
    dist.init_process_group("gloo")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
