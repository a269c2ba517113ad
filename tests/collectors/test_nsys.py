"""Exports of Nsight Systems: databases and Parquet folders of several versions, real ones too."""

from __future__ import annotations

import sqlite3

import polars as pl
import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.collectors.nsys import is_part, peek
from tracekit.errors import InputError, TracekitError

EPOCH_NS = 1_700_000_000_000_000_000
PID_7 = 7 << 24
PID_9 = 9 << 24
NAMES = {
    1: "void gemm<float>(int)",
    2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
    3: "cudaLaunchKernel_v7000",
    4: "cudaDeviceSynchronize_v3020",
    5: "ncclAllReduce",
    6: "NCCL",
}


def kernel(start, end, *, name=1, device=0, process=PID_7, correlation=1, stream=7):
    """One row of kernels: 4×2×1 blocks of 128 threads, 32 registers, 16 + 1024 bytes."""
    return {
        "start": start,
        "end": end,
        "deviceId": device,
        "globalPid": process,
        "streamId": stream,
        "correlationId": correlation,
        "demangledName": name,
        "gridX": 4,
        "gridY": 2,
        "gridZ": 1,
        "blockX": 128,
        "blockY": 1,
        "blockZ": 1,
        "registersPerThread": 32,
        "staticSharedMemory": 16,
        "dynamicSharedMemory": 1024,
        "graphNodeId": None,
    }


def call(start, end, *, name=3, process=PID_7, thread=11, correlation=1):
    return {
        "start": start,
        "end": end,
        "globalTid": process + thread,
        "correlationId": correlation,
        "nameId": name,
    }


def nvtx(start, end, text=None, *, kind=59, text_id=None, domain=0, process=PID_7, json=None):
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "globalTid": process + 11,
        "text": text,
        "textId": text_id,
        "domainId": domain,
        "jsonText": json,
    }


def tables(**more):
    """The tables of a small export; others, or others' rows, by name."""
    return {
        "StringIds": [{"id": number, "value": name} for number, name in NAMES.items()],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.17.1"}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS}],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(5000, 9000)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1000, 2000)],
        **more,
    }


def database(path, content):
    connection = sqlite3.connect(path)
    for table, rows in content.items():
        names = ", ".join(f'"{name}"' for name in rows[0])
        connection.execute(f'CREATE TABLE "{table}" ({names})')
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in rows]
        )
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def converted(tmp_path):
    """The run of an export with these tables."""

    def make(**more):
        return tracekit.convert(
            database(tmp_path / "report.sqlite", tables(**more)), tmp_path / "run"
        )

    return make


def rows(run, table):
    return run.scan_all(table).sort("start_ns").collect()


def test_a_kernel_has_all_that_the_export_tells(converted):
    row = rows(converted(), "kernels").row(0, named=True)
    # the run's epoch is the session's start: times stay as they are
    assert (row["start_ns"], row["dur_ns"], row["name"]) == (5000, 4000, "void gemm<float>(int)")
    assert (row["kind"], row["device"], row["stream"], row["correlation"]) == ("gemm", 0, 7, 1)
    assert (row["grid_blocks"], row["block_threads"]) == (8, 128)
    assert (row["registers_per_thread"], row["shared_memory_bytes"]) == (32, 1040)


def test_calls_lose_the_version_in_their_name(converted):
    calls = [call(1000, 2000), call(2000, 9500, name=4, correlation=2)]
    found = rows(converted(CUPTI_ACTIVITY_KIND_RUNTIME=calls), "launches")
    assert found["name"].to_list() == ["cudaLaunchKernel", "cudaDeviceSynchronize"]
    assert found["role"].to_list() == ["launch", "sync"]
    assert found["thread"].to_list() == [11, 11]


def test_copies_say_which_way_and_from_what_memory(converted):
    common = {"deviceId": 0, "globalPid": PID_7, "streamId": 7, "correlationId": 3, "bytes": 4096}
    copies = [
        {"start": 1, "end": 2, **common, "copyKind": 1, "srcKind": 0, "dstKind": 2},
        {"start": 3, "end": 4, **common, "copyKind": 2, "srcKind": 2, "dstKind": 1},
        {"start": 5, "end": 6, **common, "copyKind": 8, "srcKind": 2, "dstKind": 2},
        {"start": 7, "end": 8, **common, "copyKind": 10, "srcKind": 2, "dstKind": 2},
    ]
    found = rows(converted(CUPTI_ACTIVITY_KIND_MEMCPY=copies), "copies")
    assert found["kind"].to_list() == ["HtoD", "DtoH", "DtoD", "P2P"]
    assert found["host_memory"].to_list() == ["pageable", "pinned", None, None]
    assert found["size_bytes"].to_list() == [4096] * 4


