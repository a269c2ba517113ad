"""CPU seconds of each stage of one analysis in one process, and of tracekit's own functions.

Run:
    python -m benchmarks.stages_profile TRACES EMPTY_FOLDER      # prints JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EVERY_S = 0.001
_OURS = tuple(f"{os.sep}{name}{os.sep}" for name in ("tracekit", "collectors", "reports"))


class Profile:
    """CPU time by function: what passed since the last sample goes to our innermost function.

    So the time that Polars, msgspec or pyarrow take for a function counts as the function's.
    """

    def __init__(self) -> None:
        """Nothing sampled yet."""
        self.cpu_s: Counter[str] = Counter()
        self._last_s = 0.0

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        now_s = time.process_time()
        while frame is not None and not _is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"
            self.cpu_s[name.partition(".<locals>")[0]] += now_s - self._last_s
        self._last_s = now_s

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample for as long as the block runs."""
        self._last_s = time.process_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _is_ours(path: str) -> bool:
    return "site-packages" not in path and any(part in path for part in _OURS)


def staged(traces: Path, folder: Path) -> dict[str, float]:
    """CPU seconds of start, convert, derive, detect and render, in this order."""
    from tracekit import api  # noqa: PLC0415 - its import is the first stage
    from tracekit.analysis import _derive_rank  # noqa: PLC0415 - the stage as the command runs it
    from tracekit.config import Config  # noqa: PLC0415
    from tracekit.derive.averages import breakdowns  # noqa: PLC0415
    from tracekit.derive.waits import waits  # noqa: PLC0415
    from tracekit.detectors import detectors, findings_of  # noqa: PLC0415
    from tracekit.reports.render import write_report  # noqa: PLC0415

    at_s = [0.0, time.process_time()]
    run = api.convert(traces, folder / "run", engine="local:1")
    at_s.append(time.process_time())
    waits(run)
    for rank in run.ranks:
        _derive_rank(run, rank)
    breakdowns(run)
    at_s.append(time.process_time())
    for detector in detectors().values():
        findings_of(detector, run, Config())
    at_s.append(time.process_time())
    result = api.analyze(run, engine="local:1")  # detects again, to have a whole result
    begun_s = time.process_time()
    write_report(result, folder / "report.html")
    render_s = time.process_time() - begun_s
    names = ("start and imports", "convert", "derive", "detect")
    spent = {name: b - a for name, a, b in zip(names, at_s, at_s[1:], strict=False)}
    return spent | {"render": render_s}


def main() -> None:
    """Print stages from a run without profile, functions from one with it."""
    traces, folder = map(Path, sys.argv[1:])
    stages = staged(traces, folder / "plain")
    profile = Profile()
    with profile.running():
        staged(traces, folder / "profiled")
    print(json.dumps({"stages": stages, "functions": profile.cpu_s.most_common()}))


if __name__ == "__main__":
    main()
