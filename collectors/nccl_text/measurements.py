"""Tables that nccl-tests and rccl-tests print, or write as JSON: rows of `bandwidth_baselines`.

Columns are found by the table's own heading, since versions differ in them. Old versions do not
print which operation they test: then it is the program's name, where that stands in the log, else
what busbw / algbw and the columns leave open for one operation alone.

Formats: NVIDIA/nccl-tests, src/common.cu and src/util.cu; factors: its doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

US_NS = 1000
MAX_ROWS = 100_000
PRECISION = 0.02
"""How well a ratio of bandwidths is known that are printed with two digits."""
_PROGRAM = re.compile(r"\b([a-z_]{3,30})_perf\b")
_START = re.compile(r"#\s*nThreads?:? \d+ nGpus:? \d+")
"""nccl-tests "nThread 1", rccl-tests "nThreads: 1"."""
_DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,7}) (?:Group\s+(\d{1,7}) )?Pid\s+\d+ on\s+(\S{1,255}) device\s+\d+ "
    r"\[[^\]]*\] (.{1,100})"
)
_HEADING = re.compile(r"#\s+size\s+count\s+.*\btime\s+algbw\s+busbw\b")
_ROW = re.compile(r"\s*\d{1,19}\s+\d{1,19}\s+[a-z]")
_OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send_recv",
    "hypercube": "hypercube",
}
"""Names of ours by those of the programs."""
_SIDE = ("time", "algbw", "busbw")
_WRONG = ("#wrong", "error")


@dataclass(slots=True)
class Test:
    """One run of a test program: which operation, among which ranks, and what it measured."""

    operation: str | None = None
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    heading: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)

    def measured(self) -> list[dict[str, Any]]:
        """Rows of the table; of hosts the order of ranks."""
        hosts = list(dict.fromkeys(host for host, _ in self.ranks.values()))
        facts = {
            "operation": self.operation or _inferred(self),
            "n_ranks": len(self.ranks) or None,
            "n_nodes": len(hosts) or None,
            "hosts": ",".join(hosts) or None,
            "gpu_model": next(iter(self.ranks.values()))[1] if self.ranks else None,
        }
        return [
            facts | {k: v for k, v in row.items() if k not in {"redop", "root"}}
            for row in self.rows
        ]


@dataclass(slots=True)
class Tests:
    """All tests of a log so far."""

    tests: list[Test] = field(default_factory=list)
    n_damaged: int = 0
    _program: str | None = None

    def hear(self, text: str) -> None:
        """Take in a line that is not NCCL's."""
        if "_perf" in text and (named := _PROGRAM.findall(text)):
            self._program = _OPERATIONS.get(named[-1])
        if text.lstrip().startswith("#"):
            self._heading(text)
        elif self.tests and self.tests[-1].heading and _ROW.match(text):
            self._row(text)

    def _heading(self, text: str) -> None:
        if _START.search(text):
            self.tests.append(Test(operation=self._program))
            self._program = None  # of the next one, which may not name itself
        elif self.tests and (match := _DEVICE.search(text)) is not None:
            # with NCCL_TESTS_SPLIT each group is tested by itself, among its own ranks
            self.tests[-1].ranks[int(match[1])] = (match[3], match[4].strip())
        elif _HEADING.search(text):
            if not self.tests:
                self.tests.append(Test(operation=self._program))
            self.tests[-1].heading = tuple(text.replace("#wrong", "error").strip("# \t").split())

    def _row(self, text: str) -> None:
        test = self.tests[-1]
        rows = _sides(test.heading, text.split())
        if not rows:
            self.n_damaged += 1
        elif len(test.rows) < MAX_ROWS:
            test.rows += rows

    def measured(self) -> list[dict[str, Any]]:
        """Rows of the table, of all tests."""
        return [row for test in self.tests for row in test.measured()]


