"""Pairing calls by order where nothing numbers them, over ranks whose captures start apart.

The ranks of one communicator make the same calls in the same order, but each capture cuts the list
elsewhere. For each rank the shift against the longest list is sought at which operations agree; of
several (steps repeat), the one at which the ends keep the most constant distance: a collective ends
on all ranks at once, so at the right shift that distance is the clock offset and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

MIN_AGREEMENT = 0.9
SLACK = 64
"""How many calls more than the difference in length a window may be shifted."""
MAX_CANDIDATES = 32
MIN_PAIRED = 3
"""Fewer calls keep a constant distance by chance: no ground to call two ranks one group."""
END_TOLERANCE_NS = 200_000
"""Ends of one collective differ by up to 0.1–0.5 ms on a CPU (gloo), by microseconds with NCCL."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Calls of one rank on one communicator, in order."""

    rank: int
    rows: pl.DataFrame
    tokens: pl.Series
    ends: pl.Series


def paired_by_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `instance_key` and `match` to calls without identifier or sequence number.

    Args:
        calls: sorted by rank and start, with `group_key` and `communicator`. Where the group is not
            recorded, ranks are clustered: those whose ends keep a constant distance share one.
    """
    known = pl.col("group_key") != pl.lit("∅")
    keyed = calls.with_columns(
        key=pl.when(known).then("group_key").otherwise("communicator"),
        is_known=known,
        token=pl.coalesce("operation", "name"),
    )
    parts = []
    for (key,), rows in keyed.partition_by("key", as_dict=True, maintain_order=True).items():
        sequences = [
            _Sequence(int(rank), part, part["token"], part["start_ns"] + part["dur_ns"])
            for (rank,), part in rows.partition_by(
                "rank", as_dict=True, maintain_order=True
            ).items()
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
        for cluster, reference in enumerate(clusters):  # noqa: B007 - the index of the fit is used
            shift = _shift(sequence, reference, is_known=is_known)
            if shift is not None:
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
    n, m = sequence.tokens.len(), reference.tokens.len()
    reach = abs(m - n) + min(SLACK, max(n, m) - 1)
    fits = []
    for shift in range(-reach, reach + 1):
        mine = max(0, -shift)
        length = min(n - mine, m - max(0, shift))
        if length < max(1, min(n, m) // 2):
            continue
        theirs = mine + shift
        agreement = (
            sequence.tokens.slice(mine, length) == reference.tokens.slice(theirs, length)
        ).mean()
        fits.append((float(agreement or 0.0), shift, mine, theirs, length))
    best = max((agreement for agreement, *_ in fits), default=0.0)
    if best < MIN_AGREEMENT:
        return None
    near = sorted(
        (fit for fit in fits if fit[0] >= best - 1e-9), key=lambda fit: (abs(fit[1]), fit[1])
    )[:MAX_CANDIDATES]
    scored = []
    for _, shift, mine, theirs, length in near:
        apart = sequence.ends.slice(mine, length) - reference.ends.slice(theirs, length)
        middle = apart.median()
        spread = (apart - int(middle)).abs().median() if isinstance(middle, float) else None
        if not isinstance(middle, float) or not isinstance(spread, float):
            continue
        scored.append((spread // 1000, abs(middle), shift, spread))
    if not scored:
        return None
    least = min(spread for _, _, _, spread in scored)
    steady = [each for each in scored if each[3] <= 1.5 * least + 2000]
    _, _, shift, spread = min(steady, key=lambda each: each[1])
    if is_known:
        return shift
    n_paired = min(n - max(0, -shift), m - max(0, shift))
    return shift if n_paired >= MIN_PAIRED and spread <= END_TOLERANCE_NS else None
