"""NCCL's log: versions and launchers, one rank or many, torn and glued lines, what is no log."""

from __future__ import annotations

import gzip
import json
import re
import time

import pytest

import tracekit
from tracekit.collectors import collectors, sniffed
from tracekit.collectors.nccl_text.reading import reading
from tracekit.errors import InputError
from tracekit.reports.first_screen import LOGS_SENTENCE, notices

OF_27 = """\
node1:100:100 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:100:110 [0] NCCL INFO NET/IB : No device found.
node1:100:110 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node1:100:110 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
node1:100:110 [0] NCCL INFO Using network Socket
node1:100:110 [0] NCCL INFO ncclCommInitRankConfig comm 0xa0 rank 0 nranks 2 cudaDev 0 nvmlDev 4 \
busId 4000 commId 0xfeed - Init START
node1:100:110 [0] NCCL INFO NVLS multicast support is not available on dev 0
node1:100:110 [0] NCCL INFO comm 0xa0 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0
node1:100:110 [0] NCCL INFO Channel 00/02 : 0 1
node1:100:110 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 4 p2p channels, \
1 p2p channels per peer
node1:100:110 [0] NCCL INFO ncclCommInitRankConfig comm 0xa0 rank 0 nranks 2 cudaDev 0 nvmlDev 4 \
busId 4000 commId 0xfeed - Init COMPLETE
node1:100:110 [0] NCCL INFO Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 1.50 \
(kernels 0.25, alloc 0.10, bootstrap 1.00, allgathers 0.05, topo 0.05, graphs 0.00, \
connections 0.03, rest 0.02)
node1:100:120 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
node1:100:120 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
node1:100:120 [0] NCCL INFO Channel 01/1 : 0[0] -> 1[0] [send] via NET/Socket/0/Shared
[2026-01-01 10:00:00] node1:100:120 [0] socket.cc:881 NCCL WARN socketProgress: Connection closed
"""
"""One process of two, as 2.27 prints it: connections are made after the communicator."""

OF_7 = """\
r1:5:5 [{0}] NCCL INFO Using network IB
r1:5:9 [{0}] NCCL INFO Channel 00 : 1[8000] -> 0[7000] [receive] via NET/IB/3
r1:5:9 [{0}] NCCL INFO Channel 00 : 0[7000] -> 1[8000] via P2P/IPC
r1:5:9 [{0}] NCCL INFO 2 coll channels, 2 p2p channels, 2 p2p channels per peer
r1:5:9 [{0}] NCCL INFO comm 0xb0 rank 0 nranks 2 cudaDev {0} busId 7000 - Init COMPLETE
"""
"""2.7: the communicator is named last."""


@pytest.fixture
def log(tmp_path):
    """Write logs by name; returns their folder."""

    def write(**texts):
        folder = tmp_path / "logs"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            data = text if isinstance(text, bytes) else text.encode()
            (folder / name.replace("__", ".")).write_bytes(data)
        return folder

    return write


@pytest.fixture
def converted(log, tmp_path):
    """The run of logs."""

    def run(**texts):
        return tracekit.convert(log(**texts), tmp_path / "run", engine="local:1")

    return run


def rows(run, table):
    return run.scan_all(table).collect().rows(named=True)


def test_a_communicator_has_what_its_lines_say(converted):
    run = converted(job__log=OF_27)
    (found,) = rows(run, "communicators")
    assert (found["host"], found["pid"], found["communicator_id"]) == ("node1", 100, "feed")
    assert (found["n_ranks"], found["n_nodes"], found["n_local_ranks"]) == (2, 2, 1)
    assert (found["device"], found["nvml_device"], found["bus_id"]) == (0, 4, "4000")
    assert (found["is_complete"], found["is_nvls_available"]) == (True, False)
    assert (found["network"], found["n_coll_channels"], found["n_p2p_channels"]) == ("Socket", 2, 4)
    assert (found["init_ns"], found["bootstrap_ns"]) == (1_500_000_000, 1_000_000_000)
    assert run.capture(0).versions == {"nccl": "2.27.3+cuda12.9"}
    assert (run.capture(0).host, run.manifest.world_size) == ("node1", 2)
    assert run.manifest.missing_ranks == (1,)


