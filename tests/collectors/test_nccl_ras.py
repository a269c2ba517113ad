"""Answers of NCCL's RAS: whose counts they are, several in one file, and text around them."""

from __future__ import annotations

import json

import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.errors import InputError
from tracekit.findings import Cause, Severity, Status


def member(rank, calls, *, pid=None, host="10.0.0.1", error=0, aborted=False):
    return {
        "rank": rank,
        "host": host,
        "pid": 100 + rank if pid is None else pid,
        "cuda_dev": 0,
        "nvml_dev": 0,
        "status": {"init_state": 0, "async_error": error, "abort_flag": aborted},
        "collective_counts": {"Broadcast": 1, "AllReduce": calls},
    }


def silent(rank, *, dead=False):
    status = {"unresponsive": True, "considered_dead": dead}
    return {"rank": rank, "host": "10.0.0.1", "pid": 100 + rank, "cuda_dev": 0, "status": status}


def group(*members, key="0xa", size=None, missing=()):
    return {
        "hash": key,
        "secondary_hash": "0x1:0x2",
        "size": size or len(members) + len(missing),
        "ranks": list(members),
        "missing_ranks": list(missing),
    }


def answer(*groups):
    return {
        "nccl_version": "2.28.9",
        "timestamp": "2026-01-01 10:00:00",
        "communicators_count": len(groups),
        "communicators": list(groups),
        "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
    }


@pytest.fixture
def put(tmp_path):
    """Write answers one after the other, with what ncclras may print around them."""

    def write(*answers, before="", between="\n"):
        path = tmp_path / "ras.json"
        path.write_text(before + between.join(json.dumps(a, indent=2) for a in answers) + "\n")
        return path

    return write


def finding(path):
    result = tracekit.analyze(path, engine="local:1")
    assert result.run.device_kind == "calls"
    return next(each for each in result.findings if each.id == "ranks-behind")


def test_counts_are_those_of_the_rank_by_communicator_and_operation(put, tmp_path):
    # ranks 2 and 3 of the world are 0 and 1 of the other communicator, by their processes
    world = group(*(member(rank, 7) for rank in range(4)))
    pair = group(member(0, 5, pid=102), member(1, 5, pid=103), key="0xb")
    run = tracekit.convert(put(answer(world, pair)), tmp_path / "run", engine="local:1")
    rows = run.scan("communicator_counts", 3).collect()
    named = rows.select("communicator", "n_members", "member", "operation", "n_calls").rows()
    assert sorted(named) == [
        ("0xa", 4, 3, "all_reduce", 7),
        ("0xa", 4, 3, "broadcast", 1),
        ("0xb", 2, 1, "all_reduce", 5),
        ("0xb", 2, 1, "broadcast", 1),
    ]
    assert run.scan("communicator_counts", 0).collect()["communicator"].to_list() == ["0xa"] * 2


def test_equal_counts_are_clear(put):
    assert finding(put(answer(group(member(0, 7), member(1, 7))))).status is Status.CLEAR


def test_one_answer_may_have_met_a_job_in_motion(put):
    found = finding(put(answer(group(member(0, 9), member(1, 7)))))
    assert (found.status, found.severity, found.ranks) == (Status.FOUND, Severity.INFO, (1,))
    assert found.why == "rank 1 made 8 of 10 calls of communicator 0xa"  # a broadcast each


def test_who_made_no_call_between_two_answers_is_stuck(put):
    first = answer(group(member(0, 8), member(1, 7), member(2, 8)))
    second = answer(group(member(0, 9), member(1, 7), member(2, 9)))
    found = finding(put(first, second))
    assert (found.severity, found.ranks, found.cause) == (
        Severity.CRITICAL,
        (1,),
        Cause.MISSING_CALL,
    )
    assert found.scope.victims == (0, 2)


def test_who_goes_on_is_not_stuck(put):
    first = answer(group(member(0, 8), member(1, 6)))
    assert finding(put(first, answer(group(member(0, 9), member(1, 7))))).severity is Severity.INFO


def test_who_waits_elsewhere_is_not_at_fault(put):
    # Rank 1 is behind in the world, for it waits in the pair for rank 2, which is behind in both.
    world = group(member(0, 9), member(1, 8), member(2, 8))
    pair = group(member(0, 5, pid=101), member(1, 4, pid=102), key="0xb")
    assert finding(put(answer(world, pair), answer(world, pair))).ranks == (2,)


def test_a_process_that_does_not_answer_is_named(put):
    found = finding(put(answer(group(member(0, 9), missing=(silent(1, dead=True),)))))
    assert (found.severity, found.ranks) == (Severity.CRITICAL, (1,))
    assert found.title == "Rank 1 does not answer NCCL any more"
    assert found.evidence[0].rows == ((1, "0xa", 2, None, 10, True),)


@pytest.mark.parametrize("failed", [{"error": 6}, {"aborted": True}])
def test_an_error_or_an_abort_is_a_failure(put, failed):
    found = finding(put(answer(group(member(0, 9), member(1, 9, **failed)))))
    assert (found.severity, found.ranks) == (Severity.CRITICAL, (1,))


def test_an_operation_in_progress_is_no_error(put):
    assert finding(put(answer(group(member(0, 9), member(1, 9, error=7))))).status is Status.CLEAR


def test_text_around_answers_is_passed_over(put, tmp_path):
    path = put(answer(group(member(0, 1))), before="Connected to { localhost }\n")
    path.write_text(path.read_text() + '{\n  "nccl_version": "2.28.9",\n  "communicators": [\n')
    assert sniffed(path).id == "nccl-ras"
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    assert run.scan("communicator_counts", 0).collect()["snapshot"].unique().to_list() == [0]


def test_an_answer_that_was_cut_is_an_error(put):
    path = put(answer(group(member(0, 1))))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="no whole answer of NCCL's RAS"):
        tracekit.analyze(path, engine="local:1")
