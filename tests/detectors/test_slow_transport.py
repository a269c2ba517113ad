"""`slow-transport`, `nccl-limits` and `slow-communicator-init`, on small logs."""

from __future__ import annotations

import pytest

import tracekit
from tracekit.findings import Cause, Level, Severity, Status, with_severity

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def logged(make_run, runs):
    """A run of ranks of one communicator; all have these connections (via, direction, how many)."""

    def made(*connections, said=(), model=H100, ranks=2, **facts):
        traces = {}
        for rank in range(ranks):
            trace = traces[rank] = runs.Trace()
            place = {"host": f"n{rank}", "pid": 1, "communicator": "0xa"}
            communicator = {"communicator_rank": rank, "n_ranks": ranks, "n_nodes": 2}
            of_all = {"communicator_id": "feed", "is_complete": True}
            trace.rows["communicators"].append(place | communicator | of_all | facts)
            for via, direction, n in connections:
                parts = [*via.split("/"), None]
                is_net = parts[0] == "NET"
                row = {
                    "direction": direction,
                    "transport": parts[0],
                    "network": parts[1] if is_net else None,
                    "is_gpu_direct": "GDRDMA" in via if is_net else None,
                    "via": via,
                    "is_message": False,
                }
                trace.rows["transports"] += [place | row] * n
            for kind, name, text in said:
                message = {"kind": kind, "name": name, "text": text, "n_times": 1}
                trace.rows["nccl_messages"].append(place | message)
            used = {"device": 0, "gpu_model": model, "is_used": True}
            trace.rows["ranks"].append(used)
        return make_run(traces)

    return made


SOCKET = ("NET/Socket/0", "send", 2)
DIRECT = ("NET/IB/0/GDRDMA", "receive", 2)
HOST = ("NET/IB/0", "receive", 2)
PEER = ("P2P/CUMEM", "send", 8)
SHM = ("SHM/direct/direct", "send", 2)


def test_sockets_between_nodes_without_a_device(logged, finding_of):
    said = [("network", "NET/IB", "No device found.")]
    found = finding_of("slow-transport", logged(SOCKET, PEER, said=said))
    assert (found.status, found.cause) == (Status.FOUND, Cause.TOPOLOGY_SETTING)
    assert (found.subject, found.measured.value) == ("sockets between nodes", 1.0)
    assert found.ranks == (0, 1)
    assert "found no RDMA device" in found.why
    assert found.confidence.reason == "NCCL's own list of 4 connections"  # two on each rank
    assert found.saving is None
    assert with_severity(found).severity is Severity.INFO
    assert found.evidence[0].rows == (
        ("between nodes", "TCP sockets", "Socket", 4, 2),
        ("within a node", "peer to peer", None, 16, 2),
    )


def test_sockets_although_devices_are_there(logged, finding_of):
    said = [("network", "NET/IB", "Using [0]mlx5_0:1/IB [RO]; OOB eth0")]
    found = finding_of("slow-transport", logged(SOCKET, said=said))
    assert "it saw RDMA devices ([0]" not in found.why
    assert "it saw RDMA devices (Using [0]mlx5_0:1/IB" in found.why
    assert "ports are active" in found.recommendation.text


def test_a_variable_is_blamed_only_where_the_log_shows_it_set(logged, finding_of):
    said = [("environment", "NCCL_IB_DISABLE", "1"), ("environment", "NCCL_SHM_DISABLE", "1")]
    found = finding_of("slow-transport", logged(SOCKET, said=said))
    assert found.why.endswith("; NCCL_IB_DISABLE=1 is set")
    assert found.recommendation.text.startswith("The log shows NCCL_IB_DISABLE=1: take it away.")
    assert found.recommendation.commands[0] == "unset NCCL_IB_DISABLE"


def test_a_variable_that_limits_nothing_is_not_blamed(logged, finding_of):
    said = [("environment", "NCCL_NET_GDR_LEVEL", "SYS"), ("environment", "NCCL_IB_DISABLE", "0")]
    found = finding_of("slow-transport", logged(HOST, said=said))
    assert "is set" not in found.why
    assert "nvidia_peermem" in found.recommendation.text


def test_rdma_through_the_host(logged, finding_of):
    said = [("environment", "NCCL_NET_GDR_LEVEL", "LOC")]
    found = finding_of("slow-transport", logged(HOST, PEER, said=said))
    assert found.title == "Adapters do not reach GPU memory: no GPUDirect RDMA"
    assert found.why.endswith("NCCL_NET_GDR_LEVEL=LOC is set")


def test_sending_through_the_host_is_nccls_own_choice(logged, finding_of):
    found = finding_of("slow-transport", logged(DIRECT, ("NET/IB/0", "send", 2)))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0.0)


def test_direct_connections_are_fine(logged, finding_of):
    found = finding_of("slow-transport", logged(DIRECT, PEER))
    assert (found.status, found.measured.value) == (Status.CLEAR, 0.0)


@pytest.mark.parametrize(
    ("model", "level"),
    [(H100, Level.HIGH), ("NVIDIA L40S", Level.LOW), (None, Level.LOW)],
)
def test_shared_memory_is_sure_to_be_wrong_where_gpus_have_links(logged, finding_of, model, level):
    found = finding_of("slow-transport", logged(SHM, PEER, model=model, n_nodes=1))
    assert found.subject == "no peer access"
    assert found.measured.value == pytest.approx(0.2)  # 2 of 10
    assert found.confidence.level is level


def test_the_limit_from_both_sides(logged, finding_of):
    # 1 of 10 connections, and 1 of 11
    one = ("SHM/direct/direct", "send", 1)
    nine, ten = ("P2P/CUMEM", "send", 9), ("P2P/CUMEM", "send", 10)
    assert finding_of("slow-transport", logged(one, nine)).status is Status.FOUND
    assert finding_of("slow-transport", logged(one, ten)).status is Status.CLEAR