def test_connections_belong_to_the_communicator_in_which_the_rank_has_their_number(converted):
    found = rows(converted(job__log=OF_27), "transports")
    assert [(r["direction"], r["peer"], r["channel"], r["is_message"]) for r in found] == [
        ("receive", 1, 0, False),
        ("send", 1, 0, False),
        ("send", 1, 1, True),
    ]
    assert {(r["communicator"], r["transport"], r["network"]) for r in found} == {
        ("0xa0", "NET", "Socket")
    }
    assert {row["is_gpu_direct"] for row in found} == {False}


def test_messages_are_kept_once_by_kind(converted):
    found = {
        (r["kind"], r["name"], r["text"]) for r in rows(converted(a__log=OF_27), "nccl_messages")
    }
    assert ("environment", "NCCL_IB_DISABLE", "1") in found
    assert ("network", "NET/IB", "No device found.") in found
    assert ("ring", "00", "0 1") in found
    assert ("warning", "socket.cc:881", "socketProgress: Connection closed") in found


def test_old_versions_name_the_communicator_last(converted):
    run = converted(job__out="NCCL version 2.7.8+cuda10.2\n" + OF_7.format(0))
    (found,) = rows(run, "communicators")
    assert (found["communicator"], found["n_ranks"], found["network"]) == ("0xb0", 2, "IB")
    assert (found["n_nodes"], found["init_ns"], found["n_nvls_channels"]) == (None, None, None)
    net, p2p = rows(run, "transports")
    assert (net["network"], net["network_device"], net["is_gpu_direct"]) == ("IB", "3", False)
    assert (p2p["communicator"], p2p["transport"], p2p["is_gpu_direct"]) == ("0xb0", "P2P", None)
    assert run.capture(0).versions == {"nccl": "2.7.8+cuda10.2"}


@pytest.mark.parametrize(
    ("via", "transport", "network", "device", "is_direct"),
    [
        ("NET/IB/1/GDRDMA", "NET", "IB", "1", True),
        ("NET/IB/1/GDRDMA(PCI)", "NET", "IB", "1", True),
        ("NET/AWS Libfabric/1(2)/GDRDMA/Shared", "NET", "AWS Libfabric", "1(2)", True),
        ("NET/IBext_v8/0/Shared", "NET", "IBext_v8", "0", False),
        ("P2P/CUMEM/read", "P2P", None, None, None),
        ("SHM/direct/direct", "SHM", None, None, None),
        ("direct shared memory", "SHM", None, None, None),  # up to 2.10
        ("P2P/IPC comm 0xc0ffee nRanks 02", "P2P", None, None, None),  # RCCL
    ],
)
def test_what_a_connection_goes_by(converted, via, transport, network, device, is_direct):
    text = OF_7.format(0).replace("P2P/IPC", via)
    found = rows(converted(a__log=text), "transports")[1]
    assert (found["transport"], found["network"]) == (transport, network)
    assert (found["network_device"], found["is_gpu_direct"]) == (device, is_direct)


OF_RCCL = """\
r1:5:9 [0] NCCL INFO RCCL version : 2.18.6-HEAD:abc
r1:5:9 [0] NCCL INFO Channel 00/0 : 1[8000] -> 0[7000] [receive] via NET/IB/3 comm 0xc1 nRanks 02
r1:5:9 [0] NCCL INFO Channel 00/0 : 0[7000] -> 1[8000] via P2P/IPC comm 0xc2 nRanks 04
r1:5:9 [0] NCCL INFO comm 0xc1 rank 0 nranks 2 cudaDev 0 busId 7000 - Init COMPLETE
r1:5:9 [0] NCCL INFO comm 0xc2 rank 0 nranks 4 cudaDev 0 busId 7000 - Init COMPLETE
"""


def test_rccl_names_the_communicator_of_each_connection(converted):
    run = converted(a__log=OF_RCCL)
    assert [(r["communicator"], r["via"]) for r in rows(run, "transports")] == [
        ("0xc1", "NET/IB/3"),
        ("0xc2", "P2P/IPC"),
    ]
    assert [row["n_ranks"] for row in rows(run, "communicators")] == [2, 4]
    assert run.capture(0).versions == {"rccl": "2.18.6-HEAD"}


def test_channels_may_name_their_communicator(converted):
    text = OF_27.replace("INFO 2 coll channels", "INFO comm 0xa0, 2 coll channels")
    assert rows(converted(a__log=text), "communicators")[0]["n_coll_channels"] == 2


