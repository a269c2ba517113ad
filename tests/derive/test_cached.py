"""Derived tables are made once, found again, and made anew for other sources."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from tracekit.derive.cached import cached, key
from tracekit.errors import SchemaError
from tracekit.schema.table import I64, Column, Table

NUMBERS = Table("numbers", "number", (Column("number", I64, "", "a number"),))


class Counted:
    def __init__(self, rows=None):
        self.n_built = 0
        self.rows = pl.DataFrame({"number": [1, 2]}) if rows is None else rows

    def __call__(self):
        self.n_built += 1
        return self.rows


def test_a_table_is_built_once(make_run, trace):
    run, build = make_run(trace), Counted()
    for _ in range(3):
        assert cached(run, NUMBERS, build).collect()["number"].to_list() == [1, 2]
    assert build.n_built == 1


def test_tables_of_ranks_are_kept_apart(make_run, runs):
    run = make_run({0: runs.Trace(), 1: runs.Trace()})
    first, second = Counted(), Counted(pl.DataFrame({"number": [3]}))
    cached(run, NUMBERS, first, 0)
    assert cached(run, NUMBERS, second, 1).collect()["number"].to_list() == [3]


def test_another_source_or_another_choice_of_ranks_is_built_anew(make_run, runs):
    run = make_run({0: runs.Trace(), 1: runs.Trace()})
    manifest, (first, second) = run.manifest, run.manifest.captures
    changed = dataclasses.replace(second, source=dataclasses.replace(second.source, modified_ns=2))
    others = [
        dataclasses.replace(run, manifest=dataclasses.replace(manifest, captures=captures))
        for captures in ((first,), (first, changed))
    ]
    assert len({key(each) for each in (run, *others)}) == 3


def test_a_limit_on_steps_keeps_the_tables(make_run, trace):
    run = make_run(trace)
    assert key(dataclasses.replace(run, steps=(1, 2))) == key(run)


def test_a_table_of_other_columns_is_refused(make_run, trace):
    build = Counted(pl.DataFrame({"number": ["1"]}))
    with pytest.raises(SchemaError, match="number: String, not Int64"):
        cached(make_run(trace), NUMBERS, build)


def test_a_run_folder_that_cannot_be_written_is_analysed_all_the_same(make_run, trace):
    run = make_run(trace)
    (run.folder / "derived").write_text("in the way")
    assert cached(run, NUMBERS, Counted()).collect().height == 2