def test_a_column_of_virtual_addresses_makes_no_virtual_table(converted):
    copy = {"start": 1, "end": 2, "deviceId": 0, "globalPid": PID_7, "streamId": 7, "bytes": 64}
    found = rows(converted(CUPTI_ACTIVITY_KIND_MEMCPY=[{**copy, "virtualAddress": 1}]), "copies")
    assert found["size_bytes"].to_list() == [64]


def sample(at, metric, value, device=0):
    return {"timestamp": at, "typeId": 0x100 + device, "metricId": metric, "value": value}


def test_metrics_of_a_device_become_means_of_ten_milliseconds(converted):
    names = ["SMs Active [Throughput %]", "DRAM Read Bandwidth [Throughput %]"]
    names += ["DRAM Write Bandwidth [Throughput %]", "GPC Clock Frequency [MHz]", "L2 hits [%]"]
    told = [
        {"typeId": 0x100 + device, "metricId": number, "metricName": name}
        for device in (0, 1)
        for number, name in enumerate(names)
    ]
    samples = [sample(1_000_000 * ms, 0, 20 + 10 * min(ms, 7)) for ms in (1, 2, 11)]
    samples += [sample(1_000_000, 1, 30), sample(1_000_000, 2, 12), sample(2_000_000, 3, 1500)]
    samples += [sample(1_000_000, 4, 99), sample(1_000_000, 0, 77, device=1)]
    run = converted(
        TARGET_INFO_GPU=[{"id": 0, "cuDevice": 0, "name": "GPU", "uuid": "GPU-a"}],
        TARGET_INFO_GPU_METRICS=told,
        GPU_METRICS=samples,
    )
    found = rows(run, "telemetry").sort("metric", "start_ns")
    assert set(found["device_uuid"]) == {"GPU-a"}
    assert found.select("metric", "value").rows() == [
        ("dram_busy_share", pytest.approx(0.42)),
        ("sm_busy_share", pytest.approx(0.35)),
        ("sm_busy_share", pytest.approx(0.90)),
        ("sm_clock_mhz", 1500.0),
    ]
    assert (found["end_ns"] - found["start_ns"]).unique().to_list() == [10_000_000]


def test_synchronisations_keep_their_kind_and_event(converted):
    common = {"deviceId": 0, "globalPid": PID_7, "correlationId": 3}
    syncs = [
        {"start": 1, "end": 2, **common, "streamId": 7, "syncType": 2, "eventId": 44},
        {"start": 3, "end": 4, **common, "streamId": 4294967295, "syncType": 4, "eventId": 0},
    ]
    found = rows(converted(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=syncs), "syncs")
    assert found["kind"].to_list() == ["Stream Wait Event", "Context Sync"]
    assert found["event_id"].to_list() == [44, None]
    assert found["stream"].to_list() == [7, None]


def test_ranges_are_annotations_steps_and_operators(converted):
    ranges = [
        nvtx(0, 10_000, "step 3"),
        nvtx(10_000, 20_000, "step 4", kind=60),
        nvtx(100, 200, "aten::mm, seq = 17, op_id = 9, sizes = [[4, 2], [2, 8]]"),
        nvtx(300, None, "a mark", kind=34),
        nvtx(0, None, kind=75, text_id=6, domain=1),
        nvtx(400, 500, text_id=5, domain=1),
    ]
    run = converted(NVTX_EVENTS=ranges)
    assert rows(run, "steps").select("step", "dur_ns", "source").rows() == [
        (3, 10_000, "annotation"),
        (4, 10_000, "annotation"),
    ]
    names = set(rows(run, "annotations")["name"])
    assert names == {"step 3", "step 4", "NCCL/ncclAllReduce"}
    operator = rows(run, "cpu_ops").row(0, named=True)
    assert (operator["name"], operator["sequence"]) == ("aten::mm", 17)
    assert operator["shapes"] == "[[4, 2], [2, 8]]"


