"""Communication by group and operation: bytes, transfers, bandwidth, latency, and what is exposed.

p50, p99 and excess = Σ (transfer − p50) are of instances of one size; an operation's p50 is that of
all its instances, its excess the sum over sizes. An operation is latency-bound where the fitted
latency exceeds the time that the bytes of its median size take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.averages import averaged
from tracekit.derive.bandwidths import places
from tracekit.derive.cached import remembered
from tracekit.derive.call_exposure import call_exposure
from tracekit.derive.call_phases import phases
from tracekit.derive.fabrics import fabric, roof_of
from tracekit.derive.groups import groups
from tracekit.derive.latency_fit import line
from tracekit.derive.pairs import pairs
from tracekit.derive.traffic import bus_factor, traffic
from tracekit.traffic import (
    Bound,
    Fit,
    OperationTraffic,
    PairTraffic,
    PhaseTraffic,
    SizeTraffic,
    Traffic,
)

if TYPE_CHECKING:
    from tracekit.derive.latency_fit import Line
    from tracekit.store import Run

KEY = ("group", "operation")
UNKNOWN = "not known"
"""Operation of a call that says none."""
MAX_OPERATIONS = 64
"""Those with most time; a job of a thousand ranks has thousands of groups."""
MAX_SIZES = 64
_LINES = {
    "group": pl.String,
    "operation": pl.String,
    "latency_ns": pl.Float64,
    "ns_per_byte": pl.Float64,
    "error_share": pl.Float64,
}


def communication(run: Run) -> Traffic | None:
    """What the run's communication amounts to; None where it has none."""
    instances = traffic(run).with_columns(pl.col("operation").fill_null(UNKNOWN)).collect()
    if instances.is_empty():
        return None
    exposed = _exposed(run)
    instances = _whole_ones(instances)
    sizes = _sizes(instances).partition_by(KEY, as_dict=True, include_key=True)
    rows = (
        _operations(instances)
        .join(exposed, on=KEY, how="left", validate="1:1")
        .join(_dimensions(run), on="group", how="left", validate="m:1")
        .join(_roofs(run), on="group", how="left", validate="m:1")
        .sort("step_ns", "weight_ns", *KEY, descending=[True, True, False, False], nulls_last=True)
        .head(MAX_OPERATIONS)
    )
    return Traffic(
        n_instances=instances.height,
        n_unmatched=instances["instance"].null_count(),
        operations=tuple(
            _operation(row, sizes.get((row["group"], row["operation"])))
            for row in rows.iter_rows(named=True)
        ),
        phases=tuple(PhaseTraffic(**row) for row in phases(run).iter_rows(named=True)),
        pairs=tuple(PairTraffic(**row) for row in pairs(run).iter_rows(named=True)),
    )


@remembered
def lines(run: Run) -> pl.DataFrame:
    """Latency and time by the byte of each group and operation that has enough sizes.

    Returns:
        `group`, `operation`, `latency_ns`, `ns_per_byte`, `error_share`; by group and operation.
    """
    instances = traffic(run).with_columns(pl.col("operation").fill_null(UNKNOWN)).collect()
    sizes = _sizes(_whole_ones(instances)).partition_by(KEY, as_dict=True)
    fitted = {
        key: found
        for key, rows in sizes.items()
        if (found := line(*(rows[name].to_list() for name in _FITTED))) is not None
    }
    rows = [
        (*key, each.latency_ns, each.ns_per_byte, each.error_share) for key, each in fitted.items()
    ]
    return pl.DataFrame(rows, schema=_LINES, orient="row").sort(KEY)


def _dimensions(run: Run) -> pl.DataFrame:
    return groups(run).select("group", "dimension", is_dimension_inferred=pl.col("is_inferred"))


