"""What runs on each device of a rank, with the call that launched it.

Without any device event the training thread stands for the device: its top-level operators are
compute, `gloo:*` is communication, and a `c10d::*` call on it is a launch, not work. An operator
that makes such a call may wait inside it: only the operators that it calls are work. What feeds the
step or saves it (input pipeline, checkpoint, garbage collection) is no compute either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.host_kinds import NO_WORK, class_of
from tracekit.derive.intervals import covered_ns
from tracekit.derive.kernel_kinds import COMMUNICATION

if TYPE_CHECKING:
    from tracekit.store import Run

COMPUTE, COPY = "compute", "copy"
HOST_DEVICE = -1
"""Device number of the training thread where it stands for the device."""

COLUMNS = (
    "device",
    "class",
    "start_ns",
    "end_ns",
    "name",
    "kind",
    "stream",
    "correlation",
    "work",
    "launch_start_ns",
    "launch_end_ns",
    "launch_thread",
)


def has_device_events(run: Run) -> bool:
    """Whether any rank of the run recorded a kernel, copy or memset."""
    return run.n_rows("kernels") + run.n_rows("copies") > 0


def device_of_call(run: Run) -> pl.Expr:
    """The device of a collective as `activity` numbers it: that of the thread where none is."""
    if has_device_events(run):
        return pl.col("device").fill_null(0)
    return pl.lit(HOST_DEVICE, dtype=pl.Int64)


def activity(run: Run, rank: int) -> pl.LazyFrame:
    """Events on the devices of one rank, sorted by device and start.

    Returns:
        `COLUMNS`: `class` is compute, communication or copy; `kind` the kernel's or the copy's;
        `work` how much one kernel does as far as it is recorded (its grid, an operator's shapes);
        the launch columns are null where the launch is not in the file.
    """
    return _on_devices(run, rank) if has_device_events(run) else _on_thread(run, rank)


def training_thread(run: Run, rank: int) -> int | None:
    """The thread with the step marks, else the one busiest with operators; None without any."""
    marked = (
        run.scan("annotations", rank)
        .filter(pl.col("name").str.starts_with("ProfilerStep") & pl.col("thread").is_not_null())
        .select(pl.col("thread").first())
        .collect()
    )
    if marked.height and marked.item() is not None:
        return int(marked.item())
    busiest = (
        run.scan("cpu_ops", rank)
        .group_by("thread")
        .agg(pl.col("dur_ns").sum())
        .sort("dur_ns", "thread", descending=[True, False])
        .collect()
    )
    return (
        int(busiest["thread"][0]) if busiest.height and busiest["thread"][0] is not None else None
    )


def top_level(events: pl.LazyFrame) -> pl.LazyFrame:
    """Events of one thread that no other of them encloses, sorted by start.

    Of two that start together the longer one encloses the other.
    """
    end = pl.col("start_ns") + pl.col("dur_ns")
    return (
        events.sort(["start_ns", "dur_ns"], descending=[False, True])
        .filter((end > end.cum_max().shift(1)).fill_null(value=True))
        .sort("start_ns")
    )


def _on_devices(run: Run, rank: int) -> pl.LazyFrame:
    is_communication = pl.col("kind") == COMMUNICATION
    kernels = run.scan("kernels", rank).select(
        "device",
        pl.when(is_communication)
        .then(pl.lit(COMMUNICATION))
        .otherwise(pl.lit(COMPUTE))
        .alias("class"),
        "start_ns",
        (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
        "name",
        "kind",
        "stream",
        "correlation",
        pl.format("{} blocks", "grid_blocks").alias("work"),
    )
    copies = run.scan("copies", rank).select(
        "device",
        pl.lit(COPY).alias("class"),
        "start_ns",
        (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
        "name",
        "kind",
        "stream",
        "correlation",
        pl.lit(None, dtype=pl.String).alias("work"),
    )
    return (
        pl.concat([kernels, copies])
        .with_columns(pl.col("device").fill_null(0))
        .join(_first_calls(run, rank), on="correlation", how="left", validate="m:1")
        .select(COLUMNS)
        .sort("device", "start_ns", "end_ns", "stream")
    )


def _first_calls(run: Run, rank: int) -> pl.LazyFrame:
    """The call that launched each correlation: the outermost where a driver call lies inside."""
    return (
        run.scan("launches", rank)
        .drop_nulls("correlation")
        .sort("start_ns", "dur_ns", descending=[False, True])
        .group_by("correlation", maintain_order=True)
        .agg(
            launch_start_ns=pl.col("start_ns").first(),
            launch_end_ns=(pl.col("start_ns") + pl.col("dur_ns")).first(),
            launch_thread=pl.col("thread").first(),
        )
    )


def _on_thread(run: Run, rank: int) -> pl.LazyFrame:
    thread = training_thread(run, rank)
    place = {
        "device": pl.lit(HOST_DEVICE, dtype=pl.Int64),
        "start_ns": pl.col("start_ns"),
        "end_ns": pl.col("start_ns") + pl.col("dur_ns"),
        "name": pl.col("name"),
        "correlation": pl.lit(None, dtype=pl.Int64),
        "launch_start_ns": pl.col("start_ns"),
        "launch_end_ns": pl.col("start_ns"),
    }
    operators = _working(run, rank, thread).with_columns(
        **place,
        **{"class": pl.lit(COMPUTE)},
        kind=pl.lit("operator"),
        work=pl.col("shapes"),
        stream=pl.col("thread"),
        launch_thread=pl.col("thread"),
    )
    gloo = (
        run.scan("collectives", rank)
        .filter(pl.col("source") == "gloo")
        .with_columns(
            **place,
            **{"class": pl.lit(COMMUNICATION)},
            kind=pl.lit(COMMUNICATION),
            work=pl.lit(None, dtype=pl.String),
            launch_thread=pl.col("stream"),
        )
    )
    return pl.concat([operators.select(COLUMNS), gloo.select(COLUMNS)]).sort(
        "device", "start_ns", "end_ns", "stream"
    )


def _working(run: Run, rank: int, thread: int | None) -> pl.LazyFrame:
    """Top-level operators of the training thread that compute, none that feeds the step."""
    on_thread = pl.col("thread") == pl.lit(thread, dtype=pl.Int64)
    is_no_work = class_of().is_in(NO_WORK).fill_null(value=False)
    no_work = pl.concat(
        [
            run.scan(table, rank)
            .filter(on_thread & is_no_work)
            .select("thread", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
            for table in ("cpu_ops", "annotations")
        ]
    ).collect()
    every = (
        run.scan("cpu_ops", rank)
        .filter(on_thread & ~is_no_work)
        .select("thread", "start_ns", "dur_ns", "name", "shapes")
        .collect()
    )
    operators = top_level(_not_communicating(every).lazy()).collect()
    first_ns = operators.with_columns(end_ns=pl.col("start_ns") + 1)
    is_work = covered_ns(first_ns, no_work, "thread") == 0
    return _with_shapes(operators.filter(is_work), every).lazy()


def _not_communicating(operators: pl.DataFrame) -> pl.DataFrame:
    """Operators of one thread without `c10d::*` calls and those that make one."""
    calls = operators.filter(pl.col("name").str.starts_with("c10d::")).select(
        "thread", "start_ns", end_ns=pl.col("start_ns") + 1
    )
    spans = operators.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    return operators.filter(covered_ns(spans, calls, "thread") == 0)


def _with_shapes(operators: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Operators with the shapes of the first one inside where they have none: autograd's own."""
    shaped = every.drop_nulls("shapes").select(inner_ns="start_ns", first_shapes="shapes")
    is_inside = pl.col("inner_ns") < pl.col("start_ns") + pl.col("dur_ns")
    return (
        operators.sort("start_ns")
        .join_asof(
            shaped.sort("inner_ns"), left_on="start_ns", right_on="inner_ns", strategy="forward"
        )
        .with_columns(shapes=pl.coalesce("shapes", pl.when(is_inside).then("first_shapes")))
        .drop("inner_ns", "first_shapes")
    )