def test_a_collective_is_described_by_the_range_around_its_launch(converted):
    payload = '{"NCCL communicator ID": 5, "Message size [bytes]": 65536}'
    run = converted(
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5000, 9000, name=2)],
        NVTX_EVENTS=[nvtx(900, 2100, text_id=5, json=payload)],
    )
    row = rows(run, "collectives").row(0, named=True)
    assert (row["operation"], row["bytes_in"], row["source"]) == ("all_reduce", 65_536, "host call")
    assert row["enqueue_ns"] == 900


def test_each_device_of_each_process_is_a_rank(tmp_path):
    kernels = [
        kernel(5000, 6000, device=0, process=PID_7, correlation=1),
        kernel(5000, 7000, device=1, process=PID_9, correlation=1),
        kernel(5000, 8000, device=1, process=PID_9, correlation=2),
    ]
    calls = [call(1, 2), call(3, 4, process=PID_9), call(5, 6, process=PID_9, correlation=2)]
    path = database(
        tmp_path / "r.sqlite",
        tables(CUPTI_ACTIVITY_KIND_KERNEL=kernels, CUPTI_ACTIVITY_KIND_RUNTIME=calls),
    )
    run = tracekit.convert(path, tmp_path / "run")
    assert run.ranks == (0, 1)
    assert rows(run, "kernels").group_by("rank").len().sort("rank").rows() == [(0, 1), (1, 2)]
    assert rows(run, "launches").group_by("rank").len().sort("rank").rows() == [(0, 1), (1, 2)]


def test_a_process_with_two_devices_shares_its_host_and_not_its_launches(tmp_path):
    kernels = [kernel(5000, 6000, device=0), kernel(5000, 7000, device=1, correlation=2)]
    calls = [call(1, 2), call(3, 4, correlation=2), call(5, 6, name=4, correlation=3)]
    path = database(
        tmp_path / "r.sqlite",
        tables(CUPTI_ACTIVITY_KIND_KERNEL=kernels, CUPTI_ACTIVITY_KIND_RUNTIME=calls),
    )
    launches = rows(tracekit.convert(path, tmp_path / "run"), "launches")
    # each has its own launch, and both the call that waits for the device
    by_rank = {r: launches.filter(rank=r)["correlation"].to_list() for r in (0, 1)}
    assert by_rank == {0: [1, 3], 1: [2, 3]}


def test_the_environment_of_what_was_launched_says_the_rank(tmp_path):
    variables = [
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'RANK="5"'},
        {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'WORLD_SIZE="8"'},
    ]
    found = peek(database(tmp_path / "r.sqlite", tables(META_DATA_CAPTURE=variables)))
    assert (found.rank, found.world_size, found.started_ns) == (5, 8, EPOCH_NS)


def test_a_shift_of_the_export_is_taken_back(converted):
    facts = [{"name": "EXPORT_PARAM_TIME_SHIFT", "value": "1000"}]
    assert rows(converted(META_DATA_EXPORT=facts), "kernels")["start_ns"].to_list() == [4000]


def test_columns_of_an_old_version_read_as_null_and_are_named(converted):
    old = {k: v for k, v in kernel(5000, 9000).items() if k in ("start", "end", "deviceId")}
    run = converted(CUPTI_ACTIVITY_KIND_KERNEL=[{**old, "shortName": 1}])
    row = rows(run, "kernels").row(0, named=True)
    assert (row["name"], row["registers_per_thread"]) == ("void gemm<float>(int)", None)
    checks = run.scan_all("capture_quality").collect()["check"].to_list()
    assert "columns missing: demangledName" in checks
    assert "columns missing: registersPerThread" in checks


def test_graphs_traced_as_a_whole_keep_the_device_busy(converted):
    graph = {"start": 10_000, "end": 30_000, "deviceId": 0, "globalPid": PID_7, "streamId": 7}
    run = converted(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[{**graph, "correlationId": 8, "graphId": 2}])
    row = rows(run, "kernels").row(1, named=True)
    assert (row["dur_ns"], row["graph_id"]) == (20_000, 2)
    assert (
        "graphs traced as a whole" in run.scan_all("capture_quality").collect()["check"].to_list()
    )


