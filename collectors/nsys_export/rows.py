"""Rows of an export → rows of our tables. One function a table; times in ns since the run's epoch.

Args of all: rows as read by `WANTED`, the export's texts (id, value), and what to add to a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.collectors.chrome_trace.names import role_of
from tracekit.derive.kernel_kinds import kind_of, operation_of
from tracekit.schema import ANNOTATIONS, COPIES, CPU_OPS, KERNELS, LAUNCHES, SYNCS

if TYPE_CHECKING:
    from tracekit.schema import Table

_TIMES = {"start": "number", "end": "number"}
_DEVICE = dict.fromkeys(("deviceId", "globalPid", "streamId", "correlationId"), "number")
WANTED = {
    "kernel": {
        **_TIMES,
        **_DEVICE,
        **dict.fromkeys(
            (
                "demangledName",
                "shortName",
                "mangledName",
                "gridX",
                "gridY",
                "gridZ",
                "blockX",
                "blockY",
                "blockZ",
                "registersPerThread",
                "staticSharedMemory",
                "dynamicSharedMemory",
                "graphId",
                "graphNodeId",
            ),
            "number",
        ),
    },
    "graph": {**_TIMES, **_DEVICE, "graphId": "number"},
    "copy": {
        **_TIMES,
        **_DEVICE,
        **dict.fromkeys(("bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"), "number"),
    },
    "set": {**_TIMES, **_DEVICE, "bytes": "number", "graphNodeId": "number"},
    "call": {**_TIMES, **dict.fromkeys(("globalTid", "correlationId", "nameId"), "number")},
    "sync": {**_TIMES, **_DEVICE, "syncType": "number", "eventId": "number"},
    "range": {
        **_TIMES,
        **dict.fromkeys(("eventType", "globalTid", "textId", "domainId", "jsonTextId"), "number"),
        "text": "text",
        "jsonText": "text",
    },
}
"""Columns of the export by kind of row."""
RANGES = (59, 60, 70, 71)
"""Ranges in ENUM_NSYS_EVENT_TYPE: pushed and popped, started and ended; both of NVTX-T too."""
DOMAIN_CREATED = 75
THREAD_MASK = (1 << 24) - 1
GRAPH_NAME = "CUDA graph (as a whole)"
_GRAPH_OF_NODE = 1 << 32
"""The upper half of a graph node's identifier is its graph."""
_COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    9: "HtoH",
    10: "P2P",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
"""CUpti_ActivityMemcpyKind, continued by Nsight for unified memory; arrays are devices'."""
_MEMORY = {0: "pageable", 1: "pinned"}
_SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_OPERATOR = r"^(.+?), (?:seq = -?\d+|op_id = \d+)"
"""How torch.autograd.profiler.emit_nvtx names an operator."""


