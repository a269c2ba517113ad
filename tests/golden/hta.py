"""HTA's rules on our tables: which device events it keeps, and what it makes of them.

They are the rules of HolisticTraceAnalysis 0.6.1; none is ours. `kept` is what its figures are
about, with exact times. `changed` is what it computes them from: the same after all that it gets
wrong, so that a figure of its which differs from ours is explained to the last microsecond.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path

import polars as pl

from tracekit.derive.activity import COMPUTE, COPY, activity
from tracekit.derive.kernel_kinds import COMMUNICATION
from tracekit.store import Run

LAST = "_last"
STEP_MARK = r"^ProfilerStep#\d+"
SYNC = "sync"
CLASSES = {"COMPUTATION": COMPUTE, "COMMUNICATION": COMMUNICATION, "MEMORY": COPY}
CALLS = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "runFunction - job_prep_and_submit_for_execution",
)
"""The only calls that its launch statistics know."""

SYNC_ROWS = "cuda_sync rows of a stream are counted as kernels"
HOST_OPERATORS = "host operators with a stream are counted as kernels"
ROUNDED = "times of device events are rounded to whole µs, up at the start and down at the end"
NO_STREAM = "device events whose arguments name no stream are dropped"


@dataclass(frozen=True)
class Golden:
    """One folder of HTA's frames, with the run of the trace that they are about."""

    folder: Path
    run: Run

    @property
    def name(self):
        return self.folder.name

    @property
    def with_last(self):
        return self.name.endswith(LAST)

    def frame(self, method):
        return pl.read_csv(self.folder / f"{method}.csv", infer_schema_length=None)

    def ranks_of(self, method):
        """Ranks with a frame of their own."""
        prefix = f"{method}.rank"
        names = (path.stem for path in self.folder.glob(f"{prefix}*.csv"))
        return sorted(int(name.removeprefix(prefix)) for name in names)

    def kept(self, rank):
        return kept(self.run, rank, with_last=self.with_last)

    def changed(self, rank):
        return changed(self.run, rank, with_last=self.with_last)

    def mistakes(self):
        """How many rows of all ranks each of the mistakes concerns; those that occur."""
        counts = dict.fromkeys((SYNC_ROWS, HOST_OPERATORS, ROUNDED, NO_STREAM), 0)
        for rank in self.run.ranks:
            events = self.kept(rank)
            times = events.select("start_ns", "end_ns")
            moved = times != rounded(events, self.run).select("start_ns", "end_ns")
            counts[SYNC_ROWS] += sync_rows(self.run, rank).height
            counts[HOST_OPERATORS] += host_operators(self.run, rank, self.with_last).height
            counts[ROUNDED] += moved.select(pl.any_horizontal(pl.all()).sum()).item()
            counts[NO_STREAM] += events.height - with_stream(events, self.run, rank).height
        return {mistake: count for mistake, count in counts.items() if count}


def kept(run, rank, *, with_last):
    """The device events HTA keeps (columns of `activity`), with exact times.

    Where a run has step marks of one name at most, all. Else those launched before the last mark
    starts, on the host's or the device's timeline; with the last step, until the last mark ends.
    """
    until_ns = last_call_ns(run, rank, with_last=with_last)
    events = activity(run, rank)
    if until_ns is not None:
        calls = run.scan("launches", rank).filter(pl.col("start_ns") <= until_ns)
        events = events.join(calls.select("correlation").drop_nulls(), on="correlation", how="semi")
    return events.collect()


def last_call_ns(run, rank, *, with_last):
    """The last start of a call whose events HTA keeps; None where it keeps all."""
    is_mark = pl.col("name").str.contains(STEP_MARK)
    names = [run.scan("annotations", each).filter(is_mark).select("name") for each in run.ranks]
    if pl.concat(names).collect()["name"].n_unique() <= 1:
        return None
    marks = run.scan("annotations", rank).filter(is_mark).collect()
    return (marks["start_ns"] + marks["dur_ns"]).max() if with_last else marks["start_ns"].max() - 1


def changed(run, rank, *, with_last):
    """The rows HTA computes with: what it keeps, less what it drops, more what it adds, rounded."""
    events = with_stream(kept(run, rank, with_last=with_last), run, rank)
    added = (sync_rows(run, rank), host_operators(run, rank, with_last))
    return rounded(pl.concat([events, *added], how="diagonal"), run)