def test_events_without_an_end_are_counted(converted):
    run = converted(CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5000, 9000), kernel(6000, None)])
    assert rows(run, "kernels").height == 1
    assert run.manifest.captures[0].dropped == {"no duration": 1}


def test_text_where_a_number_should_be_does_no_harm(converted):
    run = converted(CUPTI_ACTIVITY_KIND_KERNEL=[kernel(5000, 9000), kernel("x", b"\xff")])
    # a text without digits is 0 in SQLite
    assert rows(run, "kernels")["dur_ns"].to_list() == [0, 4000]


def test_a_view_in_place_of_a_table_is_not_asked(tmp_path):
    path = database(tmp_path / "r.sqlite", tables())
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    connection.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_RUNTIME AS SELECT * FROM StringIds")
    connection.execute("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMCPY USING fts5(start, end)")
    connection.close()
    run = tracekit.convert(path, tmp_path / "run")
    assert rows(run, "launches").is_empty()


def test_a_folder_of_parquet_files_reads_like_the_database(tmp_path):
    folder = tmp_path / "report_pqtdir"
    folder.mkdir()
    for table, content in tables().items():
        pl.DataFrame(content).write_parquet(folder / f"{table}.parquet")
    assert sniffed(folder / "StringIds.parquet").id == "nsys"
    assert is_part(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    run = tracekit.convert(folder, tmp_path / "run")
    assert rows(run, "kernels")["dur_ns"].to_list() == [4000]
    assert run.manifest.others == ()


def test_another_database_is_named_for_what_it_is(tmp_path):
    path = database(tmp_path / "other.sqlite", {"rocpd_string": [{"id": 1}]})
    assert sniffed(path) is None
    with pytest.raises(InputError, match="no export of Nsight Systems"):
        tracekit.convert(path, tmp_path / "run")


def test_an_export_without_events_says_how_to_record(tmp_path):
    content = tables()
    del content["CUPTI_ACTIVITY_KIND_KERNEL"], content["CUPTI_ACTIVITY_KIND_RUNTIME"]
    path = database(tmp_path / "r.sqlite", content)
    with pytest.raises(TracekitError, match="no kernel, copy, call or NVTX range"):
        tracekit.convert(path, tmp_path / "run")


def test_a_cut_database_is_refused_with_its_name(tmp_path):
    path = database(tmp_path / "r.sqlite", tables())
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"r\.sqlite"):
        tracekit.convert(path, tmp_path / "run")


REAL = {
    "GindaChen+nsys-ai/tests/fixtures/h100_2gpu_1s.sqlite": (2, 44_829_522, 110_318_997_850),
    "GindaChen+nsys-ai/tests/fixtures/healthy_1pct.sqlite": (1, 400_000_000, 0),
    "GindaChen+nsys-ai/tests/fixtures/mock.sqlite": (1, 4_129, 4),
    "NVIDIA+Fuser/report1.sqlite": (1, 10_167_602, 456_917_006),
    "hpcgroup+pipit/pipit/tests/data/cloverleaf-nsys/perlmutter-cloverleaf-cuda.sqlite": (
        1,
        294_404_540,
        225_116_952,
    ),
}
"""Ranks, ns in kernels, bytes of copies and memsets, as summed up with the sqlite3 shell."""


@pytest.mark.parametrize("name", REAL)
def test_real_exports_convert_whole(name, traces, tmp_path):
    run = tracekit.convert(traces / "traces" / name, tmp_path / "run")
    kernels, copies = rows(run, "kernels"), rows(run, "copies")
    assert (len(run.ranks), kernels["dur_ns"].sum(), copies["size_bytes"].sum()) == REAL[name]


def test_operators_of_a_real_job_are_those_of_emit_nvtx(traces, tmp_path):
    source = traces / "traces/GindaChen+nsys-ai/tests/fixtures/h100_2gpu_1s.sqlite"
    run = tracekit.convert(source, tmp_path / "run")
    # all of its 16,782 ranges name an operator, half of them on each rank
    assert rows(run, "cpu_ops").height == 16_782
    assert rows(run, "annotations").is_empty()
