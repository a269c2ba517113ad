"""What benchmarks read: a folder of ranks, single traces, and traces amplified to a size."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.amplified import amplified
from benchmarks.table import HEADING, Row, machine, print_section
from tracekit.api import found_runs
from tracekit.sample_traces import demo_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(slots=True, kw_only=True)
class Inputs:
    """Traces to measure with. Amplified ones are written when first asked for, into `folder`."""

    traces: Path
    files: tuple[Path, ...]
    large_mb: int
    huge_mb: int
    folder: Path
    _made: dict[int, Path] = field(default_factory=dict)

    def first_rank(self) -> Path:
        """The file of the first rank of the folder."""
        with found_runs([self.traces]) as listed:
            return listed.runs[0].files[0].path

    def large(self) -> Path:
        """One rank's trace of `large_mb` of JSON, gzipped."""
        return self._amplified(self.large_mb)

    def huge(self) -> Path:
        """One rank's trace of `huge_mb` of JSON, gzipped."""
        return self._amplified(self.huge_mb)

    def _amplified(self, size_mb: int) -> Path:
        if size_mb not in self._made:
            target = self.folder / f"amplified-{size_mb}.json.gz"
            amplified(self.first_rank(), target, size_mb * 10**6)
            self._made[size_mb] = target
        return self._made[size_mb]


@contextmanager
def inputs(description: str | None, arguments: Sequence[str] | None = None) -> Iterator[Inputs]:
    """What the command line asks for; amplified traces are removed at the end."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path, nargs="?", help="folder, a trace for each rank")
    parser.add_argument("--file", type=Path, action="append", help="trace of one rank; repeatable")
    parser.add_argument("--large", type=int, default=500, metavar="MB", help="default: 500")
    parser.add_argument("--huge", type=int, default=2000, metavar="MB", help="default: 2000")
    given = parser.parse_args(arguments)
    with demo_traces() as sample, tempfile.TemporaryDirectory(prefix="tracekit-") as temporary:
        chosen = Inputs(
            traces=given.traces or sample,
            files=tuple(given.file or ()),
            large_mb=given.large,
            huge_mb=given.huge,
            folder=Path(temporary),
        )
        chosen.files = chosen.files or (chosen.first_rank(),)
        yield chosen


def main(
    description: str | None,
    sections: dict[str, Callable[[Inputs], Iterator[Row]]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Print date, machine and one Markdown table."""
    with inputs(description, arguments) as chosen:
        print(f"{machine()}\n\n{HEADING}")
        for title, rows in sections.items():
            print_section(title, rows(chosen))
