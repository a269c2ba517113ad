"""Dumps of the flight recorder: pickles and JSON of all versions, and what is no dump."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.collectors.flight_recorder import peek
from tracekit.errors import InputError

NOW_NS = 1_758_610_505_000_000_000
CONFIG = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"},
    "7": {"name": "7", "desc": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": "[4, 9]"},
}


def entry(
    sequence, name="nccl:all_reduce", *, state="scheduled", group=("0", "default_pg"), **more
):
    """One record, as version 2.9 writes it."""
    is_message = "send" in name or "recv" in name
    return {
        "record_id": sequence,
        "pg_id": 3,
        "process_group": group,
        "collective_seq_id": 0 if is_message else sequence,
        "p2p_seq_id": sequence if is_message else 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": NOW_NS + 1000 * sequence,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": NOW_NS + 5000 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": is_message,
        **more,
    }


def dump(*entries, status=None, config=None):
    return {
        "version": "2.9",
        "pg_config": CONFIG if config is None else config,
        "pg_status": status
        or {"3": {"last_enqueued_collective": 9, "last_completed_collective": 7}},
        "entries": list(entries),
    }


@pytest.fixture
def written(tmp_path):
    """Write dumps by file name, as pickles or, where the name says so, as JSON."""

    def write(**dumps):
        folder = tmp_path / "dumps"
        folder.mkdir(exist_ok=True)
        for name, value in dumps.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(
                json.dumps(value).encode() if "json" in name else pickle.dumps(value, protocol=2)
            )
        return folder

    return write


def rows(folder, tmp_path, table="flight_records", name="run"):
    run = tracekit.convert(folder, tmp_path / name, engine="local:1")
    return run.scan_all(table).sort("rank").collect().rows(named=True)


def test_rank_and_world_come_from_the_name_and_the_groups(written):
    path = written(nccl_trace_rank_12=dump(entry(3))) / "nccl_trace_rank_12"
    assert sniffed(path).id == "flight-recorder"
    found = peek(path)
    assert (found.rank, found.world_size) == (12, 2)  # the members of default_pg
    assert found.started_ns == NOW_NS + 3000


def test_a_record_holds_what_was_called_and_how_far_it_got(written, tmp_path):
    folder = written(_dump_0=dump(entry(8, state="completed"), entry(9)), _dump_1=dump())
    done, waits = rows(folder, tmp_path)
    assert (done["operation"], done["sequence"], done["members"]) == ("all_reduce", 8, [0, 1])
    assert (done["is_done"], waits["is_done"]) == (True, False)
    assert waits["created_ns"] - done["created_ns"] == 1000
    assert done["completed_ns"] - done["created_ns"] == 5000 - 8000
    assert (waits["sizes_in"], waits["dtypes"]) == ("[[4, 2]]", '["BFloat16"]')
    assert waits["timeout_ns"] == 600 * 10**9


def test_json_says_the_same_as_the_pickle(written, tmp_path):
    texts = {"3": {"last_enqueued_collective": "9", "last_completed_collective": "7"}}
    never = {"time_discovered_started_ns": 0, "time_discovered_completed_ns": 0}
    as_json = rows(
        written(_dump_0__json=dump(entry(9, **never), status=texts)), tmp_path, name="json"
    )
    (tmp_path / "dumps/_dump_0.json").unlink()
    assert as_json == rows(written(_dump_0=dump(entry(9))), tmp_path, name="pickle")


def test_progress_is_tied_to_the_group_by_its_records(written, tmp_path):
    folder = written(_dump_0=dump(entry(9)))
    by_group = {row["group"]: row for row in rows(folder, tmp_path, "flight_groups")}
    assert (by_group["0"]["last_enqueued"], by_group["0"]["last_completed"]) == (9, 7)
    assert by_group["7"]["last_enqueued"] is None  # no record says which number it has
    assert by_group["7"]["group_description"] == "PIPELINE_MODEL_PARALLEL_GROUP"


def test_ends_of_messages_are_global_ranks(written, tmp_path):
    pipeline = ("7", "PIPELINE_MODEL_PARALLEL_GROUP")
    folder = written(
        _dump_4=dump(
            entry(1, "nccl:send 0->1", group=pipeline), entry(2, "nccl:recv 0<-1", group=pipeline)
        )
    )
    found = rows(folder, tmp_path)
    assert [(r["operation"], r["source_rank"], r["destination_rank"]) for r in found] == [
        ("send", 4, 9),
        ("recv", 9, 4),
    ]
    assert [row["sequence"] for row in found] == [1, 2]


def test_the_first_version_is_a_list_of_records(written, tmp_path):
    old = {"record_id": 5, "pg_id": 0, "seq_id": 5, "profiling_name": "nccl:broadcast"}
    (row,) = rows(written(_dump_0=[old | {"state": "completed"}]), tmp_path)
    assert (row["group"], row["sequence"], row["operation"]) == ("0", 5, "broadcast")
    assert (row["is_done"], row["members"]) == (True, None)


def test_gloo_follows_no_states(written, tmp_path):
    gloo = dump(entry(9, "gloo:all_reduce", retired=True), config={"": {"ranks": "[]"}})
    (row,) = rows(written(_dump_0=gloo), tmp_path)
    assert row["is_done"] is None


def test_stacks_are_kept_a_frame_a_line(written, tmp_path):
    frames = [{"name": "step", "filename": "train.py", "line": 41}, {"name": "<module>"}]
    (row,) = rows(written(_dump_0=dump(entry(9, frames=frames))), tmp_path)
    assert row["stack"].split("\n")[0] == "train.py:41 step"


class Hostile:
    """Would write a file where its pickle is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code_is_refused(written, tmp_path):
    hostile = dump(entry(9))
    hostile["entries"].append(Hostile(tmp_path / "ran"))
    folder = written(_dump_0=hostile)
    with pytest.raises(InputError, match="plain values only"):
        tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert not (tmp_path / "ran").exists()


def test_a_dump_that_was_cut_costs_no_other(written, tmp_path):
    folder = written(_dump_0=dump(entry(9)), _dump_1=dump(entry(9)))
    cut = folder / "_dump_1"
    cut.write_bytes(cut.read_bytes()[:-40])
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert run.ranks == (0,)
    assert any("_dump_1" in why for why in run.manifest.others)


@pytest.mark.parametrize(
    "value",
    [
        {"entries": 7, "pg_config": [], "pg_status": "x"},
        {"entries": [7, None, {}], "pg_config": {"0": 3}, "pg_status": {"0": 3}},
        dump(entry(9, time_created_ns="soon", timeout_ms=None, frames="none", is_p2p=None)),
    ],
)
def test_parts_of_another_kind_are_passed_over(written, tmp_path, value):
    run = tracekit.convert(written(_dump_0=value), tmp_path / "run", engine="local:1")
    assert run.ranks == (0,)