def test_the_network_within_one_node_is_a_detour(logged, finding_of):
    said = [("environment", "NCCL_P2P_DISABLE", "1"), ("environment", "NCCL_SHM_DISABLE", "1")]
    found = finding_of("slow-transport", logged(HOST, n_nodes=1, said=said))
    assert (found.subject, found.measured.value) == ("no peer access", 1.0)
    assert found.why.endswith("NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 are set")


def test_without_a_log_it_is_skipped_and_counts_for_nothing(make_run, trace, finding_of):
    found = finding_of("slow-transport", make_run(trace.kernel(0, 1)))
    assert (found.status, found.is_of_further_source) == (Status.SKIPPED, True)
    assert "NCCL_DEBUG=INFO" in found.why


def test_two_channels_over_nvlink_are_few(logged, finding_of):
    said = [("environment", "NCCL_MAX_NCHANNELS", "2")]
    run = logged(PEER, n_nodes=1, n_coll_channels=2, said=said)
    found = finding_of("nccl-limits", run)
    assert (found.status, found.measured.value, found.limit.value) == (Status.FOUND, 2, 2)
    assert found.why.endswith("NCCL_MAX_NCHANNELS=2 is set")
    assert finding_of("nccl-limits", logged(PEER, n_nodes=1, n_coll_channels=3)).status is (
        Status.CLEAR
    )


@pytest.mark.parametrize(
    ("connections", "facts", "why"),
    [
        ([PEER], {"model": None, "n_nodes": 1}, "which GPUs these are"),
        ([PEER], {"model": "NVIDIA L40S", "n_nodes": 1}, "depends on the server"),
        ([DIRECT], {}, "no communicator within a node"),
    ],
)
def test_channels_are_judged_only_over_links_of_known_gpus(
    logged, finding_of, connections, facts, why
):
    found = finding_of("nccl-limits", logged(*connections, n_coll_channels=2, **facts))
    assert found.status is Status.SKIPPED
    assert why in found.why


@pytest.mark.parametrize(("model", "is_found"), [(H100, True), ("NVIDIA A100-SXM4-80GB", False)])
def test_nvlink_sharp_is_missed_only_where_switches_have_it(logged, finding_of, model, is_found):
    facts = {"model": model, "n_nodes": 1, "n_coll_channels": 24, "is_nvls_available": False}
    found = finding_of("nccl-limits", logged(PEER, **facts))
    assert found.status is (Status.FOUND if is_found else Status.CLEAR)
    if is_found:
        assert (found.subject, found.measured.value) == ("no NVLink SHARP", 1.0)


def test_nvlink_sharp_that_is_switched_off_by_a_variable(logged, finding_of):
    said = [("environment", "NCCL_NVLS_ENABLE", "0")]  # then the log says no word of it
    found = finding_of("nccl-limits", logged(PEER, said=said, n_coll_channels=24, n_nodes=1))
    assert found.why.endswith("NCCL_NVLS_ENABLE=0 is set")


def test_the_time_to_make_communicators_is_that_of_the_rank_nobody_waits_for(
    make_run, runs, finding_of
):
    traces = {}
    for rank, seconds in enumerate((40, 25)):  # rank 1 came 15 s later
        traces[rank] = runs.Trace()
        traces[rank].rows["communicators"].append(
            {
                "host": "n",
                "pid": rank,
                "communicator": "0xa",
                "communicator_id": "feed",
                "n_ranks": 2,
                "init_ns": seconds * 10**9,
                "bootstrap_ns": (seconds - 5) * 10**9,
                "topo_ns": 5 * 10**9,
            }
        )
    run = make_run(traces)
    found = finding_of("slow-communicator-init", run)
    assert (found.status, found.measured.value) == (Status.FOUND, 25e9)
    assert found.why.startswith("most of it is bootstrap")
    assert "NCCL_SOCKET_IFNAME" in found.recommendation.commands[0]
    clear = finding_of("slow-communicator-init", run, max_init_ns=25e9 + 1)
    assert (clear.status, clear.measured.value) == (Status.CLEAR, 25e9)


def test_old_versions_print_no_timings(logged, finding_of):
    found = finding_of("slow-communicator-init", logged(PEER))
    assert found.status is Status.SKIPPED
    assert "since 2.18" in found.why


REAL = {  # by log: what goes a slow way
    "NVIDIA+JAX-Toolbox/.github/gke-workflow/jax-vllm-offloading/logs/transfer-8-8-trainer.log": (
        "sockets between nodes"
    ),
    "bigscience-workshop+bigscience/experiments/gpt2-meg-ds-zero/"
    "meg_ds_zero_gpt2_perf_n16-1999616.out": "no GPUDirect RDMA",
    "aws-samples+awsome-distributed-training/3.test_cases/0.nccl-tests/slurm-104.out": None,
    "microsoft+Megatron-DeepSpeed/examples/MoE/log/"
    "gpt3-0.125B-tokendropping-graduallyIncrease-lr-3.0e-4.log": None,
}


@pytest.mark.parametrize("path", REAL)
def test_real_logs_go_the_ways_that_they_list(traces, tmp_path, finding_of, path):
    run = tracekit.convert(traces / "traces" / path, tmp_path / "run", engine="local:1")
    found = finding_of("slow-transport", run)
    if REAL[path] is None:
        assert (found.status, found.measured.value) == (Status.CLEAR, 0.0)
    else:
        assert (found.subject, found.measured.value) == (REAL[path], 1.0)
