"""Who sends how much to whom: messages between ranks, and between hosts where they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import Column
from tracekit.reports.components import note, table
from tracekit.reports.heat_table import Cell, Heat, Row, heat_table
from tracekit.units import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from tracekit.results import Result
    from tracekit.traffic import PairTraffic

ORDER = 38
TITLE = "Traffic between ranks"

GB = 1e9
MAX_LINES, MAX_ROWS = 64, 200
HOW_TO_READ = (
    "Bytes of messages over the whole trace, from the rank of the row to that of the column. What "
    "members of a collective send each other depends on its algorithm, which no trace records, so "
    "that collectives are not in it."
)
COLUMNS = (
    Column("From"),
    Column("To"),
    Column("Messages", Unit.COUNT),
    Column("Bytes", Unit.BYTES),
    Column("Median transfer", Unit.NS),
    Column("Bandwidth", Unit.BYTES_PER_S),
)


def render(result: Result, /) -> Markup | None:
    """The matrix of ranks, then pairs of hosts and of ranks; None without messages."""
    if result.traffic is None or not result.traffic.pairs:
        return None
    of_ranks = [pair for pair in result.traffic.pairs if not pair.is_hosts]
    of_hosts = [pair for pair in result.traffic.pairs if pair.is_hosts]
    page = note(HOW_TO_READ)
    sized = [pair for pair in of_ranks if pair.total_bytes]
    if sized:
        page += _matrix(sized)
    if of_hosts:
        page += table("Messages by hosts", COLUMNS, [_row(pair, "host") for pair in of_hosts])
    rows = [_row(pair, "rank") for pair in of_ranks[:MAX_ROWS]]
    return page + table("Messages by ranks, those with most bytes first", COLUMNS, rows)


def _matrix(pairs: Sequence[PairTraffic]) -> Markup:
    """Bytes by sender and receiver, of the senders with most."""
    sent: dict[int, int] = {}
    for pair in pairs:
        sent[int(pair.sender)] = sent.get(int(pair.sender), 0) + (pair.total_bytes or 0)
    senders = sorted(sorted(sent, key=lambda rank: (-sent[rank], rank))[:MAX_LINES])
    shown = {(int(p.sender), int(p.receiver)): p for p in pairs if int(p.sender) in senders}
    receivers = sorted({receiver for _, receiver in shown})
    cut = f", the {MAX_LINES} that send most" if len(sent) > len(senders) else ""
    return heat_table(
        Heat(
            caption=f"Bytes of messages by sender and receiver{cut}",
            corner="from \u2193 to \u2192",
            columns=tuple(map(str, receivers)),
            rows=tuple(
                Row(
                    head=f"rank {sender}",
                    rank=sender,
                    cells=tuple(_cell(shown.get((sender, receiver))) for receiver in receivers),
                )
                for sender in senders
            ),
            says="{row} sent {value} to rank {column}",
            blank="{row} sent nothing to rank {column}",
            low=0.0,
            high=float(max(pair.total_bytes or 0 for pair in shown.values())),
            unit=Unit.BYTES,
        )
    )


def _cell(pair: PairTraffic | None) -> Cell | None:
    return Cell(float(pair.total_bytes)) if pair is not None and pair.total_bytes else None


def _row(pair: PairTraffic, what: str) -> tuple[str | int | float | None, ...]:
    return (
        f"{what} {pair.sender}",
        f"{what} {pair.receiver}",
        pair.n_calls,
        pair.total_bytes,
        pair.p50_ns,
        None if pair.busbw_gb_s is None else pair.busbw_gb_s * GB,
    )
