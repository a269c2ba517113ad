"""Sample traces that come with tracekit: a small real capture of four ranks for the demo."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEMO = "slow_input_4_ranks"


@contextmanager
def demo_traces() -> Iterator[Path]:
    """The folder of the demo's traces: four gloo ranks, rank 2 with a slow data loader."""
    with as_file(files(__name__) / "data" / DEMO) as folder:
        yield folder
