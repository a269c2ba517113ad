"""What all examples share: their arguments, and their last line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist


class Arguments(argparse.Namespace):
    """Arguments of an example."""

    run_dir: Path
    healthy: bool


def joined(doc: str, **choices: tuple[str, ...]) -> Arguments:
    """Join the job of gloo ranks that torchrun started, one thread each; gives the arguments.

    `choices` are more options by name: what can be chosen, the default first.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path("runs") / Path(sys.argv[0]).stem
    parser.add_argument("--run-dir", type=Path, default=default, help=f"default: {default}")
    parser.add_argument("--healthy", action="store_true", help="the same without the fault")
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    arguments = parser.parse_args(namespace=Arguments())
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    return arguments


def leave(run_dir: Path) -> None:
    """Leave the job; rank 0 says what to do with what was recorded."""
    dist.barrier()
    if dist.get_rank() == 0:
        sys.stdout.write(f"Recorded. Analyse it:\n    tracekit analyze {run_dir}\n")
    dist.destroy_process_group()
