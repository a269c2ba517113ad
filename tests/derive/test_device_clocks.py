"""Clocks and limits of devices, as telemetry sampled them, tell a throttled device."""

from __future__ import annotations

import pytest

from tracekit.derive.device_clocks import clock_share, device_clocks, is_held_back


@pytest.fixture
def sampled(make_run, runs):
    """A run of four ranks, with these metrics of rank 2; the others have 1,980 MHz and no limit."""

    def build(*, every=None, **metrics):
        usual = {"sm_clock_mhz": 1980.0, "temperature_c": 60.0, "throttled_thermal_s": 0.0}
        usual |= every or {}
        traces = {}
        for rank in range(4):
            traces[rank] = runs.Trace().kernel(0, 10)
            for name, value in {**usual, **(metrics if rank == 2 else {})}.items():
                for second in range(3):
                    at = 1_000_000 * second
                    row = {"device_uuid": f"GPU-{rank}", "metric": name, "value": value}
                    row |= {"end_ns": (at + 1_000_000) * 1000, "part": None, "source": "nvml"}
                    traces[rank].add("telemetry", at, 0, **row)
        return make_run(traces)

    return build


def test_means_over_the_samples_of_each_rank(sampled):
    found = device_clocks(sampled(throttled_thermal_s=0.25))
    assert found.row(2, named=True) == {
        "rank": 2,
        "sm_clock_mhz": 1980,
        "temperature_c": 60,
        "throttled_share": 0.25,  # 3 × 0.25 s of 3 s
    }


@pytest.mark.parametrize(("clock", "is_held"), [(1880.0, True), (1882.0, False)])
def test_a_clock_five_per_cent_below_the_peers_holds_back(sampled, clock, is_held):
    assert is_held_back(sampled(sm_clock_mhz=clock), (2,), (0, 1, 3)) == is_held


@pytest.mark.parametrize(("seconds", "is_held"), [(0.1, True), (0.09, False)])
def test_a_limit_for_a_tenth_of_the_time_holds_back(sampled, seconds, is_held):
    assert is_held_back(sampled(throttled_power_s=seconds), (2,), (0, 1, 3)) == is_held


def test_without_samples_nothing_is_said(make_run, trace):
    run = make_run({0: trace.kernel(0, 10)})
    assert device_clocks(run).is_empty()
    assert not is_held_back(run, (0,), ())


def test_the_clock_of_busy_devices_is_a_share_of_the_highest(sampled):
    clocks = {"sm_clock_mhz": 1782.0, "sm_clock_max_mhz": 1980.0, "gpu_busy_share": 0.5}
    assert clock_share(sampled(every=clocks)) == pytest.approx(0.9)


def test_without_the_highest_clock_there_is_no_share(sampled):
    assert clock_share(sampled(every={"sm_clock_mhz": 1782.0})) is None


def test_idle_devices_do_not_count(sampled):
    clocks = {"sm_clock_mhz": 1782.0, "sm_clock_max_mhz": 1980.0, "gpu_busy_share": 0.0}
    assert clock_share(sampled(every=clocks)) is None
