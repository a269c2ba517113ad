"""Runs for tests, written from small tables: times in µs, so that a reader can add them up."""

from __future__ import annotations

import json

import polars as pl

import tracekit
from tracekit.derive.kernel_kinds import kind_of
from tracekit.schema import TABLES
from tracekit.store import MANIFEST, Capture, Manifest, Run, SourceIdentity, TableWriter, write_json

NCCL = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(x)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
}


class Trace:
    """The tables of one rank; every method adds a row and takes µs."""

    def __init__(self):
        self.rows = {name: [] for name in TABLES}
        self.n_launched = 0

    def add(self, table, start, dur, **values):
        row = {"start_ns": round(start * 1000), "dur_ns": round(dur * 1000)} | values
        if "dur_ns" not in TABLES[table].schema:
            row.pop("dur_ns")
        self.rows[table].append(row)
        return self

    def _launch(self, launched, thread, name, role):
        """A call of 1 µs, or (start, duration); returns its correlation."""
        self.n_launched += 1
        if launched is not None:
            start, dur = launched if isinstance(launched, tuple) else (launched, 1)
            self.call(start, dur, name, role=role, thread=thread, correlation=self.n_launched)
        return self.n_launched

    def call(self, start, dur, name, *, role="other", thread=1, correlation=None):
        values = {"name": name, "role": role, "thread": thread, "correlation": correlation}
        return self.add("launches", start, dur, **values)

    def kernel(
        self, start, dur, name="gemm", *, launched=None, thread=1, device=0, stream=7, kind=None
    ):
        correlation = self._launch(launched, thread, "cudaLaunchKernel", "launch")
        return self.add(
            "kernels",
            start,
            dur,
            name=name,
            kind=kind or kind_of(name),
            device=device,
            stream=stream,
            correlation=correlation,
        )

    def copy(self, start, dur, kind="HtoD", *, launched=None, thread=1, device=0, **values):
        call = values.pop("call", "cudaMemcpyAsync")
        correlation = self._launch(launched, thread, call, "copy")
        place = {"device": device, "stream": 7, "correlation": correlation}
        return self.add("copies", start, dur, name=kind, kind=kind, **place, **values)

    def collective(self, start, dur, operation="all_reduce", **values):
        """A communication kernel with its row among the collectives; all ranks of 4 by default."""
        launched, thread = values.pop("launched", None), values.pop("thread", 1)
        name = NCCL.get(operation, "ncclDevKernel_SendRecv(x)")
        place = {"device": values.pop("device", 0), "stream": values.pop("stream", 20)}
        place["correlation"] = self._launch(launched, thread, "cudaLaunchKernel", "launch")
        self.add("kernels", start, dur, name=name, kind=kind_of(name), **place)
        described = {"group": "0", "members": [0, 1, 2, 3], "bytes_in": 1024} | values
        if described["members"] is not None:
            described |= {"group_size": len(described["members"])}
        row = {"name": name, "operation": operation, "source": "metadata"} | place | described
        return self.add("collectives", start, dur, **row)

    def gloo(self, start, dur, operation="all_reduce", *, thread=9, members=(0, 1)):
        return self.add(
            "collectives",
            start,
            dur,
            name=f"gloo:{operation}",
            operation=operation,
            source="gloo",
            stream=thread,
            group="0",
            members=list(members),
            group_size=len(members),
            bytes_in=1024,
        )

    def op(self, start, dur, name="aten::mm", *, thread=1):
        return self.add("cpu_ops", start, dur, name=name, thread=thread)

    def annotation(self, start, dur, name, *, thread=1):
        return self.add("annotations", start, dur, name=name, thread=thread)

    def step(self, number, start, dur, source="ProfilerStep"):
        if source == "ProfilerStep":
            self.annotation(start, dur, f"ProfilerStep#{number}")
        return self.add("steps", start, dur, step=number, source=source)


def write(folder, traces, *, world_size=None, flags=(), n_missing=0, hosts=()):
    """Write the traces by rank as a run folder and open it."""
    captures = []
    for rank, trace in sorted(traces.items()):
        writer = TableWriter(folder, rank)
        for name, rows in trace.rows.items():
            frame = pl.DataFrame(rows, schema=TABLES[name].schema, orient="row")
            is_timed = "start_ns" in frame.columns
            writer.write(name, frame.sort("start_ns", maintain_order=True) if is_timed else frame)
        writer.close()
        captures.append(
            Capture(
                rank=rank,
                rank_source="test",
                source=SourceIdentity(path=f"{rank}.json", size_bytes=1, modified_ns=1),
                collector="test",
                code="1",
                epoch_ns=0,
                n_rows=writer.n_rows,
                flags=tuple(flags),
                host=dict(hosts).get(rank),
            )
        )
    manifest = Manifest(
        tracekit_version="0",
        name="test",
        source="test",
        epoch_ns=0,
        world_size=world_size or len(traces),
        captures=tuple(captures),
        missing_ranks=tuple(range(len(traces), len(traces) + n_missing)),
    )
    write_json(folder / MANIFEST, manifest)
    return Run(folder, manifest)


def kineto(folder, events, *, rank=0, world_size=1):
    """Write the events of one rank as a Kineto file: (category, name, ts, dur, args) each."""
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": rank, "world_size": world_size, "backend": "nccl"},
        "deviceProperties": [{"id": 0, "name": "device"}],
        "traceEvents": [
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 1, "ts": ts, "dur": dur}
            | {"args": args}
            for cat, name, ts, dur, args in events
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps(document))
    return path


def converted(source, folder):
    """A run from Kineto files, converted in this process."""
    return tracekit.convert(source, folder, engine="local:1")
