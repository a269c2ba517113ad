"""The section about who sends how much to whom."""

from __future__ import annotations

from dataclasses import replace

from tests.reports.test_communication_section import words
from tracekit.reports.sections.traffic_between_ranks import MAX_LINES, render
from tracekit.traffic import PairTraffic, Traffic


def pair(sender, receiver, **changes):
    values = {"n_calls": 48, "total_bytes": 805_000_000, "p50_ns": 150_000.0, "busbw_gb_s": 112.0}
    values |= {"is_hosts": False} | changes
    return PairTraffic(sender=str(sender), receiver=str(receiver), **values)


def page(healthy, *pairs):
    return render(
        replace(healthy, traffic=Traffic(n_instances=1, n_unmatched=0, operations=(), pairs=pairs))
    )


def test_the_matrix_and_its_pairs(healthy):
    shown = page(healthy, pair(0, 2), pair(2, 0, total_bytes=402_500_000))
    said = words(shown)
    assert "rank 0 rank 2 48 805 MB 150 µs 112 GB/s" in said
    assert "from ↓ to → 0 2 rank 0 805 MB rank 2 402 MB" in said
    assert "{row} sent {value} to rank {column}" in str(shown)
    # half of the most is on the sixth of ten colours
    assert "<td class=h9>805 MB" in str(shown)
    assert "<td class=h5>402 MB" in str(shown)


def test_hosts_have_a_table_of_their_own(healthy):
    said = words(page(healthy, pair("node-a", "node-b", is_hosts=True), pair(0, 4)))
    assert "Messages by hosts" in said
    assert "host node-a host node-b 48" in said


def test_without_bytes_there_is_no_matrix(healthy):
    said = words(page(healthy, pair(0, 2, total_bytes=None, busbw_gb_s=None)))
    assert "sender and receiver" not in said
    assert "rank 0 rank 2 48 – 150 µs –" in said


def test_without_messages_there_is_no_section(healthy):
    assert page(healthy) is None
    assert render(healthy) is None


def test_a_large_job_shows_those_that_send_most(healthy):
    pairs = [pair(rank, rank + 1, total_bytes=1000 + rank) for rank in range(200)]
    shown = str(page(healthy, *pairs))
    assert f"the {MAX_LINES} that send most" in shown
    assert shown.count('scope="row"') >= MAX_LINES
    assert ">rank 199<" in shown
