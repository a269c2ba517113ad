"""The mistakes that other tools make, each with the tests that hold us from making it.

Those that need a public trace to be seen, and those that no other module shows, are tested here.
"""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tracekit.collectors.chrome_trace.marks import marks
from tracekit.derive.breakdown import breakdown
from tracekit.errors import InputError
from tracekit.schema import TABLES

TESTS = Path(__file__).parent
HELD = {
    "1 a clock offset is read as lateness": (
        "test_b_a_clock_that_is_ahead_pairs_all_five_collectives",
        "test_a_rank_whose_clock_is_off_changes_no_wait",
    ),
    "2 a window that opens one collective later": (
        "test_c_a_window_that_opens_later_pairs_by_sequence",
        "test_a_window_that_opens_later_is_shifted_and_nobody_is_late",
        "test_windows_that_are_cut_differently_pair_76_collectives",
    ),
    "3 a tie blames the first rank": (
        "test_a_tie_blames_nobody",
        "test_a_tie_names_nobody",
        "test_lateness_inside_the_error_blames_nobody",
    ),
    "4 ranks are numbered by the list of files": (
        "test_h_ranks_keep_their_numbers_without_rank_2",
        "test_the_rank_in_the_trace_counts_before_the_name",
        "test_missing_ranks_are_named",
    ),
    "5 groups of two sizes are merged": ("test_d_groups_of_two_sizes_stay_apart",),
    "6 groups of one name are merged": ("test_j_two_groups_of_one_name_stay_apart",),
    "7 an uneven all-gather aborts": ("test_g_one_element_less_is_matched_all_the_same",),
    "8 the network is blamed for a late rank": (
        "test_waiting_for_a_late_rank_is_not_the_networks_fault",
        "test_the_slow_loader_is_named_with_its_rank_and_saving",
    ),
    "9 kernels of today's libraries are not recognised": (
        "test_communication_is_recognised_in_every_library",
        "test_kernels_of_todays_nccl_show_who_is_late",
        "test_a_job_without_any_communication_kernel_is_said",
        "test_a_job_of_many_ranks_without_communication_is_a_warning",
    ),
    "10 names are matched by a part of them": (
        "test_the_operation_is_read_from_calls_and_kernels",
        "test_compute_keeps_its_kind",
    ),
    "11 two devices become one timeline": (
        "test_two_devices_in_one_file_stay_apart",
        "test_two_devices_of_one_process_are_never_merged",
        "test_two_devices_with_equal_streams_are_two_timelines",
    ),
    "12 kernels without a launch are dropped": (
        "test_kernels_without_a_launch_are_kept_and_counted",
        "test_kernels_launched_before_the_trace_are_no_idle_time",
    ),
    "13 flows are taken as truth": (
        "test_flows_marks_and_counters_are_no_rows",
        "test_one_graph_launch_owns_many_kernels",
        "test_a_launch_is_whatever_has_a_device_event",
    ),
    "14 times are rounded on doubles": (
        "test_digits_are_exact",
        "test_a_unix_time_is_exact_between_whole_ones",
        "test_the_whole_trace_equals_the_reference",
    ),
    "15 a limit in ns is compared with µs": (
        "test_a_limit_keeps_its_unit_and_reason",
        "test_every_column_of_times_and_shares_names_its_unit",
    ),
    "16 broken durations count, real overlaps are clipped": (
        "test_a_negative_duration_becomes_zero",
        "test_a_kernel_past_the_window_ends_with_it",
        "test_a_kernel_that_swallows_later_ones_ends_where_the_next_starts",
        "test_overlaps_on_one_stream_of_an_h100_are_real",
    ),
    "17 edge steps are averaged": (
        "test_the_first_and_the_cut_step_are_left_out",
        "test_averages_leave_out_the_first_step_and_the_cut_one",
    ),
    "18 annotations on the device are busy, steps nested or missing": (
        "test_an_annotation_on_the_device_is_no_work",
        "test_marks_inside_marks_are_no_steps",
        "test_one_launch_may_own_many_kernels",
        "test_a_rank_without_marks_is_left_out_and_named",
    ),
    "19 two timelines where one is right": ("test_parts_equal_a_count_of_every_microsecond",),
    "20 shares do not add up": (
        "test_the_parts_of_every_step_add_up",
        "test_a_file_gives_a_report_that_holds_together",
    ),
    "20b the profiler's own time is a finding": ("test_a_heavy_profiler_makes_it_an_upper_bound",),
    "20c what the host called is ignored": ("test_the_operation_is_what_the_host_called",),
    "20d the gap after a blocking call is Python's": (
        "test_a_blocking_call_that_waited_for_the_device_owns_the_whole_part",
        "test_causes_add_up_to_the_idle_time_of_real_traces",
    ),
    "21 GiB/s are printed as GB/s": ("test_a_value_is_printed_in_the_scale_a_person_reads",),
    "25 text of a trace is evaluated": ("test_nothing_in_a_trace_is_evaluated",),
    "26 pickles are loaded": ("test_a_pickle_is_never_loaded",),
    "27 a name breaks out of the page": (
        "test_json_in_a_script_closes_nothing_and_reads_back",
        "test_every_script_of_a_hostile_page_is_ours",
        "test_names_that_would_act_on_a_page_do_not",
    ),
    "28 a poor trace ends in a traceback": (
        "test_a_balanced_job_on_cpus_gets_no_more_than_notes",
        "test_mtia_requests_are_copies_and_its_other_events_kernels",
        "test_xpu_calls_are_launches",
        "test_kernels_without_a_duration_are_dropped_and_counted",
        "test_integers_floats_texts_and_nothing_may_be_mixed",
        "test_a_single_file_without_a_rank_is_rank_0_and_says_so",
    ),
    "29 damage costs more than its event": (
        "test_an_unescaped_name_costs_its_event_only",
        "test_every_cut_keeps_all_whole_events",
        "test_a_cut_gzip_keeps_what_was_whole",
        "test_a_leftover_tmp_is_the_duplicate",
        "test_raw_non_numbers_become_null",
        "test_bad_utf8_costs_nothing",
        "test_the_last_of_duplicate_keys_counts",
        "test_what_is_no_trace_is_named_for_what_it_is",
    ),
    "31 cells hold nested values": (
        "test_columns_are_plain_values_or_lists_of_whole_numbers",
        "test_cells_of_evidence_are_plain_values",
    ),
}
NOT_YET = {
    "22": "no FLOPs, bytes of kernels or roofline are printed yet",
    "23": "no byte counters are read yet",
    "24": "no power or energy is printed yet",
    "30": "no two runs are compared yet",
}
H100 = "KellerJordan+modded-nanogpt/records/track_1_short/2025-10-31_AdamSyncGradientHook"
TORCHREC = "pytorch+torchrec/examples/golden_training/trace/sst_long_a2a_optimizer_2"
EVIL = "__import__('pathlib').Path({path!r}).touch()"


