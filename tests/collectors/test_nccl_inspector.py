"""Lines of NCCL Inspector: what a call becomes, who is which rank, and lines that are none."""

from __future__ import annotations

import json

import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.collectors.sources.redaction import alias
from tracekit.errors import InputError
from tracekit.findings import Severity, Status

AT_US = 1_758_600_000_000_000


def line(
    function="AllReduce",
    number=0,
    *,
    rank=0,
    n_ranks=2,
    size=1 << 20,
    dur_us=100,
    start_us=0,
    key="0xa",
    name="world",
    source="kernel_gpu",
    has_stamps=True,
    peer=None,
):
    """One line as v4.0 writes it; `start_us` is since `AT_US`."""
    kind = "coll" if peer is None else "p2p"
    perf = {
        kind: function,
        f"{kind}_sn": number,
        f"{kind}_msg_size_bytes": size,
        f"{kind}_exec_time_us": dur_us,
        f"{kind}_timing_source": source,
        f"{kind}_algobw_gbs": 0.0,
        f"{kind}_busbw_gbs": 0.0,
    }
    if peer is not None:
        perf["p2p_peer"] = peer
    if has_stamps:
        start = AT_US + start_us
        channels = [
            {"channel_id": c, "kernel_start_ts": start + c, "kernel_stop_ts": start + dur_us}
            for c in (1, 0)
        ]
        perf["event_trace_ts"] = {f"{kind}_start_ts": start - 7, "kernel_events": channels}
    return json.dumps(
        {
            "header": {
                "id": key,
                "comm_name": name,
                "rank": rank,
                "n_ranks": n_ranks,
                "nnodes": 1,
            },
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "dump_timestamp_us": AT_US + start_us + dur_us + 30,
                "hostname": "node0",
                "pid": 100 + rank,
            },
            f"{kind}_perf": perf,
        },
        separators=(",", ":"),
    )


@pytest.fixture
def put(tmp_path):
    """Write the lines of each rank; returns the folder."""

    def write(*by_rank, names="node0-pid{}.log"):
        folder = tmp_path / "inspector"
        folder.mkdir(exist_ok=True)
        for rank, lines in enumerate(by_rank):
            (folder / names.format(100 + rank)).write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.fixture
def rows(put, tmp_path):
    """Rows of `collectives` of a rank's lines."""

    def convert(*lines, rank=0):
        run = tracekit.convert(put(lines), tmp_path / "run", engine="local:1")
        return run.scan("collectives", rank).collect().rows(named=True)

    return convert


def test_a_line_says_what_was_called_and_how_long_it_took(rows):
    (row,) = rows(line("AllReduce", 3, start_us=50, dur_us=120))
    assert (row["operation"], row["sequence"], row["dur_ns"]) == ("all_reduce", 3, 120_000)
    assert row["start_ns"] == 0  # the first channel, which the run's epoch is
    assert row["enqueue_ns"] == -7_000
    assert (row["group"], row["members"], row["group_size"]) == ("world 0xa", [0, 1], 2)


@pytest.mark.parametrize(
    ("function", "n_in", "n_out"),
    [
        ("AllReduce", 1, 1),
        ("AllGather", 1, 4),
        ("ReduceScatter", 4, 1),
        ("AlltoAll", 4, 4),
        ("Broadcast", 1, 1),
        ("Reduce", 1, 1),
    ],
)
def test_bytes_are_those_of_the_operation(rows, function, n_in, n_out):
    (row,) = rows(line(function, size=1000, n_ranks=4))
    assert (row["bytes_in"], row["bytes_out"]) == (1000 * n_in, 1000 * n_out)


def test_the_largest_communicator_numbers_the_ranks(rows):
    small = line("AllGather", rank=1, key="0xb", name="tp", start_us=9)
    found = rows(line(rank=6, n_ranks=8), small, rank=6)
    assert [row["members"] for row in found] == [list(range(8)), None]


