"""The graph of a pipeline job from its table of coarse operations: every replica and step at once.

All replicas and steps run the same schedule, so what waits for what is worked out once, on the
first step of the first replica, and repeated for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import InputError
from tracekit.what_if.pipeline_order import COMMUNICATION, Op, pipeline_order
from tracekit.what_if.replay import Replay
from tracekit.what_if.schedule import Graph

if TYPE_CHECKING:
    from tracekit.what_if.pipeline_order import Order
    from tracekit.what_if.schedule import Ints

LEAST_TRANSFER_NS = -10_000_000
"""A transfer that ended this long before its last member began is a fault of clocks: taken as 0."""
_PLACE = ("stage", "type", "sequence")


def pipeline(ops: pl.DataFrame) -> Replay:
    """The graph of the rows of `ops` of all ranks (columns of OPS and `rank`).

    Steps whose replicas did not all record the same operations are left out, and counted.

    Raises:
        InputError: no step is whole, or the schedule is not known.
    """
    whole, n_left_out = _whole_steps(ops)
    order, template = _first_order(whole)
    lanes = whole.select("step", "dp").unique().sort("dp", "step")
    steps = lanes["step"].unique().sort()
    rows = (
        whole.join(template, on=_PLACE)
        .join(lanes.with_row_index("lane"), on=["step", "dp"])
        .with_columns(node=pl.col("index").cast(pl.Int64) * lanes.height + pl.col("lane"))
        .sort("node")
    )
    graph, carries, begin = _repeated(order, lanes.height, len(steps))
    nothing = np.full(len(carries), -1, np.int64)
    return Replay(
        graph=graph,
        work=_timed(rows, order),
        lag_ns=np.zeros(len(carries)),
        carries=carries,
        host=nothing,
        call=nothing,
        steps=_windows(whole, begin),
        calls=pl.DataFrame(schema={"rank": pl.Int64, "name": pl.String}),
        is_inferred=False,
        n_steps_left_out=n_left_out,
    )


def _windows(whole: pl.DataFrame, begin: int) -> pl.DataFrame:
    """Each step: first start to last end of any worker; the nodes of its end follow `begin`."""
    return (
        whole.group_by("step")
        .agg(dur_ns=pl.col("end_ns").max() - pl.col("start_ns").min())
        .sort("step")
        .with_columns(
            rank=pl.lit(None, dtype=pl.Int64),
            opens=pl.lit(begin, dtype=pl.Int64),
            closes=begin + 1 + pl.int_range(pl.len(), dtype=pl.Int64),
        )
    )


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
        fitting.group_by("step").len().filter(pl.col("len") == ops["dp"].n_unique()).select("step")
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
    return (
        pipeline_order([Op(*row) for row in first.select(names).iter_rows()]),
        first.select("index", *_PLACE),
    )


def _repeated(order: Order, n_lanes: int, n_steps: int) -> tuple[Graph, Ints, int]:
    """The order of one step for all lanes (replica-major), and the operation each edge carries.

    Nodes of operations come first, then meetings, the start of every step (returned), and the end
    of each step, which the operations lead to that no other waits for.
    """
    lanes = np.arange(n_lanes, dtype=np.int64)
    n_nodes = len(order.waits_for) * n_lanes
    meeting: dict[int, Ints] = {}
    for group, is_across in zip(order.groups, order.is_across, strict=True):
        at = n_nodes + (lanes % n_steps if is_across else lanes)
        n_nodes += n_steps if is_across else n_lanes
        meeting |= dict.fromkeys(group, at)
    begin = n_nodes
    nothing = np.full(n_lanes, -1, np.int64)
    edges: list[tuple[Ints, Ints, Ints]] = []
    for index, earlier in enumerate(order.waits_for):
        node = index * n_lanes + lanes
        met = meeting.get(index)
        into = (node, node) if met is None else (met, nothing)
        before = [each * n_lanes + lanes for each in earlier]
        edges += [(source, *into) for source in before or [np.full(n_lanes, begin, np.int64)]]
        if met is not None:
            edges.append((met, node, node))
    awaited = {each for earlier in order.waits_for for each in earlier}
    for index in range(len(order.waits_for)):
        if index not in awaited:
            edges.append((index * n_lanes + lanes, begin + 1 + lanes % n_steps, nothing))
    sources, targets, carries = (np.concatenate(part) for part in zip(*edges, strict=True))
    return Graph(begin + 1 + n_steps, sources, targets), carries, begin


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
    own_ns = pl.when(pl.col("group").is_null()).then("dur_ns").otherwise(transfer_ns)
    is_communication = pl.col("type").is_in(COMMUNICATION)
    usual_ns = (
        pl.when(is_communication)
        .then(pl.col("own_ns").median().over("type"))
        .otherwise(pl.col("own_ns").mean().over("type"))
    )
    kind = pl.when(is_communication).then(pl.lit("communication")).otherwise(pl.lit("compute"))
    return (
        rows.join(meets, on="index", how="left")
        .sort("node")
        .with_columns(own_ns.cast(pl.Float64).alias("own_ns"), kind.alias("class"))
        .with_columns(usual_ns.alias("usual_ns"), pl.col("type").alias("name"))
    )
