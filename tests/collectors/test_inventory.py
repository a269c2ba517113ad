"""Which rank a file is, and which run it belongs to."""

from __future__ import annotations

import gzip
import json

import pytest

from tracekit.collectors.sources.inventory import inventory
from tracekit.errors import InputError, UsageError

SECOND_NS = 10**9


@pytest.fixture
def put(tmp_path, trace, kernel):
    """Write the trace of a rank (none is written with None) that starts at a second."""

    def write(name, rank=None, *, world=4, second=0, n=2, **top):
        document = trace(
            [kernel(number) for number in range(1, n + 1)],
            baseTimeNanoseconds=1_735_693_560 * SECOND_NS + second * SECOND_NS,
            **top,
        )
        if rank is None:
            del document["distributedInfo"]
        else:
            document["distributedInfo"] = {"rank": rank, "world_size": world}
        path = tmp_path / "traces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(document).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def found(tmp_path):
    def look(*sources, rank_from=None):
        unpacked = tmp_path / "unpacked"
        unpacked.mkdir(exist_ok=True)
        return inventory(sources or [tmp_path / "traces"], unpacked, rank_from)

    return look


def ranks(run):
    return [file.rank for file in run.files]


def test_the_rank_in_the_trace_counts_before_the_name(put, found):
    put("rank7.json", 1)
    (run,) = found().runs
    assert (ranks(run), run.files[0].rank_source) == ([1], "distributedInfo")


def test_a_sidecar_counts_before_the_name(put, found, tmp_path):
    put("rank7.json")
    sidecar = {"rank": 2, "world_size": 8, "host": "node1"}
    (tmp_path / "traces/rank7.tracekit.json").write_text(json.dumps(sidecar), "utf-8")
    listed = found()
    (run,) = listed.runs
    assert (ranks(run), run.files[0].rank_source, run.world_size) == ([2], "sidecar", 8)
    assert run.files[0].host == "node1"
    assert listed.left_out == ()


@pytest.mark.parametrize("sidecar", ["", "[]", "{", '{"rank": "²"}', '{"rank": -1}', "[" * 99_999])
def test_a_broken_sidecar_is_passed_over(put, found, tmp_path, sidecar):
    put("rank7.json")
    (tmp_path / "traces/rank7.tracekit.json").write_text(sidecar, "utf-8")
    assert found().runs[0].files[0].rank_source == "file name"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank7.json", 7),
        ("rank_12.pt.trace.json", 12),
        ("trace-rank-003.json.gz", 3),
        ("worker0.json", 0),
        ("rank_5/trace.json", 5),
    ],
)
def test_the_file_name_tells_the_rank_where_nothing_else_does(put, found, name, rank):
    put(name)
    (run,) = found().runs
    assert (ranks(run), run.files[0].rank_source) == ([rank], "file name")


def test_rank_from_finds_the_rank_in_the_path(put, found):
    for node in (0, 1):
        put(f"node{node}/trace.json", n=2 + node)
    (run,) = found(rank_from=r"node(\d+)").runs
    assert (ranks(run), run.files[0].rank_source) == ([0, 1], "--rank-from")


@pytest.mark.parametrize("pattern", ["(", "rank", r"(\d)(\d)"])
def test_rank_from_needs_one_group(put, found, pattern):
    put("rank0.json", 0)
    with pytest.raises(UsageError) as error:
        found(rank_from=pattern)
    assert "--rank-from 'trace_" in error.value.hint


def test_a_single_file_without_a_rank_is_rank_0_and_says_so(put, found):
    put("trace.json")
    (run,) = found().runs
    assert ranks(run) == [0]
    assert run.files[0].rank_source == "the only file: taken as rank 0"


def test_several_files_without_a_rank_are_an_error_with_an_example(put, found):
    put("a.json", n=1)
    put("b.json", n=2)
    with pytest.raises(InputError) as error:
        found()
    assert "none says its rank: a.json, b.json" in error.value.message
    assert "--rank-from 'trace_" in error.value.hint


def test_windows_of_one_process_without_a_rank_are_runs_of_rank_0(put, found):
    put("host_4711.1796072822235145408.pt.trace.json", second=0, n=1)
    put("host_4711.1796072825237752172.pt.trace.json.gz", second=3, n=2)
    runs = found().runs
    assert [ranks(run) for run in runs] == [[0], [0]]
    assert runs[0].files[0].rank_source == "the only process: taken as rank 0"


def test_traces_of_two_processes_without_a_rank_are_an_error(put, found):
    put("host_4711.1796072822235145408.pt.trace.json", n=1)
    put("host_4712.1796072822235145409.pt.trace.json", n=2)
    with pytest.raises(InputError, match="none says its rank"):
        found()


