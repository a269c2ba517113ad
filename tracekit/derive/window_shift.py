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
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.clock_fit import MIN_DRIFT_EVENTS, MIN_DRIFT_S
from tracekit.derive.kernel_kinds import POINT_TO_POINT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

NO_GROUP = "∅"
"""Key of a call whose group was not recorded."""
MIN_AGREEMENT_SHARE = 0.9
SLACK = 64
"""How many calls more than the difference in length a window may be shifted."""
SAMPLE = 128
"""Calls by which all shifts are compared before the best ones are compared by all."""
MAX_CANDIDATES = 16
MIN_PAIRED = 3
"""Fewer calls keep a constant distance by chance: no ground to shift a list, or to call two ranks
one group."""
MANY_PAIRED = 16
SAME_GROUP_FACTOR, SAME_GROUP_NS = 4, 5_000
"""Lists of one group keep their distance as constant as the best of them, up to this factor, or
within the microseconds by which ends of one collective differ."""
SPREAD_TOLERANCE_NS = 2_000
"""Distances this alike are equally constant: ends of one collective differ by some microseconds."""
END_TOLERANCE_NS = 200_000
"""Ends of one collective differ by up to 0.1–0.5 ms on a CPU (gloo), by microseconds with NCCL."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Calls of one rank on one communicator, in order: what they are and when they end.

    `is_known` is whether its group was recorded.
    """

    rank: int
    rows: pl.DataFrame
    tokens: Numbers
    ends_ns: Numbers
    is_known: bool


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

    @property
    def is_constant(self) -> bool:
        """Whether the ends of enough pairs keep their distance, as those of one group do."""
        return self.n_paired >= MIN_PAIRED and self.spread_ns <= END_TOLERANCE_NS


def paired_by_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `instance_key` and `match` to calls without identifier or sequence number.

    Args:
        calls: sorted by rank and start, with `group_key` and `communicator`. Where the group is not
            recorded, ranks are clustered: those whose ends keep the most constant distance share
            one.
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
                part["token"].to_numpy(),
                (part["start_ns"] + part["dur_ns"]).to_numpy(),
                bool(rows["is_known"][0]),
            )
            for (rank,), part in by_rank.items()
        ]
        parts += _paired(str(key), sequences)
    return pl.concat(parts)


def _paired(key: str, sequences: list[_Sequence]) -> list[pl.DataFrame]:
    """Number the calls of each rank against the longest list of its group."""
    longest_first = sorted(sequences, key=lambda s: (-s.tokens.size, s.rank))
    is_known = longest_first[0].is_known
    groups = _fitting_one(longest_first) if is_known else _told_apart(longest_first)
    numbered = []
    for number, group in enumerate(groups):
        for sequence, shift in group:
            place = pl.int_range(pl.len(), dtype=pl.Int64) + shift
            numbered.append(
                sequence.rows.with_columns(
                    instance_key=pl.format("order {} {} {}", pl.lit(key), pl.lit(number), place),
                    match=pl.lit("order"),
                )
            )
    return numbered


def _fitting_one(sequences: list[_Sequence]) -> list[list[tuple[_Sequence, int]]]:
    """Lists of one group with the shift of each against the first; what does not fit is alone."""
    groups: list[list[tuple[_Sequence, int]]] = []
    for sequence in sequences:
        for group in groups:
            fit = _fit(sequence, group[0][0])
            if fit is not None:
                group.append((sequence, fit.shift))
                break
        else:
            groups.append([(sequence, 0)])
    return groups


def _told_apart(sequences: list[_Sequence]) -> list[list[tuple[_Sequence, int]]]:
    """Lists of unknown groups, told apart by how constant the distance of their ends is.

    Ranks that work alike, as the stages of a pipeline, keep their distance to some ten
    microseconds; those of one group keep it better than that. So two lists are of one group where
    their distance is about as constant as that to the list that fits best.
    """
    n = len(sequences)
    fits = {}
    for one in range(n):
        for other in range(one):
            fit = _fit(sequences[one], sequences[other])
            if fit is not None and fit.is_constant:
                fits[one, other] = fit
    least_ns = [
        min((fit.spread_ns for pair, fit in fits.items() if number in pair), default=0)
        for number in range(n)
    ]
    first = list(range(n))
    for (one, other), fit in sorted(fits.items()):
        usual_ns = min(least_ns[one], least_ns[other])
        if fit.spread_ns <= max(SAME_GROUP_FACTOR * usual_ns, SAME_GROUP_NS):
            low, high = sorted((first[one], first[other]))
            first = [low if number == high else number for number in first]
    groups: dict[int, list[tuple[_Sequence, int]]] = {}
    for number, sequence in enumerate(sequences):
        head = first[number]
        fit = fits.get((number, head)) or _fit(sequence, sequences[head])
        groups.setdefault(head, []).append((sequence, fit.shift if fit else 0))
    return list(groups.values())


