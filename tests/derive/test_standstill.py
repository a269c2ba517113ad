"""How far the members of groups got, from made-up dumps."""

from __future__ import annotations

import pickle

import tracekit
from tests.detectors.test_collective_hang import call
from tracekit.standstill import GroupProgress


def stands(folder, by_rank, groups):
    config = {g: {"name": g, "desc": f"group {g}", "ranks": str(m)} for g, m in groups.items()}
    for rank, records in by_rank.items():
        own = {g: c for g, c in config.items() if rank in groups[g]}
        dump = {"version": "2.9", "pg_config": own, "pg_status": {}, "entries": records}
        (folder / f"_dump_{rank}").write_bytes(pickle.dumps(dump))
    return tracekit.analyze(folder, engine="local:1").standstill


def test_the_lag_in_calls_and_time(tmp_path):
    # calls are made at as many ms as their number
    calls = [call(1, done=True), call(2), call(3), call(4)]
    (group,) = stands(tmp_path, {0: calls, 1: calls, 2: calls[:1]}, {"0": [0, 1, 2]}).groups
    assert group == GroupProgress(
        group="0 (3 ranks: 0–2)",
        description="group 0",
        n_members=3,
        n_dumps=3,
        last_called=4,
        last_ended=1,
        behind=(2,),
        calls_behind=3,
        behind_ns=3_000_000,
        in_call="all_reduce 2",
        n_waiting=2,
    )


def test_of_a_rank_that_recorded_nothing_the_number_is_not_known(tmp_path):
    (group,) = stands(tmp_path, {0: [call(1), call(2)], 1: []}, {"0": [0, 1]}).groups
    assert (group.behind, group.calls_behind, group.behind_ns) == ((1,), None, None)


def test_groups_in_which_nobody_called_are_left_out(tmp_path):
    found = stands(tmp_path, {0: [call(1)], 1: [call(1)]}, {"0": [0, 1], "1": [0, 1], "2": [0]})
    assert [group.group for group in found.groups] == ["0 (2 ranks: 0–1)"]


def test_a_run_of_traces_has_none(make_run, runs):
    from tracekit.derive.standstill import standstill  # noqa: PLC0415

    assert standstill(make_run(runs.Trace().kernel(0, 10))) is None
