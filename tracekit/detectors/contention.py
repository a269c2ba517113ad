"""Collectives take longer while copies or compute run beside them than the same ones alone.

What it measures:
    Transfers of one group, operation and size: those beside which copies (or compute) run for at
    least half of the transfer, against those with at most a tenth of anything beside them.

Formula:
    measured = Σ transfer beside / Σ p50 of the same alone. Extra time of a step, on the rank that
    shows most = Σ min(exposed transfer, transfer − p50 alone).

Threshold:
    Found when measured is at least `max_ratio` and the extra time at least `min_step_share` of a
    step; at least four calls of each kind are compared. Clear where all run alone or none does.

Evidence:
    Transfers beside and alone, by group, operation and size.

What-if saving:
    Low: the extra time that nothing hides, at most what a replay gives in which these transfers
    take what they take alone. High: all that they take longer.

Recommendation:
    Copies: move them to where no collective runs, or to fewer bytes. Compute: give the network
    kernels SMs of their own, or fewer, larger ones.

References:
    https://arxiv.org/abs/2412.11854 (kernels of communication and compute share SMs and memory).
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_MAX_CTAS).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.contention import contended
from tracekit.derive.savings import saving
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._cures import transfers_alone
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Status,
)
from tracekit.schema import COLLECTIVES
from tracekit.units import Quantity, Unit, limit, text

if TYPE_CHECKING:
    from tracekit.store import Run

MAX_SHOWN = 16
ADVICE = {
    "copies": Recommendation(
        "Copies between host and device share PCIe with the network: start them where no "
        "collective runs, copy less (offload fewer tensors, keep them on the device), and see that "
        "adapter and GPU do not share a switch port.",
        Change.CODE,
        ("nvidia-smi topo -m",),
    ),
    "compute": Recommendation(
        "Compute and communication take SMs and memory bandwidth from each other: let NCCL use "
        "fewer SMs where links are the bound, or leave some to it.",
        Change.SETTING,
        ("export NCCL_MAX_CTAS=8  # try, and measure both",),
    ),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much longer transfers must take, and for how much of a step."""

    max_ratio: float = limit(
        1.3, Unit.RATIO, "Compute beside a transfer takes up to a fifth of its speed anyway."
    )
    min_step_share: float = limit(
        0.01, Unit.SHARE, "What nothing hides of less than a hundredth is not worth a change."
    )


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for copies, one for compute; else one for the run."""
    if not has_device_events(run):
        return (skipped(DETECTOR, ON_HOSTS),)
    means = mean_steps(run)
    if means.is_empty():
        return (skipped(DETECTOR, f"no steps. {DETECTOR.how}"),)
    step_ns = number(means["dur_ns"].mean())
    found = [
        _found(run, beside, rows, step_ns, means.height, limits)
        for (beside,), rows in contended(run).group_by("beside", maintain_order=True)
    ]
    kept = tuple(each for each in found if each is not None)
    if kept:
        return kept
    limited = Quantity(limits.max_ratio, Unit.RATIO)
    return (finding(DETECTOR, Status.CLEAR, limit=limited),)


def _found(
    run: Run, beside: str, rows: pl.DataFrame, step_ns: float, n_gpus: int, limits: Limits
) -> Finding | None:
    ratio = number(rows["transfer_ns"].sum()) / number(rows["alone_ns"].sum())
    exposed_ns, extra_ns = _extra_ns(run, rows)
    if ratio < limits.max_ratio or exposed_ns < limits.min_step_share * step_ns:
        return None
    measured = Quantity(ratio, Unit.RATIO)
    fields: dict[str, Any] = {
        "subject": beside,
        "title": f"Collectives take {measured} as long while {beside} run beside them",
        "cause": Cause.CONTENTION,
        "groups": tuple(rows["group"].unique().sort().to_list()[:MAX_SHOWN]),
        "measured": measured,
        "limit": Quantity(limits.max_ratio, Unit.RATIO),
        "recommendation": ADVICE[beside],
        "evidence": (_table(rows),),
    }
    return finding(
        DETECTOR,
        Status.FOUND,
        saving=saving(
            exposed_ns,
            extra_ns,
            step_ns,
            n_gpus,
            "these transfers take what they take alone; low end: what nothing hides of the rest, "
            f"{text(exposed_ns, Unit.NS)} a step",
        ),
        confidence=Confidence(
            Level.MEDIUM,
            f"{rows.height} transfers against others of the same group, operation and size",
        ),
        **fields,
    )


def _extra_ns(run: Run, rows: pl.DataFrame) -> tuple[float, float]:
    """What transfers take longer in a mean step, on the rank with most: exposed, and in all."""
    n_steps = max(1, len(averages(run).steps))
    extra = pl.col("transfer_ns") - pl.col("alone_ns")
    longer = rows.select("instance", extra_ns=extra.clip(lower_bound=0))
    by_rank = (
        shown_transfers(run)
        .join(longer, on="instance", validate="m:1")
        .group_by("rank")
        .agg(
            exposed_ns=pl.min_horizontal("extra_ns", "exposed_transfer_ns").sum() / n_steps,
            extra_ns=pl.col("extra_ns").sum() / n_steps,
        )
    )
    return number(by_rank["exposed_ns"].max()), number(by_rank["extra_ns"].max())


def _table(rows: pl.DataFrame) -> Evidence:
    table = (
        rows.group_by("group", "operation", "size_bytes")
        .agg(
            pl.len(),
            pl.col("beside_ns").first(),
            pl.col("n_alone").first(),
            pl.col("alone_ns").first(),
            longer_ns=(pl.col("transfer_ns") - pl.col("alone_ns")).sum(),
        )
        .sort("longer_ns", "group", descending=[True, False])
        .drop("longer_ns")
        .head(MAX_SHOWN)
    )
    return Evidence(
        title="Transfers beside something and alone",
        columns=(
            Column("group"),
            Column("operation"),
            Column("bytes", Unit.BYTES),
            Column("calls beside", Unit.COUNT),
            Column("their median", Unit.NS),
            Column("calls alone", Unit.COUNT),
            Column("median alone", Unit.NS),
        ),
        rows=tuple(table.iter_rows()),
    )


DETECTOR = Detector(
    id="contention",
    title="Copies or compute slow collectives down",
    clear="Collectives take as long beside other work as alone",
    needs=(COLLECTIVES,),
    how="Record whole steps of all ranks with CUDA activity on.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
    cure=transfers_alone,
)
