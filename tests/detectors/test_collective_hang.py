"""`collective-hang` from made-up dumps: who is waited for, and where the waiting leads."""

from __future__ import annotations

import os
import pickle

import pytest

import tracekit
from tracekit.findings import Cause, Level, Severity, Status
from tracekit.reports.first_screen import CALLS_SENTENCE, facts, notices

NOW_NS = 1_758_610_505_000_000_000
NAME = "collective-hang"


def call(number, *, group="0", name="nccl:all_reduce", done=False, at=None, **more):
    """A record of a group; `at` in ms."""
    is_message = "send" in name or "recv" in name
    return {
        "record_id": number,
        "pg_id": f"id of {group}",
        "process_group": (group, f"group {group}"),
        "collective_seq_id": 0 if is_message else number,
        "p2p_seq_id": number if is_message else 0,
        "profiling_name": name,
        "time_created_ns": NOW_NS + (number if at is None else at) * 1_000_000,
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "retired": done,
        "is_p2p": is_message,
        **more,
    }


@pytest.fixture
def finding(tmp_path):
    """The finding about ranks whose recorders hold these records."""

    def analysed(by_rank, groups, name=NAME, written_s=None, reached_by=None, **kept):
        folder = tmp_path / "dumps"
        folder.mkdir()
        config = {g: {"name": g, "desc": f"group {g}", "ranks": str(m)} for g, m in groups.items()}
        for rank, records in by_rank.items():
            own = {g: c for g, c in config.items() if rank in groups[g]}
            reached = {f"id of {g}": at for g, at in (reached_by or {}).get(rank, {}).items()}
            dump = {"version": "2.9", "pg_config": own, "pg_status": reached, "entries": records}
            path = folder / f"_dump_{rank}"
            path.write_bytes(pickle.dumps(dump | kept))
            if written_s is not None:  # after the first call
                at_ns = NOW_NS + written_s * 1_000_000_000
                os.utime(path, ns=(at_ns, at_ns))
        result = tracekit.analyze(folder, engine="local:1")
        assert not [f for f in result.findings if f.status is Status.FAILED]
        return next(f for f in result.findings if f.id == name)

    return analysed


def test_a_rank_that_never_made_the_call(finding):
    calls = [call(1, done=True), call(2)]
    found = finding({0: calls, 1: calls, 2: calls[:1]}, {"0": [0, 1, 2]})
    assert (found.severity, found.cause) == (Severity.CRITICAL, Cause.MISSING_CALL)
    assert (found.ranks, found.scope.victims) == ((2,), (0, 1))
    assert found.title == "The job stands still: rank 2 never made a call that others wait in"
    assert found.confidence.level is Level.MEDIUM
    behind, waiting = found.evidence
    assert behind.rows[0] == (
        2,
        "never made the call",
        "group 0 0 (3 ranks: 0–2)",
        1,
        2,
        1,
        1,
        1_000_000,
    )
    assert waiting.rows == (("0 (3 ranks: 0–2)", "all_reduce", 2, "0, 1", "2"),)


def test_the_waiting_is_followed_to_its_end(finding):
    # 0 waits for 1 in group a; 1 waits for 2 in group b; 2 waits for nobody
    found = finding(
        {
            0: [call(5, group="a")],
            1: [call(4, group="a", done=True), call(7, group="b")],
            2: [call(6, group="b", done=True)],
        },
        {"a": [0, 1], "b": [1, 2]},
    )
    assert found.ranks == (2,)
    assert found.scope.victims == (0, 1)


def test_a_device_that_does_not_end_what_ended_elsewhere_has_stopped(finding):
    done, waits = [call(1, done=True), call(2, done=True), call(3)], [call(1), call(2), call(3)]
    found = finding({0: done, 1: waits, 2: done}, {"0": [0, 1, 2]})
    assert (found.ranks, found.cause) == ((1,), Cause.PEER_FAILURE)
    assert "did not end a call that ended on other devices" in found.title


def test_that_a_host_is_ahead_in_later_calls_says_nothing(finding):
    # all are in call 1, which does not end: 0 has called 2 and 3 already
    found = finding({0: [call(1), call(2), call(3)], 1: [call(1)]}, {"0": [0, 1]})
    assert (found.severity, found.ranks, found.measured.value) == (Severity.INFO, (), 0)
    assert found.title.startswith("All 2 ranks are in all_reduce 1")


