"""Ten reductions of two gloo ranks, then what their recorders hold: `torchrun … dumping.py DIR`.

With `ahead` rank 0 calls one reduction more, which rank 1 never makes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch._C._distributed_c10d as recorder
import torch.distributed as dist


def main(folder: Path, *, is_ahead: bool) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tensor = torch.ones(1000)
    for _ in range(10):
        dist.all_reduce(tensor)
    if is_ahead and rank == 0:
        dist.all_reduce(tensor, async_op=True)
    time.sleep(0.5)
    for kind, dump in (
        ("pickle", recorder._dump_fr_trace(True, True, False)),  # noqa: FBT003
        ("json", recorder._dump_fr_trace_json(True, False)),  # noqa: FBT003
    ):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / f"rank_{rank}").write_bytes(dump)
    sys.stdout.write(json.dumps({"rank": rank}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the reduction that nobody joins would be waited for


if __name__ == "__main__":
    main(Path(sys.argv[1]), is_ahead="ahead" in sys.argv)