@pytest.fixture
def converted(tmp_path):
    return lambda source: tracekit.convert(source, tmp_path / "run", engine="local:1")


def test_every_pitfall_has_its_tests_or_the_reason_why_none():
    defined = {
        node.name
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name for names in HELD.values() for name in names} <= defined
    numbers = [each.partition(" ")[0] for each in HELD] + list(NOT_YET)
    assert sorted(numbers) == sorted([*map(str, range(1, 32)), "20b", "20c", "20d"])


def test_every_column_of_times_and_shares_names_its_unit():
    for column in (column for table in TABLES.values() for column in table.columns):
        names_unit = column.name.endswith(("_ns", "_share"))
        assert names_unit == (column.unit in {"ns", "share"}), column.name


@pytest.mark.parametrize(
    ("name", "n_overlaps"),
    [
        ("modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz", 50),
        ("modded-nanogpt-current-gpu-rank-00-chrome-trace@962d8f0d.json.gz", 59),
    ],
)
def test_overlaps_on_one_stream_of_an_h100_are_real(traces, converted, name, n_overlaps):
    run = converted(traces / "traces" / H100 / name)
    checks = {check.check: check.count for check in run.capture(run.ranks[0]).quality}
    assert checks["overlap on one stream"] == n_overlaps
    assert "broken durations" not in checks


