"""Step marks of one rank from its annotations: ProfilerStep#N, else those that count steps."""

from __future__ import annotations

import polars as pl

from tracekit.schema import STEPS

_PROFILER = r"^ProfilerStep\s*#\s*(\d+)$"
_COUNTED = r"(?i)^(?:\w+[/.: ])*(?:train(?:ing)?[_ -]?)?(?:step|iteration|iter)[\s#_:/=-]*(\d+)$"


def step_like(annotations: pl.DataFrame) -> pl.DataFrame:
    """The annotations whose names may mark steps."""
    return annotations.filter(
        pl.col("name").str.contains(_PROFILER) | pl.col("name").str.contains(_COUNTED)
    )


def marks(annotations: pl.DataFrame) -> pl.DataFrame:
    """Recorded step marks, sorted by start: the best source that the rank has, one row a step.

    Annotations that merely count ("step 3", "train/iteration_12") stand in where the profiler's own
    marks are missing and at least two different numbers occur.
    """
    on_host = pl.col("device").is_null()
    for source, pattern, place, n_least in (
        ("ProfilerStep", _PROFILER, on_host, 1),
        ("ProfilerStep on the device", _PROFILER, ~on_host, 1),
        ("annotation", _COUNTED, on_host, 2),
    ):
        found = (
            annotations.filter(place)
            .select(
                step=pl.col("name").str.extract(pattern).cast(pl.Int64, strict=False),
                start_ns="start_ns",
                dur_ns="dur_ns",
                source=pl.lit(source),
            )
            .drop_nulls("step")
            .sort("start_ns")
            .unique("step", keep="first", maintain_order=True)
        )
        if found.height >= n_least:
            return found
    return STEPS.empty()
