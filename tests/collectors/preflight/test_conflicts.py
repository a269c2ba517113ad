"""Each thing that stands in the way is found where it is, and not where it is not."""

from __future__ import annotations

import pytest

from tracekit.collectors.preflight import container_limits
from tracekit.collectors.preflight.container_limits import cpu_quota, memory_limit_bytes

GIB = 1 << 30


def states(answers):
    return [state for state, _, _ in answers]


@pytest.mark.parametrize(
    "check", ["counter-holders", "injected-tools", "distortions", "processes", "container-limits"]
)
def test_nothing_is_amiss_with_a_plain_host(ask, check):
    assert set(states(ask(check))) == {"ok"}


def test_a_program_that_holds_the_counters_is_a_problem_with_its_process(fake, ask):
    fake.write("proc/812/cmdline", "/usr/bin/nv-hostengine\0-n\0")
    ((state, text, fix),) = ask("counter-holders")
    assert (state, fix) == ("problem", "dcgmi profile --pause")
    assert text.startswith("nv-hostengine (process 812) may hold the performance counters. ")


def test_variables_that_load_a_subscriber_are_problems(fake, ask):
    fake.set(NSYS_PROFILING_SESSION_ID="1", CUDA_INJECTION64_PATH="/opt/tool.so")
    assert states(ask("counter-holders")) == ["problem", "problem"]
    fake.set(HSA_TOOLS_LIB="librocprofiler64.so")
    assert ask("injected-tools")[0][2] == "unset HSA_TOOLS_LIB"


def test_tools_that_only_listen_are_notes(fake, ask):
    fake.set(NCCL_PROFILER_PLUGIN="inspector", NVTX_INJECTION64_PATH="/opt/nvtx.so")
    assert states(ask("injected-tools")) == ["note", "note"]
    fake.set(NCCL_PROFILER_PLUGIN="none", NVTX_INJECTION64_PATH="")
    assert states(ask("injected-tools")) == ["ok"]


def test_a_preloaded_library_is_a_note_unless_it_allocates(fake, ask):
    fake.set(LD_PRELOAD="/usr/lib/libtcmalloc.so.4 /opt/libxpu_timer.so")
    ((state, text, _),) = ask("injected-tools")
    assert state == "note"
    assert "/opt/libxpu_timer.so" in text
    assert "tcmalloc" not in text
    fake.set(LD_PRELOAD="/usr/lib/libtcmalloc.so.4:/usr/lib/libjemalloc.so.2")
    assert states(ask("injected-tools")) == ["ok"]


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"])
def test_what_distorts_is_a_note_that_says_how(fake, ask, name):
    fake.set(**{name: "1"})
    ((state, text, fix),) = ask("distortions")
    assert (state, fix) == ("note", f"unset {name}")
    assert text.startswith(f"{name}=1: ")
    fake.set(**{name: "0"})
    assert states(ask("distortions")) == ["ok"]


def test_checking_each_collective_distorts(fake, ask):
    fake.set(TORCH_DISTRIBUTED_DEBUG="detail", NCCL_DEBUG="TRACE")
    fixes = [fix for _, _, fix in ask("distortions")]
    assert fixes == ["TORCH_DISTRIBUTED_DEBUG=INFO", "NCCL_DEBUG=INFO"]


def test_a_container_is_told_by_its_first_process_or_its_numbers(fake, ask):
    fake.write("proc/1/comm", "tini\n")
    state, text, _ = ask("processes")[0]
    assert state == "note"
    assert text.startswith("Process 1 is tini: a container")
    fake.write("proc/1/comm", "systemd\n")
    fake.write("proc/self/status", "NSpid:\t4711\t12\nCapEff:\t0\n")
    assert states(ask("processes")) == ["note", "ok"]


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        (0, "0", "ok"),
        (1, "0", "note"),
        (2, "0", "note"),
        (2, "80000", "ok"),  # bit 19 is CAP_SYS_PTRACE
        (3, "ffffffffff", "note"),
    ],
)
def test_who_may_read_stacks(fake, ask, scope, capabilities, state):
    fake.write("proc/sys/kernel/yama/ptrace_scope", f"{scope}\n")
    fake.write("proc/self/status", f"NSpid:\t1\nCapEff:\t{capabilities}\n")
    assert ask("processes")[1][0] == state


def test_the_strictest_group_around_the_process_counts(fake, ask):
    fake.write("proc/self/cgroup", "0::/pod/job\n")
    fake.write("sys/fs/cgroup/pod/job/cpu.max", "max 100000\n")
    fake.write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n")
    fake.write("sys/fs/cgroup/cpu.max", "800000 100000\n")
    fake.write("sys/fs/cgroup/pod/job/memory.max", f"{6 * GIB}\n")
    fake.write("sys/fs/cgroup/pod/memory.max", f"{3 * GIB}\n")
    assert cpu_quota(fake.machine) == 3.5
    assert memory_limit_bytes(fake.machine) == 3 * GIB
    assert states(ask("container-limits")) == ["note", "note", "ok"]


def test_groups_of_the_first_version_are_read_too(fake):
    fake.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/a1\n7:memory:/docker/a1\n")
    fake.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n")
    fake.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    fake.write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{9 * GIB}\n")
    assert cpu_quota(fake.machine) == 2
    assert memory_limit_bytes(fake.machine) == 9 * GIB


def test_no_limit_of_the_first_version_is_no_limit(fake):
    fake.write("proc/self/cgroup", "5:cpu:/\n7:memory:/\n")
    fake.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    fake.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert cpu_quota(fake.machine) is None
    assert memory_limit_bytes(fake.machine) is None


def test_too_little_shared_memory_is_a_note(fake, ask, monkeypatch):
    monkeypatch.setattr(container_limits, "LEAST_SHARED_BYTES", 1 << 60)
    assert states(ask("container-limits")) == ["ok", "ok", "note"]
    (fake.folder / "dev/shm").rmdir()
    text = ask("container-limits")[-1][1]
    assert text == "Shared memory (/dev/shm) cannot be used: No such file or directory."