def test_a_rank_without_a_dump_is_the_likely_one_and_may_only_not_be_collected(finding):
    found = finding({0: [call(1)], 1: [call(1)]}, {"0": [0, 1, 2]})
    assert (found.ranks, found.cause) == ((2,), Cause.PEER_FAILURE)
    assert (found.confidence.level, found.severity) == (Level.LOW, Severity.INFO)
    assert found.title == (
        "Rank 2 left no dump here, and others wait for what they may have called"
    )


def test_a_rank_that_is_alone_without_a_dump_was_most_likely_gone(finding):
    # 11 ranks wait for the twelfth; of two that lack dumps nothing is known
    waiting = {rank: [call(1)] for rank in range(11)}
    found = finding(waiting, {"0": list(range(12))})
    assert (found.ranks, found.cause) == ((11,), Cause.PEER_FAILURE)
    assert (found.severity, found.confidence.level) == (Severity.CRITICAL, Level.MEDIUM)
    assert found.title == "The job stands still: rank 11 left no dump"


def test_of_several_ranks_without_a_dump_nothing_is_known(finding):
    waiting = {rank: [call(1)] for rank in range(10)}
    assert finding(waiting, {"0": list(range(12))}).severity is Severity.INFO


def test_ranks_that_call_two_groups_in_different_orders_wait_for_each_other(finding):
    found = finding(
        {0: [call(1, group="a")], 1: [call(1, group="b")], 2: [call(3, group="c")]},
        {"a": [0, 1], "b": [0, 1], "c": [0, 2]},
    )
    assert (found.ranks, found.cause) == ((0, 1), Cause.MISMATCHED_CALL)
    assert found.scope.victims == (2,)
    assert "ranks 0, 1 wait for each other" in found.title


def test_a_message_without_its_other_end(finding):
    found = finding(
        {
            4: [
                call(1, group="pp", name="nccl:recv 0<-1"),
                call(2, group="pp", name="nccl:send 0->1"),
            ],
            9: [call(2, group="pp", name="nccl:recv 1<-0")],
        },
        {"pp": [4, 9]},
    )
    assert found.ranks == (9,)
    assert found.evidence[1].rows == (("9 → 4 of pp (2 ranks: 4, 9)", "recv", None, "4", "9"),)


def test_messages_that_meet_wait_for_nobody(finding):
    found = finding(
        {
            4: [call(1, group="pp", name="nccl:send 0->1")],
            9: [call(2, group="pp", name="nccl:recv 1<-0")],
        },
        {"pp": [4, 9]},
    )
    assert found.status is Status.CLEAR


def test_of_gloo_the_last_calls_are_compared(finding):
    gloo = [call(n, name="gloo:all_reduce", retired=True) for n in (1, 2, 3)]
    # as gloo writes it: whatever was enqueued is completed
    status = {"id of 0": {"last_completed_collective": 3}}
    found = finding({0: gloo, 1: gloo[:2], 2: gloo}, {"0": [0, 1, 2]}, pg_status=status)
    assert (found.ranks, found.scope.victims) == ((1,), (0, 2))


def test_a_job_that_ended_its_calls_is_clear(finding):
    done = [call(n, done=True) for n in range(5)]
    found = finding({0: done, 1: done}, {"0": [0, 1]})
    assert (found.status, found.title) == (Status.CLEAR, "No rank is waited for in vain")


@pytest.mark.parametrize(
    ("written_s", "severity", "level"),
    [(610, Severity.CRITICAL, Level.MEDIUM), (2, Severity.INFO, Level.LOW)],
)
def test_s28_all_ranks_are_in_a_call_that_none_has_ended(finding, written_s, severity, level):
    # LlamaFactory#9496: 16 ranks joined all-reduce 730, the watchdog ended the job after 600 s
    calls = [call(729, done=True, at=0), call(730, at=1, timeout_ms=600_000)]
    by_rank = dict.fromkeys(range(16), calls)
    found = finding(by_rank, {"0": list(range(16))}, written_s=written_s)
    assert (found.severity, found.confidence.level) == (severity, level)
    assert (found.cause, found.ranks) == (Cause.PEER_FAILURE, ())  # no rank "never called"
    assert found.title == (
        "All 16 ranks are in all_reduce 730 of group 0 (16 ranks: 0–15), and none has ended it"
    )
    assert "TORCH_FR_BUFFER_SIZE=2000" in " ".join(found.recommendation.commands)