def test_the_first_ring_format_is_read(converted):
    # 2.4: rings are connected, and ranks have no bus id
    text = OF_7.format(0).replace("Channel 00 : 0[7000] -> 1[8000]", "Ring 00 : 0 -> 1")
    assert rows(converted(a__log=text), "transports")[1]["peer"] == 1


@pytest.mark.parametrize(
    "dress",
    [
        lambda line: f" 0: {line}",
        lambda line: f"[1,0]<stdout>:{line}",
        lambda line: f"[rank0]: {line}",
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: f"[2026-03-01 12:00:00.123] {line}",
        lambda line: f"(RayWorker pid=17) {line}",
        lambda line: f"{line}\r",
        lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "x"}).replace(
            ": ", ":", 1
        ),
        lambda line: f"2026-03-01T12:00:00.1Z stderr F {line}",
    ],
)
def test_what_launchers_put_around_a_line_changes_nothing(converted, dress):
    plain = rows(converted(a__log=OF_27), "transports")
    dressed = "\n".join(map(dress, OF_27.splitlines()))
    assert rows(converted(a__log=dressed), "transports") == plain


def test_two_lines_glued_together_are_two(log):
    glued = OF_7.format(0).replace("via NET/IB/3\nr1", "via NET/IB/3r1")
    read = reading(log(a__log=glued) / "a.log")
    assert [each.via for each in read.told.connections] == ["NET/IB/3", "P2P/IPC"]
    assert {each.process.host for each in read.told.whole()} == {"r1"}


def test_a_torn_line_costs_itself_alone(converted):
    torn = OF_7.format(0).replace("via NET/IB/3", "vi\nloss 2.3, step 17\na NET/IB/3")
    assert [row["via"] for row in rows(converted(a__log=torn), "transports")] == ["P2P/IPC"]


def test_each_device_of_a_process_is_a_rank(converted):
    # threads of one process take turns, each with a device of its own
    two = OF_7.format(1).replace("r1:5:9", "r1:5:8").replace("rank 0", "rank 1")
    two = two.replace("1[8000] -> 0[7000]", "0[7000] -> 1[8000]").replace(
        "Channel 00 : 0[7000] -> 1[8000] via", "Channel 00 : 1[8000] -> 0[7000] via"
    )
    pairs = zip(OF_7.format(0).splitlines(), two.splitlines(), strict=True)
    lines = [line for pair in pairs for line in pair]
    run = converted(a__log="\n".join(lines))
    assert run.ranks == (0, 1)
    assert [(r["rank"], r["communicator_rank"]) for r in rows(run, "communicators")] == [
        (0, 0),
        (1, 1),
    ]
    assert [row["peer"] for row in rows(run, "transports")] == [1, 1, 0, 0]


def test_a_file_for_each_process_is_one_run(converted):
    other = OF_27.replace("node1:100", "node2:77").replace("rank 0 n", "rank 1 n")
    run = converted(nccl__node1__100=OF_27, nccl__node2__77=other)
    assert (run.ranks, run.manifest.missing_ranks) == ((0, 1), ())
    assert [run.capture(rank).host for rank in run.ranks] == ["node1", "node2"]


def test_without_a_communicator_of_all_labels_say_the_rank(converted):
    # two groups of two: rank 0 of a group is no number in the job
    lines = [f"3: {line}" for line in OF_7.format(0).splitlines()]
    lines += [f"1: {line}" for line in OF_7.format(0).replace("r1:5", "r2:6").splitlines()]
    run = converted(a__log="\n".join(lines))
    assert (run.ranks, run.manifest.world_size) == ((1, 3), 4)


def test_without_labels_the_order_counts_and_is_told(converted):
    run = converted(a__log=OF_7.format(0) + OF_7.format(0).replace("r1:5", "r2:6"))
    assert run.ranks == (0, 1)
    assert [check.check for check in run.capture(0).quality] == ["ranks not in the log"]


def test_a_job_that_was_started_again_keeps_its_ranks(converted):
    run = converted(a__log=OF_7.format(0) + OF_7.format(0).replace("r1:5", "r1:88"))
    assert run.ranks == (0,)
    assert [row["pid"] for row in rows(run, "communicators")] == [5, 88]


def test_an_address_that_is_used_again_is_another_communicator(converted):
    gone = "node1:1:1 [0] NCCL INFO comm 0xa0 rank 0 nranks 2 cudaDev 0 - Destroy COMPLETE\n"
    gone = gone.replace("node1:1:1", "node1:100:100")
    run = converted(a__log=OF_27 + gone + OF_27)
    assert len(rows(run, "communicators")) == 2
    assert len(rows(run, "transports")) == 6


