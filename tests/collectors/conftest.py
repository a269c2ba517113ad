"""Small traces written in the test, and what becomes of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.collectors import Options, RankFile, kineto
from tracekit.store import Capture, Manifest, Run

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Read:
    """One converted file."""

    capture: Capture
    run: Run

    def table(self, name: str) -> pl.DataFrame:
        return self.run.scan(name, self.capture.rank).collect()

    def names(self, table: str = "kernels") -> list[str]:
        return self.table(table)["name"].to_list()

    def checks(self) -> dict[str, int]:
        return {check.check: check.count for check in self.capture.quality}


@pytest.fixture
def read(tmp_path):
    """Convert one file, given as bytes, text or a JSON value, as rank 0 of the epoch 0."""

    def convert(content: object, name: str = "rank0.json", folder: str = "run") -> Read:
        path = content if isinstance(content, Path) else tmp_path / name
        if not isinstance(content, Path):
            data = content if isinstance(content, bytes | str) else json.dumps(content)
            data = data.encode() if isinstance(data, str) else data
            is_plain = not name.endswith(".gz") or data.startswith(b"\x1f\x8b")
            path.write_bytes(data if is_plain else gzip.compress(data))
        file = RankFile(path=path, rank=0, rank_source="distributedInfo")
        capture = kineto.convert(file, tmp_path / folder, Options())
        manifest = Manifest(
            tracekit_version="test",
            name="test",
            source="test",
            epoch_ns=0,
            world_size=1,
            captures=(capture,),
        )
        return Read(capture, Run(tmp_path / folder, manifest))

    return convert


@pytest.fixture
def kernel():
    """One kernel event: `kernel(3)` starts at 3000 µs and is called k3."""

    def event(number: int, **changes: object) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{number}",
            "pid": 0,
            "tid": 7,
            "ts": 1000 * number,
            "dur": 10,
            "args": {"device": 0, "stream": 7, "correlation": number},
        } | changes

    return event


@pytest.fixture
def trace(kernel):
    """A trace of events; of kernels 1 to n where only a number is given."""

    def document(events: object = 3, /, **top: object) -> dict[str, object]:
        if isinstance(events, int):
            events = [kernel(number) for number in range(1, events + 1)]
        return {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
            "baseTimeNanoseconds": 0,
            **top,
            "traceEvents": events,
            "traceName": "rank0.json",
        }

    return document
