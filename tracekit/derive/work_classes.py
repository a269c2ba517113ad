"""What a kernel, or an operator that stands for one, works on: attention, experts, all tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTENTION, EXPERTS, LINEAR, OTHER = "attention", "experts", "linear", "other"

MIN_UNEVEN = 0.05
"""Work of equal ranks differs by some per cent."""
MAX_EVEN_SHARE = 0.5
"""Matrix products of all tokens are uneven by at most half as much: attention grows with the square
of the length, they grow with the length; a slow device is as slow in both."""
MIN_EXTRA_SHARE = 0.4
"""Of all that is more, what is more in this class; the rest goes with it."""

_EXPERTS = r"(?i)grouped_?(?:gemm|mm)|group_?gemm|moe_?gemm|fused_?moe|fused_?experts|expert"
_LINEAR = r"(?i)\b(?:mm|addmm|bmm|matmul|linear|baddbmm)\b|(?:Addmm|Mm|Bmm|Linear|Matmul)Backward"
_ATTENTION = r"(?i)attention|flash|fmha|\bsdpa"


def work_class() -> pl.Expr:
    """Class of compute by its `name` and `kind`: experts first, whose products are no others."""
    name, kind = pl.col("name"), pl.col("kind")
    return (
        pl.when(name.str.contains(_EXPERTS))
        .then(pl.lit(EXPERTS))
        .when((kind == "attention") | name.str.contains(_ATTENTION))
        .then(pl.lit(ATTENTION))
        .when((kind == "gemm") | name.str.contains(_LINEAR))
        .then(pl.lit(LINEAR))
        .otherwise(pl.lit(OTHER))
    )


def class_at_fault(own_ns: Mapping[str, float], usual_ns: Mapping[str, float]) -> str | None:
    """The class of work that makes a rank longer than others, if one does: experts or attention.

    Args:
        own_ns: time of the longer rank by class.
        usual_ns: what is usual, by class.
    """
    extra_ns = {name: max(own_ns.get(name, 0.0) - usual, 0.0) for name, usual in usual_ns.items()}
    uneven = {name: extra_ns[name] / usual for name, usual in usual_ns.items() if usual > 0}
    for name in (EXPERTS, ATTENTION):
        is_uneven = uneven.get(name, 0.0) >= MIN_UNEVEN
        is_alone = uneven.get(LINEAR, 0.0) <= MAX_EVEN_SHARE * uneven.get(name, 0.0)
        if is_uneven and is_alone and extra_ns[name] >= MIN_EXTRA_SHARE * sum(extra_ns.values()):
            return name
    return None
