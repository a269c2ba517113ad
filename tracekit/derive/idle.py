"""Why a device was idle: each gap cut into launch latency, dependency and a host part with one cause.

For a gap [g0, g1) and the launch call [l0, l1) of the event that ends it: no launch in the file →
not recorded; l1 ≤ g0 → launch latency up to the device's own floor, above it a dependency; else
[g0, min(l1, g1)) is the host's and the rest launch latency. Causes are exclusive and sum to idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import HOST_DEVICE, activity, training_thread
from tracekit.derive.cached import cached
from tracekit.derive.intervals import gaps, union
from tracekit.derive.steps import windows
from tracekit.schema.table import DEVICE, DUR, I64, START, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

IDLE = Table(
    "idle",
    "part of an idle gap on a device of one rank",
    (
        DEVICE,
        Column("step", I64, "", "step whose window holds the start; null outside all"),
        START,
        DUR,
        Column("cause", TEXT, "", "host-sync, input-pipeline, launch-overhead, host-other, …"),
        Column("detail", TEXT, "", "longest call or operator in the gap on the launching thread"),
    ),
)
LATENCY_FLOOR_NS = 20_000
"""Most a device takes to start a launched kernel: 1–2 µs on NVIDIA, 9 µs on MI300, 20 µs at most."""
SYNC_BEFORE_NS = 10_000
"""A blocking call that ended this shortly before the gap has drained the queue."""

_CLASSES: tuple[tuple[str, str], ...] = (
    (
        "input-pipeline",
        r"(?i)dataloader.*__next__|dataloader_next|enumerate\(dataloader|data_?load|next_batch",
    ),
    ("garbage-collection", r"(?i)^(?:python )?gc\b|garbage"),
    ("checkpoint", r"(?i)checkpoint.*(?:save|write)|torch\.save|save_checkpoint"),
    (
        "compilation",
        r"(?i)torchdynamo|dynamo.*compile|inductor.*compile|_compile_fx|triton.*compile",
    ),
    ("cpu-optimizer", r"(?i)cpu_?adam|cpu_?optimizer|DeepSpeedCPU"),
)


def idle(run: Run, rank: int) -> pl.LazyFrame:
    """Idle parts of one rank's devices (`IDLE`), sorted by device and start; they add up to idle time."""
    return cached(run, IDLE, lambda: _idle(run, rank), rank)


