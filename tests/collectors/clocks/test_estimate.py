"""The offset that exchanges of a simulated network give, and whether its error bound holds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.collectors.clocks.ping import Exchange, estimate

NOW_NS = 1_796_061_942_217_966_665
SECOND_NS = 1_000_000_000


def exchanges(offset_ns, delays_ns, *, drift_ppm=0, start_ns=NOW_NS):
    """Stamps of exchanges one after the other; the offset is that at `start_ns`."""
    made, at_ns = [], start_ns
    for there_ns, back_ns, answer_ns in delays_ns:
        now_ns = at_ns + offset_ns + (at_ns - start_ns) * drift_ppm // 1_000_000
        received_ns = now_ns + there_ns
        replied_ns = received_ns + answer_ns
        made.append(
            Exchange(at_ns, received_ns, replied_ns, at_ns + there_ns + answer_ns + back_ns)
        )
        at_ns = made[-1].back_ns + 1000
    return made


def heavy_tailed(seed, n, there_ns, back_ns):
    """Delays of a network with queues: a floor for each direction, and Pareto tails on top."""
    chance = random.Random(seed)
    return [
        (
            int(there_ns + 2000 * (chance.paretovariate(1.1) - 1)),
            int(back_ns + 2000 * (chance.paretovariate(1.1) - 1)),
            int(1000 * chance.paretovariate(1.5)),
        )
        for _ in range(n)
    ]


@given(
    offset_ns=st.integers(-(10**13), 10**13),
    seed=st.integers(0, 10**6),
    floors_ns=st.tuples(st.integers(1000, 5_000_000), st.integers(1000, 5_000_000)),
    n=st.integers(20, 300),
)
def test_the_error_bound_holds_on_unequal_ways_with_heavy_tails(offset_ns, seed, floors_ns, n):
    found = estimate(exchanges(offset_ns, heavy_tailed(seed, n, *floors_ns)))
    assert abs(found.offset_ns - offset_ns) <= found.error_ns
    assert found.error_ns >= found.min_delay_ns // 2 >= sum(floors_ns) // 2
    assert found.n == n


@given(delays=st.lists(st.tuples(*[st.integers(0, 10**9)] * 3), min_size=20, max_size=60))
def test_the_error_bound_holds_whatever_the_delays(delays):
    found = estimate(exchanges(-123_456_789, delays))
    assert abs(found.offset_ns + 123_456_789) <= found.error_ns


@given(seed=st.integers(0, 10**6))
def test_equal_ways_give_the_offset_far_inside_the_bound(seed):
    found = estimate(exchanges(12 * SECOND_NS, heavy_tailed(seed, 200, 50_000, 50_000)))
    assert abs(found.offset_ns - 12 * SECOND_NS) < 2000
    assert 50_000 <= found.error_ns < 55_000


def test_unequal_ways_show_as_half_their_difference():
    # 30 µs there and 10 µs back: the stamps cannot be told from 20 µs each and 10 µs more.
    found = estimate(exchanges(0, [(30_000, 10_000, 500)] * 20))
    assert (found.offset_ns, found.min_delay_ns, found.n) == (10_000, 40_000, 20)
    assert found.error_ns in {20_000, 20_001}


def test_the_least_delays_count_and_not_the_many():
    slow = [(900_000, 10_000, 500)] * 180
    found = estimate(exchanges(77, [*slow[:90], *[(10_000, 10_000, 500)] * 20, *slow[90:]]))
    assert (found.offset_ns, found.min_delay_ns) == (77, 20_000)


def test_the_moment_is_that_of_the_exchanges_that_count():
    slow = [(9_000_000, 9_000_000, 0)] * 18
    made = exchanges(0, [*slow, (10_000, 10_000, 0), (10_000, 10_000, 0)])
    assert estimate(made).at_ns in {made[-1].sent_ns + 10_000, made[-2].sent_ns + 10_000}


def test_a_clock_that_is_set_meanwhile_widens_the_error_to_both():
    delays_ns = [(90_000, 90_000, 0)] * 90 + [(10_000, 10_000, 0)] * 10
    before = exchanges(0, delays_ns)
    after = exchanges(SECOND_NS, delays_ns, start_ns=before[-1].back_ns)
    found = estimate([*before, *after])
    for truth_ns in (0, SECOND_NS):
        assert abs(found.offset_ns - truth_ns) <= found.error_ns


def test_an_exchange_that_a_clock_was_set_back_in_is_left_out():
    made = exchanges(0, [(10_000, 10_000, 0)] * 21)
    made[5] = made[5]._replace(back_ns=made[5].sent_ns - SECOND_NS)
    found = estimate(made)
    assert (found.offset_ns, found.n) == (0, 20)


def test_too_few_exchanges_are_no_measurement():
    with pytest.raises(ConnectionError, match="only 19 exchanges, where 20 are needed"):
        estimate(exchanges(0, [(10_000, 10_000, 0)] * 19))
