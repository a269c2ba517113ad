"""Tables of nccl-tests and rccl-tests of all ages, alone and among other lines, and their JSON."""

from __future__ import annotations

import json

import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.collectors.nccl_text.reading import reading

DEVICES = [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]
START = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 128M step: 2(factor) warmup iters: 5 iters: 20\n#\n"
)
NEW = "type redop root time algbw busbw #wrong time algbw busbw #wrong"


def listed(n=4):
    rows = [
        f"#  Rank {rank:2} Group  0 Pid 7 on {host} device {device} [0000:04:00] NVIDIA H100\n"
        for rank, (host, device) in enumerate(DEVICES[:n])
    ]
    return "# Using devices\n" + "".join(rows) + "#\n"


def table(*rows, heading=NEW, n=4, program=None):
    name = f"# Collective test starting: {program}\n" if program else ""
    body = "".join(f"  {row}\n" for row in rows)
    columns = f"#       size         count   {heading}\n"
    return f"{name}{START}{listed(n)}{columns}{body}# Avg bus bandwidth : 1\n"


@pytest.fixture
def measured(tmp_path):
    """The rows of the one run that files hold."""

    def read(text, name="job.out"):
        folder = tmp_path / f"of-{name}"
        folder.mkdir()
        (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
        run = tracekit.convert(folder, tmp_path / f"run-{name}", engine="local:1")
        return run.scan_all("bandwidth_baselines").collect().rows(named=True)

    return read


ALL_REDUCE = "134217728 33554432 float sum -1 2000.0 67.11 100.66 0 1000.0 134.22 201.33 N/A"


def test_each_row_is_two_measurements(measured):
    out, inside = measured(table(ALL_REDUCE, program="all_reduce_perf"))
    assert (out["operation"], out["dtype"], out["size_bytes"]) == ("all_reduce", "float", 1 << 27)
    assert (out["n_ranks"], out["n_nodes"], out["hosts"]) == (4, 2, "n1,n2")
    assert (out["time_ns"], out["algbw_gb_per_s"], out["busbw_gb_per_s"]) == (
        2_000_000,
        67.11,
        100.66,
    )
    assert (out["is_in_place"], out["n_wrong"], out["gpu_model"]) == (False, 0, "NVIDIA H100")
    assert (inside["is_in_place"], inside["n_wrong"]) == (True, None)
    assert inside["busbw_gb_per_s"] == 201.33


@pytest.mark.parametrize(
    ("heading", "row", "operation"),
    [  # of 4 ranks 2(n − 1)/n is 1.5 and (n − 1)/n is 0.75
        (NEW, ALL_REDUCE, "all_reduce"),
        (NEW, "64 1 float sum -1 9 40.0 30.0 0 9 40.0 30.0 0", "reduce_scatter"),
        (NEW, "64 1 float none -1 9 40.0 30.0 0 9 40.0 30.0 0", "all_gather"),
        (NEW, "64 1 float none -1 9 40.0 30.0 0 9 40.0 30.0 N/A", "all_to_all"),
        (NEW, "64 1 float none -1 9 40.0 30.0 N/A 9 40.0 30.0 N/A", None),  # nothing was checked
        (NEW, "64 1 float none 0 9 40.0 30.0 0 9 40.0 30.0 0", None),  # gather or scatter
        (NEW, "64 1 float none 0 9 40.0 40.0 0 9 40.0 40.0 0", "broadcast"),
        (NEW, "64 1 float sum 0 9 40.0 40.0 0 9 40.0 40.0 0", "reduce"),
        (NEW, "64 1 float sum -1 9 40.0 40.0 0 9 40.0 40.0 0", "send_recv"),
        (
            "type time algbw busbw error time algbw busbw error",
            "64 1 float 9 40.0 30.0 0e+00 9 40.0 30.0 0e+00",
            "all_gather",
        ),
        (
            "type root time algbw busbw error time algbw busbw error",
            "64 1 float 0 9 40.0 40.0 0e+00 9 40.0 40.0 0e+00",
            "broadcast",
        ),
        (
            f"type redop root {' '.join(['time algbw busbw #wrong i_min i_max i_p99 i_cv%'] * 2)}",
            "64 1 float sum -1 9 40.0 60.0 0 1 2 3 4 9 40.0 60.0 0 1 2 3 4",
            "all_reduce",
        ),
    ],
)
def test_the_operation_follows_from_factor_and_columns(measured, heading, row, operation):
    found = measured(table(row, heading=heading))
    assert {each["operation"] for each in found} == {operation}
    assert len(found) == 2


def test_the_programs_name_counts_before_the_factor(measured):
    found = measured(
        "+ srun ./build/scatter_perf -b 8\n" + table("64 1 float none 0 9 40 30 0 9 40 30 0")
    )
    assert found[0]["operation"] == "scatter"


def test_of_two_ranks_no_factor_tells_the_operation(measured):
    assert measured(table("64 1 float sum -1 9 40 40 0 9 40 40 0", n=2))[0]["operation"] is None


def test_rows_that_other_lines_tear_are_left_out_and_told(tmp_path):
    torn = table(ALL_REDUCE, "64 1 float sum n1:7:7 [0] NCCL INFO x", "4 1 float su")
    path = tmp_path / "a.out"
    path.write_text(torn)
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    assert run.n_rows("bandwidth_baselines") == 2
    assert [(c.check, c.count) for c in run.capture(0).quality if c.check == "torn rows"] == [
        ("torn rows", 1)
    ]


def test_several_tests_in_one_log_are_kept_apart(measured):
    found = measured(
        table(ALL_REDUCE, program="all_reduce_perf")
        + table("64 1 float none -1 9 40 30 0 9 40 30 0", program="all_gather_perf", n=2)
    )
    assert [(r["operation"], r["n_ranks"], r["n_nodes"]) for r in found[::2]] == [
        ("all_reduce", 4, 2),
        ("all_gather", 2, 1),
    ]


def test_hosts_are_hidden_on_request(tmp_path):
    path = tmp_path / "a.out"
    path.write_text(table(ALL_REDUCE))
    run = tracekit.convert(path, tmp_path / "run", engine="local:1", redact=True)
    row = run.scan_all("bandwidth_baselines").collect().row(0, named=True)
    assert [host.startswith("host-") for host in row["hosts"].split(",")] == [True, True]


def test_rccl_tests_begin_a_little_differently(measured):
    start = "# nThreads: 1 nGpus: 1 nRanks: 1 minBytes: 1024 maxBytes: 536870912 step: 2(factor)\n"
    text = table(ALL_REDUCE).replace(START, start)
    assert "nThreads: 1" in text
    assert measured(text)[0]["n_ranks"] == 4


def test_labels_of_the_launcher_stand_before_every_line(measured):
    text = "".join(f" 0: {line}\n" for line in table(ALL_REDUCE).splitlines())
    assert len(measured(text)) == 2


def test_json_says_the_same_as_the_text(measured):
    side = {"alg_bw": 67.11, "bus_bw": 100.66, "nwrong": 0.0}
    document = {
        "version": 1,
        "start_time": "2026-01-01 10:00:00",
        "args": ["/opt/all_reduce_perf", "-J", "x"],
        "env": ["NCCL_IB_DISABLE=1", "PASSWORD=hunter2"],
        "nccl_version": 22705,
        "config": {},
        "devices": [
            {"rank": rank, "hostname": host, "device_info": "NVIDIA H100"}
            for rank, (host, _) in enumerate(DEVICES)
        ],
        "results": [
            {
                "size": 1 << 27,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": {"time": 2000.0, **side},
                "in_place": {
                    "cpu_time": 1000.0,
                    "alg_bw": 134.22,
                    "bus_bw": 201.33,
                    "nwrong": None,
                },
            },
            {"size": "many"},
            7,
        ],
    }
    as_text = measured(table(ALL_REDUCE, program="all_reduce_perf"))
    assert measured(document, "x.json") == as_text


def test_variables_of_the_json_are_nccls_own_alone(tmp_path):
    path = tmp_path / "x.json"
    document = {"version": 1, "start_time": "", "args": ["all_reduce_perf"]}
    document |= {"env": ["NCCL_IB_DISABLE=1", "PASSWORD=hunter2"], "results": []}
    path.write_text(json.dumps(document))
    assert sniffed(path).id == "nccl-tests"
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    (row,) = run.scan_all("nccl_messages").collect().rows(named=True)
    assert (row["kind"], row["name"], row["text"]) == ("environment", "NCCL_IB_DISABLE", "1")


REAL = {  # by file: operation, busbw of the last row in place as printed
    "nccl_allreduce.log": ("all_reduce", 235.03),
    "nccl_reduce.log": ("reduce", 228.83),
    "nccl_reducescatter.log": ("reduce_scatter", 231.25),
    "nccl_allgather.log": ("all_gather", 230.07),
    "nccl_broadcast.log": ("broadcast", 234.7),
}


@pytest.mark.parametrize("name", REAL)
def test_real_output_of_old_versions(traces, name):
    path = traces / "traces/microsoft+superbenchmark/tests/data" / name
    assert sniffed(path).id == "nccl-tests"
    found = reading(path).tests.measured()
    assert (found[-1]["operation"], found[-1]["busbw_gb_per_s"]) == REAL[name]
    assert found[-1]["n_ranks"] == 8


def test_a_real_log_of_slurm_holds_both(traces, tmp_path):
    folder = "traces/aws-samples+awsome-distributed-training/3.test_cases/0.nccl-tests"
    path = traces / folder / "slurm-104.out"
    assert sniffed(path).id == "nccl-tests"
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    assert len(run.ranks) == 16
    assert run.n_rows("communicators") == 16
    last = run.scan_all("bandwidth_baselines").collect().rows(named=True)[-1]
    assert (last["n_ranks"], last["n_nodes"], last["busbw_gb_per_s"]) == (16, 2, 81.09)
