"""A saving stays inside the step and is worth its share of all GPUs."""

from __future__ import annotations

import pytest

from tracekit.derive.savings import saving


def test_a_saving_is_worth_its_share_of_the_gpus_day():
    found = saving(10.0, 20.0, 100.0, 8, "x")
    assert (found.per_step_ns.low, found.per_step_ns.high) == (10, 20)
    assert (found.share, found.share_high) == (0.1, 0.2)
    assert found.gpu_hours_per_day.low == pytest.approx(0.1 * 8 * 24)
    assert found.gpu_hours_per_day.high == pytest.approx(0.2 * 8 * 24)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-5, 20, (0, 20)), (30, 20, (20, 20)), (10, 900, (10, 100)), (-9, -5, (0, 0))],
)
def test_the_ends_stay_in_order_and_inside_the_step(low, high, expected):
    found = saving(low, high, 100.0, 1, "x")
    assert (found.per_step_ns.low, found.per_step_ns.high) == expected
