"""Late ranks as culprits: ranks that are late together in most instances are one.

A slow host, switch or stage makes all of its ranks late at once; blamed one by one, none of them
would save anything, since the others would still be late.
"""

from __future__ import annotations

from statistics import median

import polars as pl

MIN_TOGETHER_SHARE = 0.5
MIN_VICTIM_SHARE = 0.25
"""Who waits less than this share of the longest wait meets the culprit in passing only."""


def with_culprit(late: pl.DataFrame) -> pl.DataFrame:
    """Add `culprit`, the lowest rank of those that are late together (rows of `LATENESS`)."""
    together = _linked(late)
    first = {rank: rank for rank in late["rank"].unique().sort()}
    for low, high in together:
        old, new = first[high], first[low]
        if old != new:
            keep, drop = min(old, new), max(old, new)
            first = {rank: keep if known == drop else known for rank, known in first.items()}
    return late.with_columns(
        culprit=pl.col("rank").replace_strict(first, return_dtype=pl.Int64)
        if first
        else pl.lit(None, dtype=pl.Int64)
    )


def by_instance(late: pl.DataFrame) -> pl.DataFrame:
    """Rows of `with_culprit` summed over the ranks of a culprit.

    Returns:
        `culprit`, `instance`, `step`, `group`, `start_ns`, `late_ns` (the latest of its ranks),
        `error_ns`, `caused_ns`, `victim_ns`, `gain_ns` (exposed time that ends if this culprit
        alone enters with the next rank: 0 where others are late too); by start.
    """
    return (
        late.group_by("culprit", "instance")
        .agg(
            pl.col("step", "group", "start_ns", "error_ns", "n_late", "next_ns").first(),
            pl.col("late_ns").max(),
            pl.col("caused_ns", "victim_ns").sum(),
            n_own=pl.len(),
        )
        .with_columns(
            gain_ns=pl.when(pl.col("n_own") == pl.col("n_late")).then("next_ns").otherwise(0.0)
        )
        .drop("n_own", "n_late", "next_ns")
        .sort("start_ns", "culprit")
    )


def ranked_culprits(
    late: pl.DataFrame,
    calls: pl.DataFrame,
    members: pl.DataFrame,
    *,
    n_steps: int,
    min_lead_share: float,
) -> pl.DataFrame:
    """Culprits, those that cause most waiting first.

    Args:
        late: rows of `with_culprit`, of the steps looked at.
        calls: the same rows by instance.
        members: `rank` and `group` of all calls compared.
        n_steps: how many steps those are.
        min_lead_share: a culprit leads in a step in which it causes this share of the waiting.

    Returns:
        `culprit`, `ranks`, `group` (where it is late most), `n_late` (instances), `late_ns` and
        `error_ns` (sums), `caused_ns` (sum), `caused_share`, `leads_share` (of the steps), and a
        step: `low_ns` (others enter with the next rank, less the error, and only what the victim
        with the shortest wait gains), `high_ns` (the median victim's exposed wait).
    """
    share = pl.col("caused_ns") / pl.col("caused_ns").sum()
    leads = (
        calls.group_by("step", "culprit")
        .agg(pl.col("caused_ns").sum())
        .sort("step", "culprit")  # doubles that are added in another order differ in the last digit
        .filter(share.over("step") >= min_lead_share)
        .group_by("culprit")
        .agg(leads_share=pl.len() / n_steps)
    )
    own = late.group_by("culprit").agg(ranks=pl.col("rank").unique().sort())
    return (
        calls.with_columns(in_group_ns=pl.col("late_ns").sum().over("culprit", "group"))
        .group_by("culprit")
        .agg(
            pl.col("late_ns", "error_ns", "caused_ns").sum(),
            group=most_late_in(),
            n_late=pl.len(),
            high_ns=pl.col("victim_ns").sum() / n_steps,
        )
        .join(own, on="culprit", validate="1:1")
        .join(_least_gain(late, calls, members, n_steps), on="culprit", validate="1:1")
        .join(leads, on="culprit", how="left", validate="1:1")
        .sort("culprit")
        .with_columns(pl.col("leads_share").fill_null(0.0), caused_share=share.fill_nan(0.0))
        .sort("caused_ns", "culprit", descending=[True, False])
    )