def _fit(sequence: _Sequence, reference: _Sequence) -> _Fit | None:
    """The best fit of a rank's list against the reference's; None where operations differ."""
    if sequence is reference:
        return None
    fits = _agreeing(sequence, reference)
    if not fits:
        return None
    sampled = sorted(
        (_timed(fit, sequence, reference, SAMPLE) for fit in fits),
        key=lambda fit: (fit.spread_ns, abs(fit.shift), fit.shift),
    )
    return _best([_timed(fit, sequence, reference) for fit in sampled[:MAX_CANDIDATES]])


def _agreeing(sequence: _Sequence, reference: _Sequence) -> list[_Fit]:
    """Shifts at which the operations agree best."""
    n, m = sequence.tokens.size, reference.tokens.size
    n_least = max(min(n, m) // 2, min(n, m, MIN_PAIRED))  # one pair always keeps its distance
    reach = abs(m - n) + min(SLACK, max(n, m) - 1)
    fits = []
    for shift in range(-reach, reach + 1):
        mine, theirs = max(0, -shift), max(0, shift)
        n_paired = min(n - mine, m - theirs)
        if n_paired < n_least:
            continue
        is_same = (
            sequence.tokens[mine : mine + n_paired] == reference.tokens[theirs : theirs + n_paired]
        )
        fits.append(_Fit(shift, mine, theirs, n_paired, agreement=float(is_same.mean())))
    best = max((fit.agreement for fit in fits), default=0.0)
    if best < MIN_AGREEMENT_SHARE:
        return []
    return [fit for fit in fits if fit.agreement >= best - 1e-9]


def _timed(fit: _Fit, sequence: _Sequence, reference: _Sequence, n_most: int | None = None) -> _Fit:
    """The fit with the median distance of the ends, and how far they stray from it.

    By all pairs, or by the `n_most` in the middle. Half of them stray less. Of a few pairs chance
    brings half together: where the group is not known, all count then but one in eight. Clocks may
    drift.
    """
    n = fit.n_paired if n_most is None else min(n_most, fit.n_paired)
    skipped = (fit.n_paired - n) // 2
    mine, theirs = fit.mine + skipped, fit.theirs + skipped
    at_ns = reference.ends_ns[theirs : theirs + n]
    apart_ns = sequence.ends_ns[mine : mine + n] - at_ns
    middle_ns = int(
        np.partition(apart_ns, n // 2)[n // 2]
    )  # a mean of two absolute times would not be exact
    strays_ns = np.abs(apart_ns - middle_ns - _drifted_ns(apart_ns - middle_ns, at_ns))
    is_few = n < MANY_PAIRED and not sequence.is_known
    counted = n - 1 - n // 8 if is_few else n // 2
    return replace(
        fit, apart_ns=middle_ns, spread_ns=int(np.partition(strays_ns, counted)[counted])
    )


def _drifted_ns(apart_ns: Numbers, at_ns: Numbers) -> Numbers:
    """How far clocks have drifted apart at each end, by the first and last third of them."""
    n, span_ns = apart_ns.size, int(at_ns[-1] - at_ns[0])
    if n < MIN_DRIFT_EVENTS or span_ns < MIN_DRIFT_S * 1e9:
        return np.zeros_like(apart_ns)
    third = n // 3
    moved_ns = np.median(apart_ns[-third:]) - np.median(apart_ns[:third])
    lasted_ns = np.median(at_ns[-third:] - at_ns[0]) - np.median(at_ns[:third] - at_ns[0])
    since_ns = at_ns - at_ns[n // 2]
    drifted: Numbers = np.round(moved_ns / lasted_ns * since_ns).astype(np.int64)
    return drifted


def _best(fits: list[_Fit]) -> _Fit:
    """The steadiest fit; of equally steady ones that whose ends coincide, else the least shift."""
    least = min(fit.spread_ns for fit in fits)
    steady = [fit for fit in fits if fit.spread_ns <= 1.5 * least + SPREAD_TOLERANCE_NS]
    steady.sort(key=lambda fit: (abs(fit.shift), fit.shift))
    coinciding = [fit for fit in steady if abs(fit.apart_ns) <= END_TOLERANCE_NS]
    if coinciding:
        return min(coinciding, key=lambda fit: abs(fit.apart_ns))
    return steady[0]
