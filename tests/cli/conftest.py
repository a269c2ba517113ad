"""A small job of two ranks in a folder, and the command run in an empty one."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

from tracekit.cli import main


@pytest.fixture(autouse=True)
def log_as_before():
    log = logging.getLogger("tracekit")
    before = log.level, list(log.handlers)
    yield
    log.setLevel(before[0])
    log.handlers[:] = before[1]


@pytest.fixture
def job(tmp_path):
    """Traces of ranks with four steps of 1 ms each: 400 µs of gemm, then an all-reduce.

    Rank 1 computes for 700 µs, so that rank 0 waits for 300 µs in each step.
    """

    def write(folder="job", n_ranks=2):
        for rank in range(n_ranks):
            path = tmp_path / folder / f"rank{rank}.json"
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(json.dumps(document(rank, n_ranks)), "utf-8")
        return tmp_path / folder

    return write


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder that is the current one."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def tracekit(here):  # noqa: ARG001 - where it runs
    """Run the command in this process, here; nothing but an exit may leave it."""

    def run(*arguments):
        texts = ["--engine", "local:1", *map(str, arguments)]
        result = CliRunner().invoke(main, texts)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result

    return run


def document(rank, n_ranks):
    group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(n_ranks))}
    events = []
    for step in range(4):
        start = 1000 + 1000 * step
        busy = 700 if rank == 1 else 400
        events += [
            span("user_annotation", f"ProfilerStep#{step}", start, 1000, tid=1),
            span("cuda_runtime", "cudaLaunchKernel", start + 1, 5, tid=1, correlation=2 * step + 1),
            span("cuda_runtime", "cudaLaunchKernel", start + 9, 5, tid=1, correlation=2 * step + 2),
            span("kernel", "gemm", start + 20, busy, device=0, stream=7, correlation=2 * step + 1),
            span(
                "kernel",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                start + 20 + busy,
                900 - busy,
                device=0,
                stream=20,
                correlation=2 * step + 2,
                **{
                    "Collective name": "allreduce",
                    "dtype": "Float",
                    "In msg nelems": 1000,
                    "Out msg nelems": 1000,
                    "Group size": n_ranks,
                    "Process Group Name": "0",
                },
            ),
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": n_ranks,
            "pg_config": [group],
        },
        "host_name": "node1",
        "baseTimeNanoseconds": 1_735_693_560_000_000_000,
        "traceEvents": events,
        "traceName": f"rank{rank}.json",
    }


def span(cat, name, ts, dur, *, tid=7, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }
