"""The windows of a recording: `RUN_DIR/attempt=0/step=00000010/` is one, and becomes a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracekit.collectors.kineto import COLLECTOR
from tracekit.errors import InputError, UsageError
from tracekit.store import RAW, Capture, capture_path, read_json

JOB = "job.json"
_RANK = "rank=" + "[0-9]" * 6
_RECORD_HINT = "Record with tracekit.collect(run_dir) around the training loop."


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFolder:
    """One window of a recording: the folder of its run, its attempt and its first step."""

    folder: Path
    attempt: int
    step: int

    @property
    def name(self) -> str:
        """What `--run` calls it."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def raw(self) -> tuple[Path, ...]:
        """Traces that are not converted yet or are kept, by rank; those cut off by a kill too."""
        whole = {rank_of(path): path for path in (self.folder / RAW).glob(f"{_RANK}.json")}
        cut = {rank_of(path): path for path in (self.folder / RAW).glob(f"{_RANK}.json.tmp*")}
        return tuple(path for _, path in sorted((cut | whole).items()))

    @property
    def waiting(self) -> tuple[int, ...]:
        """Ranks that are not converted yet."""
        return tuple(rank_of(path) for path in self.raw if not is_converted(self, path))


def is_recording(folder: Path) -> bool:
    """Whether a hook recorded there."""
    return any(folder.glob(f"attempt=*/{JOB}"))


def windows(folder: Path) -> tuple[WindowFolder, ...]:
    """Windows of a recording that hold anything, in order of attempt and step."""
    found = []
    for path in folder.glob("attempt=*/step=*"):
        attempt, step = (part.name.partition("=")[2] for part in (path.parent, path))
        if attempt.isdecimal() and step.isdecimal():
            window = WindowFolder(folder=path, attempt=int(attempt), step=int(step))
            if window.raw or any((path / "captures").glob("*.json")):
                found.append(window)
    return tuple(sorted(found, key=lambda window: (window.attempt, window.step)))


def picked(folder: Path, name: str | None) -> WindowFolder:
    """The window of that name, or the last one.

    Raises:
        InputError: nothing has been recorded.
        UsageError: no window is called so.
    """
    found = windows(folder)
    if not found:
        dumps = sorted(folder.glob("attempt=*/flight_recorder"))
        hint = f"See where it stands: tracekit analyze {dumps[-1]}" if dumps else _RECORD_HINT
        raise InputError(f"{folder}: recorded nothing yet: {_why_nothing(folder)}", hint=hint)
    if name is None:
        return found[-1]
    for window in found:
        if window.name == name:
            return window
    names = ", ".join(window.name for window in found)
    raise UsageError(f"--run {name}: no such window", hint=f"Windows here: {names}")


def is_converted(window: WindowFolder, path: Path) -> bool:
    """Whether a trace that was kept has been converted, by this version."""
    capture = capture_of(window, path)
    # behind the "+" stands by whom files beside it were read
    return capture is not None and capture.code.partition("+")[0] == COLLECTOR.code()


def capture_of(window: WindowFolder, path: Path) -> Capture | None:
    """What a conversion of this very trace has found, by any version."""
    try:
        capture = read_json(capture_path(window.folder, rank_of(path)), Capture)
        stat = path.stat()
    except (InputError, OSError):
        return None
    source = (capture.source.size_bytes, capture.source.modified_ns)
    return capture if source == (stat.st_size, stat.st_mtime_ns) else None


def rank_of(path: Path) -> int:
    """The rank that a file of a window is named after."""
    return int(path.name[len("rank=") : len("rank=") + 6])


def _why_nothing(folder: Path) -> str:
    ranks = list(folder.glob("attempt=*/ranks/*.json"))
    return f"{len(ranks)} ranks began, and none came to its first window"
