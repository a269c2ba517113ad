"""Places whose transfers take longer than those of their peers: groups, and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tracekit.derive.activity import has_device_events
from tracekit.derive.averages import averages, mean_steps
from tracekit.derive.peer_transfers import against_peers
from tracekit.derive.savings import saving
from tracekit.derive.shown_transfers import shown_transfers
from tracekit.detectors import Detector, finding, number, skipped
from tracekit.detectors._transfers import ON_HOSTS
from tracekit.findings import Cause, Column, Confidence, Evidence, Finding, Level, Scope, Status
from tracekit.store import Run
from tracekit.units import Quantity, Unit, text

MAX_SHOWN, MAX_FINDINGS = 16, 8
MIN_SHARING = 3
"""Slow places must share a host for it to be named: two may do so by chance."""


class Limits(Protocol):
    """What a detector that compares places must limit."""

    @property
    def max_ratio(self) -> float: ...
    @property
    def min_step_share(self) -> float: ...
    @property
    def min_calls(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What is compared: `placed` gives its transfers; `what` and `calls` are words for it."""

    placed: Callable[[Run], pl.DataFrame]
    what: str
    calls: str
    cause: Cause
    why_none: str


def slow_places(
    detector: Detector, run: Run, limits: Limits, places: Places
) -> tuple[Finding, ...]:
    """One finding for each slow place, the slowest first; else one for the run."""
    if not has_device_events(run):
        return (skipped(detector, ON_HOSTS),)
    rows = _by_place(run, places.placed(run))
    means = mean_steps(run)
    if rows.is_empty() or means.is_empty():
        return (skipped(detector, places.why_none),)
    step_ns = number(means["dur_ns"].mean())
    is_slow = (
        (pl.col("ratio") >= limits.max_ratio)
        & (pl.col("extra_ns") >= limits.min_step_share * step_ns)
        & (pl.col("n_calls") >= limits.min_calls)
    )
    slow = rows.filter(is_slow)
    shared: dict[str, Any] = {"limit": Quantity(limits.max_ratio, Unit.RATIO)}
    if slow.is_empty():
        largest = Quantity(number(rows["ratio"].max()), Unit.RATIO)
        return (finding(detector, Status.CLEAR, measured=largest, **shared),)
    table = _table(run, rows, places)
    hosts = _shared_hosts(run, rows, slow)
    if hosts:
        worst = slow.select(pl.col("ratio", "extra_ns", "whole_ns").max()).row(0, named=True)
        said = _of_hosts(run, slow, hosts, places) | _costs(worst, step_ns, means.height)
        return (finding(detector, Status.FOUND, evidence=(table,), **said, **shared),)
    return tuple(
        finding(
            detector,
            Status.FOUND,
            evidence=(table, _sizes(run, row["place"], places)),
            **_of_place(run, row, places),
            **_costs(row, step_ns, means.height),
            **shared,
        )
        for row in slow.head(MAX_FINDINGS).iter_rows(named=True)
    )


def _by_place(run: Run, placed: pl.DataFrame) -> pl.DataFrame:
    """Each place with peers: `ratio` to them, and what of that shows in a mean step, `extra_ns`."""
    n = pl.col("n_calls")
    took_ns, usual_ns = (n * pl.col("p50_ns")).sum(), (n * pl.col("usual_ns")).sum()
    compared = (
        against_peers(placed)
        .group_by("place")
        .agg(
            pl.col("n_calls").sum(),
            pl.col("n_peers").max(),
            pl.col("members", "alike").first(),
            ratio=took_ns / usual_ns,
        )
    )
    n_steps = max(1, len(averages(run).steps))
    exposed = (
        shown_transfers(run)
        .join(placed.select("instance", "place"), on="instance", validate="m:1")
        .group_by("place", "rank")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").sum() / n_steps)
        .group_by("place")
        .agg(pl.col("exposed_transfer_ns", "transfer_ns").mean())
    )
    longer = 1 - 1 / pl.col("ratio")
    return (
        compared.join(exposed, on="place", validate="1:1")
        .with_columns(
            extra_ns=(pl.col("exposed_transfer_ns") * longer),
            whole_ns=(pl.col("transfer_ns") * longer),
        )
        .sort("extra_ns", "place", descending=[True, False])
    )


