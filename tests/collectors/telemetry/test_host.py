"""The host: from a /proc of our own, from this machine's, and from psutil."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tracekit.collectors.telemetry import host, host_proc, infiniband
from tracekit.collectors.telemetry.metrics import UNITS
from tracekit.collectors.telemetry.readings import JobTime
from tracekit.collectors.telemetry.samples import UnavailableError

N_CORES = 4
BUSY = "import time\nwhile time.process_time() < 0.2: pass\ninput()"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write a /proc and a /sys: `machine(ticks, …)`, and what is in them."""
    monkeypatch.setattr(os, "cpu_count", lambda: N_CORES)
    proc, sys_ = tmp_path / "proc", tmp_path / "sys"
    (sys_ / "block/vda/device").mkdir(parents=True)
    (sys_ / "block/loop0").mkdir()

    def write(busy_ticks=0, moved_bytes=0, n_sectors=0, waited_us=0):
        files = {
            "stat": f"cpu  {busy_ticks} 0 0 99 5 0 0 0 7 0\ncpu0 1\nctxt {busy_ticks}\n"
            "procs_running 3\n",
            "loadavg": "1.50 1.00 0.50 3/200 4242\n",
            "vmstat": f"nr_free_pages 1\npgfault {busy_ticks}\npgmajfault 2\n",
            "meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n",
            "pressure/cpu": f"some avg10=0.0 avg60=0.0 avg300=0.0 total={waited_us}\nfull x=0\n",
            "net/dev": "Inter-|\n face |\n"
            f"    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"
            f"  eth0:{moved_bytes} 0 0 0 0 0 0 0 {2 * moved_bytes} 0 0 0 0 0 0 0\n"
            f"veth12: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n",
            "diskstats": f" 252 0 vda 1 0 {n_sectors} 0 1 0 {2 * n_sectors} 0 0 0 0\n"
            " 252 1 vda1 1 0 9 0 1 0 9 0 0 0 0\n   7 0 loop0 1 0 9 0 1 0 9 0 0 0 0\n",
        }
        for name, text in files.items():
            path = proc / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {"proc": proc, "sys": sys_}

    return write


@pytest.fixture
def process(tmp_path):
    """Write a process into the /proc: pid, parent, ticks of CPU, and its name."""

    def write(pid, parent_pid, used_ticks, name="python"):
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        words = ["S", parent_pid, *[0] * 9, used_ticks, 0, *[0] * 6, 777, 0]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, words))}\n")

    return write


def test_points_come_at_the_first_reading(machine, tick, values):
    source = host.opened(None, **machine(), now_ns=tick())
    assert values(source.read()) == {
        "run_queue_count": 3,
        "load_1min_count": 1.5,
        "memory_available_bytes": 2048 * 1024,
    }


def test_differences_come_at_the_second(machine, tick):
    source = host.opened(None, **machine(), now_ns=tick())
    source.read()
    machine(busy_ticks=200, moved_bytes=1000, n_sectors=10, waited_us=250_000)
    found = {(sample.metric, sample.part): sample for sample in source.read()}
    gained = {key: sample.value for key, sample in found.items() if key[0] in GAINED}
    # 200 ticks of 10 ms of 4 cores in 1 s; sectors of 512 bytes
    assert gained == {
        ("cpu_share", None): 0.5,
        ("cpu_pressure_share", None): 0.25,
        ("context_switches_count", None): 200,
        ("page_faults_count", None): 200,
        ("network_rx_bytes", "eth0"): 1000,
        ("network_tx_bytes", "eth0"): 2000,
        ("disk_read_bytes", "vda"): 5120,
        ("disk_write_bytes", "vda"): 10240,
    }
    share = found["cpu_share", None]
    assert share.end_ns - share.start_ns == 10**9


GAINED = {
    "cpu_share",
    "cpu_pressure_share",
    "context_switches_count",
    "page_faults_count",
    "network_rx_bytes",
    "network_tx_bytes",
    "disk_read_bytes",
    "disk_write_bytes",
}


