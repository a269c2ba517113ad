"""Bus bandwidth against what the fabric can carry: of groups, and of nccl-tests themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.bandwidths import against_baselines, baselines, transfers
from tracekit.derive.fabrics import fabric, roof_of
from tracekit.devices import fabric_of
from tracekit.findings import Column, Evidence
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from tracekit.devices import Fabric
    from tracekit.store import Run

GB = 1e9
MAX_SHOWN = 16
MIN_BYTES = 32_000_000
"""On healthy fabrics smaller transfers reach less than half of the peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How much of what the fabric can carry was reached: by a group, or by nccl-tests."""

    subject: str
    ranks: tuple[int, ...]
    is_between: bool
    busbw_gb_s: float
    roof_gb_s: float
    fabric: str
    operation: str
    size_bytes: int
    n_calls: int | None

    @property
    def share(self) -> float:
        """Of the roof; above 1 where a switch reduces."""
        return self.busbw_gb_s / self.roof_gb_s

    @property
    def reached(self) -> str:
        """What was reached, for people."""
        return text(self.busbw_gb_s * GB, Unit.BYTES_PER_S)

    @property
    def roof(self) -> str:
        """What the fabric carries, for people."""
        return text(self.roof_gb_s * GB, Unit.BYTES_PER_S)


def of_groups(run: Run, without: set[str]) -> tuple[list[Reached], list[str]]:
    """The largest transfers of each group against the roof; and why others have none.

    Args:
        run: The run.
        without: Groups that nccl-tests are the yardstick of.
    """
    rows = transfers(run).filter(~pl.col("group").is_in(list(without)))
    rows = rows.filter(pl.col("size_bytes") >= MIN_BYTES)
    largest = rows.sort("group", "size_bytes").unique("group", keep="last", maintain_order=True)
    joined = fabric(run)
    found, why = [], []
    for row in largest.iter_rows(named=True):
        reached = _reached(run, row, joined, row["n_members"], row["n_nodes"], row["n_local"])
        if isinstance(reached, str):
            why.append(reached)
        else:
            found.append(reached)
    return found, why


def of_tests(run: Run) -> tuple[list[Reached], list[str]]:
    """The largest size that nccl-tests measured of each operation, against the roof."""
    key = ("operation", "n_ranks", "n_nodes")
    rows = baselines(run).filter(pl.col("measured_bytes") >= MIN_BYTES)
    found, why = [], []
    for row in rows.unique(key, keep="last", maintain_order=True).iter_rows(named=True):
        nodes = f"{row['n_nodes']} nodes" if row["n_nodes"] > 1 else "one node"
        named = {
            "group": f"nccl-tests, {row['operation']} of {row['n_ranks']} ranks on {nodes}",
            "operation": row["operation"],
            "size_bytes": row["measured_bytes"],
            "busbw_gb_s": row["reference_gb_s"],
        }
        n_local = -(-row["n_ranks"] // row["n_nodes"])
        joined = fabric_of(row["gpu_model"])
        reached = _reached(run, named, joined, row["n_ranks"], row["n_nodes"], n_local)
        if isinstance(reached, str):
            why.append(reached)
        else:
            found.append(reached)
    return found, why


def _reached(
    run: Run,
    row: dict[str, Any],
    joined: Fabric | None,
    n_ranks: int,
    n_nodes: int | None,
    n_local: int | None,
) -> Reached | str:
    """What was reached, or why that cannot be said."""
    known = roof_of(run, joined, n_ranks, n_nodes, n_local)
    if isinstance(known, str):
        return known
    return Reached(
        subject=row["group"],
        ranks=tuple(row.get("members") or ()),
        is_between=(n_nodes or 1) > 1,
        busbw_gb_s=row["busbw_gb_s"],
        roof_gb_s=known.gb_s,
        fabric=known.fabric,
        operation=row["operation"],
        size_bytes=row["size_bytes"],
        n_calls=row.get("n_calls"),
    )


def bandwidths_of(run: Run) -> Evidence:
    """What was reached and what can be had, by operation and size."""
    rows = against_baselines(run).sort("n_calls", "group", "size_bytes", descending=True)
    reached, _ = of_groups(run, set(rows["group"]))
    tested, _ = of_tests(run)
    compared = [
        (
            row["group"],
            row["operation"],
            row["size_bytes"],
            row["busbw_gb_s"] * GB,
            row["reference_gb_s"] * GB,
            f"nccl-tests, {text(row['measured_bytes'], Unit.BYTES)}",
        )
        for row in rows.head(MAX_SHOWN).iter_rows(named=True)
    ]
    compared += [
        (r.subject, r.operation, r.size_bytes, r.busbw_gb_s * GB, r.roof_gb_s * GB, r.fabric)
        for r in (*reached, *tested)[:MAX_SHOWN]
    ]
    return Evidence(
        title="Bus bandwidth against what the fabric gives",
        columns=(
            Column("group"),
            Column("operation"),
            Column("bytes", Unit.BYTES),
            Column("reached", Unit.BYTES_PER_S),
            Column("can be had", Unit.BYTES_PER_S),
            Column("by"),
        ),
        rows=tuple(compared),
    )
