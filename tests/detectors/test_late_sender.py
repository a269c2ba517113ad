"""`late-sender`, by hand: rank i of the first stage sends to rank i + n, steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Severity, Status

NAME = "late-sender"
STEP, TRANSFER = 1_000, 50


@pytest.fixture
def piped(make_run, runs):
    """A run in which rank i computes `us[i]` and sends; its receiver computes 100 µs and waits.

    The message takes `transfers[i]` once both are there; then all meet, until the step ends.
    """

    def made(us, *, transfers=None):
        n = len(us)
        traces = {rank: runs.Trace() for rank in range(2 * n)}
        for number in range(5):
            at = STEP * number
            for sender in range(n):
                ends = at + us[sender] + (transfers or [TRANSFER] * n)[sender]
                for rank, peer, computes in (
                    (sender, sender + n, us[sender]),
                    (sender + n, sender, 100),
                ):
                    sends = rank == sender
                    trace = traces[rank]
                    trace.step(number, at, STEP).kernel(at, computes, launched=at)
                    trace.collective(
                        at + computes,
                        ends - at - computes,
                        "send" if sends else "recv",
                        launched=at + 2,
                        group=f"pp{sender}",
                        group_description="PIPELINE_MODEL_PARALLEL",
                        members=[sender, sender + n],
                        bytes_in=1 << 20,
                        **{"destination_rank" if sends else "source_rank": peer},
                    )
                    trace.collective(
                        ends,
                        at + STEP - 40 - ends,
                        launched=at + 3,
                        stream=21,
                        group="dp",
                        members=list(range(2 * n)),
                        sequence=number,
                    )
        return make_run(traces)

    return made


def test_a_sender_that_computes_longer_than_its_peers(piped, finding_of):
    found = finding_of(NAME, piped([200, 200, 500, 200]))
    assert (found.status, found.severity, found.ranks) == (Status.FOUND, Severity.INFO, (2,))
    # receivers compute 100 µs: rank 6 waits 400 for rank 2, the others wait 100
    assert found.measured.value == pytest.approx(0.3)
    assert found.title == "Messages of rank 2 come late: rank 6 waits 400 µs a step"
    assert found.scope.victims == (6,)
    assert found.evidence[0].rows[0] == (6, 2, 400_000.0)
    assert found.saving is None  # straggler-rank says what it costs


def test_equal_senders_are_waited_for_alike(piped, finding_of):
    assert finding_of(NAME, piped([200, 200, 200])).status is Status.CLEAR


def test_a_long_transfer_is_not_the_senders(piped, finding_of):
    found = finding_of(NAME, piped([200, 200, 200], transfers=[50, 350, 50]))
    assert found.status is Status.CLEAR


def test_stages_of_one_pipeline_are_no_peers(piped, finding_of):
    found = finding_of(NAME, piped([500]))
    assert found.status is Status.SKIPPED


def test_a_fiftieth_of_the_step_is_the_limit(piped, finding_of):
    assert finding_of(NAME, piped([200, 219, 200])).status is Status.CLEAR
    assert finding_of(NAME, piped([200, 221, 200])).status is Status.FOUND