def _costs(row: dict[str, Any], step_ns: float, n_gpus: int) -> dict[str, Any]:
    """Measured ratio and saving of a row with `ratio`, `extra_ns`, `whole_ns`."""
    return {
        "measured": Quantity(row["ratio"], Unit.RATIO),
        "saving": saving(
            row["extra_ns"],
            row["whole_ns"],
            step_ns,
            n_gpus,
            "transfers take as long as those of peers; low end: what nothing hides of them, "
            f"{text(row['extra_ns'], Unit.NS)} a step",
        ),
    }


def _of_place(run: Run, row: dict[str, Any], places: Places) -> dict[str, Any]:
    n_peers, name = row["n_peers"], row["place"]
    compared = "its only peer" if n_peers == 1 else f"its {n_peers} peers"
    ratio = text(row["ratio"], Unit.RATIO)
    confidence = Confidence(Level.LOW, "two of a kind: either may be the unusual one")
    if n_peers > 1:
        confidence = Confidence(
            Level.MEDIUM,
            f"{row['n_calls']} calls against {n_peers} peers of the same sizes; no waiting in it",
        )
    return {
        "subject": name,
        "title": f"{places.calls} {name} take {ratio} as long as those of {compared}",
        "cause": places.cause,
        "ranks": tuple(row["members"]),
        "groups": (name,),
        "confidence": confidence,
        "scope": Scope(victims=tuple(r for r in run.ranks if r not in row["members"])),
    }


def _of_hosts(
    run: Run, slow: pl.DataFrame, hosts: tuple[str, ...], places: Places
) -> dict[str, Any]:
    """What is said where all slow places hold the same hosts: those are at fault."""
    ratio = text(number(slow["ratio"].max()), Unit.RATIO)
    names, on = tuple(slow["place"].to_list()), _hosts(run)
    ranks = tuple(rank for rank in run.ranks if on.get(rank) in hosts)
    where, what = ", ".join(hosts[:4]), f"{places.what}s"
    return {
        "subject": where,
        "title": f"Transfers of the {len(names)} {what} on hosts {where} take {ratio} as long",
        "cause": places.cause,
        "ranks": ranks,
        "groups": names,
        "confidence": Confidence(
            Level.MEDIUM,
            f"all {len(names)} {what} that hold them are slow and none of their peers is; "
            "no waiting in it",
        ),
        "scope": Scope(victims=tuple(rank for rank in run.ranks if rank not in ranks)),
    }


def _hosts(run: Run) -> dict[int, str]:
    return {capture.rank: capture.host for capture in run.manifest.captures if capture.host}


def _shared_hosts(run: Run, rows: pl.DataFrame, slow: pl.DataFrame) -> tuple[str, ...]:
    """Hosts that every slow place holds and none of its peers does, of `MIN_SHARING` or more."""
    if slow.height < MIN_SHARING:
        return ()
    hosts = _hosts(run)
    in_all = set(hosts.values())
    for members in slow["members"]:
        in_all &= {hosts.get(rank, "") for rank in members}
    others = rows.join(slow, on="place", how="anti").join(slow, on="alike", how="semi")
    elsewhere = {hosts.get(rank, "") for members in others["members"] for rank in members}
    return tuple(sorted(in_all - elsewhere))


def _table(run: Run, rows: pl.DataFrame, places: Places) -> Evidence:
    hosts = _hosts(run)
    return Evidence(
        title=f"{places.what.capitalize()}s against their peers",
        columns=(
            Column(places.what),
            Column("hosts"),
            Column("calls", Unit.COUNT),
            Column("against peers", Unit.RATIO),
            Column("exposed transfer a step", Unit.NS),
        ),
        rows=tuple(
            (
                row["place"],
                ", ".join(sorted({hosts.get(rank, "") for rank in row["members"]} - {""})[:4])
                or None,
                row["n_calls"],
                row["ratio"],
                row["exposed_transfer_ns"],
            )
            for row in rows.head(MAX_SHOWN).iter_rows(named=True)
        ),
    )


def _sizes(run: Run, place: str, places: Places) -> Evidence:
    rows = against_peers(places.placed(run)).filter(place=place)
    return Evidence(
        title=f"Transfers of {places.what} {place}",
        columns=(
            Column("operation"),
            Column("bytes", Unit.BYTES),
            Column("calls", Unit.COUNT),
            Column("median", Unit.NS),
            Column("median of peers", Unit.NS),
        ),
        rows=tuple(
            rows.sort("n_calls", "size_bytes", descending=True)
            .select("operation", "size_bytes", "n_calls", "p50_ns", "usual_ns")
            .head(MAX_SHOWN)
            .iter_rows()
        ),
    )
