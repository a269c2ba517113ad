"""A recorded job that stood still: the dumps of its ranks join the last window of its attempt.

A recorder writes a pickle where a job seems to hang. One that went on has written later dumps as
JSON, at the end of a window, and those of ranks that run are no sign of anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.collectors import Options, RankFile
from tracekit.collectors.flight_recorder import COLLECTOR as FLIGHT_RECORDER
from tracekit.collectors.flight_recorder import peek
from tracekit.collectors.kineto import COLLECTOR as KINETO
from tracekit.collectors.sources.besides import identities, with_besides
from tracekit.collectors.sources.windows import rank_of, windows
from tracekit.store import Capture, capture_path, read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.collectors.sources.windows import WindowFolder

FOLDER = "flight_recorder"
_OF_A_HANG = ".pickle"


def hang_dumps(attempt: Path) -> dict[int, Path]:
    """The latest dump of each rank; none where all ranks have gone on since they seemed to hang."""
    folder = attempt / FOLDER
    if not any(folder.glob(f"rank=*{_OF_A_HANG}")):
        return {}
    latest: dict[int, tuple[tuple[int, ...], Path]] = {}
    for path in sorted(folder.glob("rank=*")):
        if path.suffix in {_OF_A_HANG, ".json"}:
            taken = (peek(path).snapshot, path)
            latest[rank_of(path)] = max(latest.get(rank_of(path), taken), taken)
    found = {rank: path for rank, (_, path) in latest.items()}
    return found if any(path.suffix == _OF_A_HANG for path in found.values()) else {}


def join_hang_dumps(window: WindowFolder, epoch_ns: int) -> str | None:
    """Add the dumps of a hang to the last window; says where they lie if they cannot be added."""
    attempt = window.folder.parent
    own = [each for each in windows(attempt.parent) if each.attempt == window.attempt]
    dumps = hang_dumps(attempt) if own and own[-1].folder == window.folder else {}
    paths = {rank: capture_path(window.folder, rank) for rank in dumps}
    if not all(path.is_file() for path in paths.values()):
        return f"dumps of a job that stands still: tracekit analyze {attempt / FOLDER}"
    for rank, dump in dumps.items():
        capture = read_json(paths[rank], Capture)
        also = ((FLIGHT_RECORDER.id, dump),)
        file = RankFile(path=dump, rank=rank, rank_source=capture.rank_source, also=also)
        if capture.beside != identities(file):
            options = Options(epoch_ns=epoch_ns)
            joined = with_besides(KINETO, capture, file, window.folder, options)
            write_json(paths[rank], joined)
    return None
