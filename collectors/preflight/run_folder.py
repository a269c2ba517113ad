"""The folder that a recording is written to: whether it can be, how much fits, who can read it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.collectors.preflight import Answer, Check, Group, Machine, State

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30
LEAST_BYTES = GIB
"""A capture of three steps on eight ranks takes about as much."""
AMPLE_BYTES = 10 * GIB
PASSING = {
    "overlay": "goes with its container",
    "ramfs": "is in memory, and gone when the host restarts",
    "tmpfs": "is in memory, and gone when the host restarts",
}
SHARED = ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.", "gpfs", "lustre", "nfs", "wekafs")
"""How the names of file systems begin that several hosts see."""


def _look(machine: Machine) -> Iterator[Answer]:
    if machine.run_folder is None:
        return
    folder = Path(os.path.abspath(machine.run_folder))  # noqa: PTH100 - links are followed below
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not existing.is_dir():
        text = f"{existing} is a file, where a folder is needed."
        yield Answer(Group.RECORD, State.PROBLEM, text, "Name another folder")
        return
    yield _writing(existing)
    yield _space(existing)
    yield _kind(existing, file_system(machine, existing))


def _writing(existing: Path) -> Answer:
    """Tried, since modes and even access(2) say nothing of quotas and read-only mounts."""
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"tracekit")
            file.flush()
    except OSError as error:
        text = f"{existing} cannot be written: {error.strerror}."
        fix = "Name a folder of this user, on a file system that is not full or read-only"
        return Answer(Group.RECORD, State.PROBLEM, text, fix)
    return Answer(Group.RECORD, State.OK, f"{existing} can be written.")


def _space(existing: Path) -> Answer:
    free_bytes = shutil.disk_usage(existing).free
    text = f"{existing} has {free_bytes / GIB:.1f} GiB free."
    if free_bytes >= AMPLE_BYTES:
        return Answer(Group.RECORD, State.OK, text)
    state = State.NOTE if free_bytes >= LEAST_BYTES else State.PROBLEM
    return Answer(Group.RECORD, state, text, f"Free {AMPLE_BYTES // GIB} GiB, or name another")


def file_system(machine: Machine, path: Path) -> str:
    """The kind of the file system that holds a path; empty where it is not known."""
    mounted = ("", "")
    try:
        lines = (machine.proc / "self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:  # the last of two mounts on one point hides the first
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        if path.resolve().is_relative_to(point) and len(point) >= len(mounted[0]):
            mounted = (point, after.split()[0])
    return mounted[1]


def _kind(existing: Path, kind: str) -> Answer:
    if kind in PASSING:
        text = f"{existing} is on {kind}: what is recorded {PASSING[kind]}."
        fix = "Name a folder on a disk, or on a volume that outlives the job"
        return Answer(Group.RECORD, State.NOTE, text, fix)
    if kind.startswith(SHARED):
        return Answer(Group.RECORD, State.OK, f"{existing} is on {kind}, which hosts share.")
    text = f"{existing} is on {kind or 'an unknown file system'}: other hosts do not see it."
    return Answer(Group.RECORD, State.OK, text)


CHECK = Check(id="run-folder", look=_look)
