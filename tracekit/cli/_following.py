"""The last steps of each rank of a running job, from the ends of the files that its ranks write."""

from __future__ import annotations

import os
import re
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median_high
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

N_STEPS = 20
"""Steps over which means are taken."""
MAX_JOBS = 8
"""Folders of other jobs that a hint names."""
TAIL_BYTES = 64 << 10
"""Read of a file at first: some 20 lines of the usual length."""
_ATTEMPT = re.compile(r"attempt=(\d+)")
_STEPS = re.compile(r"rank=(\d+)\.jsonl")
_FACTS = re.compile(r"rank=(\d+)\.json")


class _Host(msgspec.Struct, frozen=True, gc=False):
    n_waits: int
    n_preempted: int


class _Device(msgspec.Struct, frozen=True):
    """An earlier step as the device ran it; only of some the parts are timed."""

    dur_ns: int
    parts: dict[str, tuple[int, int, int, int]]


class _Line(msgspec.Struct, frozen=True):
    """What is read of one line."""

    step: int
    ended_ns: int
    dur_ns: int
    parts: dict[str, tuple[int, int, int, int]]
    host: _Host
    device: _Device | None = None


_decoder = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What is kept of it: `parts_ns` has the sum of each part."""

    dur_ns: int
    parts_ns: dict[str, int]
    n_waits: int
    n_preempted: int
    device_ns: int | None
    device_parts_ns: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank as last seen; means and sums are over its last `N_STEPS` steps.

    Before its first step has ended, and where it keeps no summary, `step` is null and `silent_ns`
    is since it began. `part` is that of the device where its parts are timed, and then
    `part_share` is one of its steps.
    """

    rank: int
    silent_ns: int
    has_summary: bool = True
    step: int | None = None
    mean_ns: float = 0.0
    device_ns: float | None = None
    part: str = ""
    part_share: float = 0.0
    part_is_on_device: bool = False
    waits_per_step: float = 0.0
    preempted_per_step: float = 0.0

    @property
    def step_ns(self) -> float:
        """What its current step takes at least, or its steps on average: what it holds up."""
        return max(self.silent_ns, self.mean_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A look at all ranks, that which holds up most first."""

    attempt: int
    world_size: int | None
    ranks: tuple[Rank, ...]
    took_s: float

    def others_step(self) -> int | None:
        """The last step of the rank in the middle; null before any has ended."""
        ended = [each.step for each in self.ranks if each.step is not None]
        return median_high(ended) if ended else None

    def behind(self) -> dict[int, int]:
        """By how many steps a rank is behind the others, those furthest behind first.

        One step is no lag, and neither are those that a job makes while the files are read.
        """
        others = self.others_step()
        stepped = [each for each in self.ranks if each.step is not None]
        if others is None:
            return {}
        usual_ns = median_high(each.mean_ns for each in stepped)
        allowed = 1 + self.took_s * 1e9 / max(usual_ns, 1)
        late = {each.rank: others - each.step for each in stepped if each.step is not None}
        return {
            rank: n_steps
            for rank, n_steps in sorted(late.items(), key=lambda item: (-item[1], item[0]))
            if n_steps > allowed
        }


@dataclass(slots=True)
class Following:
    """Follows the files of one attempt: `read` takes what is new."""

    folder: Path
    _tails: dict[int, _Tail] = field(default_factory=dict)
    _world_size: int | None = None

    def read(self) -> Seen:
        """Look at all ranks now."""
        began_s = time.monotonic()
        began = _files(self.folder / "ranks", _FACTS)
        for rank, path in _files(self.folder / "steps", _STEPS).items():
            self._tails.setdefault(rank, _Tail(path)).read()
        if self._world_size is None:
            self._world_size = next(filter(None, map(_world_size, began.values())), None)
        now_ns = time.time_ns()
        stepped = {rank: tail for rank, tail in self._tails.items() if tail.steps}
        ranks = [_rank(rank, tail, now_ns) for rank, tail in stepped.items()]
        for rank, path in began.items():
            if rank not in stepped:
                silent_ns = max(now_ns - path.stat().st_mtime_ns, 0)
                ranks.append(Rank(rank=rank, silent_ns=silent_ns, has_summary=rank in self._tails))
        return Seen(
            attempt=_number(self.folder),
            world_size=self._world_size,
            ranks=tuple(sorted(ranks, key=lambda each: (-each.step_ns, each.rank))),
            took_s=time.monotonic() - began_s,
        )


def attempt_folder(run_dir: Path, number: int | None) -> Path:
    """The folder of an attempt, by default of the newest.

    Raises:
        InputError: there is none.
    """
    found = {
        int(match[1]): path
        for path in run_dir.glob("attempt=*")
        if (match := _ATTEMPT.fullmatch(path.name))
    }
    if not found:
        raise InputError(
            f"{run_dir}: no job has recorded itself here: there is no attempt=0",
            hint=_where_jobs_are(run_dir),
        )
    if number is not None and number not in found:
        raise InputError(
            f"{run_dir}: there is no attempt {number}",
            hint=f"There are: {', '.join(map(str, sorted(found)))}",
        )
    return found[max(found) if number is None else number]


def _where_jobs_are(run_dir: Path) -> str:
    """Folders above or below that jobs have recorded themselves into."""
    if _ATTEMPT.fullmatch(run_dir.resolve().name):
        return f"Give the folder above it: {run_dir.parent}"
    below = sorted({str(path.parent) for path in run_dir.glob("*/attempt=*")})
    if below:
        return f"Jobs below: {', '.join(below[:MAX_JOBS])}"
    return "Give the folder that the job gives to tracekit.collect(run_dir)"


class _Tail:
    """The last steps of one file that grows, and is replaced by a new one when it is large."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path
        self._inode = self._offset = 0
        self.steps: deque[_Step] = deque(maxlen=N_STEPS)
        self.last: tuple[int, int] = (0, 0)

    def read(self) -> None:
        """Take the lines that are whole and new."""
        with (
            suppress(FileNotFoundError),
            self._path.open("rb") as file,
        ):  # gone while it is replaced
            status = os.fstat(file.fileno())
            if not self.steps and status.st_size < TAIL_BYTES:
                self._read_old()
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode = status.st_ino
                self._offset = max(status.st_size - TAIL_BYTES, 0)
            file.seek(self._offset)
            self._offset += self._take(file.read(max(status.st_size - self._offset, 0)))

    def _read_old(self) -> None:
        with suppress(FileNotFoundError), self._path.with_suffix(".old.jsonl").open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            self._take(file.read())

    def _take(self, read: bytes) -> int:
        """Keep what whole lines say, and give their bytes: the last may still be written.

        The first may be cut off in front: it is no JSON then.
        """
        whole, ended, _ = read.rpartition(b"\n")
        for text in whole.split(b"\n")[-N_STEPS:]:
            with suppress(msgspec.DecodeError):
                line = _decoder.decode(text)
                self.last = line.step, line.ended_ns
                self.steps.append(
                    _Step(
                        dur_ns=line.dur_ns,
                        parts_ns=_sums_ns(line.parts),
                        n_waits=line.host.n_waits,
                        n_preempted=line.host.n_preempted,
                        device_ns=line.device.dur_ns if line.device else None,
                        device_parts_ns=_sums_ns(line.device.parts) if line.device else {},
                    )
                )
        return len(whole) + len(ended)


def _rank(rank: int, tail: _Tail, now_ns: int) -> Rank:
    steps = tail.steps
    step, ended_ns = tail.last
    total_ns = sum(each.dur_ns for each in steps)
    on_device = [each.device_ns for each in steps if each.device_ns is not None]
    split = [each for each in steps if each.device_parts_ns]
    if split:
        part, part_ns = _largest(each.device_parts_ns for each in split)
        whole_ns = sum(each.device_ns or 0 for each in split)
    else:
        part, part_ns = _largest(each.parts_ns for each in steps)
        whole_ns = total_ns
    return Rank(
        rank=rank,
        silent_ns=max(now_ns - ended_ns, 0),
        step=step,
        mean_ns=total_ns / len(steps),
        device_ns=fmean(on_device) if on_device else None,
        part=part,
        part_share=part_ns / max(whole_ns, 1),
        part_is_on_device=bool(split),
        waits_per_step=sum(each.n_waits for each in steps) / len(steps),
        preempted_per_step=sum(each.n_preempted for each in steps) / len(steps),
    )


def _sums_ns(parts: dict[str, tuple[int, int, int, int]]) -> dict[str, int]:
    return {name: sum_ns for name, (_, sum_ns, _, _) in parts.items()}


def _largest(steps: Iterable[dict[str, int]]) -> tuple[str, int]:
    """The part that took longest over some steps, and how long."""
    parts_ns: Counter[str] = Counter()
    for each in steps:
        parts_ns.update(each)
    return max(parts_ns.items(), key=lambda item: item[1], default=("", 0))


def _files(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """Files of ranks in a folder that may not be there yet."""
    if not folder.is_dir():
        return {}
    return {
        int(match[1]): path for path in folder.iterdir() if (match := name.fullmatch(path.name))
    }


def _world_size(facts: Path) -> int | None:
    """What a rank says of the job; nothing while its file is empty."""
    with suppress(msgspec.DecodeError, FileNotFoundError):
        return int(msgspec.json.decode(facts.read_bytes())["world_size"])
    return None


def _number(folder: Path) -> int:
    match = _ATTEMPT.fullmatch(folder.name)
    assert match is not None
    return int(match[1])
