"""Components: what they print, and that nothing gets out of them unescaped."""

from __future__ import annotations

import json
import re

import pytest

from tracekit.findings import Column, Range
from tracekit.reports.components import (
    cell_text,
    counted,
    hours_text,
    name,
    range_text,
    ranks_text,
    table,
    window_text,
)
from tracekit.reports.templating import script_json, visible
from tracekit.units import Unit


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((7, 0, 1, 2, 2), "0\u20132, 7"),
        (range(1024), "0\u20131023"),
        (range(0, 20, 2), "0, 2, 4, 6, 8, 10, … and 4 more"),
    ],
)
def test_ranks_are_printed_as_spans(ranks, text):
    assert ranks_text(ranks) == text


def test_a_range_whose_ends_print_alike_is_one_value():
    assert range_text(Range(1.0e6, 1.0004e6), Unit.NS) == "1 ms"
    assert range_text(Range(1.0e6, 2.0e6), Unit.NS) == "1 ms to 2 ms"


def test_gpu_hours_have_three_digits():
    assert hours_text(Range(94.32, 1234.5)) == "94.3 to 1,234"


def test_a_window_is_exact_to_the_microsecond():
    assert window_text(999, 90_000_000_001_000) == "0.000000 s to 90,000.000001 s"


def test_counts_have_the_right_number():
    assert [counted(n, "rank") for n in (0, 1, 1024)] == ["0 ranks", "1 rank", "1,024 ranks"]


def test_a_name_is_escaped_and_isolated():
    assert name("<b>&") == "<bdi>&lt;b&gt;&amp;</bdi>"


def test_characters_that_act_are_shown_as_replaced():
    assert (
        visible("a\u202eb\x1b\x00c\ud800\n\t\u05e9🔥") == "a\ufffdb\ufffd\ufffdc\ufffd\n\t\u05e9🔥"
    )


def test_a_long_name_is_cut_and_keeps_its_whole_text_in_the_title():
    markup = name("a<" * 2500, 90)
    assert f'title="{"a&lt;" * 2500}"' in markup
    shown = markup.striptags()
    assert len(shown) == 90
    assert "…" in shown


def test_a_name_longer_than_any_compiler_makes_is_cut_for_good():
    assert "(94,000 more characters)" in name("x" * 100_000)


@pytest.mark.parametrize(
    ("cell", "unit", "text"),
    [
        (1_500_000, Unit.NS, "1.5 ms"),
        (0.25, Unit.SHARE, "25.0 %"),
        (1023, Unit.TEXT, "1023"),
        (1023, Unit.COUNT, "1,023"),
        (True, Unit.TEXT, "yes"),
        (None, Unit.NS, "\u2013"),
        (float("nan"), Unit.NS, "\u2013"),
        (float("inf"), Unit.NS, "\u2013"),
    ],
)
def test_cells_are_printed_in_their_unit(cell, unit, text):
    assert cell_text(cell, unit).striptags() == text


def test_rows_of_a_table_carry_rank_and_step_for_the_filter():
    markup = table("t", (Column("Rank"), Column("step"), Column("x", Unit.NS)), ((3, 4, 5),))
    assert '<tr data-rank="3" data-step="4">' in markup


def test_a_table_is_cut_at_sixty_four_rows_and_says_so():
    markup = table("t", (Column("x", Unit.COUNT),), [(i,) for i in range(100)])
    assert markup.count("<tr>") == 65
    assert "The first 64 of 100 rows" in markup


def test_json_in_a_script_closes_nothing_and_reads_back():
    value = ["</script><!--", "&", "\u2028\u2029", "\u202e🔥"]
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_json_in_a_script_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json([float("nan")])


def test_a_stack_keeps_its_lines():
    shown = str(table("Where", (Column("stack"),), [("a.py:1 f\n<b>.py:2 g",)]))
    assert re.sub(r"</?bdi>", "", shown).count("<td>a.py:1 f<br>&lt;b&gt;.py:2 g</td>") == 1
