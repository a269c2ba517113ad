"""The replay on a terminal: the sentences of the report, the largest slowdowns, the path."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import msgspec
from rich.console import Console

from tracekit.reports.replay_text import summary


def printed(result, **changes):
    """What a wide terminal shows of the replay of a result."""
    replay = replace(result.replay, **changes)
    file = StringIO()
    Console(file=file, width=500).print(summary(result.what_if, replay))
    return [line.strip() for line in file.getvalue().splitlines()]


def test_it_says_what_the_report_says(straggler):
    lines = printed(straggler)
    assert lines[0] == "Mean step 125 ms, replayed 120 ms (error 4.0 %)."
    assert lines[1].startswith("Stragglers slow the step by 1.25×. Without stragglers the mean")
    assert "the slowest 3 % of the workers (1 of 8) like the mean would win back 50.0 %" in lines[1]


def test_what_slows_the_step_alone_is_listed_the_largest_first(straggler):
    lines = printed(straggler)
    place = lines.index("Slowdown where only this is not like the mean")
    assert [line.split() for line in lines[place + 2 : place + 6]] == [
        ["stage", "3", "1.20×"],
        ["forward-compute", "1.12×"],
        ["replica", "1", "1.10×"],
        ["grads-reduce-scatter", "1.06×"],
    ]


def test_an_only_replica_or_stage_is_not_listed(straggler):
    alone = msgspec.structs.replace(straggler.what_if, by_dp={"0": 1.25}, by_stage={"0": 1.25})
    lines = printed(replace(straggler, what_if=alone))
    assert not any(line.startswith(("replica", "stage")) for line in lines)


def test_where_launches_are_missing_that_is_the_reason_not_the_error(straggler):
    lines = printed(straggler, launched_share=0.9)
    assert "Only 90.0 % of the device's work has its launch" in lines[0]
    assert "misses" not in lines[0]


def test_a_path_longer_than_the_mean_step_has_shares_of_itself(straggler):
    lines = printed(straggler, path_step_ns=100e6)
    # 60, 48 and 12 ms of 120 ms.
    assert [line.split()[-2] for line in lines[-3:]] == ["50.0", "40.0", "10.0"]
    assert "of the path" in lines[-4]


def test_a_job_that_nothing_slows_is_not_said_to_waste_less_than_nothing(straggler):
    faster = msgspec.structs.replace(straggler.what_if, slowdown=0.8, waste=-0.25)
    assert printed(replace(straggler, what_if=faster))[1] == (
        "Stragglers do not slow the step: with all work alike it would take 25.0 % more."
    )
