"""Samples as lines of JSON."""

from __future__ import annotations

import json
import math

from tracekit.collectors.telemetry.samples import Sample, is_wanted, lines


def sample(metric, value, start_ns=1000, end_ns=1000, **changes):
    return Sample(
        metric=metric,
        value=value,
        start_ns=start_ns,
        end_ns=end_ns,
        **({"source": "nvml", "device_uuid": "GPU-a"} | changes),
    )


def written(*samples):
    return [json.loads(line) for line in lines(samples).splitlines()]


def test_points_of_one_device_are_one_line():
    assert written(sample("power_w", 400.5), sample("temperature_c", 55)) == [
        {
            "kind": "sample",
            "source": "nvml",
            "device": "GPU-a",
            "at_ns": 1000,
            "values": {"power_w": 400.5, "temperature_c": 55},
        }
    ]


def test_intervals_are_a_line_with_their_length():
    (line,) = written(sample("energy_j", 40, 900))
    assert (line["at_ns"], line["dur_ns"], line["values"]) == (1000, 100, {"energy_j": 40})


def test_a_stamp_of_its_own_stands_beside_the_value():
    (line,) = written(sample("energy_j", 40, 900), sample("nvlink_tx_bytes", 7, 890, 995))
    assert line["values"] == {"energy_j": 40, "nvlink_tx_bytes": [7, -110, -5]}


def test_sources_devices_and_parts_have_lines_of_their_own():
    found = written(
        sample("power_w", 1),
        sample("power_w", 2, device_uuid="GPU-b"),
        sample("power_w", 3, source="nvml-field"),
        sample("network_rx_bytes", 4, source="proc", device_uuid=None, part="eth0"),
    )
    keys = [(line["source"], line.get("device"), line.get("part")) for line in found]
    assert keys == [
        ("nvml", "GPU-a", None),
        ("nvml", "GPU-b", None),
        ("nvml-field", "GPU-a", None),
        ("proc", None, "eth0"),
    ]


def test_what_is_no_number_is_left_out():
    assert lines([sample("power_w", math.nan), sample("power_w", math.inf)]) == b""


def test_nothing_is_no_line():
    assert lines([]) == b""


def test_a_uuid_is_the_same_with_and_without_its_prefix():
    assert is_wanted("GPU-AB12", ["ab12"])
    assert is_wanted("ab12", ["GPU-ab12"])
    assert not is_wanted("GPU-ab12", ["GPU-ab1"])
    assert not is_wanted("GPU-ab12", [])
    assert is_wanted("GPU-ab12", None)
