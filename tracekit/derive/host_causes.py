"""The cause of idle time on the host: what the launching thread did meanwhile.

Tested in order: a blocking call that had waited for the device and so drained its queue; else the
class of host work that covers most of the part, operators and launches among them; else nothing
that was recorded ("host-other").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import HOST_DEVICE, top_level, training_thread
from tracekit.derive.host_kinds import (
    ALLOCATOR,
    CLASSES,
    COMPILATION,
    HOST_OTHER,
    HOST_SYNC,
    LAUNCH_OVERHEAD,
    class_of,
)
from tracekit.derive.intervals import covered_ns

if TYPE_CHECKING:
    from tracekit.store import Run

SYNC_BEFORE_NS = 10_000
"""A blocking call that ended this shortly before the gap has drained the queue."""
MIN_SHOWN_SHARE = 0.1
"""A launching thread that shows less than this of a part shows only the launch itself."""
BLOCKING = "sync"


def with_cause(run: Run, rank: int, host: pl.DataFrame, skew_ns: int = 0) -> pl.DataFrame:
    """Give each part of idle time that the host owes its cause, and the call it fell in.

    Args:
        run: the run.
        rank: its rank.
        host: device, launch_thread, start_ns, end_ns; none empty.
        skew_ns: how early the device's times are against the host's, at least.

    Returns:
        The same rows, in the same order, with `cause`, `meanwhile` (the class of host work that
        covers most of the part, whether or not a call had drained the queue) and `detail`.
    """
    calls = host_calls(run, rank)
    parts = _with_thread(host, calls, training_thread(run, rank))
    covered = {
        f"in_{name}": covered_ns(parts, calls.filter(pl.col("class") == name), "thread")
        for name in CLASSES
    }
    special = covered_ns(parts, calls.filter(pl.col("class").is_in(CLASSES)), "thread")
    everything = covered_ns(parts, calls.filter(pl.col("class") != BLOCKING), "thread")
    length = pl.col("end_ns") - pl.col("start_ns")
    table = parts.with_columns(**covered).with_columns(
        (everything - special).alias(f"in_{LAUNCH_OVERHEAD}"),
        (length - everything).alias(f"in_{HOST_OTHER}"),
    )
    drained = _draining_call(parts, calls, skew_ns)
    meanwhile = _most()
    if (host["device"] == HOST_DEVICE).all():
        is_launch = meanwhile == LAUNCH_OVERHEAD
        meanwhile = pl.when(is_launch).then(pl.lit(HOST_OTHER)).otherwise(meanwhile)
    is_drained = pl.col("sync").is_not_null()
    return (
        table.with_columns(sync=drained, named=_open_call(parts, calls), meanwhile=meanwhile)
        .with_columns(cause=pl.when(is_drained).then(pl.lit(HOST_SYNC)).otherwise("meanwhile"))
        .select(
            *host.columns, "cause", "meanwhile", detail=pl.coalesce("sync", "named", pl.lit(""))
        )
    )


def _most() -> pl.Expr:
    """The class that covers most of a part; of equal ones the first."""
    candidates = (*CLASSES, LAUNCH_OVERHEAD, HOST_OTHER)
    most = pl.max_horizontal([f"in_{name}" for name in candidates])
    return pl.coalesce(
        [pl.when(pl.col(f"in_{name}") == most).then(pl.lit(name)) for name in candidates]
    )


def _with_thread(host: pl.DataFrame, calls: pl.DataFrame, main: int | None) -> pl.DataFrame:
    """Add `thread`: the launching one, else, where it shows nothing, the training thread."""
    own = host.with_columns(thread="launch_thread")
    other = host.with_columns(thread=pl.lit(main, dtype=pl.Int64))
    shown, elsewhere = (covered_ns(parts, calls, "thread") for parts in (own, other))
    length = host["end_ns"] - host["start_ns"]
    is_silent = (shown < MIN_SHOWN_SHARE * length) & (elsewhere > shown)
    return own.with_columns(
        thread=pl.when(is_silent | pl.col("launch_thread").is_null())
        .then(pl.lit(main, dtype=pl.Int64))
        .otherwise("launch_thread")
    )


def host_calls(run: Run, rank: int) -> pl.DataFrame:
    """Host intervals with a class: `thread`, `start_ns`, `end_ns`, `class`, `name`, by start."""
    end = (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns")
    annotated = (
        run.scan("annotations", rank)
        .filter(pl.col("device").is_null())
        .select("thread", "start_ns", end, class_of().alias("class"), "name")
        .drop_nulls("class")
    )
    operators = run.scan("cpu_ops", rank).select(
        "thread", "start_ns", end, class_of().fill_null("operator").alias("class"), "name"
    )
    return (
        pl.concat([annotated, operators, runtime_calls(run, rank)])
        .sort("start_ns", "end_ns", "name")
        .collect()
    )


def runtime_calls(run: Run, rank: int) -> pl.LazyFrame:
    """Runtime calls with a class: `thread`, `start_ns`, `end_ns`, `class`, `name`, in any order."""
    return classed_calls(run, rank).select("thread", "start_ns", "end_ns", "class", "name")


def classed_calls(run: Run, rank: int) -> pl.LazyFrame:
    """Rows of `launches` with `end_ns` and `class`: sync where they hold the host."""
    pageable = (
        run.scan("copies", rank)
        .filter(pl.col("host_memory") == "pageable")
        .select("correlation", is_pageable=pl.lit(value=True))
        .drop_nulls("correlation")
        .unique("correlation")
    )
    return (
        run.scan("launches", rank)
        .join(pageable, on="correlation", how="left", validate="m:1")
        .with_columns(
            (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"), _call_class().alias("class")
        )
    )


def _call_class() -> pl.Expr:
    """Class of a runtime call; a copy blocks where it is synchronous or its memory is pageable."""
    name, role = pl.col("name"), pl.col("role")
    is_synchronous = name.str.contains(r"^(?:cuda|hip|cu)Memcpy") & ~name.str.contains("Async|Peer")
    is_blocking = ((role == "sync") & ~name.str.contains("Query")) | (
        (role == "copy") & (is_synchronous | pl.col("is_pageable").is_not_null())
    )
    return (
        pl.when(is_blocking)
        .then(pl.lit(BLOCKING))
        .when(role == "allocation")
        .then(pl.lit(ALLOCATOR))
        .when(role == "module-load")
        .then(pl.lit(COMPILATION))
        .otherwise(pl.lit("launch"))
    )


def _draining_call(parts: pl.DataFrame, calls: pl.DataFrame, skew_ns: int) -> pl.Series:
    """The blocking call that drained the queue before each part, with its operator; null if none.

    It began while the device still worked, so it waited for it, and ended inside the part or at
    most `SYNC_BEFORE_NS` before.
    """
    syncs = calls.filter(pl.col("class") == BLOCKING)
    operators = calls.filter(pl.col("class") == "operator").with_columns(
        dur_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    outermost = [top_level(part.lazy()).collect() for part in operators.partition_by("thread")]
    over = pl.concat(outermost) if outermost else operators
    named = _open_call(syncs.with_columns(end_ns="start_ns"), over, is_open=True)
    syncs = syncs.select(
        "thread",
        began_ns="start_ns",
        ended_ns="end_ns",
        sync=pl.when(named.is_not_null())
        .then(pl.format("{} in {}", "name", named))
        .otherwise("name"),
    )
    found = (
        parts.select("thread", "start_ns", "end_ns", idle_ns=pl.col("start_ns") + skew_ns)
        .with_row_index("row")
        .sort("idle_ns")
        .join_asof(
            syncs.sort("began_ns"),
            left_on="idle_ns",
            right_on="began_ns",
            by="thread",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .sort("row")
    )
    is_draining = pl.col("ended_ns").is_between(
        pl.col("start_ns") - SYNC_BEFORE_NS, pl.col("end_ns")
    )
    return found.select(pl.when(is_draining).then("sync").alias("sync")).to_series()


def _open_call(parts: pl.DataFrame, calls: pl.DataFrame, *, is_open: bool = False) -> pl.Series:
    """Name of the call of the thread that last began before the middle of each part.

    With `is_open` only where it has not ended by then. In the order of `parts`.
    """
    named = calls.select("thread", at_ns="start_ns", closes_ns="end_ns", detail="name")
    found = (
        parts.select("thread", at_ns=(pl.col("start_ns") + pl.col("end_ns")) // 2)
        .with_row_index("row")
        .sort("at_ns")
        .join_asof(
            named.sort("at_ns", maintain_order=True),
            on="at_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .sort("row")
    )
    holds = pl.col("closes_ns") > pl.col("at_ns") if is_open else pl.lit(value=True)
    return found.select(pl.when(holds).then("detail").alias("detail")).to_series()
