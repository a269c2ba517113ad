"""`tracekit info`: what a path holds, which analyses can run, and what is missing."""

from __future__ import annotations

import re

from tracekit.detectors import detectors
from tracekit.schema import TABLES


def test_it_names_runs_ranks_and_tables(job, here, tracekit):
    done = tracekit("info", job())
    assert done.exit_code == 0
    assert "Run job: 2 of 2 ranks" in done.stdout
    assert "ranks 0, 1; rank from: distributedInfo" in done.stdout
    assert "kernels" in done.stdout
    assert list(here.iterdir()) == []


def test_it_says_of_each_analysis_whether_it_can_run(job, tracekit):
    lines = tracekit("info", job()).stdout.splitlines()
    for detector in detectors():
        assert any(line.split()[:1] == [detector] for line in lines)


def test_it_says_what_is_missing_and_how_to_record_it(job, tracekit):
    source = job(n_ranks=3)
    (source / "rank1.json").unlink()
    for path in source.iterdir():
        text = path.read_text("utf-8").replace("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "k")
        path.write_text(text, "utf-8")
    done = tracekit("info", source)
    assert "missing ranks: 1" in done.stdout
    assert "cannot run: the traces hold no collectives" in done.stdout


def test_several_runs_are_listed(job, tracekit):
    source = job("both/big", n_ranks=3)
    job("both/small")
    done = tracekit("info", source.parent)
    assert "Run big: 3 of 3 ranks (analysed by default)" in done.stdout
    assert "Run small: 2 of 2 ranks\n" in done.stdout


def test_a_run_is_described_without_its_traces(job, tracekit):
    tracekit("convert", job(), "run")
    done = tracekit("info", "run")
    assert done.exit_code == 0
    assert "Run job: 2 of 2 ranks" in done.stdout


def test_what_is_left_out_is_named(job, tracekit):
    source = job()
    (source / "notes.txt").write_text("hello", "utf-8")
    assert "notes.txt: not a trace of a profiler" in tracekit("info", source).stdout


def test_the_columns_fit_the_longest_name(job, tracekit):
    tables, _, analyses = (
        tracekit("info", job()).stdout.partition("As recorded")[2].partition("Analyses:")
    )
    counts = [re.match(r"  (\w+) +(?:[\d,]+|-)(?=  |$)", line) for line in tables.splitlines()[1:]]
    ends = {match.end() for match in counts if match and match[1] in TABLES}
    assert len(ends) == 1
    starts = {re.search("can(not)? run", line).start() for line in analyses.split("\n")[1:-1]}
    assert len(starts) == 1


def test_nothing_to_read_ends_with_3(tracekit):
    assert tracekit("info", "nothing").exit_code == 3
