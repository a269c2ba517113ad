"""Operations of pipeline workers from Parquet: one file of many ranks."""

from __future__ import annotations

import polars as pl
import pytest

import tracekit
from tracekit.collectors import sniffed
from tracekit.collectors.pipeline_ops import peek
from tracekit.errors import InputError


def rows(n_dp=2, n_stages=2):
    """One forward of each worker, 1 s long, in step 7."""
    return [
        {
            "dp_rank": dp,
            "stage": stage,
            "rank": 4 * (stage * n_dp + dp),
            "step": 7,
            "optype": "forward-compute",
            "start_ts": 0.5 * stage,
            "duration": 1.0 + 0.25 * dp,
            "seq_id": 0,
            "mc": 0,
            "gmc": stage,
            "mb_id": -1,
        }
        for dp in range(n_dp)
        for stage in range(n_stages)
    ]


@pytest.fixture
def written(tmp_path):
    def write(frame, name="trace-X.parquet"):
        frame.write_parquet(tmp_path / name)
        return tmp_path / name

    return write


def frame(**changed):
    return pl.DataFrame(rows()).with_columns(pl.col("optype").cast(pl.Categorical), **changed)


def test_it_is_told_by_its_columns(written):
    assert sniffed(written(frame())).id == "pipeline-ops"
    assert sniffed(written(frame().drop("duration"), "other.parquet")) is None


def test_its_ranks_and_how_many_there_are_in_all(written):
    found = peek(written(frame()))
    assert (found.ranks, found.world_size, found.run_key) == ((0, 4, 8, 12), 16, "trace-X")


def test_each_rank_holds_its_operations_in_nanoseconds(written, tmp_path):
    run = tracekit.convert(written(frame()), tmp_path / "run", engine="local:1")
    assert run.ranks == (0, 4, 8, 12)
    assert run.manifest.world_size == 16
    assert run.manifest.missing_ranks == ()  # four ranks share the work of each worker
    (op,) = run.scan("ops", 12).collect().rows(named=True)
    times = (op["start_ns"], op["dur_ns"], op["end_ns"])
    assert times == (500_000_000, 1_250_000_000, 1_750_000_000)
    assert (op["dp"], op["stage"], op["step"], op["type"]) == (1, 1, 7, "forward-compute")
    assert op["micro_batch"] is None  # -1: it has none


def test_ends_are_rounded_as_the_type_of_the_file_rounds(written, tmp_path):
    single = frame(
        start_ts=pl.lit(40.123456, dtype=pl.Float32), duration=pl.lit(0.1, dtype=pl.Float32)
    )
    run = tracekit.convert(written(single), tmp_path / "run", engine="local:1")
    row = run.scan("ops", 0).collect().row(0, named=True)
    assert row["dur_ns"] == 100_000_001  # 0.1 in single precision
    assert row["end_ns"] - row["start_ns"] != row["dur_ns"]
    assert abs(row["end_ns"] - row["start_ns"] - row["dur_ns"]) < 4_000


def test_ranks_and_sequence_are_counted_where_the_file_has_none(written, tmp_path):
    path = written(frame().drop("rank", "seq_id", "mb_id"))
    run = tracekit.convert(path, tmp_path / "run", engine="local:1")
    assert run.ranks == (0, 1, 2, 3)
    assert run.scan_all("ops").select("sequence").collect()["sequence"].to_list() == [0] * 4


def test_two_files_of_one_folder_are_two_runs(written, tmp_path):
    path = written(frame())
    written(frame(), "trace-Y.parquet")
    run = tracekit.convert(path.parent, tmp_path / "out" / "run", run="trace-Y", engine="local:1")
    assert (run.manifest.name, run.manifest.other_runs) == ("trace-Y", ("trace-X",))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("duration", -1.0, "1 with a negative duration"),
        ("start_ts", None, "1 with no start"),
        ("duration", float("nan"), "1 with no duration"),
        ("optype", None, "1 with no type"),
    ],
)
def test_what_is_no_operation_is_said(written, tmp_path, column, value, said):
    wrong = pl.DataFrame(rows()[:1]).with_columns(pl.lit(value).alias(column))
    with pytest.raises(InputError, match=said):
        tracekit.convert(written(wrong), tmp_path / "run", engine="local:1")


def test_a_damaged_file_is_said(tmp_path):
    path = tmp_path / "cut.parquet"
    frame().write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20] + b"PAR1")
    with pytest.raises(InputError, match="damaged or cut off"):
        tracekit.convert(path, tmp_path / "run", engine="local:1")


def test_columns_that_another_parquet_file_lacks_are_named(written, tmp_path):
    path = written(frame().drop("duration", "stage"))
    with pytest.raises(InputError, match="without duration, stage") as caught:
        tracekit.convert(path, tmp_path / "run", engine="local:1")
    assert "Operations of pipeline workers" in caught.value.hint
