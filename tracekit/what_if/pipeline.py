"""The graph of a pipeline job from its table of coarse operations: every replica and step at once.

All replicas and steps run the same schedule, so what waits for what is worked out once, on the
first step of the first replica, and repeated for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import InputError
from tracekit.what_if.pipeline_order import COMMUNICATION, Op, pipeline_order
from tracekit.what_if.schedule import Graph

if TYPE_CHECKING:
    from tracekit.what_if.pipeline_order import Order
    from tracekit.what_if.schedule import Floats, Ints

LEAST_TRANSFER_NS = -10_000_000
"""A transfer that ended this long before its last member began is a fault of clocks: taken as 0."""
_PLACE = ("stage", "type", "sequence")


@dataclass(frozen=True)
class Pipeline:
    """A pipeline job as a graph, its operations first among the nodes.

    `ops` has a row an operation, in order of the nodes: rank, dp, stage, step, type, and `real_ns`,
    the duration of compute and the transfer of communication; `ideal_ns` is that of its type.
    `carries` is the operation whose time an edge takes, -1 where it takes none.
    """

    graph: Graph
    ops: pl.DataFrame
    carries: Ints
    n_steps_left_out: int

    @cached_property
    def steps(self) -> Ints:
        """The steps, in order."""
        return np.sort(self.ops["step"].unique().to_numpy())

    @cached_property
    def real_step_ns(self) -> Floats:
        """Measured time of each step: first start to last end of any worker."""
        spans = self.ops.group_by("step").agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("dur_ns")
        )
        return spans.sort("step")["dur_ns"].cast(pl.Float64).to_numpy()


def pipeline(ops: pl.DataFrame) -> Pipeline:
    """The graph of the rows of `ops` of all ranks (columns of OPS and `rank`).

    Steps whose replicas did not all record the same operations are left out, and counted.

    Raises:
        InputError: no step is whole, or the schedule is not known.
    """
    whole, n_left_out = _whole_steps(ops)
    order, template = _first_order(whole)
    lanes = whole.select("step", "dp").unique().sort("dp", "step")
    n_steps, n_lanes = whole["step"].n_unique(), lanes.height
    rows = (
        whole.join(template, on=_PLACE)
        .join(lanes.with_row_index("lane"), on=["step", "dp"])
        .with_columns(node=pl.col("index").cast(pl.Int64) * n_lanes + pl.col("lane").cast(pl.Int64))
        .sort("node")
    )
    graph, carries = _repeated(order, n_lanes, n_steps)
    return Pipeline(graph, _timed(rows, order), carries, n_left_out)


def _whole_steps(ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Steps in which every replica holds the operations that most replicas do."""
    repeated = ops.group_by("dp", "step", *_PLACE).len().filter(pl.col("len") > 1)
    if repeated.height:
        first = repeated.sort("dp", "step", *_PLACE).row(0, named=True)
        raise InputError(
            f"{first['len']} operations {first['type']} number {first['sequence']} in step "
            f"{first['step']} of stage {first['stage']}, replica {first['dp']}",
            hint="sequence must count the operations of one type, step and worker.",
        )
    lanes = ops.group_by("dp", "step").agg(
        pl.struct(_PLACE).hash(seed=0).sum().alias("content"), pl.len()
    )
    usual = lanes.group_by("content", "len").agg(pl.len().alias("n")).sort("n", "len").tail(1)
    fitting = lanes.join(usual, on=["content", "len"], how="semi")
    whole = (
        fitting.group_by("step")
        .len()
        .filter(pl.col("len") == ops["dp"].n_unique())
        .select("step")
    )
    n_steps = ops["step"].n_unique()
    if whole.is_empty():
        raise InputError(
            f"none of {n_steps} steps holds the same operations on all replicas",
            hint="Record whole steps of every worker.",
        )
    return ops.join(whole, on="step", how="semi"), n_steps - whole.height


def _first_order(ops: pl.DataFrame) -> tuple[Order, pl.DataFrame]:
    """The order of one step, and the index of each operation in it."""
    first = (
        ops.filter(pl.col("dp") == pl.col("dp").min())
        .filter(pl.col("step") == pl.col("step").min())
        .sort("stage", "type", "sequence")
        .with_row_index("index")
    )
    names = ("index", *_PLACE, "start_ns", "end_ns", "chunk", "model_chunk")
    by_name = first.select("index", "stage", "type", *names[3:]).iter_rows()
    return pipeline_order([Op(*row) for row in by_name]), first.select("index", *_PLACE)


def _repeated(order: Order, n_lanes: int, n_steps: int) -> tuple[Graph, Ints]:
    """The order of one step for all lanes (replica-major): nodes of operations, then meetings.

    The last node is the start of every step.
    """
    lanes = np.arange(n_lanes, dtype=np.int64)
    n_ops = len(order.waits_for) * n_lanes
    meeting = {}  # operation → its meeting's node in each lane
    n_nodes = n_ops
    for group, is_across in zip(order.groups, order.is_across, strict=True):
        at = n_nodes + (lanes % n_steps if is_across else lanes)
        n_nodes += n_steps if is_across else n_lanes
        meeting |= dict.fromkeys(group, at)
    begin = np.full(n_lanes, n_nodes, np.int64)
    sources, targets, carries = [], [], []
    nothing = np.full(n_lanes, -1, np.int64)

    def edge(source: Ints, target: Ints, carried: Ints) -> None:
        sources.append(source)
        targets.append(target)
        carries.append(carried)

    for index, earlier in enumerate(order.waits_for):
        node = index * n_lanes + lanes
        met = meeting.get(index)
        before = [each * n_lanes + lanes for each in earlier] or [begin]
        for source in before:
            edge(source, node if met is None else met, node if met is None else nothing)
        if met is not None:
            edge(met, node, node)
    graph = Graph(n_nodes + 1, np.concatenate(sources), np.concatenate(targets))
    return graph, np.concatenate(carries)


def _timed(rows: pl.DataFrame, order: Order) -> pl.DataFrame:
    """Give each operation its own time and that of its type.

    A member of a communication takes its transfer: its end less the last start in the group.
    Compute is equalised by the mean over replicas, stages and steps, communication by the median.
    """
    group = {i: n for n, members in enumerate(order.groups) for i in members}
    is_across = np.array([*order.is_across, False])
    meets = pl.DataFrame(
        {"index": list(group), "group": list(group.values())},
        schema={"index": pl.UInt32, "group": pl.Int64},
    ).with_columns(across=pl.Series(is_across[list(group.values())], dtype=pl.Boolean))
    replica = pl.when("across").then(-1).otherwise("dp")
    met_ns = pl.col("start_ns").max().over("step", "group", replica)
    transfer_ns = pl.col("end_ns") - met_ns
    transfer_ns = pl.when(transfer_ns <= LEAST_TRANSFER_NS).then(0).otherwise(transfer_ns)
    real_ns = pl.when(pl.col("group").is_null()).then("dur_ns").otherwise(transfer_ns)
    rows = rows.join(meets, on="index", how="left").sort("node")
    timed = rows.with_columns(real_ns.cast(pl.Float64).alias("real_ns"))
    usual_ns = (
        pl.when(pl.col("type").is_in(COMMUNICATION))
        .then(pl.col("real_ns").median().over("type"))
        .otherwise(pl.col("real_ns").mean().over("type"))
    )
    names = ("rank", "dp", "stage", "step", "type", "start_ns", "end_ns", "real_ns", "ideal_ns")
    return timed.with_columns(usual_ns.alias("ideal_ns")).select(names)
