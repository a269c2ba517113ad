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
    marks are missing and at least two different numbers occur. Marks inside marks (the micro-steps
    of an accumulated gradient) are none, unless the outer ones are too few to count.
    """
    on_host = pl.col("device").is_null()
    end = pl.col("start_ns") + pl.col("dur_ns")
    for source, pattern, place, n_least in (
        ("ProfilerStep", _PROFILER, on_host, 1),
        ("ProfilerStep on the device", _PROFILER, ~on_host, 1),
        ("annotation", _COUNTED, on_host, 2),
    ):
        counted = (
            annotations.filter(place)
            .select(
                step=pl.col("name").str.extract(pattern).cast(pl.Int64, strict=False),
                start_ns="start_ns",
                dur_ns="dur_ns",
                source=pl.lit(source),
            )
            .drop_nulls("step")
            .sort("start_ns", "dur_ns", descending=[False, True])
        )
        is_inside = (end <= end.cum_max().shift(1)).fill_null(value=False)
        for level in (~is_inside, is_inside):
            found = counted.filter(level).unique("step", keep="first", maintain_order=True)
            if found.height >= n_least:
                return found
    return STEPS.empty()
