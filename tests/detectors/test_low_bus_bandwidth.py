"""`low-bus-bandwidth`, by hand: two ranks, an all-reduce a step of 1 ms, or 10 ms where it is long.

Of two ranks the factor of all-reduce is 2 · (2 − 1)/2 = 1: busbw is bytes / time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.findings import Cause, Level, Severity, Status, with_severity

NAME = "low-bus-bandwidth"
H100 = "NVIDIA H100 80GB HBM3"
EFA = ("network", "NET/OFI", "Running on p5.48xlarge platform, Setting NCCL_TOPO_FILE")


@pytest.fixture
def job(make_run, runs):
    """A run whose all-reduces of `size` bytes take `us`, after 300 µs of compute.

    `tests` are rows of nccl-tests (bytes, busbw) among as many ranks and nodes.
    """

    def made(us, *, size=2_000_000, hosts=("a", "b"), tests=(), said=(), via=None, **facts):
        n_nodes = len(set(hosts))
        traces = {rank: runs.Trace() for rank in range(len(hosts))}
        step = 1_000 if us < 900 else 10_000
        for trace in traces.values():
            for number in range(facts.get("n_steps", 5)):
                at = step * number
                trace.step(number, at, step)
                trace.kernel(at, 300, launched=at)
                trace.collective(
                    at + 310,
                    us,
                    launched=at + 2,
                    group="dp",
                    members=list(traces),
                    sequence=number,
                    bytes_in=size,
                )
            used = {"device": 0, "gpu_model": facts.get("model", H100), "is_used": True}
            trace.rows["ranks"].append(used)
            if via:
                link = {"transport": "NET", "network": "IB", "via": via, "direction": "receive"}
                link |= {"is_gpu_direct": "GDRDMA" in via, "is_message": False}
                trace.rows["transports"].append(link)
            for kind, name, text in said:
                trace.rows["nccl_messages"].append({"kind": kind, "name": name, "text": text})
        for size_bytes, busbw in tests:
            row = {"operation": "all_reduce", "size_bytes": size_bytes, "busbw_gb_per_s": busbw}
            row |= {"n_ranks": facts.get("n_ranks", len(hosts)), "n_nodes": n_nodes}
            row |= {"gpu_model": facts.get("model", H100), "n_wrong": facts.get("n_wrong", 0)}
            traces[0].rows["bandwidth_baselines"].append(row)
        run = make_run(traces)
        named = dict(enumerate(hosts))
        captures = tuple(replace(c, host=named[c.rank]) for c in run.manifest.captures)
        return replace(run, manifest=replace(run.manifest, captures=captures))

    return made


def test_a_quarter_of_what_nccl_tests_measured(job, finding_of):
    # 2 MB in 500 µs is 4 GB/s, of 16
    found = finding_of(NAME, job(500, tests=[(2_000_000, 16.0)]))
    assert (found.status, found.cause) == (Status.FOUND, Cause.SLOW_GROUP)
    assert found.measured.value == pytest.approx(0.25)
    assert found.ranks == (0, 1)
    assert "GPUDirect RDMA is off or access control (ACS)" in found.recommendation.text
    # three quarters of 500 µs; nothing hides them
    assert found.saving.per_step_ns.low == pytest.approx(375_000)
    assert found.saving.per_step_ns.high == pytest.approx(375_000)
    assert found.title == (
        "Group dp (2 ranks: 0–1) gets 25.0 % of the bandwidth that nccl-tests measured"
    )
    assert found.evidence[0].rows == (
        ("dp (2 ranks: 0–1)", "all_reduce", 2_000_000, 4e9, 16e9, "nccl-tests, 2 MB"),
    )


def test_the_limit_from_both_sides(job, finding_of):
    assert finding_of(NAME, job(500, tests=[(2_000_000, 8.1)])).status is Status.FOUND
    clear = finding_of(NAME, job(500, tests=[(2_000_000, 8.0)]))
    assert (clear.status, clear.measured.value) == (Status.CLEAR, pytest.approx(0.5))


def test_a_slow_way_in_the_log_is_the_cause(job, finding_of):
    found = finding_of(NAME, job(500, tests=[(2_000_000, 16.0)], via="NET/IB/0"))
    assert found.cause is Cause.TOPOLOGY_SETTING
    assert found.why.startswith("no GPUDirect RDMA: ")
    assert "nvidia_peermem" in found.recommendation.text
    assert any("acsctl" in command for command in found.recommendation.commands)


def test_a_direct_way_in_the_log_is_no_cause(job, finding_of):
    found = finding_of(NAME, job(500, tests=[(2_000_000, 16.0)], via="NET/IB/0/GDRDMA"))
    assert found.cause is Cause.SLOW_GROUP
    assert found.recommendation is None  # that of the cause: the log tells no other one


def test_the_nearest_size_counts_and_none_that_is_three_times_as_large(job, finding_of):
    near = job(500, tests=[(1_000_000, 16.0), (2_500_000, 5.0)])
    assert finding_of(NAME, near).measured.value == pytest.approx(0.8)
    assert finding_of(NAME, job(500, tests=[(6_000_000, 16.0)])).status is Status.SKIPPED


def test_other_numbers_of_ranks_are_no_yardstick(job, finding_of):
    assert finding_of(NAME, job(500, tests=[(2_000_000, 16.0)], n_ranks=16)).status is (
        Status.SKIPPED
    )


def test_a_test_that_came_out_wrong_is_no_yardstick(job, finding_of):
    assert finding_of(NAME, job(500, tests=[(2_000_000, 16.0)], n_wrong=3)).status is (
        Status.SKIPPED
    )


def test_of_in_place_and_out_of_place_the_lower_one_counts(job, finding_of):
    found = finding_of(NAME, job(500, tests=[(2_000_000, 40.0), (2_000_000, 16.0)]))
    assert found.measured.value == pytest.approx(0.25)


def test_less_than_a_megabyte_says_nothing_of_the_fabric(job, finding_of):
    found = finding_of(NAME, job(500, size=999_999, tests=[(1_000_000, 16.0)]))
    assert found.status is Status.SKIPPED


def test_three_calls_are_too_few(job, finding_of):
    assert finding_of(NAME, job(500, tests=[(2_000_000, 16.0)], n_steps=3)).status is Status.CLEAR


def test_without_hosts_it_says_which_data_would_settle_it(job, finding_of):
    found = finding_of(NAME, job(500, size=40_000_000, hosts=(None, None)))
    assert (found.status, found.is_of_further_source) == (Status.SKIPPED, True)
    assert "on which hosts" in found.why


def test_between_nodes_the_adapters_must_be_known(job, finding_of):
    found = finding_of(NAME, job(500, size=40_000_000))
    assert found.status is Status.SKIPPED
    assert "NCCL_DEBUG_SUBSYS=INIT,NET" in found.why


@pytest.mark.parametrize(
    ("said", "roof", "share"),
    [
        (EFA, 50e9, 0.2),
        (("network", "NET/IB", "[0] mlx5_0:uverbs0:1/IB speed=400000 context=0x1"), 50e9, 0.2),
        (("network", "NET/IB", "[0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 speed=200000"), 25e9, 0.4),
    ],
)
def test_between_nodes_the_adapters_are_the_roof(job, finding_of, said, roof, share):
    # 40 MB in 4 ms is 10 GB/s
    found = finding_of(NAME, job(4_000, size=40_000_000, said=[said]))
    assert found.measured.value == pytest.approx(share)
    assert found.evidence[0].rows[0][3:5] == (10e9, roof)
    assert (found.status is Status.FOUND) == (share < 0.25)


def test_transfers_of_less_than_32_mb_reach_no_roof(job, finding_of):
    assert finding_of(NAME, job(4_000, size=31_999_999, said=[EFA])).status is Status.SKIPPED


def test_far_below_the_adapters_is_a_note_without_a_saving(job, finding_of):
    found = finding_of(NAME, job(4_000, size=40_000_000, said=[EFA]))
    assert (found.status, found.saving) == (Status.FOUND, None)
    assert found.confidence.level is Level.LOW
    assert with_severity(found).severity is Severity.INFO
    assert found.title == "10 GB/s of the 50 GB/s of EFA of p5.48xlarge"


def test_inside_a_node_the_links_are_the_roof(job, finding_of):
    # 32 MB in 640 µs is 50 GB/s, of 450
    found = finding_of(NAME, job(640, size=32_000_000, hosts=("a", "a")))
    assert found.status is Status.FOUND
    assert found.measured.value == pytest.approx(50 / 450)
    assert found.title == "50 GB/s of the 450 GB/s of NVLink 4"


def test_above_the_roof_the_switch_reduces(job, finding_of):
    # 300 MB in 600 µs is 500 GB/s, more than 450
    found = finding_of(NAME, job(600, size=300_000_000, hosts=("a", "a")))
    assert (found.status, found.measured.value) == (Status.CLEAR, 1.0)
    assert "500 GB/s is more than links carry (450 GB/s)" in found.why
    assert "NVLink SHARP" in found.why


@pytest.mark.parametrize(
    ("model", "why"),
    [("NVIDIA H100 PCIe", "by what these GPUs are joined"), ("AMD Instinct MI300X", "has a part")],
)
def test_without_a_known_roof_it_is_skipped(job, finding_of, model, why):
    found = finding_of(NAME, job(640, size=32_000_000, hosts=("a", "a"), model=model))
    assert found.status is Status.SKIPPED
    assert why in found.why


def test_nccl_tests_alone_are_held_to_the_adapters(make_run, trace, finding_of):
    # S9: 3 GB/s on adapters of 200 Gb/s, one rank a node
    row = {"operation": "all_reduce", "size_bytes": 1 << 28, "busbw_gb_per_s": 3.0}
    row |= {"n_ranks": 2, "n_nodes": 2, "gpu_model": "Tesla V100-SXM2-16GB", "n_wrong": 0}
    trace.rows["bandwidth_baselines"].append(row)
    text = "[0] mlx5_0:uverbs0:1/IB speed=200000 context=0x1"
    trace.rows["nccl_messages"].append({"kind": "network", "name": "NET/IB", "text": text})
    link = {"transport": "NET", "network": "IB", "via": "NET/IB/0", "direction": "receive"}
    trace.rows["transports"].append(link | {"is_gpu_direct": False, "is_message": False})
    found = finding_of(NAME, make_run(trace))
    assert (found.status, found.cause) == (Status.FOUND, Cause.TOPOLOGY_SETTING)
    assert found.subject == "nccl-tests, all_reduce of 2 ranks on 2 nodes"
    assert found.title == "3 GB/s of the 25 GB/s of 1 adapter of 200 Gb/s"
    assert found.measured.value == pytest.approx(0.12)
    assert "access control (ACS)" in found.recommendation.text


def test_the_real_measurements_of_a_healthy_node_are_fine(traces, tmp_path, finding_of):
    import tracekit  # noqa: PLC0415

    folder = traces / "traces/microsoft+superbenchmark/tests/data"
    run = tracekit.convert(folder / "nccl_allreduce.log", tmp_path / "run", engine="local:1")
    found = finding_of(NAME, run)
    # 235.03 GB/s of 300 that NVLink 3 of an A100 carries
    assert (found.status, found.measured.value) == (Status.CLEAR, pytest.approx(235.03 / 300))
