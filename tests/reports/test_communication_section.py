"""The section about communication: what it says, and what it leaves out."""

from __future__ import annotations

import re
from dataclasses import replace

from markupsafe import Markup

from tracekit.reports.sections.communication import render
from tracekit.traffic import Bound, Fit, OperationTraffic, PhaseTraffic, SizeTraffic, Traffic

OPERATION = OperationTraffic(
    group="dp (8 ranks: 0–7)",
    dimension="data",
    is_dimension_inferred=True,
    operation="all_reduce",
    n_members=8,
    n_calls=42,
    total_bytes=1_980_000_000,
    p50_ns=230_000.0,
    p99_ns=503_000.0,
    excess_ns=90_000.0,
    busbw_gb_s=289.3,
    is_bound=False,
    bound=Bound.BANDWIDTH,
    fit=Fit(latency_ns=21_000.0, busbw_gb_s=317.0, half_bytes=7_640_000.0, error_share=0.188),
    step_ns=7_410_000.0,
    exposed_wait_ns=5_540_000.0,
    exposed_transfer_ns=1_420_000.0,
    exposed_unsplit_ns=0.0,
    hidden_ns=450_000.0,
    sizes=(
        SizeTraffic(size_bytes=192, n_calls=4, p50_ns=31_500.0, p99_ns=44_800.0, busbw_gb_s=0.005),
        SizeTraffic(
            size_bytes=151_000_000, n_calls=8, p50_ns=449_000.0, p99_ns=474_000.0, busbw_gb_s=None
        ),
    ),
)


def words(markup):
    return " ".join(re.sub(r"<[^>]*>", " ", str(markup)).split())


def page(healthy, n_unmatched=0, **changes):
    traffic = Traffic(
        n_instances=42, n_unmatched=n_unmatched, operations=(replace(OPERATION, **changes),)
    )
    return render(replace(healthy, traffic=traffic))


def test_a_result_without_communication_has_no_such_section(healthy):
    assert render(healthy) is None


def test_bandwidth_times_and_the_fit_are_said(healthy):
    said = words(page(healthy))
    assert "data? all_reduce 42 1.98 GB 230 µs 503 µs 90 µs 289 GB/s bound by bandwidth" in said
    assert "7.41 ms 1.42 ms 5.54 ms 0 ns 450 µs" in said


def test_a_bandwidth_without_all_ranks_is_the_least(healthy):
    assert "289 GB/s at least: ranks are missing" in words(page(healthy, is_bound=True))


def test_calls_that_one_rank_alone_recorded_are_counted(healthy):
    assert "3 of 42 calls were recorded by one rank alone" in words(page(healthy, n_unmatched=3))


def test_what_is_not_known_is_a_dash_and_leaves_its_tables_out(healthy):
    said = words(page(healthy, busbw_gb_s=None, step_ns=None, sizes=(), fit=None, bound=None))
    assert "Exposed and hidden" not in said


def test_a_hostile_name_stays_text(healthy):
    body = page(healthy, group="<script>alert(1)</script>", operation="<img src=x>")
    assert isinstance(body, Markup)
    assert re.findall(r"<(?:script|img)", body) == []


def test_the_step_by_phase_with_bars_on_one_scale(healthy):
    parts = {"exposed_wait_ns": 2e6, "exposed_unsplit_ns": 0.0, "hidden_ns": 5e5}
    phases = (
        PhaseTraffic(
            phase="backward",
            dimension="data",
            operation="all_reduce",
            n_calls=3.0,
            step_ns=4e6,
            exposed_transfer_ns=1.5e6,
            **parts,
        ),
        PhaseTraffic(
            phase=None,
            dimension=None,
            operation=None,
            n_calls=0.5,
            step_ns=2.5e6,
            exposed_transfer_ns=0.0,
            **parts,
        ),
    )
    traffic = Traffic(n_instances=4, n_unmatched=0, operations=(), phases=phases)
    page = render(replace(healthy, traffic=traffic))
    said = words(page)
    assert "backward data all_reduce 3 4 ms 1.5 ms 2 ms 0 ns 500 µs" in said
    assert "not known – not known 0.50 2.5 ms 0 ns 2 ms 0 ns 500 µs" in said
    # the longer bar is full: 1.5, 2 and 0.5 of 4 ms; the other 2 and 0.5 of them
    assert re.findall(r"width:([\d.]+)%", str(page)) == [
        "37.50",
        "50.00",
        "12.50",
        "50.00",
        "12.50",
    ]