def test_a_file_without_a_rank_among_others_is_left_out_and_named(put, found):
    put("rank0.json", 0)
    put("b.json")
    assert "b.json: says no rank" in found().left_out[0]


def test_missing_ranks_are_named(put, found):
    for rank in (0, 3):
        put(f"{rank}.json", rank)
    (run,) = found().runs
    assert (run.world_size, run.missing_ranks) == (4, (1, 2))


def test_the_same_trace_packed_and_unpacked_counts_once(put, found):
    put("rank0.json", 0)
    put("rank0.json.gz", 0)
    put("rank1.json", 1)
    listed = found()
    (run,) = listed.runs
    assert ranks(run) == [0, 1]
    assert "a duplicate of" in listed.left_out[0]


def test_a_leftover_tmp_is_the_duplicate(put, found, tmp_path):
    whole = put("rank0.json.z", 0)
    cut = tmp_path / "traces/rank0.json.tmp"
    cut.write_bytes(whole.read_bytes())
    (run,) = found().runs
    assert run.files[0].path == whole


def test_a_tmp_alone_is_read(put, found):
    put("rank0.json.tmp", 0)
    assert ranks(found().runs[0]) == [0]


def test_clocks_12_seconds_apart_are_one_run(put, found):
    for rank in range(4):
        put(f"{rank}.json", rank, second=12 * rank)
    assert [ranks(run) for run in found().runs] == [[0, 1, 2, 3]]


def test_a_rank_that_occurs_twice_makes_two_runs(put, found):
    for rank in (0, 1):
        put(f"a{rank}.json", rank, second=rank)
        put(f"b{rank}.json", rank, second=100 + rank)
    runs = found().runs
    assert sorted(file.path.name for file in runs[0].files) == ["b0.json", "b1.json"]
    assert sorted(file.path.name for file in runs[1].files) == ["a0.json", "a1.json"]
    assert len({run.name for run in runs}) == 2


def test_the_job_tells_runs_apart(put, found):
    put("0.json", 0, PT_PROFILER_JOB_NAME="red")
    put("1.json", 1, PT_PROFILER_JOB_NAME="blue")
    put("2.json", 2, PT_PROFILER_JOB_NAME="blue")
    assert {run.name: ranks(run) for run in found().runs} == {"blue": [1, 2], "red": [0]}


def test_the_group_trace_id_tells_runs_apart(put, found):
    for rank in range(3):
        put(f"{rank}.json", rank, group_trace_id="A" if rank else "B")
    assert [ranks(run) for run in found().runs] == [[1, 2], [0]]


def test_the_number_of_ranks_tells_runs_apart(put, found):
    put("0.json", 0, world=2)
    put("1.json", 1, world=4)
    assert len(found().runs) == 2


def test_a_file_that_lost_its_end_joins_the_run_it_fits(put, found):
    for rank in range(3):
        put(f"rank{rank}.json", rank)
    put("rank3.json")
    (run,) = found().runs
    assert ranks(run) == [0, 1, 2, 3]
    assert run.files[3].rank_source == "file name"


def test_folders_tell_runs_of_the_same_ranks_apart(put, found):
    for step in (100, 200):
        for rank in (0, 1):
            put(f"step_{step}/{rank}.json", rank, second=0, n=step // 50 + rank)
    assert sorted(run.name for run in found().runs) == ["step_100", "step_200"]


def test_one_folder_a_rank_is_one_run(put, found):
    for rank in range(3):
        put(f"rank_{rank}/trace.json", rank)
    (run,) = found().runs
    assert (run.name, ranks(run)) == ("traces", [0, 1, 2])


def test_the_run_with_most_ranks_comes_first(put, found):
    put("one/0.json", 0, second=500)
    for rank in (0, 1):
        put(f"two/{rank}.json", rank)
    listed = found()
    assert [run.name for run in listed.runs] == ["two", "0"]
    assert listed.pick(None).name == "two"
    assert listed.pick("0").name == "0"
    with pytest.raises(UsageError) as error:
        listed.pick("three")
    assert error.value.hint == "Runs here: two, 0"


def test_the_order_of_the_sources_does_not_matter(put, found):
    paths = [put(f"{rank}.json", rank) for rank in range(4)]
    runs = [found(*order).runs for order in (paths, paths[::-1])]
    assert runs[0] == runs[1]


def test_nothing_but_other_files_says_what_they_are(found, tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/a.json").write_text("version https://git-lfs.github.com/spec/v1\n", "utf-8")
    with pytest.raises(InputError, match=r"a\.json: a Git LFS pointer.*git lfs pull"):
        found()


def test_an_empty_folder_is_an_error(found, tmp_path):
    (tmp_path / "traces").mkdir()
    with pytest.raises(InputError, match="no file in it"):
        found()