def _idle(run: Run, rank: int) -> pl.DataFrame:
    events = activity(run, rank).collect()
    if events.is_empty():
        return IDLE.empty()
    parts = _parts(_with_launch(events), _floor_ns(events))
    host = parts.filter(pl.col("cause") == "host")
    named = _named(run, rank, host) if host.height else host.with_columns(detail=pl.lit(""))
    rest = parts.filter(pl.col("cause") != "host").with_columns(detail=pl.lit(""))
    both = pl.concat([named, rest.select(named.columns)], how="vertical_relaxed")
    steps = windows(run, rank).select("device", "step", opens_ns="start_ns", closes_ns="end_ns")
    return (
        both.sort("start_ns")
        .join_asof(
            steps.sort("opens_ns").collect(),
            left_on="start_ns",
            right_on="opens_ns",
            by="device",
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(
            step=pl.when(pl.col("start_ns") < pl.col("closes_ns")).then("step"),
            dur_ns=pl.col("end_ns") - pl.col("start_ns"),
        )
        .select(list(IDLE.schema))
        .sort("device", "start_ns")
    )


def _with_launch(events: pl.DataFrame) -> pl.DataFrame:
    """Gaps of each device with the launch of the event that ends them."""
    firsts = events.sort("start_ns").unique(
        ["device", "start_ns"], keep="first", maintain_order=True
    )
    return (
        gaps(events.lazy(), ["device"])
        .collect()
        .join(
            firsts.select(
                "device", "launch_start_ns", "launch_end_ns", "launch_thread", end_ns="start_ns"
            ),
            on=["device", "end_ns"],
            how="left",
            validate="m:1",
        )
    )


def _floor_ns(events: pl.DataFrame) -> int:
    """This device's own launch latency: the p99 of short delays after an idle launch, bounded."""
    delays = events.select(delay=pl.col("start_ns") - pl.col("launch_end_ns")).filter(
        pl.col("delay").is_between(0, LATENCY_FLOOR_NS)
    )["delay"]
    p99 = delays.quantile(0.99, "nearest")
    return int(p99) if p99 is not None else LATENCY_FLOOR_NS


def _parts(found: pl.DataFrame, floor_ns: int) -> pl.DataFrame:
    """Cut each gap: device, start_ns, end_ns, cause, launch_thread. Parts of no length are dropped."""
    host_end = pl.min_horizontal("launch_end_ns", "end_ns").clip(lower_bound=pl.col("start_ns"))
    recorded = found.drop_nulls("launch_end_ns").with_columns(host_end_ns=host_end)
    latency_end = pl.min_horizontal(pl.col("host_end_ns") + floor_ns, "end_ns")
    recorded = recorded.with_columns(latency_end_ns=latency_end)
    columns = ("device", "launch_thread")
    pieces = [
        found.filter(pl.col("launch_end_ns").is_null()).select(
            *columns, "start_ns", "end_ns", cause=pl.lit("not recorded")
        ),
        recorded.select(*columns, "start_ns", end_ns="host_end_ns", cause=pl.lit("host")),
        recorded.select(
            *columns,
            start_ns="host_end_ns",
            end_ns="latency_end_ns",
            cause=pl.lit("launch latency"),
        ),
        recorded.select(
            *columns, start_ns="latency_end_ns", end_ns="end_ns", cause=pl.lit("dependency")
        ),
    ]
    return pl.concat(pieces).filter(pl.col("end_ns") > pl.col("start_ns"))


def _named(run: Run, rank: int, host: pl.DataFrame) -> pl.DataFrame:
    """Give each host part its cause from what its launching thread did, else the training thread."""
    calls = _host_calls(run, rank)
    main = training_thread(run, rank)
    shown = _covered(host, calls.filter(pl.col("class") != "sync"), "launch_thread")
    host = host.with_columns(
        thread=pl.when(shown > 0)
        .then(pl.col("launch_thread"))
        .otherwise(pl.lit(main, dtype=pl.Int64))
        .fill_null(-1)
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    names = [name for name, _ in _CLASSES] + ["allocator"]
    covered = {
        name: _covered(host, calls.filter(pl.col("class") == name), "thread") for name in names
    }
    special = _covered(host, calls.filter(pl.col("class").is_in(names)), "thread")
    everything = _covered(host, calls.filter(pl.col("class") != "sync"), "thread")
    table = host.with_columns(
        **{f"in_{name}": series for name, series in covered.items()},
        **{"in_launch-overhead": everything - special},
    ).with_columns(**{"in_host-other": length - everything})
    candidates = [*names, "launch-overhead", "host-other"]
    most = pl.max_horizontal([f"in_{name}" for name in candidates])
    cause = pl.coalesce(
        [pl.when(pl.col(f"in_{name}") == most).then(pl.lit(name)) for name in candidates]
    )
    cause = pl.when(_drained(host, calls)).then(pl.lit("host-sync")).otherwise(cause)
    if (host["device"] == HOST_DEVICE).all():
        cause = pl.when(cause == "launch-overhead").then(pl.lit("host-other")).otherwise(cause)
    return _with_detail(table.with_columns(cause=cause), calls).select(
        "device", "launch_thread", "start_ns", "end_ns", "cause", "detail"
    )


def _host_calls(run: Run, rank: int) -> pl.DataFrame:
    """Host intervals with a class: `thread`, `start_ns`, `end_ns`, `class`, `name`, sorted by start."""
    end = (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns")
    by_name = pl.coalesce(
        *(
            pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(name))
            for name, pattern in _CLASSES
        )
    )
    annotated = (
        run.scan("annotations", rank)
        .filter(pl.col("device").is_null())
        .select("thread", "start_ns", end, by_name.alias("class"), "name")
        .drop_nulls("class")
    )
    operators = run.scan("cpu_ops", rank).select(
        "thread", "start_ns", end, by_name.fill_null("operator").alias("class"), "name"
    )
    is_blocking = (pl.col("role") == "sync") | (
        (pl.col("role") == "copy") & ~pl.col("name").str.contains("Async|Peer")
    )
    runtime = run.scan("launches", rank).select(
        "thread",
        "start_ns",
        end,
        pl.when(is_blocking)
        .then(pl.lit("sync"))
        .when(pl.col("role") == "allocation")
        .then(pl.lit("allocator"))
        .when(pl.col("role") == "module-load")
        .then(pl.lit("compilation"))
        .otherwise(pl.lit("launch"))
        .alias("class"),
        "name",
    )
    return pl.concat([annotated, operators, runtime]).sort("start_ns").collect()


def _drained(host: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Whether a blocking call of the thread ended inside each part or shortly before its start."""
    ends = (
        calls.filter(pl.col("class") == "sync")
        .select("thread", "end_ns", sync_end_ns="end_ns")
        .sort("end_ns")
    )
    found = (
        host.with_row_index("row")
        .sort("end_ns")
        .join_asof(ends, on="end_ns", by="thread", strategy="backward", check_sortedness=False)
        .sort("row")
    )
    return found.select(
        (pl.col("sync_end_ns") >= pl.col("start_ns") - SYNC_BEFORE_NS).fill_null(value=False)
    ).to_series()


def _covered(host: pl.DataFrame, calls: pl.DataFrame, thread: str) -> pl.Series:
    """Nanoseconds of each part that calls of its thread cover (their union), in the order of `host`."""
    spans = (
        union(calls.lazy().select("thread", "start_ns", "end_ns"), ["thread"])
        .with_columns(
            before_ns=(pl.col("end_ns") - pl.col("start_ns")).cum_sum().over("thread")
            - (pl.col("end_ns") - pl.col("start_ns"))
        )
        .sort("start_ns")
        .collect()
    )

    def until(at: str) -> pl.Series:
        found = (
            host.with_row_index("row")
            .select("row", pl.col(thread).fill_null(-1).alias("thread"), pl.col(at).alias("at_ns"))
            .sort("at_ns")
            .join_asof(
                spans,
                left_on="at_ns",
                right_on="start_ns",
                by="thread",
                strategy="backward",
                check_sortedness=False,
            )
            .sort("row")
        )
        inside = pl.min_horizontal("at_ns", "end_ns") - pl.col("start_ns")
        return found.select((pl.col("before_ns") + inside).fill_null(0)).to_series()

    return until("end_ns") - until("start_ns")


def _with_detail(parts: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add `detail`: the host call of the thread that was open at, or last began before, the middle."""
    named = calls.select("thread", at_ns="start_ns", detail="name")
    return (
        parts.with_columns(at_ns=(pl.col("start_ns") + pl.col("end_ns")) // 2)
        .sort("at_ns")
        .join_asof(named, on="at_ns", by="thread", strategy="backward", check_sortedness=False)
        .with_columns(pl.col("detail").fill_null(""))
    )
