"""What an export does not hold that an analysis would use, with how to record it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors.nsys_export import rows
from tracekit.collectors.nsys_export.places import CALL, COPY, GRAPH, KERNEL, NVTX
from tracekit.store import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.collectors.nsys_export.opened import Export
    from tracekit.collectors.nsys_export.writing import Read


def missing(export: Export, base_ns: int | None, read: Read) -> Iterator[Check]:
    """What the export does not hold that an analysis would use."""
    for tables, without, option in (
        ((KERNEL, GRAPH), "kernels", "--trace=cuda"),
        (CALL, "runtime calls", "--trace=cuda"),
        ((NVTX,), "annotations and steps", "--trace=nvtx, with ranges such as 'step 3'"),
    ):
        if not any(export.has(table) for table in tables):
            yield Check(
                check=f"no {without}",
                severity="info",
                count=1,
                detail=f"the export has no table {tables[0]}: record with nsys profile {option}",
            )
    for table, columns, without in (
        (KERNEL, ("demangledName",), "full names of kernels"),
        (KERNEL, ("registersPerThread",), "registers and shared memory"),
        (COPY, ("srcKind", "dstKind"), "kind of the host's memory"),
    ):
        if export.has(table) and not export.has(table, *columns):
            yield Check(
                check=f"columns missing: {', '.join(columns)}",
                severity="info",
                count=1,
                detail=f"{table} of this version does not tell: {without}",
            )
    n_graphs = sum(int((frame["name"] == rows.GRAPH_NAME).sum()) for frame in read.device_rows)
    if n_graphs:
        yield Check(
            check="graphs traced as a whole",
            severity="warning",
            count=n_graphs,
            detail="kernels inside CUDA graphs, communication too, were not recorded: "
            "use nsys profile --cuda-graph-trace=node",
        )
    if base_ns is None:
        yield Check(
            check="unknown clock base",
            severity="warning",
            count=1,
            detail="TARGET_INFO_SESSION_START_TIME is missing: times count from the file's zero",
        )
