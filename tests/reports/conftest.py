"""Results to draw: numbers are round, so that what a page prints can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Range,
    Recommendation,
    Saving,
    Scope,
    Severity,
    Status,
)
from tracekit.replays import Answer, EfficiencyTree, OnPath, Replayed, Slack, Slowdowns
from tracekit.results import (
    Efficiency,
    Parts,
    Quality,
    RankFacts,
    Result,
    RunFacts,
    Source,
    SourceFile,
)
from tracekit.units import Quantity, Unit
from tracekit.waiting import (
    LATENESS,
    WHY_LATE,
    Arrival,
    Meeting,
    RankWaiting,
    StepLateness,
    WaitedFor,
    Waiting,
)

MS = 1_000_000
SCRIPT = "</script><script>document.title='pwned'</script>"
HOSTILE = (
    SCRIPT,
    "<img src=x onerror=\"document.title='pwned'\">",
    "'\"><svg onload=document.title='pwned'>&amp; \u2028\u2029 {{ 7 * 7 }} [bold red]x[/]",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd 🔥 \x1b[31mred\x00\x07",
    "void at::native::kernel<" + "std::tuple<float, " * 280 + ">" * 280,
)


def parts(rank, step, *, compute, waiting, idle, start=0, is_averaged=True, device=None):
    """One row in ms: 10 ms overlapped and 5 ms transfer are added to what is given."""
    return Parts(
        rank=rank,
        device=rank % 8 if device is None else device,
        step=step,
        start_ns=start,
        dur_ns=(compute + waiting + idle + 15) * MS,
        exposed_compute_ns=compute * MS,
        overlapped_ns=10 * MS,
        exposed_communication_ns=(waiting + 5) * MS,
        exposed_copy_ns=0,
        idle_ns=idle * MS,
        exposed_waiting_ns=waiting * MS,
        exposed_transfer_ns=5 * MS,
        unsplit_communication_ns=0,
        is_complete=is_averaged,
        is_averaged=is_averaged,
    )


def run_facts(n_ranks, steps, averaged, **changes):
    facts = {
        "world_size": n_ranks,
        "ranks": tuple(
            RankFacts(
                rank=rank,
                host=f"node{rank // 8:03d}",
                gpu_model="NVIDIA H100 80GB HBM3",
                backend="nccl",
                devices=(rank % 8,),
            )
            for rank in range(n_ranks)
        ),
        "missing_ranks": (),
        "steps": steps,
        "step_source": "ProfilerStep",
        "averaged_steps": averaged,
        "averaged_why": "Complete steps other than the capture's first.",
        "devices": ("NVIDIA H100 80GB HBM3",),
        "layout": {"dp": n_ranks},
        "clock_error_ns": 12_000.0,
        "device_kind": "gpu",
        "step_ns": 100.0 * MS,
        "n_gpus": n_ranks,
    }
    return RunFacts(**(facts | changes))


def why_late(part="input-pipeline"):
    """25 - 4 - 1 = 20 ms."""
    return Evidence(
        WHY_LATE,
        (
            Column("part"),
            Column("this rank, a step", Unit.NS),
            Column("median peer, a step", Unit.NS),
            Column("more than the peer", Unit.NS),
        ),
        (
            (part, 30.0 * MS, 5.0 * MS, 25.0 * MS),
            ("launch latency", 1.0 * MS, 2.0 * MS, -1.0 * MS),
            ("copies", 0.0, 4.0 * MS, -4.0 * MS),
            (LATENESS, None, None, 20.0 * MS),
        ),
    )


def meeting(n_ranks, late=5, **changes):
    """All enter within their number in µs, the late one 20 ms after rank 0; 5 ms of transfer."""
    entered_ns = {rank: 20 * MS if rank == late else rank * 1000 for rank in range(n_ranks)}
    facts = {
        "culprit": late,
        "step": 1,
        "group": "default_pg",
        "operation": "all_reduce",
        "start_ns": 100 * MS,
        "error_ns": 12_000,
        "transfer_ns": 5 * MS,
        "is_aligned": True,
        "arrivals": tuple(
            Arrival(rank=rank, entered_ns=entered_ns[rank], left_ns=25 * MS, is_late=rank == late)
            for rank in sorted(entered_ns, key=lambda rank: entered_ns[rank])
        ),
    }
    return Meeting(**(facts | changes))


def waiting_of(n_ranks, steps, late=5, n_stages=1, **changes):
    """The late rank makes every other one wait 20 ms a step: in every step, by 20 ms."""
    others = [rank for rank in range(n_ranks) if rank != late]
    values = {
        "total_per_step_ns": 20.0 * MS * len(others),
        "matrix": tuple(
            WaitedFor(culprit=late, victim=rank, per_step_ns=20.0 * MS) for rank in others
        ),
        "ranks": tuple(
            RankWaiting(
                rank=rank,
                pipeline=rank - rank % n_stages,
                stage=rank % n_stages,
                compute_ns=70.0 * MS,
                waiting_ns=0.0 if rank == late else 20.0 * MS,
                caused_ns=20.0 * MS * len(others) if rank == late else 0.0,
                late_ns=20.0 * MS if rank == late else 0.0,
                course="fixed" if rank == late else "",
            )
            for rank in range(n_ranks)
        ),
        "by_step": tuple(
            StepLateness(rank=late, step=step, late_ns=20.0 * MS, caused_ns=20.0 * MS * len(others))
            for step in steps
        ),
        "meetings": (meeting(n_ranks, late), meeting(n_ranks, late, step=2, is_aligned=False)),
    }
    return Waiting(**(values | changes))


def large_waiting():
    """About as much as a result may hold of 1,024 ranks: 4,000 pairs, 64 late ranks, 3 meetings.

    Rank 700 makes all others wait 20 ms, ranks 0, 16, 32 … the 48 after them 1 to 3 ms.
    """
    pairs = [
        WaitedFor(culprit=rank, victim=victim, per_step_ns=(1.0 + victim % 3) * MS)
        for rank in range(0, 1024, 16)
        for victim in range(rank + 1, min(rank + 49, 1024))
    ]
    waiting = waiting_of(1024, range(1, 19), late=700, n_stages=4)
    by_step = [
        StepLateness(rank=rank, step=step, late_ns=(1.0 + rank % 5) * MS, caused_ns=1.0 * MS)
        for rank in range(0, 63 * 16, 16)
        for step in range(1, 19)
    ]
    one = meeting(256, late=200)
    return replace(
        waiting,
        total_per_step_ns=30_000.0 * MS,
        matrix=(*waiting.matrix, *pairs)[:4096],
        by_step=(*waiting.by_step, *by_step),
        meetings=(one, one, replace(one, is_aligned=False)),
    )


SLOWDOWNS = Slowdowns(
    slowdown=1.25,
    by_type={"forward-compute": 1.125, "grads-reduce-scatter": 1.0625, "optimizer": 1.004},
    by_dp={"1": 1.1, "0": 1.001},
    by_stage={"3": 1.2, "0": 1.0, "1": 0.99, "2": 0.98},
    by_worker={f"{dp},{stage}": 1.0 for dp in range(2) for stage in range(4)},
    worker_share=0.5,
    last_stage_share=1.2,
    waste=0.2,
    replay_error=0.04,
)
"""96 ms without stragglers, 120 ms with them: half of it goes with one of eight workers."""


def replayed(work="gemm", **changes):
    """120 ms, of which 60 is compute in the mean; 125 ms were measured."""
    values = {
        "step_ns": 120.0 * MS,
        "measured_ns": 125.0 * MS,
        "error_share": 0.04,
        "is_inferred": False,
        "launched_share": 1.0,
        "tree": EfficiencyTree(
            load_balance_share=60 / 72,
            serialization_share=72 / 90,
            orchestration_share=90 / 100,
            transfer_share=100 / 120,
            mean_compute_ns=60.0 * MS,
            imbalance_ns=12.0 * MS,
            serialization_ns=18.0 * MS,
            orchestration_ns=10.0 * MS,
            transfer_ns=20.0 * MS,
            step_ns=120.0 * MS,
        ),
        "path_step_ns": 120.0 * MS,
        "path_of": "as recorded",
        "critical_path": (
            on_path(5, "host", "host", 60),
            on_path(5, "compute", work, 48, 1_234_567_891, 1_234_667_891),
            on_path(0, "latency", "latency", 12),
        ),
        "slack": (
            Slack(
                kind="compute",
                type=work,
                total_ns=480.0 * MS,
                median_slack_ns=7.0 * MS,
                critical_share=0.1,
            ),
        ),
        "answers": (),
    }
    return Replayed(**(values | changes))


def on_path(rank, kind, work, ms, start_ns=None, end_ns=None):
    return OnPath(
        rank=rank, kind=kind, type=work, per_step_ns=ms * MS * 1.0, start_ns=start_ns, end_ns=end_ns
    )


def straggler_finding(subject="rank 5", rank=5, n_ranks=8):
    return Finding(
        id="straggler-rank",
        subject=subject,
        status=Status.FOUND,
        title=f"Rank {rank} arrives last and makes the others wait",
        severity=Severity.CRITICAL,
        cause=Cause.INPUT_PIPELINE,
        ranks=(rank,),
        groups=("default_pg",),
        phases=("forward",),
        steps=(1, 2),
        measured=Quantity(0.95, Unit.SHARE),
        limit=Quantity(0.5, Unit.SHARE),
        confidence=Confidence(Level.HIGH, "Lateness is 40 ms, the clock error 12 µs."),
        saving=Saving(
            per_step_ns=Range(18.0 * MS, 20.0 * MS),
            share=0.18,
            share_high=0.20,
            gpu_hours_per_day=Range(34.56, 38.4),
            assumes="Rank 5 loads its data as fast as the median rank.",
        ),
        recommendation=Recommendation(
            "Raise the number of data loader workers on every rank.",
            Change.SETTING,
            (
                "DataLoader(dataset, num_workers=8, pin_memory=True)",
                "taskset -c 0-15 torchrun train.py",
            ),
        ),
        evidence=(
            Evidence(
                "Wait caused, by rank",
                (Column("Rank"), Column("Late share", Unit.SHARE), Column("Wait caused", Unit.NS)),
                tuple(
                    (r, 0.95 if r == rank else 0.01, (21 * MS if r == rank else r * MS))
                    for r in range(min(n_ranks, 8))
                ),
            ),
            why_late(),
        ),
        scope=Scope(
            victims=tuple(r for r in range(n_ranks) if r != rank),
            start_ns=1_234_567_891_234,
            end_ns=1_234_667_891_234,
        ),
    )


def other_findings():
    clear = Finding(
        id="slow-link",
        subject="",
        status=Status.CLEAR,
        title="All links run at the same speed",
        measured=Quantity(0.003, Unit.SHARE),
        limit=Quantity(0.05, Unit.SHARE),
    )
    skipped = Finding(
        id="power-cap",
        subject="",
        status=Status.SKIPPED,
        title="No device is held back by its power limit",
        why="No telemetry was recorded. Record it with: tracekit record --telemetry",
    )
    failed = Finding(
        id="small-messages",
        subject="",
        status=Status.FAILED,
        title="Messages are large enough",
        why="ZeroDivisionError: division by zero",
    )
    warning = Finding(
        id="host-sync",
        subject="item",
        status=Status.FOUND,
        title="The host waits for the device at loss.item()",
        severity=Severity.WARNING,
        cause=Cause.HOST_SYNC,
        ranks=(0, 1, 2, 3, 5, 7),
        measured=Quantity(2.0 * MS, Unit.NS),
        confidence=Confidence(Level.MEDIUM, "Only two steps are complete."),
        saving=Saving(
            per_step_ns=Range(1.0 * MS, 2.0 * MS),
            share=0.01,
            share_high=0.02,
            gpu_hours_per_day=Range(1.92, 3.84),
            assumes="The loss is logged every 100 steps.",
        ),
        recommendation=Recommendation("Log the loss every 100 steps.", Change.CODE),
    )
    return (clear, skipped, failed, warning)


def result_of(run, breakdown, findings, **changes):
    values = {
        "tracekit_version": "0.1.0",
        "created": "2026-01-31T03:00:00Z",
        "source": Source(
            path="/data/runs/llama-70b",
            files=tuple(
                SourceFile(
                    path=f"rank{rank.rank}.json.gz",
                    rank=rank.rank,
                    size_bytes=12_000_000,
                    n_events=1000,
                    n_dropped=0,
                )
                for rank in run.ranks
            ),
        ),
        "run": run,
        "headline": (),
        "efficiency": None,
        "breakdown": breakdown,
        "whole": (),
        "findings": findings,
        "quality": (),
    }
    return Result(**(values | changes))


def straggler_rows(n_ranks, n_steps, late=5):
    """Every step is 100 ms: the late rank computes 60 ms and idles 25 ms, the others wait 20 ms."""
    return tuple(
        parts(
            rank,
            step,
            compute=60,
            waiting=0 if rank == late else 20,
            idle=25 if rank == late else 5,
            start=step * 100 * MS,
            is_averaged=0 < step < n_steps - 1,
        )
        for rank in range(n_ranks)
        for step in range(n_steps)
    )


EFFICIENCY = Efficiency(
    load_balance_share=0.875,
    communication_share=0.8,
    mean_compute_ns=70.0 * MS,
    imbalance_ns=10.0 * MS,
    remainder_ns=20.0 * MS,
    step_ns=100.0 * MS,
)

HEADLINE = (
    "Rank 5 waits 20 ms per step for its data loader, and the other 7 ranks wait for it.",
    "Fixing it buys up to 20 % of every step: 38.4 GPU-hours per day.",
    "Raise num_workers from 1 to 8 on every rank.",
)


@pytest.fixture(scope="session")
def straggler():
    """8 ranks by 4 steps of 100 ms, of which steps 1 and 2 are averaged; rank 5 is late."""
    run = run_facts(8, (0, 1, 2, 3), (1, 2))
    quality = (
        Quality(
            check="Unlinked kernels",
            severity=Severity.WARNING,
            rank=3,
            count=120,
            detail="Their launch is not in the file.",
        ),
    )
    return result_of(
        run,
        straggler_rows(8, 4),
        (*other_findings(), straggler_finding()),
        headline=HEADLINE,
        efficiency=EFFICIENCY,
        quality=quality,
        whole=tuple(parts(rank, None, compute=240, waiting=80, idle=65) for rank in range(8)),
        waiting=waiting_of(8, (1, 2), n_stages=4),
        what_if=SLOWDOWNS,
        replay=replayed(),
    )


@pytest.fixture(scope="session")
def alone(straggler):
    """A run of which nothing is known but its replay, as one of pipeline operations is."""
    run = replace(
        straggler.run, steps=(), averaged_steps=(), device_kind="host thread", n_gpus=0, step_ns=0.0
    )
    skipped = tuple(f for f in straggler.findings if f.status is Status.SKIPPED)
    return replace(
        straggler,
        run=run,
        breakdown=(),
        whole=(),
        findings=skipped,
        waiting=None,
        efficiency=None,
        headline=("Too little could be checked.", "0 of 17 checks ran.", "More is below."),
    )


@pytest.fixture(scope="session")
def healthy():
    """4 ranks, all alike, one check made and one skipped."""
    run = run_facts(4, (0, 1, 2, 3), (1, 2))
    rows = tuple(
        parts(rank, step, compute=80, waiting=0, idle=5, is_averaged=step in (1, 2))
        for rank in range(4)
        for step in range(4)
    )
    return result_of(
        run,
        rows,
        other_findings()[:2],
        headline=("Nothing found that is worth fixing: 1 check came out fine.",),
        efficiency=EFFICIENCY,
    )


@pytest.fixture(scope="session")
def single():
    """One rank of four, no GPU, no steps, no findings, nothing measured."""
    run = run_facts(
        1,
        (),
        (),
        world_size=4,
        missing_ranks=(1, 2, 3),
        step_source="",
        averaged_why="",
        devices=(),
        layout={},
        clock_error_ns=None,
        device_kind="host thread",
        step_ns=0.0,
        n_gpus=0,
        ranks=(RankFacts(rank=0, host=None, gpu_model=None, backend=None, devices=()),),
    )
    return result_of(run, (), ())


@pytest.fixture(scope="session")
def hostile():
    """Every text of the result is hostile."""
    run = run_facts(
        2,
        (0, 1),
        (1,),
        layout={HOSTILE[0]: 2},
        averaged_why=SCRIPT,
        step_source=SCRIPT,
        device_kind=SCRIPT,
    )
    findings = tuple(
        Finding(
            id="straggler-rank" if status is Status.FOUND else f"straggler-{status}",
            subject=text,
            status=status,
            title=text,
            severity=Severity.CRITICAL if status is Status.FOUND else None,
            groups=HOSTILE,
            phases=HOSTILE,
            confidence=Confidence(Level.LOW, text),
            recommendation=Recommendation(text, Change.CODE, HOSTILE),
            saving=Saving(
                per_step_ns=Range(1.0, 2.0),
                share=0.2,
                share_high=0.2,
                gpu_hours_per_day=Range(1.0, 2.0),
                assumes=text,
            ),
            evidence=(
                Evidence(text, tuple(Column(t) for t in HOSTILE), (HOSTILE, HOSTILE)),
                why_late(text),
            ),
            why=text,
        )
        for status in Status
        for text in HOSTILE
    )
    return result_of(
        run,
        straggler_rows(2, 3, late=1),
        findings,
        headline=HOSTILE[:3],
        tracekit_version=SCRIPT,
        created=SCRIPT,
        quality=tuple(
            Quality(check=t, severity=Severity.INFO, rank=None, count=1, detail=t) for t in HOSTILE
        ),
        source=Source(
            path=SCRIPT,
            files=tuple(
                SourceFile(path=t, rank=0, size_bytes=1, n_events=1, n_dropped=1, why=(t,))
                for t in HOSTILE
            ),
            others=HOSTILE,
        ),
        what_if=msgspec.structs.replace(
            SLOWDOWNS,
            by_type=dict.fromkeys(HOSTILE, 1.2),
            by_dp=dict.fromkeys(HOSTILE, 1.2),
            by_stage=dict.fromkeys(HOSTILE, 1.2),
        ),
        replay=replayed(
            path_of=SCRIPT,
            critical_path=tuple(on_path(1, t, t, 20, 0, MS) for t in HOSTILE),
            slack=tuple(
                Slack(kind=t, type=t, total_ns=1.0, median_slack_ns=1.0, critical_share=0.5)
                for t in HOSTILE
            ),
            answers=tuple(Answer(question=t, step_ns=1.0, gained_ns=1.0) for t in HOSTILE),
        ),
        waiting=waiting_of(
            2,
            (1,),
            late=1,
            meetings=tuple(meeting(2, late=1, group=t, operation=t) for t in HOSTILE),
        ),
    )


@pytest.fixture(scope="session")
def large():
    """1,024 ranks by 20 steps; rank 700 is late."""
    run = run_facts(
        1024, tuple(range(20)), tuple(range(1, 19)), layout={"tp": 8, "pp": 4, "dp": 32}
    )
    return result_of(
        run,
        straggler_rows(1024, 20, late=700),
        (*other_findings(), straggler_finding("rank 700", 700, 1024)),
        headline=HEADLINE,
        efficiency=EFFICIENCY,
        whole=tuple(parts(rank, None, compute=1200, waiting=400, idle=300) for rank in range(1024)),
        waiting=large_waiting(),
        what_if=msgspec.structs.replace(
            SLOWDOWNS, by_dp={str(dp): 1.3 - dp / 10_000 for dp in range(1024)}
        ),
        replay=replayed(
            critical_path=tuple(on_path(rank, "compute", "gemm", 5) for rank in range(24))
        ),
    )
