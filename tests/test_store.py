"""A run on disk: written whole or not at all, and readable whatever else lies there."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.errors import InputError, SchemaError
from tracekit.schema import KERNELS, SCHEMA_VERSION, TABLES
from tracekit.store import (
    Capture,
    Manifest,
    Run,
    SourceIdentity,
    TableWriter,
    is_free,
    is_run,
    open_run,
    rank_path,
    read_json,
    remove_run,
    write_json,
)


def rows(table, starts):
    """Rows of a table that start at these ns; all else is null."""
    empty = TABLES[table].empty().clear(len(starts))
    return empty.with_columns(start_ns=pl.Series(starts, dtype=pl.Int64))


def capture(rank, **changes):
    source = SourceIdentity(path=f"r{rank}.json", size_bytes=1, modified_ns=1)
    facts = {"rank": rank, "rank_source": "test", "source": source, "collector": "kineto"}
    return Capture(**facts, code="1", epoch_ns=0, **changes)


def manifest(*captures):
    return Manifest(
        tracekit_version="1",
        name="run",
        source="traces",
        epoch_ns=0,
        world_size=len(captures),
        captures=captures,
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def test_tables_appear_when_the_writer_is_closed(folder):
    writer = TableWriter(folder, 3)
    writer.write("kernels", rows("kernels", [1, 2]))
    writer.append("cpu_ops", rows("cpu_ops", [5]))
    assert not list(folder.rglob("*.parquet"))
    writer.close()
    assert sorted(path.parent.name for path in folder.rglob("rank=000003.parquet")) == [
        "cpu_ops",
        "kernels",
    ]
    assert writer.n_rows == {"kernels": 2, "cpu_ops": 1}


def test_a_discarded_writer_leaves_nothing(folder):
    writer = TableWriter(folder, 0)
    writer.write("kernels", rows("kernels", [1]))
    writer.discard()
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_writer_removes_what_a_killed_one_left_of_its_rank(folder):
    for rank in (0, 1):
        writer = TableWriter(folder, rank)
        writer.write("kernels", rows("kernels", [1]))  # and never closed
    TableWriter(folder, 0).close()
    assert [path.name for path in folder.rglob("*.tmp")] == ["rank=000001.tmp"]


def test_a_table_that_is_empty_now_loses_its_old_file(folder):
    for starts in ([1], []):
        writer = TableWriter(folder, 0)
        writer.write("kernels", rows("kernels", starts))
        writer.close()
    assert not rank_path(folder, "kernels", 0).exists()


def test_host_rows_are_sorted_inside_each_group(folder, monkeypatch):
    monkeypatch.setattr("tracekit.store.ROWS_PER_GROUP", 3)
    writer = TableWriter(folder, 0)
    for start in (3, 1, 2, 9, 7, 8, 5):
        writer.append("cpu_ops", rows("cpu_ops", [start]))
    writer.close()
    starts = pl.read_parquet(rank_path(folder, "cpu_ops", 0))["start_ns"].to_list()
    assert starts == [1, 2, 3, 7, 8, 9, 5]


def test_rows_of_another_schema_are_refused(folder):
    with pytest.raises(SchemaError, match=r"kernels.*dur_ns: missing"):
        TableWriter(folder, 0).write("kernels", rows("kernels", [1]).drop("dur_ns"))


def test_a_run_reads_what_was_written(folder):
    writer = TableWriter(folder, 0)
    writer.write("kernels", rows("kernels", [4, 5]))
    writer.close()
    write_json(folder / "manifest.json", manifest(capture(0, n_rows=writer.n_rows), capture(1)))
    run = open_run(folder)
    assert run.ranks == (0, 1)
    assert run.n_rows("kernels") == 2
    assert run.scan("kernels", 1).collect_schema() == KERNELS.schema
    assert run.scan_all("kernels").select("rank", "start_ns").collect().rows() == [(0, 4), (0, 5)]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 1000])
def test_a_damaged_table_is_named(folder, content):
    path = rank_path(folder, "kernels", 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"rank=000000\.parquet: cannot be read") as error:
        Run(folder, manifest(capture(0))).scan("kernels", 0)
    assert "\n" not in error.value.message


def test_a_table_that_was_written_and_is_gone_is_no_empty_one(folder):
    with pytest.raises(InputError, match="cannot be read"):
        Run(folder, manifest(capture(0, n_rows={"kernels": 5}))).scan("kernels", 0)


def test_a_table_of_another_schema_is_named(folder):
    path = rank_path(folder, "kernels", 0)
    path.parent.mkdir(parents=True)
    pl.DataFrame({"start_ns": ["x"]}).write_parquet(path)
    with pytest.raises(SchemaError, match="start_ns: String, not Int64"):
        Run(folder, manifest(capture(0))).scan("kernels", 0)


def test_no_manifest_is_no_run(folder):
    assert not is_run(folder)
    with pytest.raises(InputError, match="not a run") as error:
        open_run(folder)
    assert "tracekit convert" in error.value.hint


@pytest.mark.parametrize("content", ["", "{", "null", "[]", "{}", "\x00", "[" * 99_999])
def test_a_damaged_manifest_is_one_line(folder, content):
    folder.mkdir()
    (folder / "manifest.json").write_text(content, "utf-8")
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read") as error:
        open_run(folder)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("ranks", [(), (0, 0), (-1,)])
def test_a_manifest_lists_each_rank_once(folder, ranks):
    write_json(folder / "manifest.json", manifest(*map(capture, ranks)))
    with pytest.raises(InputError, match="at least one rank, and each once"):
        open_run(folder)


def test_a_run_of_another_schema_version_is_refused(folder):
    write_json(folder / "manifest.json", manifest(capture(0)))
    path = folder / "manifest.json"
    other = path.read_text().replace(f": {SCHEMA_VERSION},", ": 99,", 1)
    path.write_text(other)
    with pytest.raises(InputError, match=f"schema version 99, not {SCHEMA_VERSION}"):
        open_run(folder)


def test_json_that_says_the_same_is_not_written_again(folder):
    path = folder / "a.json"
    write_json(path, capture(0))
    before = path.stat().st_mtime_ns
    write_json(path, capture(0))
    assert path.stat().st_mtime_ns == before
    write_json(path, capture(1))
    assert read_json(path, Capture) == capture(1)


def test_a_place_is_free_where_only_a_run_lies(folder):
    assert is_free(folder)
    (folder / "kernels").mkdir(parents=True)
    (folder / "manifest.json").touch()
    assert is_free(folder)
    (folder / "thesis.tex").touch()
    assert not is_free(folder)


def test_removing_a_run_leaves_what_is_not_its_own(folder):
    writer = TableWriter(folder, 0)
    writer.write("kernels", rows("kernels", [1]))
    writer.close()
    write_json(folder / "manifest.json", manifest(capture(0)))
    (folder / "thesis.tex").touch()
    remove_run(folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