def most_late_in() -> pl.Expr:
    """The group in which a culprit is late by most, by `in_group_ns`: of two, the first name.

    Jitter in the many calls of one group weighs less than one delay in another.
    """
    return pl.col("group").sort_by("in_group_ns", "group", descending=[True, False]).first()


def _least_gain(
    late: pl.DataFrame, calls: pl.DataFrame, members: pl.DataFrame, n_steps: int
) -> pl.DataFrame:
    """`culprit`, `low_ns`: what the victim that waits least gains in a step.

    A delay shows once to each victim, in whichever groups it shares with the culprit. The job ends
    no sooner than its last rank, so the victim with the least to gain says what is sure.
    """
    own = late.select("culprit", "rank").unique()
    is_victim = pl.col("gain_ns") >= MIN_VICTIM_SHARE * pl.col("gain_ns").max().over("culprit")
    return (
        calls.group_by("culprit", "group")
        .agg(gain_ns=(pl.col("gain_ns") - pl.col("error_ns")).sum() / n_steps)
        .join(members.unique(), on="group")
        .join(own, on=["culprit", "rank"], how="anti")
        .sort("culprit", "rank", "group")
        .group_by("culprit", "rank")
        .agg(pl.col("gain_ns").sum())
        .filter(is_victim)
        .group_by("culprit")
        .agg(low_ns=pl.col("gain_ns").min())
    )


def inherited_ns(
    waits: pl.DataFrame, unsplit: pl.DataFrame, own: pl.DataFrame, ranks: list[int], group: str
) -> dict[int, float]:
    """How much longer each rank of a culprit waited for other groups than its peers.

    Whoever waits for a slow peer of one group comes late to the next: that lateness has its origin
    in the first group and is no fault of the rank.

    Args:
        waits: calls with a known `wait_ns` of all ranks.
        unsplit: `rank`, `unsplit_ns`: exposed communication in the steps looked at whose waiting is
            not known, as messages between stages.
        own: late arrivals of the culprit, by instance.
        ranks: the culprit's ranks.
        group: the group in which it is late most.

    Returns:
        Of each rank, its waiting from the culprit's first late arrival to the last, less that of
        the median other member of the group; below 0 where it waited less.
    """
    start_ns = pl.col("start_ns")
    shared = waits.filter(group=group).join(own.select("instance"), on="instance", how="semi")
    bounds = shared.group_by("rank").agg(opens_ns=start_ns.min(), closes_ns=start_ns.max())
    inside = waits.join(bounds, on="rank", validate="m:1").filter(
        start_ns.is_between("opens_ns", "closes_ns")  # on the rank's own clock
    )
    members = bounds["rank"].sort().to_list()
    elsewhere = (
        pl.concat(
            [
                inside.filter(pl.col("group") != group).select("rank", waited_ns="wait_ns"),
                unsplit.select("rank", waited_ns="unsplit_ns"),
            ]
        )
        .group_by("rank")
        .agg(pl.col("waited_ns").sum())
    )
    waited_ns = dict(elsewhere.iter_rows())
    peers = [float(waited_ns.get(rank, 0)) for rank in members if rank not in ranks]
    usual_ns = median(peers) if peers else 0.0
    return {rank: float(waited_ns.get(rank, 0)) - usual_ns for rank in ranks}


def _linked(late: pl.DataFrame) -> list[tuple[int, int]]:
    """Pairs of ranks that share more than half of the instances in which either is late."""
    calls = late.lazy().select("rank", "instance")
    n_late = calls.group_by("rank").agg(n=pl.len().cast(pl.Int64))
    n_either = pl.col("n") + pl.col("n_other") - pl.col("n_both")
    pairs = (
        calls.join(calls, on="instance", suffix="_other")
        .filter(pl.col("rank") < pl.col("rank_other"))
        .group_by("rank", "rank_other")
        .agg(n_both=pl.len().cast(pl.Int64))
        .join(n_late, on="rank", validate="m:1")
        .join(n_late.rename({"rank": "rank_other", "n": "n_other"}), on="rank_other")
        .filter(pl.col("n_both") > MIN_TOGETHER_SHARE * n_either)
        .sort("rank", "rank_other")
        .collect()
    )
    return list(zip(pairs["rank"].to_list(), pairs["rank_other"].to_list(), strict=True))
