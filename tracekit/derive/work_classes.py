"""What a kernel, or an operator that stands for one, works on: attention, experts, all tokens."""

from __future__ import annotations

import polars as pl

ATTENTION, EXPERTS, LINEAR, OTHER = "attention", "experts", "linear", "other"

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