def test_the_job_is_a_process_and_all_below_it(machine, process, tick, values):
    for pid, parent_pid in ((10, 1), (11, 10), (12, 11), (20, 1)):
        process(pid, parent_pid, 100, name="a) (b")
    source = host.opened(10, **machine(), now_ns=tick())
    assert values(source.read())["job_process_count"] == 3
    process(11, 10, 140)
    process(12, 11, 160)
    process(20, 1, 900)
    # 40 + 60 ticks of 10 ms of 4 cores in 1 s
    assert values(source.read())["job_cpu_share"] == 0.25


def test_the_sampler_is_no_part_of_the_job(machine, process):
    machine()
    process(10, 1, 0)
    process(os.getpid(), 10, 0)
    assert host_proc.job_pids(machine()["proc"], 10) == (10,)


def test_processes_come_and_go_without_a_jump():
    job = JobTime()
    assert job.add({"a": 5_000_000}) == 0  # what it used before is not of this time
    assert job.add({"a": 5_000_100, "b": 9_000_000}) == 100
    assert job.add({"b": 9_000_050}) == 150
    assert job.add({"a": 1}) == 150


def test_this_machine_has_proc(values):
    source = host.opened(os.getppid())
    source.read()
    time.sleep(0.02)
    found = values(source.read())
    assert source.id == "proc"
    assert set(found) <= set(UNITS)
    assert 0 <= found["cpu_share"] <= 1
    assert found["job_process_count"] >= 1
    assert found["memory_available_bytes"] > 0


def test_the_time_of_a_child_that_works_is_the_jobs(values):
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as child:
        source = host.opened(child.pid)
        source.read()
        time.sleep(0.3)
        found = values(source.read())
        child.communicate(b"\n")
    assert found["job_process_count"] == 1
    assert 0 < found["job_cpu_share"] <= 1


def test_without_proc_psutil_stands_in(tmp_path, values):
    source = host.opened(os.getppid(), proc=tmp_path)
    assert source.id == "psutil"
    source.read()
    time.sleep(0.02)
    samples = source.read()
    found = values(samples)
    assert {sample.source for sample in samples} == {"psutil"}
    assert set(found) <= set(UNITS)
    assert 0 <= found["cpu_share"] <= 1
    assert found["job_process_count"] >= 1
    assert found["memory_available_bytes"] > 0
    assert "lo" not in {sample.part for sample in samples}


def test_without_both_there_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(UnavailableError, match="pip install psutil"):
        host.opened(None, proc=tmp_path)


def test_proc_needs_no_psutil(monkeypatch, values):
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert "run_queue_count" in values(host.opened(None).read())


@pytest.fixture
def port(tmp_path):
    """Write counters of a port."""

    def write(adapter, number, **counters):
        folder = tmp_path / adapter / "ports" / str(number) / "counters"
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in counters.items():
            (folder / name).write_text(f"{value}\n")
        return tmp_path

    return write


def test_a_port_counts_words_of_four_bytes(port, tick):
    folder = port("mlx5_0", 1, port_xmit_data=100, port_rcv_data=7, symbol_error=3)
    port("mlx5_1", 1, port_xmit_data=100)
    source = infiniband.opened(folder, tick())
    assert source.read() == []
    port("mlx5_0", 1, port_xmit_data=350, port_rcv_data=7, symbol_error=4)
    found = {(sample.part, sample.metric): sample.value for sample in source.read()}
    assert found == {
        ("mlx5_0/1", "infiniband_tx_bytes"): 1000,
        ("mlx5_0/1", "infiniband_rx_bytes"): 0,
        ("mlx5_0/1", "infiniband_symbol_errors_count"): 1,
        ("mlx5_1/1", "infiniband_tx_bytes"): 0,
    }
    assert {metric for _, metric in found} <= set(UNITS)


def test_a_counter_that_is_unreadable_is_left_out(port, tick, values):
    folder = port("mlx5_0", 1, port_xmit_data=100, port_rcv_data="N/A")
    source = infiniband.opened(folder, tick())
    source.read()
    assert values(source.read()) == {"infiniband_tx_bytes": 0}


def test_no_adapter_is_a_reason(tmp_path):
    with pytest.raises(UnavailableError, match="no port below"):
        infiniband.opened(tmp_path)
