"""Files of NCCL's example plugin: calls by the times of their channels, and what lacks them."""

from __future__ import annotations

import json

import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.errors import InputError

AT_NS = 1_758_600_000_000_000_000


def events(number, *channels, rank=0, name="AllReduce", dtype="ncclBfloat16", **more):
    """A call of 1,024 elements; channels are start and stop in ns since `AT_NS` (0: none)."""
    values = {"SeqNum": number, "CommHash": 10, "Rank": rank, "Count": 1024, "Datatype": dtype}
    begin = {"name": name, "cat": "COLL", "ph": "b", "id": number, "ts": 1.0}
    found = [
        {"name": "Group API", "cat": "GROUP_API", "ph": "b", "id": number, "ts": 0.5, "args": {}},
        begin | {"args": values | more},
    ]
    for began, ended in channels:
        clock = {"StartGpuClk": AT_NS + began, "StopGpuClk": ended and AT_NS + ended}
        channel = {"name": "KernelCh", "cat": "GPU", "id": 0}
        found += [channel | {"ph": "b", "ts": 2.0, "args": clock}, channel | {"ph": "e", "ts": 3.0}]
    return [*found, {"name": name, "cat": "COLL", "ph": "e", "id": number, "ts": 1.1}]


@pytest.fixture
def put(tmp_path):
    """Write files by rank as the plugin does: an event a line, an empty one at the end."""

    def write(*by_rank):
        folder = tmp_path / "plugin"
        folder.mkdir(exist_ok=True)
        for rank, found in enumerate(by_rank):
            lines = ",\n".join(json.dumps(event) for event in found)
            (folder / f"nccl_10_{rank}.json").write_text(f"[\n{lines},\n{{}}]\n")
        return folder

    return write


def rows(folder, tmp_path):
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    return run.scan_all("collectives").sort("rank", "start_ns").collect().rows(named=True)


def test_a_call_takes_from_the_first_start_of_its_channels_to_the_last_stop(put, tmp_path):
    (row,) = rows(put(events(3, (100, 900), (50, 700), (60, 0))), tmp_path)
    assert (row["start_ns"], row["dur_ns"]) == (0, 850)  # the epoch is the first start
    assert (row["operation"], row["sequence"], row["bytes_in"]) == ("all_reduce", 3, 2048)
    assert (row["group"], row["group_size"]) == ("communicator 0xa", None)


def test_bytes_that_depend_on_the_number_of_ranks_are_not_known(put, tmp_path):
    (row,) = rows(put(events(0, (0, 10), name="AllGather", dtype="ncclFloat8e4m3")), tmp_path)
    assert (row["bytes_in"], row["bytes_out"]) == (1024, None)


def test_calls_of_two_ranks_are_one_and_the_shorter_is_the_transfer(put):
    folder = put(events(0, (0, 5_000)), events(0, (3_000, 5_000), rank=1))
    result = tracekit.analyze(folder, engine="local:1")
    (operation,) = result.traffic.operations
    assert (operation.n_calls, operation.p50_ns) == (1, 2_000)


def test_a_call_without_times_of_the_device_is_left_out_and_counted(put, tmp_path):
    folder = put([*events(0, (0, 10)), *events(1), *events(2, (5, 0))])
    assert len(rows(folder, tmp_path)) == 1
    (check,) = tracekit.open_run(tmp_path / "run").capture(0).quality
    assert (check.check, check.count) == ("no device time", 2)
    with pytest.raises(InputError, match="no call of 5 events has a time on the device"):
        tracekit.convert(put(events(1, (0, 0))), tmp_path / "other")


def test_a_file_that_was_cut_keeps_its_whole_calls(put, tmp_path):
    folder = put([*events(0, (0, 10)), *events(1, (20, 30))])
    path = folder / "nccl_10_0.json"
    path.write_text(path.read_text()[:-120])
    assert len(rows(folder, tmp_path)) == 1


def test_odd_values_cost_their_event_alone(put, tmp_path):
    odd = [{"cat": [], "ph": {}}, {"cat": "COLL", "ph": "b", "args": []}, {"cat": "GPU", "ph": "b"}]
    assert len(rows(put([*odd, *events(0, (0, 10))]), tmp_path)) == 1


def test_it_is_known_by_its_categories(put):
    assert sniffed(put(events(0, (0, 10))) / "nccl_10_0.json").id == "nccl-example-profiler"