def test_a_ring_that_wrapped_no_longer_holds_the_call_that_waits(finding):
    # Rank 0 is in call 2 and went on to call 9; its ring holds 7 to 9. Rank 1 never made call 2.
    ahead = {"0": {"last_completed_collective": 1, "last_enqueued_collective": 9}}
    ring = [call(number) for number in (7, 8, 9)]
    by_rank = {0: ring, 1: [call(0, done=True), call(1, done=True)], 2: ring}
    found = finding(by_rank, {"0": [0, 1, 2]}, reached_by={0: ahead, 2: ahead})
    waiting = found.evidence[1]
    assert (found.ranks, waiting.rows[0][2]) == ((1,), 2)
    assert "2 rings wrapped" in found.confidence.reason


def test_a_call_that_ended_for_one_is_no_joined_one(finding):
    calls = [call(1, done=True), call(2)]
    found = finding({0: calls, 1: [call(1, done=True), call(2, done=True)]}, {"0": [0, 1]})
    assert found.ranks == (0,)


def test_the_first_call_that_waits_is_named(finding):
    calls = [call(1, done=True), call(2)]
    found = finding({0: calls, 1: calls, 2: [call(1, done=True)]}, {"0": [0, 1, 2]})
    assert found.why.startswith("ranks 0, 1 wait in all_reduce 2 of group ")


def test_where_the_ranks_at_fault_were_last(finding):
    frames = [{"filename": "train.py", "line": 41, "name": "save"}]
    last = call(1, done=True, frames=frames)
    found = finding({0: [call(1, done=True), call(2)], 1: [last]}, {"0": [0, 1]})
    assert found.evidence[2].rows == ((1, "last call: nccl:all_reduce", "train.py:41 save"),)


@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_2nd"])
def test_the_ranks_of_injected_faults(traces, name):
    folder = traces / "traces/NVIDIA+nvidia-resiliency-ext/tests/attribution/unit/fr_traces" / name
    injected = (folder / "fault_injection.log").read_text().splitlines()[0]
    expected = tuple(int(text) for text in injected.split("[")[1].rstrip("]").split(","))
    result = tracekit.analyze(folder, engine="local:1")
    (found,) = [f for f in result.findings if f.status is Status.FOUND]
    assert (found.id, found.ranks) == (NAME, expected)
    assert not set(found.scope.victims) & set(expected)
    assert notices(result) == (CALLS_SENTENCE,)
    assert facts(result.run) == (("Ranks", "16 of 16 analysed"),)


def test_a_call_that_is_another_on_one_rank(finding):
    usual = [call(1), call(2)]
    other = [call(1), call(2, name="nccl:broadcast")]
    found = finding({0: usual, 1: other, 2: usual}, {"0": [0, 1, 2]}, name="collective-mismatch")
    assert (found.severity, found.cause, found.ranks) == (
        Severity.CRITICAL,
        Cause.MISMATCHED_CALL,
        (1,),
    )
    assert found.title == (
        "Rank 1 called broadcast where others call all_reduce, in call 2 of group 0 (3 ranks: 0–2)"
    )
    assert found.confidence.level is Level.HIGH


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"input_sizes": [[9]]}, "shape"), ({"input_dtypes": ["Half"]}, "type")],
)
def test_a_tensor_of_another_shape_or_type(finding, changed, what):
    found = finding(
        {0: [call(1)], 1: [call(1)], 2: [call(1, **changed)]},
        {"0": [0, 1, 2]},
        name="collective-mismatch",
    )
    assert (found.ranks, found.evidence[0].rows[0][3]) == ((2,), what)


@pytest.mark.parametrize("name", ["nccl:all_to_all", "nccl:gather", "nccl:coalesced"])
def test_calls_that_may_differ_by_rank(finding, name):
    one, other = call(1, name=name), call(1, name=name, input_sizes=[[9]])
    found = finding({0: [one], 1: [other]}, {"0": [0, 1]}, name="collective-mismatch")
    assert found.status is Status.CLEAR


def test_two_ranks_that_differ_are_told_apart_by_nothing(finding):
    found = finding(
        {0: [call(1)], 1: [call(1, input_sizes=[[9]])]}, {"0": [0, 1]}, name="collective-mismatch"
    )
    assert (found.ranks, found.confidence.level) == ((1,), Level.LOW)
