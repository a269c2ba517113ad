"""Logs and measurements beside traces: what joins which run, and what it adds."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.collectors.sources.inventory import inventory

LINE = (
    "node{n}:1:9 [0] NCCL INFO comm 0xa{rank} rank {rank} nranks {world} cudaDev 0 "
    "- Init COMPLETE\n"
)
TESTS = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20
#   size count type redop root time algbw busbw #wrong time algbw busbw #wrong
 64 1 float sum -1 9 40 60 0 9 40 60 0
"""


def nccl_log(world, ranks=None):
    return "".join(LINE.format(n=rank, rank=rank, world=world) for rank in (ranks or range(world)))


@pytest.fixture
def put(tmp_path, runs):
    """Write traces of a number of ranks, or a text, below a folder; returns the folder."""

    def write(name, content):
        path = tmp_path / "job" / name
        if isinstance(content, int):
            for rank in range(content):
                events = [("kernel", name, 10, 5, {"device": 0, "stream": 7})]
                runs.kineto(path, events, rank=rank, world_size=content)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path / "job"

    return write


@pytest.fixture
def listed(tmp_path):
    def look(folder):
        (tmp_path / "unpacked").mkdir(exist_ok=True)
        return inventory([folder], tmp_path / "unpacked")

    return look


def also(run):
    return [[path.name for _, path in file.also] for file in run.files]


def test_traces_log_and_measurements_of_a_folder_are_one_run(put, tmp_path):
    put("traces", 2)
    put("logs/job.out", nccl_log(2))
    folder = put("tests.txt", TESTS)
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert (run.ranks, run.manifest.other_runs) == ((0, 1), ())
    assert run.n_rows("kernels") == 2
    assert run.scan_all("communicators").collect()["host"].to_list() == ["node0", "node1"]
    assert run.scan_all("bandwidth_baselines").collect()["rank"].to_list() == [0, 0]
    assert [run.capture(rank).host for rank in run.ranks] == ["node0", "node1"]
    assert [path.path.rpartition("/")[2] for path in run.capture(0).beside] == [
        "job.out",
        "tests.txt",
    ]


def test_ranks_of_a_log_without_a_trace_are_told(put, listed):
    put("traces", 2)
    found = listed(put("job.out", nccl_log(3)))
    assert also(found.runs[0]) == [[], []]  # another number of ranks is another job
    assert [len(run.files) for run in found.runs] == [2, 3]  # and traces come first


def test_of_several_runs_the_nearest_is_joined(put, listed):
    put("one/traces", 2)
    put("two/traces", 2)
    found = listed(put("two/job.out", nccl_log(2)))
    assert sorted((run.files[0].path.parts[-3], also(run)) for run in found.runs) == [
        ("one", [[], []]),
        ("two", [["job.out"], ["job.out"]]),
    ]


def test_measurements_stand_with_the_first_rank_that_has_a_trace(put, tmp_path, runs):
    folder = put("job.out", nccl_log(4) + TESTS)
    for rank in (2, 3):
        runs.kineto(folder, [("kernel", "gemm", 10, 5, {"device": 0})], rank=rank, world_size=4)
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert run.scan_all("bandwidth_baselines").collect()["rank"].to_list() == [2, 2]
    assert run.scan_all("communicators").collect()["host"].to_list() == ["node2", "node3"]
    assert any("ranks without a trace are left out of it: 0, 1" in o for o in run.manifest.others)


def test_the_name_of_a_file_tells_a_rank_that_its_log_does_not(put, tmp_path):
    put("traces", 4)
    said = "node9:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
    run = tracekit.convert(put("rank_3.log", said), tmp_path / "run", engine="local:1")
    found = run.scan_all("nccl_messages").collect().rows(named=True)
    assert [(row["rank"], row["name"]) for row in found] == [(3, "NCCL_IB_DISABLE")]
    assert run.capture(3).host == "node9"


def test_measurements_alone_are_one_run(put, tmp_path):
    put("all_reduce.log", TESTS)
    run = tracekit.convert(put("all_gather.log", TESTS), tmp_path / "run", engine="local:1")
    assert (run.ranks, run.n_rows("bandwidth_baselines")) == ((0,), 4)


def test_a_log_that_changed_is_read_again_with_its_traces(put, tmp_path):
    put("traces", 2)
    folder = put("job.out", nccl_log(2))
    tracekit.convert(folder, tmp_path / "run", engine="local:1")
    seen = []
    tracekit.convert(folder, tmp_path / "run", engine="local:1", on_capture=seen.append)
    put("job.out", nccl_log(2) + LINE.format(n=0, rank=0, world=2).replace("0xa0", "0xbb"))
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert run.scan_all("communicators").collect().height == 3
    assert len(seen) == 2


def test_a_file_beside_that_cannot_be_read_costs_no_trace(put, tmp_path):
    put("traces", 2)
    start = '{"version": 1, "start_time": "x", "args": ["all_reduce_perf"], "results": ['
    run = tracekit.convert(put("x.json", start), tmp_path / "run", engine="local:1")
    assert run.n_rows("kernels") == 2
    (check,) = [c for c in run.capture(0).quality if c.check == "file beside not read"]
    assert "no whole output of nccl-tests" in check.detail