def _roofs(run: Run) -> pl.DataFrame:
    """What the fabric of groups carries, where it is known: `group`, `roof_gb_s`, `fabric`."""
    joined = fabric(run)
    rows = []
    for group, members, n_nodes, n_local in places(run).iter_rows():
        roof = roof_of(run, joined, len(members), n_nodes, n_local)
        if not isinstance(roof, str):
            rows.append((group, roof.gb_s, roof.fabric))
    schema = {"group": pl.String, "roof_gb_s": pl.Float64, "fabric": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _whole_ones(instances: pl.DataFrame) -> pl.DataFrame:
    """Leave out the transfers that only bound one, where the same operation has others."""
    has_whole = (~pl.col("is_bound") & pl.col("transfer_ns").is_not_null()).any().over(KEY)
    is_kept = ~(pl.col("is_bound") & has_whole)
    return instances.with_columns(
        pl.when(is_kept).then(name).alias(name) for name in ("transfer_ns", "busbw_gb_s")
    ).with_columns(is_bound=pl.col("is_bound") & ~has_whole)


def _operations(instances: pl.DataFrame) -> pl.DataFrame:
    transfer = pl.col("transfer_ns")
    per_size = transfer - transfer.median().over(*KEY, "size_bytes")
    return (
        instances.with_columns(excess_ns=per_size)
        .group_by(KEY)
        .agg(
            pl.col("n_members").max(),
            n_calls=pl.len(),
            total_bytes=pl.col("size_bytes").sum(),
            usual_bytes=pl.col("size_bytes").median(),
            is_sized=pl.col("size_bytes").is_not_null().any(),
            p50_ns=transfer.median(),
            p99_ns=transfer.quantile(0.99, "higher"),
            weight_ns=transfer.sum(),
            excess_ns=pl.col("excess_ns").sum(),
            busbw_gb_s=pl.col("busbw_gb_s").median(),
            is_bound=pl.col("is_bound").any(),
            factor=bus_factor().max(),
        )
    )


def _sizes(instances: pl.DataFrame) -> pl.DataFrame:
    """Instances of each size with a known transfer, the most frequent sizes, by size."""
    transfer = pl.col("transfer_ns")
    return (
        instances.drop_nulls(["size_bytes", "transfer_ns"])
        .group_by(*KEY, "size_bytes")
        .agg(
            n_calls=pl.len(),
            p50_ns=transfer.median(),
            p99_ns=transfer.quantile(0.99, "higher"),
            busbw_gb_s=pl.col("busbw_gb_s").median(),
        )
        .sort("n_calls", "size_bytes", descending=True)
        .group_by(KEY, maintain_order=True)
        .head(MAX_SIZES)
        .sort(*KEY, "size_bytes")
    )


def _exposed(run: Run) -> pl.DataFrame:
    """By group and operation, in a mean step of a rank that takes part: time, and what of it shows.

    The whole time (`step_ns`), and of it `exposed_wait_ns`, `exposed_transfer_ns`,
    `exposed_unsplit_ns` and `hidden_ns`.
    """
    calls = averaged(run, call_exposure).with_columns(pl.col("operation").fill_null(UNKNOWN))
    is_split = pl.col("wait_ns").is_not_null()
    parts = {
        "step_ns": pl.col("dur_ns"),
        "exposed_wait_ns": pl.col("exposed_wait_ns"),
        "exposed_transfer_ns": pl.col("exposed_transfer_ns").filter(is_split),
        "exposed_unsplit_ns": pl.col("exposed_ns").filter(~is_split),
        "hidden_ns": pl.col("dur_ns") - pl.col("exposed_ns"),
    }
    n_steps = max(1, calls["step"].n_unique())
    return (
        calls.group_by(*KEY, "rank")
        .agg(**{name: part.sum() / n_steps for name, part in parts.items()})
        .group_by(KEY)
        .agg(pl.col(*parts).mean())
    )


def _operation(row: dict[str, Any], sizes: pl.DataFrame | None) -> OperationTraffic:
    fitted = None if sizes is None else line(*(sizes[name].to_list() for name in _FITTED))
    return OperationTraffic(
        **{name: row[name] for name in _SAME},
        total_bytes=row["total_bytes"] if row["is_sized"] else None,
        bound=None if row["is_bound"] else _bound(fitted, row["usual_bytes"]),
        fit=_fit(fitted, row["factor"]),
        sizes=()
        if sizes is None
        else tuple(SizeTraffic(**each) for each in sizes.drop(KEY).iter_rows(named=True)),
    )


_FITTED = ("size_bytes", "p50_ns", "n_calls")
_SAME = (
    "group",
    "operation",
    "dimension",
    "is_dimension_inferred",
    "n_members",
    "n_calls",
    "p50_ns",
    "p99_ns",
    "excess_ns",
    "busbw_gb_s",
    "is_bound",
    "step_ns",
    "exposed_wait_ns",
    "exposed_transfer_ns",
    "exposed_unsplit_ns",
    "hidden_ns",
    "roof_gb_s",
    "fabric",
)


def _bound(fitted: Line | None, usual_bytes: float | None) -> Bound | None:
    if fitted is None or usual_bytes is None:
        return None
    is_latency = fitted.latency_ns > fitted.ns_per_byte * usual_bytes
    return Bound.LATENCY if is_latency else Bound.BANDWIDTH


def _fit(fitted: Line | None, factor: float | None) -> Fit | None:
    if fitted is None:
        return None
    slope = fitted.ns_per_byte
    return Fit(
        latency_ns=fitted.latency_ns,
        busbw_gb_s=factor / slope if slope > 0 and factor is not None else None,
        half_bytes=fitted.latency_ns / slope if slope > 0 else None,
        error_share=fitted.error_share,
    )
