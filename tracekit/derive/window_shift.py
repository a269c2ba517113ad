"""Pairing calls by order where nothing numbers them, over ranks whose captures start apart.

The ranks of one communicator make the same calls in the same order, but each capture cuts the list
elsewhere. For each rank the shift against the longest list is sought at which operations agree; of
several (steps repeat), the one at which the ends keep the most constant distance: a collective ends
on all ranks at once, so at the right shift that distance is the clock offset and nothing else.
Where calls repeat so evenly that several shifts fit alike, ends that coincide decide (ranks of one
host share a clock), else the least shift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from tracekit.derive.kernel_kinds import POINT_TO_POINT

NO_GROUP = "∅"
"""Key of a call whose group was not recorded."""
MIN_AGREEMENT_SHARE = 0.9
SLACK = 64
"""How many calls more than the difference in length a window may be shifted."""
SAMPLE = 512
"""Calls by which all shifts are compared before the best ones are compared by all."""
MAX_CANDIDATES = 16
MIN_PAIRED = 3
"""Fewer calls keep a constant distance by chance: no ground to shift a list, or to call two ranks
one group."""
SPREAD_TOLERANCE_NS = 2_000
"""Distances this alike are equally constant: ends of one collective differ by some microseconds."""
END_TOLERANCE_NS = 200_000
"""Ends of one collective differ by up to 0.1–0.5 ms on a CPU (gloo), by microseconds with NCCL."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Calls of one rank on one communicator, in order: what they are and when they end."""

    rank: int
    rows: pl.DataFrame
    tokens: pl.Series
    ends_ns: pl.Series


@dataclass(frozen=True, slots=True)
class _Fit:
    """One shift against another list: which calls pair, and how the ends lie to each other."""

    shift: int
    mine: int
    theirs: int
    n_paired: int
    agreement: float = 0.0
    apart_ns: int = 0
    spread_ns: int = 0


def paired_by_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `instance_key` and `match` to calls without identifier or sequence number.

    Args:
        calls: sorted by rank and start, with `group_key` and `communicator`. Where the group is not
            recorded, ranks are clustered: those whose ends keep a constant distance share one.
    """
    known = pl.col("group_key") != NO_GROUP
    is_pair = pl.col("operation").is_in(list(POINT_TO_POINT)) & known
    called = pl.when(is_pair).then(pl.lit("pair")).otherwise(pl.coalesce("operation", "name"))
    keyed = calls.with_columns(
        key=pl.when(known).then("group_key").otherwise("communicator"),
        is_known=known,
        token=called.rank("dense").cast(pl.Int64),
    )
    parts = []
    for (key,), rows in keyed.partition_by("key", as_dict=True, maintain_order=True).items():
        by_rank = rows.partition_by("rank", as_dict=True, maintain_order=True)
        sequences = [
            _Sequence(
                int(rank),
                part,
                part["token"],
                part["start_ns"] + part["dur_ns"],
            )
            for (rank,), part in by_rank.items()
        ]
        parts += _paired(str(key), sequences, is_known=bool(rows["is_known"][0]))
    return pl.concat(parts)


def _paired(key: str, sequences: list[_Sequence], *, is_known: bool) -> list[pl.DataFrame]:
    """Number the calls of each rank against the longest list that it fits."""
    clusters: list[_Sequence] = []
    numbered = []
    for sequence in sorted(sequences, key=lambda s: (-s.tokens.len(), s.rank)):
        shift = None
        cluster = 0
        for number, reference in enumerate(clusters):
            shift = _shift(sequence, reference, is_known=is_known)
            if shift is not None:
                cluster = number
                break
        if shift is None:
            clusters.append(sequence)
            cluster, shift = len(clusters) - 1, 0
        numbered.append(
            sequence.rows.with_columns(
                instance_key=pl.format(
                    "order {} {} {}",
                    pl.lit(key),
                    pl.lit(cluster),
                    pl.int_range(pl.len(), dtype=pl.Int64) + shift,
                ),
                match=pl.lit("order"),
            )
        )
    return numbered


def _shift(sequence: _Sequence, reference: _Sequence, *, is_known: bool) -> int | None:
    """How many calls later the rank's list starts than the reference's; None where none fits."""
    fits = _agreeing(sequence, reference)
    if not fits:
        return None
    sampled = sorted(
        (_timed(fit, sequence, reference, SAMPLE) for fit in fits),
        key=lambda fit: (fit.spread_ns, abs(fit.shift), fit.shift),
    )
    best = _best([_timed(fit, sequence, reference) for fit in sampled[:MAX_CANDIDATES]])
    is_constant = best.n_paired >= MIN_PAIRED and best.spread_ns <= END_TOLERANCE_NS
    return best.shift if is_known or is_constant else None


def _agreeing(sequence: _Sequence, reference: _Sequence) -> list[_Fit]:
    """Shifts at which the operations agree best."""
    n, m = sequence.tokens.len(), reference.tokens.len()
    n_least = max(min(n, m) // 2, min(n, m, MIN_PAIRED))  # one pair always keeps its distance
    reach = abs(m - n) + min(SLACK, max(n, m) - 1)
    fits = []
    for shift in range(-reach, reach + 1):
        mine, theirs = max(0, -shift), max(0, shift)
        n_paired = min(n - mine, m - theirs)
        if n_paired < n_least:
            continue
        is_same = sequence.tokens.slice(mine, n_paired) == reference.tokens.slice(theirs, n_paired)
        n_same = int(is_same.sum())
        fits.append(_Fit(shift, mine, theirs, n_paired, agreement=n_same / n_paired))
    best = max((fit.agreement for fit in fits), default=0.0)
    if best < MIN_AGREEMENT_SHARE:
        return []
    return [fit for fit in fits if fit.agreement >= best - 1e-9]


def _timed(fit: _Fit, sequence: _Sequence, reference: _Sequence, n_most: int | None = None) -> _Fit:
    """The fit with the median distance of the ends, and the median deviation from it.

    By all pairs, or by the `n_most` in the middle.
    """
    n = fit.n_paired if n_most is None else min(n_most, fit.n_paired)
    skipped = (fit.n_paired - n) // 2
    apart = sequence.ends_ns.slice(fit.mine + skipped, n) - reference.ends_ns.slice(
        fit.theirs + skipped, n
    )
    middle_ns = _median(apart)
    return replace(fit, apart_ns=middle_ns, spread_ns=_median((apart - middle_ns).abs()))


def _median(values_ns: pl.Series) -> int:
    """A middle value, exactly: the mean of two absolute times would not be one."""
    return int(values_ns.sort()[values_ns.len() // 2])


def _best(fits: list[_Fit]) -> _Fit:
    """The steadiest fit; of equally steady ones that whose ends coincide, else the least shift."""
    least = min(fit.spread_ns for fit in fits)
    steady = [fit for fit in fits if fit.spread_ns <= 1.5 * least + SPREAD_TOLERANCE_NS]
    steady.sort(key=lambda fit: (abs(fit.shift), fit.shift))
    coinciding = [fit for fit in steady if abs(fit.apart_ns) <= END_TOLERANCE_NS]
    if coinciding:
        return min(coinciding, key=lambda fit: abs(fit.apart_ns))
    return steady[0]
