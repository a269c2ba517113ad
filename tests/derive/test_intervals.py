"""Interval algebra against brute force, ns by ns, and the laws that unions and gaps obey."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tracekit.derive.intervals import covered_ns, gaps, length_ns, sweep, union

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)
CLASSED = st.lists(
    st.tuples(st.sampled_from("abx"), st.integers(0, 30), st.integers(0, 10)), max_size=12
)


def frame(spans, **columns):
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64}
    rows = [(start, start + dur) for start, dur in spans]
    return pl.LazyFrame(rows, schema=schema, orient="row").with_columns(**columns)


def pairs(lazy):
    return lazy.select("start_ns", "end_ns").collect().rows()


def instants(spans):
    return {at for start, end in spans for at in range(start, end)}


@given(SPANS)
def test_a_union_covers_the_same_instants_with_disjoint_sorted_intervals(spans):
    found = pairs(union(frame(spans)))
    assert instants(found) == instants((start, start + dur) for start, dur in spans)
    edges = [at for pair in found for at in pair]
    assert edges == sorted(set(edges))  # sorted, none empty, none touching


@given(SPANS)
def test_union_and_gaps_are_complementary_between_first_start_and_last_end(spans):
    covered, free = pairs(union(frame(spans))), pairs(gaps(frame(spans)))
    tiles = sorted(covered + free)
    assert [end for _, end in tiles[:-1]] == [start for start, _ in tiles[1:]]
    total = length_ns(frame(spans)).collect().item()
    assert total == len(instants(covered))
    if covered:
        assert total + sum(e - s for s, e in free) == covered[-1][1] - covered[0][0]


@given(SPANS, st.randoms(use_true_random=False))
def test_the_order_of_intervals_does_not_matter(spans, random):
    shuffled = random.sample(spans, len(spans))
    assert pairs(union(frame(spans))) == pairs(union(frame(shuffled)))
    assert pairs(gaps(frame(spans))) == pairs(gaps(frame(shuffled)))


@given(SPANS, st.integers(-(10**18), 10**18))
def test_a_shift_in_time_shifts_the_union_and_nothing_else(spans, shift):
    moved = pairs(union(frame([(start + shift, dur) for start, dur in spans])))
    assert moved == [(s + shift, e + shift) for s, e in pairs(union(frame(spans)))]


@given(CLASSED)
def test_a_sweep_counts_the_open_intervals_of_each_class(rows):
    lazy = pl.LazyFrame(
        [(name, start, start + dur) for name, start, dur in rows],
        schema={"class": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    pieces = sweep(lazy, ("a", "b")).collect()
    for start, end, n_a, n_b in pieces.rows():
        for at in range(start, end):  # "x" cuts time and is not counted
            is_open = [name for name, first, dur in rows if first <= at < first + dur]
            assert (n_a, n_b) == (is_open.count("a"), is_open.count("b"))
    if rows:
        assert pieces["start_ns"].min() == min(start for _, start, _ in rows) or pieces.is_empty()
        dur = pieces["end_ns"] - pieces["start_ns"]
        first, last = min(s for _, s, _ in rows), max(s + d for _, s, d in rows)
        assert dur.sum() == last - first
        assert (dur > 0).all()


def test_touching_intervals_are_one():
    assert pairs(union(frame([(0, 5), (5, 5), (12, 1)]))) == [(0, 10), (12, 13)]
    assert pairs(gaps(frame([(0, 5), (5, 5), (12, 1)]))) == [(10, 12)]


def test_an_interval_of_no_length_takes_no_time_and_joins_nothing():
    assert pairs(union(frame([(3, 0)]))) == []
    assert length_ns(frame([(3, 0)])).collect().item() == 0
    assert pairs(union(frame([(0, 2), (2, 0), (3, 1)]))) == [(0, 2), (3, 4)]


def test_timelines_of_different_keys_never_meet():
    lazy = pl.concat(
        [frame([(0, 10)], device=pl.lit(0)), frame([(2, 3), (7, 3)], device=pl.lit(1))]
    )
    assert union(lazy, ["device"]).collect().rows() == [(0, 0, 10), (1, 2, 5), (1, 7, 10)]
    assert gaps(lazy, ["device"]).collect().rows() == [(1, 5, 7)]
    assert length_ns(lazy, ["device"]).collect().rows() == [(0, 10), (1, 6)]


def test_a_large_absolute_time_keeps_its_nanoseconds():
    start = 1_764_500_000_000_000_001  # a double is 256 ns coarse here
    assert pairs(union(frame([(start, 1), (start + 2, 1)]))) == [
        (start, start + 1),
        (start + 2, start + 3),
    ]


def test_no_interval_gives_empty_frames_of_the_same_types():
    assert union(frame([])).collect_schema() == union(frame([(0, 1)])).collect_schema()
    assert gaps(frame([])).collect().is_empty()
    assert sweep(frame([], **{"class": pl.lit("a")}), ("a",)).collect().is_empty()


@given(SPANS, SPANS)
def test_the_covered_part_is_what_lies_inside_the_union(parts, spans):
    thread = pl.lit(1, dtype=pl.Int64)
    ours = frame(parts, thread=thread).collect()
    found = covered_ns(ours, frame(spans, thread=thread).collect(), "thread")
    inside = instants((start, start + dur) for start, dur in spans)
    expected = [len(inside & set(range(start, start + dur))) for start, dur in parts]
    assert found.to_list() == expected


def test_a_part_is_covered_by_intervals_of_its_own_thread_only():
    parts = frame([(0, 10), (0, 10)]).collect().with_columns(thread=pl.Series([1, None]))
    other = frame([(0, 10)], thread=pl.lit(2, dtype=pl.Int64)).collect()
    assert covered_ns(parts, other, "thread").to_list() == [0, 0]


def test_nothing_covers_no_part():
    parts = frame([(0, 10), (5, 10)], thread=pl.lit(1, dtype=pl.Int64)).collect()
    found = covered_ns(parts, parts.clear(), "thread")
    assert (found.to_list(), found.dtype, found.name) == ([0, 0], pl.Int64, "covered_ns")
