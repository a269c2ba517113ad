"""From a run to a result: derive per rank, detect, recommend."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import Averages, averages, breakdowns, mean_steps
from tracekit.derive.blocking import BLOCKING_CALLS, blocking_calls
from tracekit.derive.breakdown import BREAKDOWN, PARTS, SPLITS, breakdown
from tracekit.derive.cached import is_cached
from tracekit.derive.call_exposure import CALL_EXPOSURE, call_exposure
from tracekit.derive.call_totals import CALL_TOTALS, call_totals
from tracekit.derive.clocks import greatest_error_ns
from tracekit.derive.communication import communication
from tracekit.derive.encoder_work import ENCODER_WORK, encoder_work
from tracekit.derive.expert_work import EXPERT_WORK, stretches
from tracekit.derive.host_work import HOST_WORK, host_work
from tracekit.derive.idle import IDLE, idle
from tracekit.derive.kernel_totals import KERNEL_TOTALS, kernel_totals
from tracekit.derive.micro_batches import TURNS, turns
from tracekit.derive.run_quality import run_checks
from tracekit.derive.stalls import STALLS, stalls
from tracekit.derive.standstill import standstill
from tracekit.derive.waiting_tables import waiting
from tracekit.derive.waits import waits
from tracekit.detectors import detectors, findings_of, number
from tracekit.engine import map_ranks
from tracekit.errors import UsageError
from tracekit.findings import Severity, Status
from tracekit.recommend import completed, headline
from tracekit.results import (
    CALLS,
    GPU,
    HOST_THREAD,
    LOGS,
    Efficiency,
    Inefficiency,
    Parts,
    Quality,
    RankFacts,
    Result,
    RunFacts,
    Source,
    SourceFile,
)
from tracekit.savings import replayed
from tracekit.store import tracekit_version
from tracekit.what_if import asked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from tracekit.config import Config
    from tracekit.detectors import Detector
    from tracekit.findings import Finding
    from tracekit.store import Check, Run
    from tracekit.what_if import WhatIf

log = logging.getLogger(__name__)

Derived = Callable[[int], None]
"""Told the rank whose tables have been derived."""
_DERIVED = {
    BREAKDOWN: breakdown,
    IDLE: idle,
    KERNEL_TOTALS: kernel_totals,
    STALLS: stalls,
    TURNS: turns,
    BLOCKING_CALLS: blocking_calls,
    CALL_TOTALS: call_totals,
    CALL_EXPOSURE: call_exposure,
    ENCODER_WORK: encoder_work,
    EXPERT_WORK: stretches,
    HOST_WORK: host_work,
}
"""Tables of one rank that detectors ask for, and what derives them."""


def analysed(
    run: Run, executor: Executor, config: Config, on_rank: Derived | None = None
) -> Result:
    """The result of a run: every detector's findings, the breakdown, the quality of the capture.

    Raises:
        UsageError: the configuration names a detector or limit that does not exist.
    """
    started_s = time.perf_counter()
    waits(run)  # once, before the workers read it
    _derive(run, executor, on_rank)
    rows = breakdowns(run)
    chosen = averages(run)
    means = mean_steps(run)
    derived_s = time.perf_counter()
    known = detectors()
    found = tuple(f for each in known.values() for f in findings_of(each, run, config))
    findings = completed(replayed(run, found, known), known)
    replay = _replayed(run)
    log.info(
        "derived in %.2f s, %d detectors in %.2f s",
        derived_s - started_s,
        len(known),
        time.perf_counter() - derived_s,
    )
    return Result(
        tracekit_version=tracekit_version(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source=_source(run),
        run=_run_facts(run, rows, chosen, means),
        headline=headline(findings, len(known), "GPU" if has_device_events(run) else "rank"),
        efficiency=_efficiency(means),
        breakdown=_parts(rows.filter(pl.col("step").is_not_null())),
        whole=_parts(rows.filter(pl.col("step").is_null())),
        findings=findings,
        quality=_quality(run, rows),
        inefficiencies=_inefficiencies(findings, known),
        waiting=waiting(run),
        traffic=communication(run),
        standstill=standstill(run),
        what_if=replay.slowdowns if replay else None,
        replay=replay.replay if replay else None,
    )


def _replayed(run: Run) -> WhatIf | None:
    """What the replay of a run says; None, with the reason in the log, where it has none."""
    try:
        return asked(run)
    except Exception as error:  # findings are worth more than what else a replay tells
        is_debugged = log.isEnabledFor(logging.DEBUG)
        log.warning("no replay: %s", error, exc_info=is_debugged)
        return None


def _inefficiencies(
    findings: tuple[Finding, ...], known: Mapping[str, Detector]
) -> tuple[Inefficiency, ...]:
    """Each published inefficiency that a detector looks for, with what came of it, by row."""
    states: dict[str, Status] = {}
    for each in findings:
        if states.get(each.id) is not Status.FOUND:
            states[each.id] = each.status
    rows = [
        Inefficiency(
            row=published.row,
            system=published.system,
            arxiv=published.arxiv,
            finding=detector.id,
            state=states[detector.id],
        )
        for detector in known.values()
        for published in detector.published
    ]
    return tuple(sorted(rows, key=lambda inefficiency: inefficiency.row))


def limited(run: Run, steps: tuple[int, int] | None, ranks: tuple[int, ...] | None) -> Run:
    """The run with fewer ranks, or whose averages use the steps [a, b) only.

    Raises:
        UsageError: a rank is not in the run.
    """
    manifest = run.manifest
    if ranks is not None:
        kept = tuple(capture for capture in manifest.captures if capture.rank in ranks)
        unknown = sorted(set(ranks) - {capture.rank for capture in kept})
        if unknown:
            raise UsageError(
                f"no trace of rank {', '.join(map(str, unknown))}",
                hint=f"Ranks here: {', '.join(map(str, run.ranks))}",
            )
        left = set(manifest.missing_ranks) | ({c.rank for c in manifest.captures} - set(ranks))
        manifest = replace(manifest, captures=kept, missing_ranks=tuple(sorted(left)))
    return replace(run, manifest=manifest, steps=steps)


def _derive(run: Run, executor: Executor, on_rank: Derived | None) -> None:
    """Fill the cache of derived tables; no worker starts for a rank that has them all."""
    tell = on_rank or (lambda _: None)
    made = [rank for rank in run.ranks if all(is_cached(run, table, rank) for table in _DERIVED)]
    for rank in made:
        tell(rank)
    map_ranks(
        partial(_derive_rank, run),
        [rank for rank in run.ranks if rank not in made],
        executor=executor,
        on_done=lambda rank, _: tell(rank),
    )


def _derive_rank(run: Run, rank: int) -> int:
    """Derive the tables of one rank. Runs in a worker."""
    for derive in _DERIVED.values():
        derive(run, rank)
    return rank


def _source(run: Run) -> Source:
    files = tuple(
        SourceFile(
            path=capture.source.path,
            rank=capture.rank,
            size_bytes=capture.source.size_bytes,
            n_events=capture.n_events,
            n_dropped=sum(capture.dropped.values()),
            why=tuple(f"{why}: {count}" for why, count in capture.dropped.items()),
        )
        for capture in run.manifest.captures
    )
    beside = {
        each.path: (capture.rank, each)
        for capture in run.manifest.captures[::-1]
        for each in capture.beside
    }
    files += tuple(
        SourceFile(path=path, rank=rank, size_bytes=each.size_bytes, n_events=0, n_dropped=0)
        for path, (rank, each) in sorted(beside.items())
    )
    return Source(
        path=run.manifest.source,
        files=files,
        n_dropped=sum(file.n_dropped for file in files),
        other_runs=run.manifest.other_runs,
        others=run.manifest.others,
    )


def _run_facts(run: Run, rows: pl.DataFrame, chosen: Averages, means: pl.DataFrame) -> RunFacts:
    devices = run.scan_all("ranks").filter("is_used").sort("rank", "device").collect()
    models = {
        rank: part.drop_nulls("gpu_model")["gpu_model"].to_list()
        for (rank,), part in devices.partition_by("rank", as_dict=True).items()
    }
    facts = tuple(
        RankFacts(
            rank=capture.rank,
            host=capture.host,
            gpu_model=models.get(capture.rank, [None])[0] if models.get(capture.rank) else None,
            backend=capture.backend,
            devices=tuple(devices.filter(pl.col("rank") == capture.rank)["device"].to_list()),
        )
        for capture in run.manifest.captures
    )
    steps = rows.drop_nulls("step")
    source = steps["source"].mode().sort().first() if steps.height else "no device activity"
    return RunFacts(
        world_size=run.manifest.world_size,
        ranks=facts,
        missing_ranks=run.manifest.missing_ranks,
        steps=tuple(sorted(steps["step"].unique().to_list())),
        step_source=str(source),
        averaged_steps=chosen.steps,
        averaged_why=chosen.why,
        devices=tuple(sorted({model for listed in models.values() for model in listed})),
        layout=run.manifest.layout,
        clock_error_ns=greatest_error_ns(run),
        device_kind=_device_kind(run),
        step_ns=number(means["dur_ns"].mean()) if means.height else 0.0,
        n_gpus=means.height,
    )


def _device_kind(run: Run) -> str:
    if has_device_events(run):
        return GPU
    if run.n_rows("cpu_ops") > 0:
        return HOST_THREAD
    if any(run.n_rows(t) for t in ("flight_groups", "collectives", "communicator_counts")):
        return CALLS
    texts = ("communicators", "nccl_messages", "bandwidth_baselines")
    is_text = any(run.n_rows(table) for table in texts) and run.n_rows("ops") == 0
    return LOGS if is_text else HOST_THREAD


def _efficiency(means: pl.DataFrame) -> Efficiency | None:
    """Load balance × communication efficiency of the mean step; None without compute."""
    if means.is_empty():
        return None
    mean_ns, max_ns = number(means["compute_ns"].mean()), number(means["compute_ns"].max())
    step_ns = max(number(means["dur_ns"].mean()), max_ns)
    if max_ns <= 0:
        return None
    return Efficiency(
        load_balance_share=mean_ns / max_ns,
        communication_share=max_ns / step_ns,
        mean_compute_ns=mean_ns,
        imbalance_ns=max_ns - mean_ns,
        remainder_ns=step_ns - max_ns,
        step_ns=step_ns,
    )


def _parts(rows: pl.DataFrame) -> tuple[Parts, ...]:
    names = (
        "rank",
        "device",
        "step",
        "start_ns",
        "dur_ns",
        *PARTS,
        *SPLITS,
        "is_complete",
        "is_averaged",
    )
    return tuple(Parts(**row) for row in rows.select(names).iter_rows(named=True))


def _quality(run: Run, rows: pl.DataFrame) -> tuple[Quality, ...]:
    """Checks that need all ranks, then those of each."""
    checks: list[tuple[int | None, Check]] = [(None, check) for check in run_checks(run, rows)]
    for capture in run.manifest.captures:
        checks += [(capture.rank, check) for check in capture.quality]
    return tuple(
        Quality(
            check=check.check,
            severity=Severity(check.severity),
            rank=rank,
            count=check.count,
            detail=check.detail,
        )
        for rank, check in checks
    )