def rounded(events, run):
    """Starts rounded up and ends down to whole µs: some become −1 µs long."""
    epoch_ns = run.manifest.epoch_ns
    up = (-(-(pl.col("start_ns", "launch_start_ns") + epoch_ns) // 1000)) * 1000 - epoch_ns
    down = (pl.col("end_ns", "launch_end_ns") + epoch_ns) // 1000 * 1000 - epoch_ns
    return events.with_columns(up, down)


def n_below_zero(events):
    """How many events end before they start: each may shorten a sum of HTA's by 1 µs."""
    return events.filter(pl.col("end_ns") < pl.col("start_ns")).height


def union_ns(events):
    """Length of a union as HTA adds it up: an event of −1 µs that nothing covers takes 1 µs off.

    Which of two that start together comes first is left to chance there; here, the longer.
    """
    reached = pl.col("end_ns").cum_max().shift(1)
    return (
        events.sort("start_ns", "end_ns", descending=[False, True])
        .with_columns(island=(pl.col("start_ns") > reached).fill_null(value=True).cum_sum())
        .group_by("island")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .select((pl.col("end_ns") - pl.col("start_ns")).sum())
        .item()
    )


def sync_rows(run, rank):
    """Recorded synchronisations of a stream; those of the whole device carry none."""
    is_counted = (pl.col("source") == "recorded") & (pl.col("stream") >= 0)
    return (
        run.scan("syncs", rank)
        .filter(is_counted)
        .select(
            pl.lit(SYNC).alias("class"),
            "start_ns",
            (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
            pl.col("kind").alias("name"),
            "stream",
        )
        .collect()
    )


def host_operators(run, rank, with_last):
    """Operators of the host whose arguments name a stream, from the file itself."""
    until_ns = last_call_ns(run, rank, with_last=with_last)
    rows = [
        (COMPUTE, start_ns - run.manifest.epoch_ns, end_ns - run.manifest.epoch_ns, name)
        for start_ns, end_ns, name in beside_tables(source(run, rank))[1]
        if until_ns is None or start_ns - run.manifest.epoch_ns <= until_ns
    ]
    schema = {"class": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "name": pl.String}
    return pl.DataFrame(rows, schema, orient="row")


def with_stream(events, run, rank):
    """The events whose stream their arguments name: HTA takes no other field for it."""
    return events.filter(pl.col("stream").is_in(beside_tables(source(run, rank))[0]))


@cache
def beside_tables(path):
    """Streams that arguments name, and host operators with one (absolute ns): no table has them."""
    base_ns = document(path).get("baseTimeNanoseconds", 0)
    named, operators = set(), []
    for event in events_of(path):
        stream = int(event.get("args", {}).get("stream", -1))
        named.add(stream)
        if event["cat"] == "cpu_op" and stream >= 0:
            start_ns = Fraction(event["ts"]) * 1000 + base_ns
            end_ns = start_ns + Fraction(event["dur"]) * 1000
            operators.append((int(start_ns), int(end_ns), event["name"]))
    return sorted(named - {-1}), operators


def source(run, rank):
    return run.capture(rank).source.path


@lru_cache(maxsize=2)
def document(path):
    """A trace file as it lies there, fractions as their digits."""
    data = Path(path).read_bytes()
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return json.loads(text, parse_float=str)


def events_of(path):
    """The complete events of a file."""
    return [event for event in document(path)["traceEvents"] if event["ph"] == "X"]


def measured_us(run, rank, number, correlations=None):
    """What the reference holds, from the file itself without our reader: times taken as `number`.

    Of all kernels, copies and memsets, or of those of the correlations. In µs: non_compute is what
    is neither compute nor idle, mem the union of copies, comm_comp_overlap where both run.
    """
    spans = {"compute": [], "comm": [], "mem": []}
    for event in events_of(source(run, rank)):
        if event.get("cat") not in {"kernel", "gpu_memcpy", "gpu_memset"}:
            continue
        if correlations is not None and event["args"].get("correlation") not in correlations:
            continue
        is_kernel = event["cat"] == "kernel"
        kind = "mem" if not is_kernel else "comm" if "nccl" in event["name"] else "compute"
        start = number(str(event["ts"]))
        spans[kind].append((start, start + number(str(event["dur"]))))
    everything = [span for kind in spans.values() for span in kind]
    total = max(end for _, end in everything) - min(start for start, _ in everything)
    compute, comm, mem = (length(spans[kind]) for kind in ("compute", "comm", "mem"))
    idle = total - length(everything)
    return {
        "kernel_time": total,
        "idle": idle,
        "compute": compute,
        "non_compute": total - compute - idle,
        "comm": comm,
        "mem": mem,
        "comm_comp_overlap": compute + comm - length(spans["compute"] + spans["comm"]),
    }


def length(spans):
    """Length of a union, one span after the other."""
    total, reached = 0, None
    for start, end in sorted(spans):
        if reached is None or start > reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
