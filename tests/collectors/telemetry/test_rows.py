"""The stored table, from files of the sampler."""

from __future__ import annotations

import logging

import polars as pl
import pytest

from tracekit.collectors.sources.telemetry_rows import telemetry_rows
from tracekit.collectors.telemetry.samples import Sample, json_line, lines
from tracekit.schema.telemetry import TELEMETRY

EPOCH_NS = 1_700_000_000_000_000_000


def sample(metric, value, start_ns, end_ns, **changes):
    return Sample(
        metric=metric,
        value=value,
        start_ns=EPOCH_NS + start_ns,
        end_ns=EPOCH_NS + end_ns,
        **({"source": "nvml", "device_uuid": "GPU-a"} | changes),
    )


@pytest.fixture
def write(tmp_path):
    """Write a file with a header and samples; `end` stands at its end, as it is."""

    def to_file(*samples, end=b""):
        path = tmp_path / "telemetry.jsonl"
        path.write_bytes(json_line({"kind": "header", "format": 1}) + lines(samples) + end)
        return path

    return to_file


def rows(path, devices=None, *, with_host=True):
    return telemetry_rows(path, EPOCH_NS, devices, with_host=with_host)


def test_every_sample_is_a_row_with_its_time(write):
    found = rows(
        write(
            sample("power_w", 400.5, 100, 100),
            sample("energy_j", 40, 0, 100),
            sample("nvlink_tx_bytes", 7, 3, 98),
            sample("network_rx_bytes", 9, 0, 100, source="proc", device_uuid=None, part="eth0"),
        )
    )
    TELEMETRY.check(found)
    assert found.rows() == [
        (3, 98, "GPU-a", None, "nvlink_tx_bytes", 7.0, "nvml"),
        (0, 100, None, "eth0", "network_rx_bytes", 9.0, "proc"),
        (0, 100, "GPU-a", None, "energy_j", 40.0, "nvml"),
        (100, 100, "GPU-a", None, "power_w", 400.5, "nvml"),
    ]


def test_a_time_before_the_epoch_is_negative(write):
    assert rows(write(sample("power_w", 1, -5, -5)))["end_ns"].to_list() == [-5]


def test_devices_and_host_are_chosen(write):
    path = write(
        sample("power_w", 1, 0, 0),
        sample("power_w", 2, 0, 0, device_uuid="GPU-b"),
        sample("cpu_share", 0.5, 0, 1, source="proc", device_uuid=None),
    )
    assert rows(path, ["b"], with_host=False)["value"].to_list() == [2.0]
    assert rows(path, [], with_host=True)["metric"].to_list() == ["cpu_share"]
    assert rows(path, None, with_host=False)["value"].to_list() == [1.0, 2.0]


def test_what_a_kill_cut_off_is_skipped_in_silence(write, caplog):
    path = write(sample("power_w", 1, 0, 0), end=b'{"kind":"sample","at_ns":17')
    assert rows(path).height == 1
    assert not caplog.records


def test_damaged_lines_are_skipped_and_counted(write, caplog):
    end = b'{"kind":"sam\n\x00\x00\n{"kind":"sample","values":{"power_w":"high"}}\n' + lines(
        [sample("power_w", 2, 1, 1)]
    )
    with caplog.at_level(logging.WARNING):
        found = rows(write(sample("power_w", 1, 0, 0), end=end))
    assert found["value"].to_list() == [1.0, 2.0]
    assert "3 damaged lines" in caplog.text


def test_a_file_without_samples_has_no_rows(write, tmp_path):
    assert rows(write()).schema == TELEMETRY.schema
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert rows(empty).height == 0


def test_a_file_of_the_sampler_is_read_whole(start, wait_for, tmp_path):
    out = tmp_path / "telemetry.jsonl"
    process = start("--every-s", "0.05")
    wait_for(lambda: out.exists() and out.read_bytes().count(b"\n") > 40)
    process.kill()
    process.wait()
    found = telemetry_rows(out, 0, None, with_host=True)
    assert set(found["source"]) == {"nvml", "nvml-field", "nvml-gpm", "proc"}
    # Stamps of the fake driver, whose time began in 2001: n * 0.1 s, and some µs for each field.
    power = found.filter(pl.col("metric") == "power_w", pl.col("device_uuid").str.contains("aaaa"))
    tenths_ns = power["start_ns"] - 10**18
    assert (tenths_ns // 10**8).to_list() == list(range(1, power.height + 1))
    energy = found.filter(pl.col("metric") == "energy_j")
    assert set(energy["value"]) == {40.0}
    assert (found["end_ns"] >= found["start_ns"]).all()
