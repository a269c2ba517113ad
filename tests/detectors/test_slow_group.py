"""`slow-group`, by hand: two ranks a group, steps of 1,000 µs."""

from __future__ import annotations

import pytest

from tracekit.findings import Cause, Level, Status

NAME = "slow-group"
STEP = 1_000


@pytest.fixture
def grouped(make_run, runs):
    """A run of two-rank groups (0, n), (1, n + 1) …, whose all-reduces take `us` of each.

    Compute of 300 µs runs before; of the transfer `hidden` µs run beside compute.
    """

    def made(us, *, hidden=0, sizes=None, late=0, layouts=None, n_steps=5):
        n = len(us)
        pairs = layouts or [(i, i + n) for i in range(n)]
        traces = {rank: runs.Trace() for pair in pairs for rank in pair}
        for number in range(n_steps):
            at = STEP * number
            for i, pair in enumerate(pairs):
                for rank in pair:
                    trace = traces[rank]
                    begins = at + 310 + (late if rank == pair[1] else 0)
                    ends = at + 310 + late + us[i]
                    trace.step(number, at, STEP)
                    trace.kernel(at, 300, launched=at)
                    trace.collective(
                        begins,
                        ends - begins,
                        launched=at + 2,
                        group=f"g{i}",
                        members=sorted(pair),
                        sequence=number,
                        bytes_in=(sizes or [1 << 20] * n)[i],
                    )
                    if hidden:
                        trace.kernel(at + 310 + late, hidden, launched=at + 3)
        return make_run(traces)

    return made


def test_a_group_that_takes_three_times_as_long(grouped, finding_of):
    found = finding_of(NAME, grouped([100, 100, 300, 100]))
    assert (found.status, found.cause) == (Status.FOUND, Cause.SLOW_GROUP)
    assert (found.ranks, found.groups) == ((2, 6), ("g2 (2 ranks: 2, 6)",))
    assert found.measured.value == pytest.approx(3.0)
    # 300 µs of exposed transfer, of them 200 more than peers
    assert found.saving.per_step_ns.low == pytest.approx(200_000)
    assert found.scope.victims == (0, 1, 3, 4, 5, 7)
    assert found.confidence.level is Level.MEDIUM
    assert found.title == (
        "Collectives of group g2 (2 ranks: 2, 6) take 3.00× as long as those of its 3 peers"
    )
    assert found.evidence[0].rows[0][:1] == ("g2 (2 ranks: 2, 6)",)
    assert found.evidence[1].rows == (("all_reduce", 1 << 20, 5, 300_000.0, 100_000.0),)


def test_waiting_inside_a_group_is_not_its_transfer(grouped, finding_of):
    found = finding_of(NAME, grouped([100, 100, 110, 100], late=200))
    assert found.status is Status.CLEAR
    assert found.measured.value == pytest.approx(1.1)


def test_of_two_groups_the_slower_one_is_named_with_low_confidence(grouped, finding_of):
    found = finding_of(NAME, grouped([100, 250]))
    assert found.groups == ("g1 (2 ranks: 1, 3)",)
    assert found.confidence.level is Level.LOW
    assert found.title.endswith("as long as those of its only peer")


def test_what_compute_hides_is_no_loss(grouped, finding_of):
    assert finding_of(NAME, grouped([100, 100, 300, 100], hidden=300)).status is Status.CLEAR


def test_other_sizes_are_not_compared(grouped, finding_of):
    sizes = [1 << 20, 1 << 20, 3 << 20, 1 << 20]
    assert finding_of(NAME, grouped([100, 100, 300, 100], sizes=sizes)).status is Status.CLEAR


def test_groups_inside_a_node_are_no_peers_of_those_across(grouped, finding_of):
    # two tensor parallel groups of neighbours, two groups across
    layouts = [(0, 1), (2, 3), (4, 6), (5, 7)]
    assert finding_of(NAME, grouped([100, 100, 300, 300], layouts=layouts)).status is Status.CLEAR


def test_a_single_group_has_no_peer(grouped, finding_of):
    layouts = [(0, 1), (2, 4), (3, 7)]
    found = finding_of(NAME, grouped([100, 100, 300], layouts=layouts))
    assert found.status is Status.SKIPPED
    assert "Record all ranks, with the process groups" in found.why


def test_three_calls_are_too_few(grouped, finding_of):
    assert finding_of(NAME, grouped([100, 100, 300, 100], n_steps=3)).status is Status.CLEAR
