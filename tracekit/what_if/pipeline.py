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
    rows = _by_node(whole)
    n_steps = rows["step"].n_unique()
    n_lanes = rows["dp"].n_unique() * n_steps
    order = _order_of_one(rows.gather_every(n_lanes))
    graph, carries, begin = _repeated(order, n_lanes, n_steps)
    nothing = np.full(len(carries), -1, np.int64)
    return Replay(
        graph=graph,
        work=_timed(rows, order, n_steps),
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
    lanes = (
        ops.select("dp", "step", place=pl.struct(_PLACE).hash(seed=0))
        .group_by("dp", "step")
        .agg(
            pl.col("place").sum().alias("content"), pl.col("place").n_unique().alias("n"), pl.len()
        )
    )
    if (lanes["n"] < lanes["len"]).any():
        _refuse_repeated(ops)
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


def _refuse_repeated(ops: pl.DataFrame) -> None:
    """Name the first operation that is there twice."""
    counts = ops.group_by("dp", "step", *_PLACE).len().filter(pl.col("len") > 1)
    for first in counts.sort("dp", "step", *_PLACE).head(1).iter_rows(named=True):
        raise InputError(
            f"{first['len']} operations {first['type']} number {first['sequence']} in step "
            f"{first['step']} of stage {first['stage']}, replica {first['dp']}",
            hint="sequence must count the operations of one type, step and worker.",
        )


def _by_node(whole: pl.DataFrame) -> pl.DataFrame:
    """Rows by place, then replica and step: lanes hold the same, so the row number is the node."""
    types = pl.Enum(whole["type"].unique().sort())  # numbers sort three times faster than texts
    keys = whole.select("step", "dp", "sequence", pl.col("type").cast(types).to_physical(), "stage")
    return whole[np.lexsort(keys.get_columns())]


def _order_of_one(ops: pl.DataFrame) -> Order:
    """The order of the operations of one step of one replica."""
    names = (*_PLACE, "start_ns", "end_ns", "chunk", "model_chunk")
    return pipeline_order(
        [Op(*row) for row in ops.with_row_index().select("index", *names).iter_rows()]
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


def _timed(rows: pl.DataFrame, order: Order, n_steps: int) -> pl.DataFrame:
    """Give each operation its own time and that of its type.

    A member of a communication takes its transfer: its end less the last start in the group.
    Compute is equalised by the mean over replicas, stages and steps, communication by the median.
    """
    shape = (len(order.waits_for), -1, n_steps)  # operation, replica, step
    start_ns, end_ns, dur_ns = (
        rows[name].to_numpy().reshape(shape) for name in ("start_ns", "end_ns", "dur_ns")
    )
    own_ns = dur_ns.astype(np.float64)
    for members, is_across in zip(order.groups, order.is_across, strict=True):
        at = list(members)
        met_ns = start_ns[at].max(axis=(0, 1) if is_across else 0)
        transfer_ns = end_ns[at] - met_ns
        own_ns[at] = np.where(transfer_ns <= LEAST_TRANSFER_NS, 0, transfer_ns)
    types = rows["type"].gather_every(own_ns[0].size).to_numpy()
    usual_ns = np.empty_like(own_ns)
    for name in set(types):
        usual = np.median if name in COMMUNICATION else np.mean
        usual_ns[types == name] = usual(own_ns[types == name])
    is_communication = pl.col("type").is_in(COMMUNICATION)
    kind = pl.when(is_communication).then(pl.lit("communication")).otherwise(pl.lit("compute"))
    return rows.with_columns(
        kind.alias("class"),
        pl.col("type").alias("name"),
        own_ns=pl.Series(own_ns.ravel()),
        usual_ns=pl.Series(usual_ns.ravel()),
    )
