"""Offsets and drifts of made-up clocks are recovered; noise with a heavy tail does not mislead."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.derive.clock_fit import Block, fitted

SECOND_NS = 1e9


def noise(random, shape, spread_ns=3_000, tail_share=0.05, tail_ns=60_000):
    """Half-normal, and now and then much later: what ends of collectives show."""
    usual = np.abs(random.normal(0, spread_ns, shape))
    return usual + (random.random(shape) < tail_share) * random.exponential(tail_ns, shape)


def made(groups, *, n_events, span_s, seed=1, offset_ns=12e9, drift_ppm=50.0, **how):
    """Clocks with drawn offsets and drifts, and events of each group as its clocks saw them."""
    random = np.random.default_rng(seed)
    n_clocks = max(max(group) for group in groups) + 1
    offsets = random.uniform(-offset_ns, offset_ns, n_clocks)
    drifts = random.uniform(-drift_ppm, drift_ppm, n_clocks) * 1e-6
    offsets[0] = drifts[0] = 0
    blocks = []
    for group in groups:
        at = np.sort(random.uniform(0, span_s * SECOND_NS, n_events))[:, None]
        seen = (at + noise(random, (n_events, len(group)), **how)) * (1 + drifts[group])
        blocks.append(Block(np.array(group), seen + offsets[group]))
    return offsets, drifts, blocks


def errors_us(offsets, drifts, fit, span_s):
    """How far corrected clocks are from the first one over the span, in µs."""
    at = np.linspace(0, span_s * SECOND_NS, 40)[:, None]
    local = at * (1 + drifts) + offsets
    corrected = local * (1 - fit.drift) - fit.offset_ns
    return np.abs(corrected - corrected[:, :1])[:, 1:] / 1000


WORLD = [list(range(16))]
CHAIN = [[clock, clock + 1] for clock in range(15)]
NEIGHBOURS = [list(range(first, first + 8)) for first in range(0, 57, 7)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("groups", "n_events", "how"),
    [
        (WORLD, 400, {}),
        (WORLD, 40, {}),
        (WORLD, 400, {"spread_ns": 20_000, "tail_share": 0.2, "tail_ns": 500_000}),
        (CHAIN, 60, {}),
        (NEIGHBOURS, 100, {}),
    ],
    ids=["world", "few", "heavy-tail", "chain", "groups"],
)
def test_offsets_of_seconds_and_drifts_of_50_ppm_are_recovered(groups, n_events, how, seed):
    offsets, drifts, blocks = made(groups, n_events=n_events, span_s=10, seed=seed, **how)
    fit = fitted(len(offsets), blocks)
    found = errors_us(offsets, drifts, fit, 10)
    assert np.median(found) <= 20
    assert np.quantile(found, 0.99) <= 100


def test_a_short_window_gets_offsets_only():
    offsets, drifts, blocks = made(WORLD, n_events=40, span_s=1)
    fit = fitted(16, blocks)
    assert not fit.drift.any()
    assert np.median(errors_us(offsets, drifts, fit, 1)) <= 20  # 50 ppm are 25 µs in half a second


def test_few_events_get_offsets_only():
    _, _, blocks = made(WORLD, n_events=19, span_s=10)
    assert not fitted(16, blocks).drift.any()
    _, _, blocks = made(WORLD, n_events=20, span_s=10)
    assert fitted(16, blocks).drift[1:].all()


def test_two_clocks_that_share_no_event_are_joined_through_a_third():
    ends = np.array([[1.0, 101.0], [2000.0, 2100.0]]) * 1000
    later = ends + np.array([100_000, 300_000])
    blocks = [Block(np.array([0, 1]), ends), Block(np.array([1, 2]), later)]
    fit = fitted(4, blocks)
    assert fit.offset_ns == pytest.approx([0, 100_000, 400_000, 0], abs=1)
    assert list(fit.component) == [0, 0, 0, 3]
    assert list(fit.n_events) == [2, 4, 2, 0]


def test_a_clock_without_events_has_no_error_and_the_others_have_theirs():
    random = np.random.default_rng(3)
    ends = np.sort(random.uniform(0, 1e9, 200))[:, None] + random.normal(0, 1_000, (200, 2))
    fit = fitted(3, [Block(np.array([0, 1]), ends)])
    assert np.isnan(fit.error_ns[2])
    # residuals of two ends lie half their distance from their mean: a spread of 1 µs / √2
    assert fit.error_ns[:2] == pytest.approx([3_000 / 2**0.5] * 2, rel=0.2)


def test_without_any_event_nothing_is_corrected():
    fit = fitted(2, [])
    assert not fit.offset_ns.any()
    assert np.isnan(fit.error_ns).all()
