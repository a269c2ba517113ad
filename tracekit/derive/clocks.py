"""One clock for all ranks: what to take off the times of each, and how far off they may still be.

Ranks of one host share a clock; where hosts are not known, every rank has its own. A collective
that nobody leaves before all have entered ends everywhere at once: its ends tell the clocks apart.
A rank that contradicts its host's clock gets its own. Clocks that leave a collective before a
member has entered it, or that share too few of them, are not used; there what the hook measured
between hosts takes their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.cached import cached
from tracekit.derive.clock_fit import Block, Fit, fitted
from tracekit.derive.clock_readings import with_readings
from tracekit.derive.instances import instances
from tracekit.derive.synchronizing import is_split
from tracekit.schema.table import F64, FLAG, I64, TEXT, Column, Table

if TYPE_CHECKING:
    from tracekit.store import Run

CLOCKS = Table(
    "clocks",
    "rank with its clock",
    (
        Column("rank", I64, "", "rank"),
        Column("clock", TEXT, "", "host or rank whose clock it is"),
        Column("component", I64, "", "clocks of one component can be compared"),
        Column("origin_ns", I64, "ns", "time at which offset_ns holds"),
        Column("offset_ns", F64, "ns", "ahead of the reference clock of the component"),
        Column("drift", F64, "", "how much faster it runs than the reference (1e-6 is 1 ppm)"),
        Column("error_ns", F64, "ns", "three times the spread of its residuals; 0 on one clock"),
        Column("n_ends", I64, "", "collectives by which it was fitted"),
        Column("is_usable", FLAG, "", "whether times of ranks can be compared by it"),
        Column("source", TEXT, "", "one clock, collective ends, readings, or why not to be used"),
    ),
)
ONE_CLOCK, BY_ENDS = "one clock", "collective ends"
MIN_ENDS = 8
N_WARM_UP = 2
"""First calls of a group set it up, and end at different times."""
MIN_TO_SKIP = 10
"""Calls of a group below which its first ones are too dear to leave out."""
MAX_PER_BLOCK = 400
"""Ends of one set of clocks beyond this add time and no accuracy."""
OWN_CLOCK_NS = 20_000
"""Ends of ranks of one host that lie further apart, constantly, are stamped by other clocks."""
LEAST_ERROR_NS = 1.0
"""Stamps are whole ns: clocks that were put together are known no better, and are not one."""
MAX_CONTRADICTED_SHARE = 0.02
"""Collectives that seem to end before a member has entered: more than these are not mismatched."""


def clocks(run: Run) -> pl.DataFrame:
    """The clock of every rank (`CLOCKS`), by rank."""
    return cached(run, CLOCKS, lambda: _clocks(run)).collect()


def greatest_error_ns(run: Run) -> float | None:
    """The largest error of any rank's clock, 0 only where all have one.

    None of one rank, and where the clocks of some cannot be compared.
    """
    found = clocks(run)
    is_comparable = found["is_usable"].all() and found["component"].n_unique() == 1
    if found.height < 2 or not is_comparable:
        return None
    is_one = (found["source"] == ONE_CLOCK).all()
    return 0.0 if is_one else max(float(found["error_ns"].to_numpy().max()), LEAST_ERROR_NS)


def corrected(at_ns: pl.Expr) -> pl.Expr:
    """A time of a rank on the common clock, over rows with the columns of `CLOCKS`."""
    since_ns = at_ns - pl.col("origin_ns")
    return at_ns - (pl.col("offset_ns") + pl.col("drift") * since_ns).round().cast(pl.Int64)


def _clocks(run: Run) -> pl.DataFrame:
    ends = _ends(run)
    named = _named(run, ends)
    order = {name: number for number, name in enumerate(named["clock"].unique(maintain_order=True))}
    numbered = named.with_columns(
        number=pl.col("clock").replace_strict(order, return_dtype=pl.Int64)
    )
    origin_ns, blocks = _blocks(ends.join(numbered.select("rank", "number"), on="rank"))
    fit = fitted(len(order), blocks)
    found = numbered.join(_of(fit, origin_ns), on="number", validate="m:1").sort("rank")
    judged = _judged(found, ends).select(list(CLOCKS.schema))
    is_one = judged["is_usable"].all() and judged["component"].n_unique() == 1
    return judged if is_one else with_readings(run, judged)


def _ends(run: Run) -> pl.DataFrame:
    """Calls that end on all members at once: `rank`, `instance`, `start_ns`, `end_ns`, by both."""
    number = pl.int_range(pl.len()).over("rank", "group")
    n_calls = pl.len().over("rank", "group")
    return (
        instances(run)
        .filter(is_split())
        .sort("rank", "start_ns")
        .filter((number >= N_WARM_UP) | (n_calls < MIN_TO_SKIP))
        .select("rank", "instance", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
        .sort("instance", "rank")
        .collect()
    )


def _named(run: Run, ends: pl.DataFrame) -> pl.DataFrame:
    """`rank`, `clock`: the host where it is known and nothing contradicts it, else the rank."""
    hosts = pl.DataFrame(
        {"rank": list(run.ranks), "host": [capture.host for capture in run.manifest.captures]},
        schema={"rank": pl.Int64, "host": pl.String},
    )
    together = ends.join(hosts.drop_nulls(), on="rank").filter(
        pl.len().over("instance", "host") > 1
    )
    here = ("instance", "host")
    away_ns = (pl.col("end_ns") - pl.col("end_ns").median().over(here)).abs()
    spread_ns = 3 * away_ns.median().over("host")
    left_early = pl.col("end_ns") < pl.col("start_ns").max().over(here)
    contradicting = (
        together.with_columns(away_ns=away_ns, spread_ns=spread_ns, left_early=left_early)
        .group_by("rank")
        .agg(
            (
                pl.col("away_ns").median()
                > pl.max_horizontal(pl.col("spread_ns").first(), OWN_CLOCK_NS)
            ).alias("is_apart"),
            (pl.col("left_early").mean() > MAX_CONTRADICTED_SHARE).alias("is_early"),
        )
        .filter(pl.col("is_apart") | pl.col("is_early"))["rank"]
    )
    is_own = pl.col("host").is_null() | pl.col("rank").is_in(contradicting.implode())
    return hosts.sort("rank").select(
        "rank", clock=pl.when(is_own).then(pl.format("rank {}", "rank")).otherwise("host")
    )


def _blocks(ends: pl.DataFrame) -> tuple[int, list[Block]]:
    """Ends by the set of clocks that saw them: of each clock that of its first rank to end."""
    by_clock = ends.group_by("instance", "number").agg(pl.col("end_ns").min())
    if by_clock.is_empty():
        return 0, []
    origin_ns = int(by_clock["end_ns"].sort()[0])
    seen = (
        by_clock.sort("instance", "number")
        .group_by("instance", maintain_order=True)
        .agg("number", "end_ns")
        .filter(pl.col("number").list.len() > 1)
        .group_by("number", maintain_order=True)
        .agg("end_ns")
    )
    blocks = []
    for numbers, rows in seen.iter_rows():
        chosen = np.unique(np.linspace(0, len(rows) - 1, MAX_PER_BLOCK).astype(int))
        times = np.array([rows[at] for at in chosen], dtype=np.int64) - origin_ns
        blocks.append(Block(np.array(numbers), times.astype(np.float64)))
    return origin_ns, blocks


def _of(fit: Fit, origin_ns: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "number": np.arange(fit.offset_ns.size),
            "component": fit.component,
            "origin_ns": np.full(fit.offset_ns.size, origin_ns),
            "offset_ns": fit.offset_ns,
            "drift": fit.drift,
            "error_ns": fit.error_ns,
            "n_ends": fit.n_events,
        }
    ).with_columns(pl.col("error_ns").fill_nan(0.0))


def _judged(found: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Add `is_usable` and `source`: what a clock rests on, and what contradicts it."""
    on_clock = ends.join(found, on="rank", validate="m:1").with_columns(
        corrected(pl.col("start_ns")).alias("start_ns"), corrected(pl.col("end_ns")).alias("end_ns")
    )
    is_contradicted = pl.col("start_ns").max() > pl.col("end_ns").min() + pl.max_horizontal(
        pl.col("error_ns").max(), OWN_CLOCK_NS
    )
    contradicted = (
        on_clock.group_by("component", "instance")
        .agg(is_contradicted=is_contradicted)
        .group_by("component")
        .agg(contradicted_share=pl.col("is_contradicted").mean())
    )
    n_clocks = pl.col("clock").n_unique().over("component")
    return (
        found.join(contradicted, on="component", how="left", validate="m:1")
        .with_columns(
            source=pl.when(pl.col("contradicted_share") > MAX_CONTRADICTED_SHARE)
            .then(pl.lit("contradicted: collectives end before a member enters"))
            .when((n_clocks == 1) & (pl.len().over("component") == 1))
            .then(pl.lit("shares no collective with another clock"))
            .when(n_clocks == 1)
            .then(pl.lit(ONE_CLOCK))
            .when(pl.col("n_ends") < MIN_ENDS)
            .then(pl.lit("too few collectives that end at once"))
            .otherwise(pl.lit(BY_ENDS))
        )
        .with_columns(
            is_usable=pl.col("source").is_in([ONE_CLOCK, BY_ENDS]),
        )
    )