def _sides(heading: tuple[str, ...], words: list[str]) -> list[dict[str, Any]]:
    """What a row says out of place and in place; nothing where it is torn."""
    first = heading.index("time")
    if len(words) < len(heading):
        return []
    place = dict(zip(heading[:first], words[:first], strict=True))
    shared = {
        "size_bytes": int(place["size"]),
        "dtype": place.get("type"),
        "redop": place.get("redop", "none"),
        "root": place.get("root", "-1"),
    }
    starts = [number for number, name in enumerate(heading) if name == "time"]
    found = []
    for is_in_place, (start, end) in enumerate(pairwise([*starts, len(heading)])):
        side = dict(zip(heading[start:end], words[start:end], strict=True))
        numbers = [_number(side.get(name)) for name in _SIDE]
        if any(number is None for number in numbers):
            continue  # all-to-all in place, in old versions
        wrong = next((_number(side[name]) for name in _WRONG if name in side), None)
        found.append(shared | _measured(numbers, wrong, is_in_place=bool(is_in_place)))
    return found


def _measured(
    numbers: list[float | None], wrong: float | None, *, is_in_place: bool
) -> dict[str, Any]:
    time_us, algbw, busbw = numbers
    return {
        "time_ns": None if time_us is None else round(time_us * US_NS),
        "algbw_gb_per_s": algbw,
        "busbw_gb_per_s": busbw,
        "is_in_place": is_in_place,
        "n_wrong": None if wrong is None else round(wrong),
    }


def _number(word: object) -> float | None:
    """A finite number of bounded size; null for N/A."""
    try:
        value = float(str(word)[:32])
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None  # also false for nan


def _inferred(test: Test) -> str | None:
    """The one operation that the ratio of bandwidths and the columns leave; else null.

    Of two ranks every factor but (n - 1)/n is 1, so that nothing can be said.
    """
    largest = max(test.rows, key=lambda row: row["algbw_gb_per_s"], default=None)
    n = len(test.ranks)
    if largest is None or not 2 < n < 1 / PRECISION or largest["algbw_gb_per_s"] < 1:
        return None
    ratio = largest["busbw_gb_per_s"] / largest["algbw_gb_per_s"]
    is_summed, has_root = largest["redop"] != "none", largest["root"] != "-1"
    if abs(ratio - 2 * (n - 1) / n) < PRECISION:
        return "all_reduce"
    if abs(ratio - 1) < PRECISION:
        with_root = "reduce" if is_summed else "broadcast"
        return with_root if has_root else "send_recv"
    if abs(ratio - (n - 1) / n) < PRECISION and not has_root:  # gather and scatter look alike
        return "reduce_scatter" if is_summed else _gathered(test)
    return None


def _gathered(test: Test) -> str | None:
    """All-gather or all-to-all. Of the latter elements are not checked in place.

    All-gather printed no reduction before 2022.
    """
    checked = {
        is_in: {row["n_wrong"] is not None for row in test.rows if row["is_in_place"] is is_in}
        for is_in in (False, True)
    }
    if "redop" not in test.heading or checked[True] == {True}:
        return "all_gather"
    return "all_to_all" if checked[False] == {True} else None


def from_json(document: dict[str, Any]) -> Tests:
    """Tests of a file that -J wrote; what is of another kind in it is passed over."""
    args = document.get("args")
    program = str(args[0]) if isinstance(args, list) and args else ""
    named = _PROGRAM.findall(program)
    test = Test(operation=_OPERATIONS.get(named[-1]) if named else None)
    for device in _dicts(document.get("devices")):
        rank, host = device.get("rank"), device.get("hostname")
        if isinstance(rank, int) and isinstance(host, str):
            test.ranks[rank] = (host, str(device.get("device_info", ""))[:100].strip())
    damaged = 0
    for row in _dicts(document.get("results"))[:MAX_ROWS]:
        size = row.get("size")
        if not isinstance(size, int) or not 0 <= size < 1 << 62:
            damaged += 1
            continue
        shared = {
            "size_bytes": size,
            "dtype": str(row.get("type"))[:20],
            "redop": str(row.get("redop", "none")),
            "root": str(row.get("root", "-1")).strip(),
        }
        for number, name in enumerate(("out_of_place", "in_place")):
            side = row.get(name)
            if isinstance(side, dict):
                keys = ("time" if "time" in side else "cpu_time", "alg_bw", "bus_bw")
                numbers = [_number(side.get(key)) for key in keys]
                if None not in numbers:
                    wrong = _number(side.get("nwrong"))
                    test.rows.append(shared | _measured(numbers, wrong, is_in_place=bool(number)))
    return Tests(tests=[test], n_damaged=damaged)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
