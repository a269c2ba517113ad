"""HTA's idle time of each stream and its statistics of launches, from our tables.

Both go by category, so that nothing but rounding and dropped events sets HTA's figures apart; see
test_hta_breakdown.py. Its documentation calls the limit of a kernel wait 30 ns; it is 30 µs.
"""

from __future__ import annotations

import polars as pl
import pytest

KERNEL_WAIT_BELOW_NS = 30_000
EXPLAINED = (
    "modded_nanogpt_8rank",
    "mtia_trace",
    "nccl_parser_config",
    "nccl_parser_config_last",
)
NOT_LISTED = {"modded_nanogpt_8rank": 15_736, "mtia_trace": 0, "triton_example": 1}
"""Device events whose launch is in the file under a name that HTA does not know."""
KEYS = ["rank", "stream", "idle_category"]
HALF_A_DIGIT = 0.0051


def gaps(hta, golden, rank):
    """The gap before each device event on its stream, and its category by HTA's definition."""
    events = golden.changed(rank) if golden.name in EXPLAINED else golden.kept(rank)
    previous_ns = pl.col("end_ns").shift(1).over("stream")
    gap_ns = pl.col("start_ns") - previous_ns
    return (
        events.filter(pl.col("class").is_in(hta.CLASSES.values()) & (pl.col("device") >= 0))
        .sort("stream", "start_ns", "end_ns")
        .select(
            pl.lit(rank, dtype=pl.Int64).alias("rank"),
            "stream",
            pl.when(pl.col("launch_start_ns") > previous_ns)
            .then(pl.lit("host_wait"))
            .when(gap_ns < KERNEL_WAIT_BELOW_NS)
            .then(pl.lit("kernel_wait"))
            .otherwise(pl.lit("other"))
            .alias("idle_category"),
            gap_us=gap_ns / 1000,
        )
    )


@pytest.fixture
def ours(hta, golden):
    ranks = golden.frame("get_idle_time_breakdown")["rank"].unique()
    return pl.concat([gaps(hta, golden, rank) for rank in ranks])


def test_idle_time_of_each_stream_is_ours(golden, ours):
    expected = golden.frame("get_idle_time_breakdown").sort(KEYS)
    found = ours.group_by(KEYS).agg(pl.col("gap_us").sum()).sort(KEYS)
    assert found.select(KEYS).equals(expected.select(KEYS))
    assert found["gap_us"].to_list() == pytest.approx(
        expected["idle_time"].to_list(), abs=HALF_A_DIGIT
    )


def test_statistics_of_idle_intervals_are_ours(golden, ours):
    expected = golden.frame("get_idle_time_breakdown_stats").sort(KEYS)
    gap_us = pl.col("gap_us")
    found = (
        ours.group_by(KEYS)
        .agg(
            gap_us.count().cast(pl.Float64).alias("count"),
            gap_us.mean().alias("mean"),
            gap_us.std().alias("std"),
            gap_us.min().alias("min"),
            *(
                gap_us.quantile(share, "linear").alias(f"{share:.0%}")
                for share in (0.25, 0.5, 0.75)
            ),
            gap_us.max().alias("max"),
        )
        .sort(KEYS)
    )
    assert found.columns == [*KEYS, *expected.columns[3:]]
    for column in expected.columns:
        for ours_is, theirs in zip(found[column], expected[column], strict=True):
            both = isinstance(theirs, float) and ours_is is not None
            assert ours_is == (pytest.approx(theirs, abs=HALF_A_DIGIT) if both else theirs), column


def launched(golden, rank):
    """Kept events whose launch is in the file, with the name of the call."""
    calls = golden.run.scan("launches", rank).select("correlation", call="name").collect()
    first = calls.drop_nulls("correlation").unique("correlation", keep="first")
    events = golden.changed(rank) if golden.name in EXPLAINED else golden.kept(rank)
    return events.drop_nulls("launch_start_ns").join(first, on="correlation", how="left")


def test_launches_that_hta_knows_by_name_are_ours(hta, golden):
    n_others = 0
    for rank in golden.ranks_of("get_cuda_kernel_launch_stats"):
        events = launched(golden, rank)
        is_listed = pl.col("call").is_in(hta.CALLS)
        n_others += events.filter(~is_listed).height
        delay_ns = (pl.col("start_ns") - pl.col("launch_end_ns")).clip(0)
        found = events.filter(is_listed).select(
            "correlation",
            cpu_duration=(pl.col("launch_end_ns") - pl.col("launch_start_ns")) / 1000,
            gpu_duration=(pl.col("end_ns") - pl.col("start_ns")) / 1000,
            launch_delay=delay_ns / 1000,
        )
        expected = golden.frame(f"get_cuda_kernel_launch_stats.rank{rank}")
        assert found.height == expected.height
        if expected.height:
            assert sorted(found.rows()) == sorted(expected.rows())
    assert n_others == NOT_LISTED.get(golden.name, 0)


def test_launches_are_compared_for_every_rank_but_one(golden):
    ranks = golden.ranks_of("get_cuda_kernel_launch_stats")
    is_missing = golden.name.startswith("df_index_resolver")  # HTA looks at rank 0; it has rank 1
    assert ranks == ([] if is_missing else list(golden.run.ranks))
