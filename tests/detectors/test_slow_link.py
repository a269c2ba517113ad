"""`slow-link`, by hand: rank i sends to rank i + n, in steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "slow-link"
STEP = 1_000


@pytest.fixture
def linked(make_run, runs):
    """A run in which messages from rank i to rank i + n take `us[i]`, after 300 µs of compute.

    The receiver waits `late` µs for the sender.
    """

    def made(us, *, late=0, hosts=(), n_steps=5):
        n = len(us)
        traces = {rank: runs.Trace() for rank in range(2 * n)}
        for number in range(n_steps):
            at = STEP * number
            for sender in range(n):
                receiver, ends = sender + n, at + 310 + late + us[sender]
                for rank, begins in ((sender, at + 310 + late), (receiver, at + 310)):
                    sends = rank == sender
                    trace = traces[rank]
                    trace.step(number, at, STEP)
                    trace.kernel(at, 300, launched=at)
                    trace.collective(
                        begins,
                        ends - begins,
                        "send" if sends else "recv",
                        launched=at + 2,
                        group=f"pp{sender}",
                        group_description="PIPELINE_MODEL_PARALLEL",
                        members=[sender, receiver],
                        destination_rank=receiver if sends else None,
                        source_rank=None if sends else sender,
                        bytes_in=1 << 20,
                    )
        return make_run(traces, hosts=hosts)

    return made


def test_a_link_that_takes_three_times_as_long(linked, finding_of):
    found = finding_of(NAME, linked([100, 100, 300, 100]))
    assert (found.status, found.cause, found.ranks) == (Status.FOUND, Cause.SLOW_LINK, (2, 6))
    assert found.measured.value == pytest.approx(3.0)
    # the receiver shows 300 µs, of them 200 more than peers
    assert found.saving.per_step_ns.low == pytest.approx(200_000)
    assert found.title == "Messages between ranks 2 – 6 take 3.00× as long as those of its 3 peers"
    assert found.evidence[1].rows == (("message", 1 << 20, 5, 300_000.0, 100_000.0),)


def test_waiting_for_the_sender_is_no_transfer(linked, finding_of):
    found = finding_of(NAME, linked([100, 100, 110, 100], late=200))
    assert found.status is Status.CLEAR
    assert found.measured.value == pytest.approx(1.1)


def test_links_between_the_same_hosts_are_one(linked, finding_of):
    # ranks 0–2 on a, 3–5 on b: three pairs of ranks, one link, and no peer
    run = linked([100, 100, 300], hosts=[(rank, "ab"[rank // 3]) for rank in range(6)])
    assert finding_of(NAME, run).status is Status.SKIPPED
    # pairs 0–4 and 1–5 lie between a and c, 2–6 and 3–7 between b and d
    run = linked([300, 300, 100, 100], hosts=[(rank, "aabbccdd"[rank]) for rank in range(8)])
    found = finding_of(NAME, run)
    assert (found.subject, found.ranks) == ("hosts a – c", (0, 1, 4, 5))
    assert found.confidence.level is Level.LOW


def test_three_messages_are_too_few(linked, finding_of):
    assert finding_of(NAME, linked([100, 100, 300, 100], n_steps=3)).status is Status.CLEAR


def test_groups_that_hold_one_host_are_told_of_together(make_run, runs, finding_of):
    # Groups (0, 1) … (10, 11); 6 to 11 lie on hosts c and d, three groups that take 300 µs of 100.
    traces = {rank: runs.Trace() for rank in range(12)}
    for number in range(5):
        at = STEP * number
        for rank, trace in traces.items():
            trace.step(number, at, STEP)
            trace.kernel(at, 300, launched=at)
            trace.collective(
                at + 310,
                300 if rank >= 6 else 100,
                launched=at + 2,
                group=f"g{rank // 2}",
                members=[rank // 2 * 2, rank // 2 * 2 + 1],
                sequence=number,
                bytes_in=1 << 20,
            )
    hosts = [(rank, ("ab" if rank < 6 else "cd")[rank % 2]) for rank in traces]
    found = finding_of("slow-group", make_run(traces, hosts=hosts))
    assert (found.subject, found.ranks) == ("c, d", (6, 7, 8, 9, 10, 11))
    assert found.title == "Transfers of the 3 groups on hosts c, d take 3.00× as long"
    assert len(found.groups) == 3