def test_an_annotation_on_the_device_is_no_work(runs, converted, tmp_path):
    on_device = {"device": 0, "stream": 7, "correlation": 1}
    source = runs.kineto(
        tmp_path / "source",
        [
            ("kernel", "gemm", 1000, 100, on_device),
            ("gpu_user_annotation", "forward", 1000, 500, on_device),
            ("kernel", "gemm", 1400, 100, on_device | {"correlation": 2}),
        ],
    )
    run = converted(source)
    assert run.n_rows("annotations") == 1
    whole = breakdown(run, 0).filter(pl.col("step").is_null()).collect()
    assert whole.select("dur_ns", "idle_ns").row(0) == (500_000, 300_000)


@pytest.mark.parametrize(
    ("spans", "steps"),
    [
        # (name, start, duration): the micro-steps of an accumulated gradient inside iterations
        (
            [
                ("iteration 7", 0, 100),
                ("step 1", 10, 40),
                ("step 2", 50, 50),
                ("iteration 8", 100, 100),
                ("step 3", 110, 40),
            ],
            [7, 8],
        ),
        # one outer span counts nothing: what lies inside does
        ([("iteration 0", 0, 100), ("step 1", 0, 50), ("step 2", 50, 50)], [1, 2]),
        ([("ProfilerStep#4", 0, 100), ("ProfilerStep#5", 99, 100), ("step 1", 5, 5)], [4, 5]),
    ],
)
def test_marks_inside_marks_are_no_steps(spans, steps):
    rows = [{"name": name, "start_ns": at, "dur_ns": dur} for name, at, dur in spans]
    annotations = pl.DataFrame(rows, schema_overrides=TABLES["annotations"].schema)
    annotations = annotations.with_columns(device=pl.lit(None, dtype=pl.Int64))
    assert marks(annotations)["step"].to_list() == steps


def test_the_operation_is_what_the_host_called(traces, converted):
    run = converted(traces / "traces" / TORCHREC)
    for rank in run.ranks:
        rows = run.scan("collectives", rank).filter(pl.col("name").str.contains("SendRecv"))
        found = rows.group_by("operation", "source").len().collect().rows_by_key("source")
        assert found.pop("host call") == [("all_to_all", 15)]
        assert found.pop("kernel name")[0][0] is None  # called before the trace: not known
        assert found == {}


def test_nothing_in_a_trace_is_evaluated(converted, tmp_path):
    touched = tmp_path / "touched"
    evil = EVIL.format(path=str(touched))
    keys = ("Input Dims", "Input type", "Concrete Inputs", "Process Group Ranks", "In split size")
    args = dict.fromkeys((*keys, "Group size", "correlation", "Sequence number"), evil)
    events = [
        {"ph": "X", "cat": cat, "name": evil, "pid": 0, "tid": 1, "ts": 1, "dur": 1, "args": args}
        for cat in ("cpu_op", "kernel", "cuda_runtime", "user_annotation", evil)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))
    result = tracekit.analyze(converted(path), engine="local:1")
    assert result.run.ranks
    assert not touched.exists()


class Touching:
    """Creates a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_never_loaded(converted, tmp_path):
    touched = tmp_path / "touched"
    (tmp_path / "rank0.json").write_bytes(pickle.dumps(Touching(touched)))
    with pytest.raises(InputError):
        converted(tmp_path / "rank0.json")
    assert not touched.exists()


def test_columns_are_plain_values_or_lists_of_whole_numbers():
    plain = {pl.Int64, pl.UInt64, pl.Float64, pl.String, pl.Boolean, pl.List(pl.Int64)}
    assert {dtype for table in TABLES.values() for dtype in table.schema.values()} <= plain


def test_cells_of_evidence_are_plain_values(four_ranks):
    result = tracekit.analyze(four_ranks("A"), engine="local:1")
    cells = [
        cell
        for found in result.findings
        for evidence in found.evidence
        for row in evidence.rows
        for cell in row
    ]
    assert cells
    assert {type(cell) for cell in cells} <= {int, float, str, bool, type(None)}