def kernels(rows: pl.DataFrame, strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Kernels; the name is the demangled one where it was exported."""
    named = rows.with_columns(
        name=pl.coalesce(
            *(
                _text(pl.col(column), strings)
                for column in ("demangledName", "shortName", "mangledName")
            ),
            pl.lit("unknown"),
        )
    )
    kinds = {name: kind_of(name) for name in named["name"].unique()}
    return _table(
        KERNELS,
        named,
        shift_ns,
        name="name",
        kind=pl.col("name").replace_strict(kinds, return_dtype=pl.String),
        graph_id=pl.coalesce(_positive("graphId"), _graph_of_node()),
        grid_blocks=_product("gridX", "gridY", "gridZ"),
        block_threads=_product("blockX", "blockY", "blockZ"),
        registers_per_thread="registersPerThread",
        shared_memory_bytes=pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory"),
    )


def graphs(rows: pl.DataFrame, _strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Graphs that were traced as a whole: the device works, on kernels that were not recorded."""
    return _table(
        KERNELS,
        rows,
        shift_ns,
        name=pl.lit(GRAPH_NAME),
        kind=pl.lit("other"),
        graph_id="graphId",
    )


def copies(rows: pl.DataFrame, _strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Copies; their host's memory is the end that is no device's."""
    kind = pl.col("copyKind").replace_strict(_COPY_KINDS, default=None, return_dtype=pl.String)
    to_device = kind == "HtoD"
    host_end = pl.when(to_device).then("srcKind").when(kind == "DtoH").then("dstKind")
    memory = host_end.replace_strict(_MEMORY, default=None, return_dtype=pl.String)
    return _table(
        COPIES,
        rows,
        shift_ns,
        name=pl.concat_str(
            pl.lit("Memcpy "), pl.coalesce(kind, pl.lit("of unknown direction")), ignore_nulls=True
        ),
        kind=kind,
        host_memory=memory,
        size_bytes="bytes",
        graph_id=_graph_of_node(),
    )


def sets(rows: pl.DataFrame, _strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Memsets."""
    return _table(
        COPIES,
        rows,
        shift_ns,
        name=pl.lit("Memset"),
        kind=pl.lit("memset"),
        size_bytes="bytes",
        graph_id=_graph_of_node(),
    )


def calls(rows: pl.DataFrame, strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Calls of the runtime and the driver, without the version that Nsight puts behind a name."""
    named = rows.with_columns(
        name=pl.coalesce(_text(pl.col("nameId"), strings), pl.lit("unknown")).str.replace(
            r"_v\d{4,5}(_pt[ds][sz])?$", ""
        )
    )
    roles = {name: role_of(name) for name in named["name"].unique()}
    return _table(
        LAUNCHES,
        named,
        shift_ns,
        name="name",
        thread=_thread(),
        role=pl.col("name").replace_strict(roles, return_dtype=pl.String),
    )


def syncs(rows: pl.DataFrame, _strings: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Synchronisations. Numbers of 32 bits without sign stand for "no stream"."""
    kind = pl.col("syncType").replace_strict(_SYNC_KINDS, default=None, return_dtype=pl.String)
    return _table(
        SYNCS,
        rows,
        shift_ns,
        kind=pl.coalesce(kind, pl.lit("unknown")),
        stream=pl.when(pl.col("streamId") < (1 << 31)).then("streamId"),
        event_id=pl.when(kind.is_in(["Event Sync", "Stream Wait Event"])).then("eventId"),
        source=pl.lit("recorded"),
    )


def ranges(rows: pl.DataFrame, strings: pl.DataFrame, domains: dict[int, str]) -> pl.DataFrame:
    """NVTX ranges with `name`, `label` (text alone) and `payload`.

    A domain's name stands before the text, as in NCCL/ncclAllReduce; the default domain has none.
    """
    label = pl.coalesce("text", _text(pl.col("textId"), strings), pl.lit("unnamed"))
    domain = pl.col("domainId").replace_strict(domains, default=None, return_dtype=pl.String)
    return rows.filter(pl.col("eventType").is_in(RANGES) & pl.col("end").is_not_null()).select(
        pl.exclude("text", "jsonText"),
        label=label,
        domain=domain,
        name=pl.when(domain.is_not_null()).then(domain + "/" + label).otherwise(label),
        payload=pl.coalesce("jsonText", _text(pl.col("jsonTextId"), strings)),
    )


def spans(rows: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """The ranges that are no operator's."""
    chosen = rows.filter(pl.col("label").str.extract(_OPERATOR).is_null())
    return _table(ANNOTATIONS, chosen, shift_ns, name="name", thread=_thread())


def operators(rows: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """The ranges that torch's emit_nvtx made of its operators."""
    label = pl.col("label")
    chosen = rows.filter(label.str.extract(_OPERATOR).is_not_null())
    return _table(
        CPU_OPS,
        chosen,
        shift_ns,
        name=label.str.extract(_OPERATOR),
        thread=_thread(),
        sequence=label.str.extract(r", seq = (\d+)").cast(pl.Int64, strict=False),
        shapes=label.str.extract(r", sizes = (\[.*?\])(?:, input_op_ids|$)"),
    )


def operation_names(names: list[str]) -> dict[str, str]:
    """Operations of the ranges that NCCL (ncclAllReduce) and torch (nccl:all_reduce) set."""
    found = {name: operation_of(name) for name in names if name.startswith(("nccl", "c10d::"))}
    sends = {"ncclSend": "send", "ncclRecv": "recv"}
    return {name: op for name, op in (found | sends).items() if op and name in names}


def _table(
    table: Table, rows: pl.DataFrame, shift_ns: int, **columns: pl.Expr | str
) -> pl.DataFrame:
    """The rows in the columns of a table; those that nobody gives are null."""
    have = set(rows.columns)
    usual: dict[str, pl.Expr] = {
        "start_ns": pl.col("start") + shift_ns,
        "dur_ns": pl.col("end") - pl.col("start"),
        **{
            ours: pl.col(theirs)
            for ours, theirs in (
                ("device", "deviceId"),
                ("stream", "streamId"),
                ("correlation", "correlationId"),
            )
            if theirs in have
        },
    }
    given = usual | {name: pl.col(x) if isinstance(x, str) else x for name, x in columns.items()}
    return rows.select(
        given.get(column.name, pl.lit(None)).cast(column.dtype).alias(column.name)
        for column in table.columns
    )


def _text(number: pl.Expr, strings: pl.DataFrame) -> pl.Expr:
    return number.replace_strict(
        strings["id"], strings["value"], default=None, return_dtype=pl.String
    )


def _thread() -> pl.Expr:
    """The operating system's number of a thread: the lower 24 bits."""
    return pl.col("globalTid") & THREAD_MASK


def _positive(name: str) -> pl.Expr:
    return pl.when(pl.col(name) > 0).then(name)


def _graph_of_node() -> pl.Expr:
    graph = pl.col("graphNodeId") // _GRAPH_OF_NODE
    return pl.when(graph > 0).then(graph)


def _product(*names: str) -> pl.Expr:
    """Null where one is missing or no such launch is possible: three of 2^20 fit into 64 bits."""
    is_sound = pl.all_horizontal(pl.col(name).is_between(1, 1 << 31) for name in names)
    total = pl.lit(1.0)
    for name in names:
        total = total * pl.col(name).cast(pl.Float64)
    return pl.when(is_sound & (total < 2.0**53)).then(total).cast(pl.Int64)
