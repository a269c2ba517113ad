"""Files behind folders, globs, lists and archives; what is no trace is named for what it is."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile

import pytest

from tracekit.collectors.sources import archives
from tracekit.collectors.sources.files import expanded, why_no_trace
from tracekit.errors import InputError


@pytest.fixture
def unpacked(tmp_path):
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    for name in ("b/2.json", "b/1.json", "a.json", ".hidden.json", ".git/x.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, "utf-8")
    return folder


def names(files, below):
    return [path.relative_to(below).as_posix() for path in files]


def tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as packed:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return path


def test_a_folder_gives_its_files_without_hidden_ones(source, unpacked):
    files, notes = expanded([source], unpacked)
    assert sorted(names(files, source)) == ["a.json", "b/1.json", "b/2.json"]
    assert notes == ()


def test_a_glob_gives_what_it_matches(source, unpacked):
    files, _ = expanded([f"{source}/**/[12].json"], unpacked)
    assert names(files, source) == ["b/1.json", "b/2.json"]


def test_a_name_that_looks_like_a_glob_is_a_name(tmp_path, unpacked):
    odd = tmp_path / "run[1]"
    odd.mkdir()
    (odd / "a.json").touch()
    assert expanded([odd], unpacked)[0] == [odd / "a.json"]


def test_a_file_given_twice_counts_once(source, unpacked):
    assert len(expanded([source / "a.json", source, source / "a.json"], unpacked)[0]) == 3


@pytest.mark.parametrize("path", ["nothing", "nothing/*.json", "x" * 5000, "a\0b"])
def test_a_path_that_names_nothing_is_an_error(tmp_path, unpacked, path):
    with pytest.raises(InputError):
        expanded([tmp_path / path], unpacked)


def test_a_link_to_a_folder_above_is_entered_once(source, unpacked):
    (source / "b" / "loop").symlink_to(source)
    (source / "gone.json").symlink_to(source / "nothing")
    assert len(expanded([source], unpacked)[0]) == 3


def test_output_of_tracekit_is_passed_over(source, unpacked):
    for name in (
        "run/manifest.json",
        "run/captures/rank=000000.json",
        "out/result.json",
        "out/run/x",
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    assert len(expanded([source], unpacked)[0]) == 3


def test_a_folder_with_a_manifest_of_another_tool_is_read(source, unpacked):
    (source / "b" / "manifest.json").touch()
    assert "b/1.json" in names(expanded([source], unpacked)[0], source)


def test_an_unreadable_folder_is_noted(source, unpacked, monkeypatch):
    def refuse(path):
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", refuse)
    files, notes = expanded([source], unpacked)
    assert names(files, source) == ["a.json"]
    assert notes == (f"{source / 'b'}: cannot be read: Permission denied",)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_gives_its_files(tmp_path, unpacked, mode):
    ending = mode.replace("w:", ".").replace("w", "")
    path = tar(tmp_path / f"traces.tar{ending}", {"t/r1.json": b"1", "t/r0.json": b"0"}, mode)
    files, _ = expanded([path], unpacked)
    assert [file.name for file in files] == ["r0.json", "r1.json"]
    assert [file.read_bytes() for file in files] == [b"0", b"1"]


def test_a_zip_gives_its_files(tmp_path, unpacked):
    with zipfile.ZipFile(tmp_path / "traces.zip", "w") as packed:
        packed.writestr("t/r0.json", "0")
        packed.writestr("__MACOSX/t/._r0.json", "x")
        packed.writestr("t/.DS_Store", "x")
    files, _ = expanded([tmp_path], unpacked)
    assert [file.name for file in files] == ["r0.json"]


def test_archives_of_one_name_stay_apart(tmp_path, unpacked):
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        tar(tmp_path / str(number) / "t.tar.gz", {"r.json": str(number).encode()})
    files, _ = expanded([tmp_path / "0", tmp_path / "1"], unpacked)
    assert [file.read_bytes() for file in files] == [b"0", b"1"]


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "."])
def test_a_member_outside_the_archive_is_refused(tmp_path, unpacked, name):
    path = tar(tmp_path / "t.tar.gz", {name: b"x"})
    with pytest.raises(InputError, match="outside"):
        expanded([path], unpacked)
    assert not list(tmp_path.rglob("evil.json"))


def test_links_in_an_archive_are_passed_over(tmp_path, unpacked):
    with tarfile.open(tmp_path / "t.tar", "w") as packed:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo(f"link{kind!r}")
            member.type, member.linkname = kind, "/etc/passwd"
            packed.addfile(member)
    assert expanded([tmp_path / "t.tar"], unpacked)[0] == []


def test_an_archive_that_unpacks_too_far_is_refused(tmp_path, unpacked, monkeypatch):
    monkeypatch.setattr(archives, "MIN_UNPACKED_BYTES", 1000)
    path = tar(tmp_path / "t.tar.gz", {"a.json": bytes(1 << 20)})
    with pytest.raises(InputError, match="200 times its size"):
        expanded([path], unpacked)
    assert not list(unpacked.rglob("*.json"))


def test_an_archive_of_too_many_members_is_refused(tmp_path, unpacked, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    path = tar(tmp_path / "t.tar.gz", {f"{number}.json": b"x" for number in range(4)})
    with pytest.raises(InputError, match="more than 3 files"):
        expanded([path], unpacked)


def test_a_cut_archive_gives_its_whole_members(tmp_path, unpacked):
    path = tar(tmp_path / "t.tar", {"0.json": b"0" * 9000, "1.json": b"1" * 9000}, "w")
    path.write_bytes(path.read_bytes()[:12_000])
    files, notes = expanded([path], unpacked)
    assert files[0].read_bytes() == b"0" * 9000
    assert "damaged" in notes[0]


@pytest.mark.parametrize("name", ["t.zip", "t.tar.gz", "t.tar"])
def test_a_file_that_only_ends_like_an_archive_is_a_file(tmp_path, unpacked, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08 no archive")
    assert expanded([tmp_path / name], unpacked)[0] == [tmp_path / name]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"<html>", "HTML page"),
        (b"SQLite format 3\0", "SQLite"),
        (b"\x80\x04\x95", "pickle"),
        (b'{"a": 1}', "JSON, but no trace"),
        (b"\x7fELF", "not a trace"),
        (b"\x1f\x8b\x08 no gzip at all", "empty"),
    ],
)
def test_what_is_no_trace_is_named_for_what_it_is(tmp_path, content, what):
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    assert what in why_no_trace(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert why_no_trace(tmp_path / "pipe.json") == "not a regular file"