def test_calls_of_one_number_are_one_collective_and_the_shortest_is_the_transfer(put):
    by_rank = [[line(rank=r, dur_us=d, start_us=300 - d)] for r, d in ((0, 300), (1, 100))]
    result = tracekit.analyze(put(*by_rank), engine="local:1")
    (operation,) = result.traffic.operations
    assert (operation.n_calls, operation.p50_ns) == (1, 100_000)
    assert operation.busbw_gb_s == pytest.approx((1 << 20) / 100e-6 / 1e9)  # 2 (n - 1) / n = 1


def test_messages_name_their_ends(rows):
    (send,) = rows(line("Send", peer=1))
    assert (send["operation"], send["destination_rank"]) == ("send", 1)
    assert send["comms_id"] is None


def test_a_time_of_the_host_is_no_time_of_the_device(put, rows, tmp_path):
    assert len(rows(line(), line(number=1, source="collective_cpu"))) == 1
    run = tracekit.open_run(tmp_path / "run")
    assert [c.count for c in run.capture(0).quality if c.check == "no device time"] == [1]
    with pytest.raises(InputError, match="no call of 1 lines has a time on the device"):
        tracekit.convert(put([line(source="collective_cpu")]), tmp_path / "other")


def test_without_stamps_durations_still_tell_who_comes_last(put):
    by_rank = [
        [line(number=n, rank=r, dur_us=d, start_us=1000 * n, has_stamps=False) for n in range(30)]
        for r, d in ((0, 300), (1, 100), (2, 290))
    ]
    by_rank = [[text.replace('"n_ranks":2', '"n_ranks":3') for text in lines] for lines in by_rank]
    result = tracekit.analyze(put(*by_rank), engine="local:1")
    (found,) = [each for each in result.findings if each.status is Status.FOUND]
    assert (found.id, found.ranks, found.severity) == ("late-in-calls", (1,), Severity.WARNING)
    assert found.measured.value == pytest.approx(190 / 300)
    assert any(check.check == "no time stamps" for check in result.quality)


def test_what_is_no_line_is_counted_and_costs_no_other(rows, tmp_path):
    whole = line()
    found = rows("NCCL INFO something", whole, line(number=1)[:200], '{"header":[]}', "")
    assert len(found) == 1
    dropped = tracekit.open_run(tmp_path / "run").capture(0).dropped
    assert dropped == {"not a line of NCCL Inspector": 3}


@pytest.mark.parametrize("odd", [[], {}, None, 1e400, 1 << 70, True])
def test_odd_values_cost_their_line_alone(rows, odd):
    record = json.loads(line(number=1))
    for part, name in (
        ("metadata", "hostname"),
        ("coll_perf", "coll_timing_source"),
        ("coll_perf", "coll_exec_time_us"),
        ("header", "rank"),
    ):
        changed = {**record, part: {**record[part], name: odd}}
        found = rows(json.dumps(changed, separators=(",", ":")), line())
        assert 0 in [row["sequence"] for row in found]


def test_ranks_without_a_file_are_missing(put):
    result = tracekit.analyze(put([line(n_ranks=4)]), engine="local:1")
    assert result.run.missing_ranks == (1, 2, 3)


def test_beside_traces_the_calls_do_not_count_twice(put, runs, tmp_path):
    folder = put([line()], [line(rank=1)])
    for rank in range(2):
        events = [("kernel", "gemm", 10, 5, {"device": 0, "stream": 7})]
        runs.kineto(folder, events, rank=rank, world_size=2)
    run = tracekit.convert(folder, tmp_path / "run", engine="local:1")
    assert run.capture(0).collector == "kineto"
    assert run.n_rows("collectives") == 0
    assert any(check.check == "calls are in the trace" for check in run.capture(1).quality)


def test_hosts_are_hidden_once(put, tmp_path):
    run = tracekit.convert(put([line()]), tmp_path / "run", redact=True, engine="local:1")
    assert run.capture(0).host == alias("host", "node0")


def test_it_is_known_by_its_lines(put):
    folder = put([line()])
    assert sniffed(folder / "node0-pid100.log").id == "nccl-inspector"