def test_variables_that_all_ranks_have_stand_in_the_manifest(converted):
    other = OF_27.replace("node1:100", "node2:77").replace("rank 0 n", "rank 1 n")
    run = converted(a__log=OF_27 + other)
    assert run.manifest.environment == {"NCCL_IB_DISABLE": "1"}


def test_lines_that_go_on_and_on_take_seconds_at_most(log):
    hostile = ("a." * 8_000 + " NCCL INFO x\n") * 50 + "b" * 3_000_000 + " NCCL \n"
    path = log(a__log=hostile + OF_27) / "a.log"
    before = time.perf_counter()
    assert len(reading(path).told.connections) == 3
    assert time.perf_counter() - before < 20


def test_a_packed_log_is_read(log, tmp_path):
    folder = log(a__log__gz=gzip.compress(OF_27.encode()))
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert len(rows(run, "transports")) == 3


def test_nccl_may_speak_late_in_a_long_file(log):
    noise = "step 1 loss 2.0 and whatever a job prints\n" * 20_000
    path = log(a__log=noise + OF_27 * 40 + noise) / "a.log"
    assert sniffed(path).id == "nccl-log"


@pytest.mark.parametrize(
    "text",
    [
        "set NCCL_DEBUG=INFO to get lines like 'NCCL INFO Bootstrap'\n",
        '{"traceEvents": [{"name": "node1:1:2 [0] NCCL INFO x"}]}',
        b"\x80\x02node1:1:2 [0] NCCL INFO x",
        b"\0\0node1:1:2 [0] NCCL INFO x",
        "",
    ],
)
def test_what_is_no_log_is_left_to_others(log, text):
    path = log(a__log=text) / "a.log"
    assert not any(each.sniff(path) for each in collectors().values() if each.id != "kineto")


def test_a_log_of_nothing_is_refused(converted):
    with pytest.raises(InputError, match="no communicator, no connection"):
        converted(a__log="node1:1:2 [0] NCCL INFO Launch mode Parallel\n" * 3)


def test_a_log_alone_gives_a_report_that_says_so(log):
    result = tracekit.analyze(log(a__log=OF_27), engine="local:1")
    assert result.run.device_kind == "logs"
    assert LOGS_SENTENCE in notices(result)


def test_hosts_and_addresses_are_hidden_on_request(log, tmp_path):
    run = tracekit.convert(log(a__log=OF_27), tmp_path / "run", engine="local:1", redact=True)
    for table in ("communicators", "transports", "nccl_messages"):
        for row in rows(run, table):
            assert "node1" not in str(row)
            assert "10.0.0.1" not in str(row)
    assert any(
        r["name"] == "NCCL_IB_DISABLE" and r["text"] == "1" for r in rows(run, "nccl_messages")
    )


REAL = {  # by file: ranks, communicators, connections
    "NVIDIA+JAX-Toolbox/.github/gke-workflow/jax-vllm-offloading/logs/transfer-8-8-trainer.log": (
        8,
        40,
        1168,
    ),
    "aws-samples+awsome-distributed-training/3.test_cases/0.nccl-tests/slurm-104.out": (
        16,
        16,
        366,
    ),
    "bigscience-workshop+bigscience/experiments/gpt2-meg-ds-zero/"
    "meg_ds_zero_gpt2_perf_n16-1999616.out": (64, 192, 2992),
    "microsoft+Megatron-DeepSpeed/examples/MoE/log/"
    "gpt3-0.125B-tokendropping-graduallyIncrease-lr-3.0e-4.log": (8, 40, 720),
}


@pytest.mark.parametrize("path", REAL)
def test_real_logs_are_read_whole(traces, path):
    read = reading(traces / "traces" / path)
    text = (traces / "traces" / path).read_text("utf-8", errors="replace")
    n_connected = len(re.findall(r" via (?:P2P|SHM|NET)/", text))
    # counted in the text itself: lines of connections, and of communicators that are made
    assert len(read.told.connections) == n_connected == REAL[path][2]
    assert len(read.told.whole()) == text.count("Init COMPLETE") == REAL[path][1]
    assert all(each.communicator.address for each in read.told.connections)
    assert len(read.ranks) == REAL[path][0]
