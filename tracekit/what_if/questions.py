"""Questions in words, as the command line takes them, and the change that each stands for.

`--scale WORK=FACTOR`: work takes FACTOR times as long. `--remove WHAT`: something is gone. WORK is
a class (kernel, transfer, copy, host), a class and a type (kernel:gemm, transfer:all_reduce), or a
type of operation alone (forward-compute); `@RANK` behind it limits it to one rank.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.derive.host_causes import host_calls
from tracekit.derive.host_kinds import CLASSES
from tracekit.derive.intervals import union
from tracekit.errors import UsageError
from tracekit.what_if.changes import chosen
from tracekit.what_if.peers import like_peers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.store import Run
    from tracekit.what_if.changes import Changes
    from tracekit.what_if.schedule import Ints

WORDS = {
    "kernel": "compute",
    "compute": "compute",
    "transfer": "communication",
    "communication": "communication",
    "copy": "copy",
    "host": "host",
}
"""Classes of work as a person calls them."""
SCALE_HINT = (
    "FACTOR is a number from 0 on: --scale kernel:gemm=0.5, --scale transfer=2, --scale host@3=0 "
    "or, of pipeline operations, --scale forward-compute=0.5."
)
STRAGGLER = "straggler"
MAX_FACTOR = 1e6
"""Larger factors leave nothing of the rest of a step to see, and far larger ones no number."""
REMOVABLE = (f"{STRAGGLER}:RANK", "sync[:NAME]", "transfer[:TYPE]", *CLASSES)
REMOVE_HINT = f"--remove takes {', '.join(REMOVABLE)}."
MAX_LISTED = 24
"""Names of a hint: a large job has thousands of ranks."""


def scaled(changes: Changes, question: str) -> Changes:
    """The job with `WORK=FACTOR` changed.

    Raises:
        UsageError: it is no such text, or names work that is not there.
    """
    match = re.fullmatch(r"(?P<work>[^=]+)=(?P<factor>[^=]+)", question.strip())
    factor = _number(match["factor"]) if match else None
    if match is None or factor is None:
        raise UsageError(
            f"--scale {question}: must be WORK=FACTOR, FACTOR a number from 0 to {MAX_FACTOR:,.0f}",
            hint=SCALE_HINT,
        )
    return changes.scaled(_work(changes, match["work"], f"--scale {question}"), factor)


def makes_usual(question: str) -> bool:
    """Whether a `--remove` gives work the time that others take, instead of less than it has."""
    return question.strip().partition(":")[0] == STRAGGLER


def removed(changes: Changes, question: str, run: Run) -> Changes:
    """The job without something.

    Raises:
        UsageError: it is nothing that can be removed, or is not there.
    """
    what, _, which = question.strip().partition(":")
    if what == STRAGGLER:
        if not re.fullmatch(r"\d{1,6}", which) or int(which) not in run.ranks:
            raise UsageError(
                f"--remove {question}: no rank {which!r} here",
                hint=f"Like --remove {STRAGGLER}:{run.ranks[0]}. {_ranks_hint(run.ranks)}",
            )
        if run.n_rows("ops"):
            return changes.usual(pl.col("rank") == int(which))
        _check_peers(changes, int(which), f"--remove {question}")
        # the mean that is usual has the straggler in it: of two ranks half of what it costs
        return like_peers(changes, run, [int(which)])
    if what == "sync":
        named = pl.col("name").str.contains(which, literal=True) if which else pl.lit(value=True)
        if not chosen(changes.replay.calls, named).any():
            raise UsageError(
                f"--remove {question}: no such blocking call was recorded",
                hint=_listed("Recorded were: ", changes.replay.calls["name"].unique().sort()),
            )
        return changes.without_waits(named)
    if what in ("transfer", "communication"):
        return changes.scaled(_work(changes, question, f"--remove {question}"), 0.0)
    if question in CLASSES:
        intervals = {rank: intervals_of(run, rank, question) for rank in run.ranks}
        if not any(map(len, intervals.values())):
            found = [name for name in CLASSES if _has_host_work(run, name)]
            raise UsageError(
                f"--remove {question}: no such host work was recorded",
                hint=_listed("Recorded was: ", found),
            )
        return changes.without_host(intervals)
    raise UsageError(f"--remove {question}: not known", hint=REMOVE_HINT)


def _work(changes: Changes, text: str, asked: str) -> pl.Expr:
    """Which work a text stands for."""
    name, at, rank = (part.strip() for part in text.partition("@"))
    word, colon, kind = name.partition(":")
    is_class = word in WORDS
    which = pl.col("class") == WORDS[word] if is_class else pl.col("type") == name
    if colon and is_class:  # an empty type is none, not all
        which &= pl.col("type") == kind
    if at:
        _check_rank(changes, rank, asked)
    work = changes.replay.work
    if not chosen(work, which).any():
        raise UsageError(f"{asked}: no such work here", hint=_listed("Here are: ", _names(work)))
    if at:
        which &= pl.col("rank") == int(rank)
    if not chosen(work, which).any():
        raise UsageError(f"{asked}: no such work on rank {rank}")
    return which


def _check_peers(changes: Changes, rank: int, asked: str) -> None:
    """Refuse a rank that no other can be compared with, step by step."""
    placed = changes.replay.work.select("rank", "step").drop_nulls().unique()
    own, others = (
        placed.filter(test)["step"].unique()
        for test in (pl.col("rank") == rank, pl.col("rank") != rank)
    )
    if not len(others):
        raise UsageError(
            f"{asked}: no other rank to compare it with", hint="Add its peers' traces."
        )
    if not set(own) & set(others):
        raise UsageError(
            f"{asked}: rank {rank} has no step in common with the others",
            hint="Record the same steps, with the same numbers (ProfilerStep#N), on all ranks.",
        )


def _check_rank(changes: Changes, text: str, asked: str) -> None:
    """Refuse what is no number of a rank that has work here."""
    known = changes.replay.work["rank"].drop_nulls().unique().sort().to_list()
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) not in known:
        raise UsageError(f"{asked}: no work of rank {text!r} here", hint=_ranks_hint(known))


def _names(work: pl.DataFrame) -> list[str]:
    """The kinds of work that are there, as --scale takes them."""
    known = work.select("class", "type").unique().sort("class", "type").rows()
    words = {meant: word for word, meant in reversed(WORDS.items())}
    return [words[c] if t == c else f"{words[c]}:{t}" for c, t in known]


def _listed(head: str, names: Iterable[str]) -> str:
    """A hint with the first of some names; empty where there are none."""
    names = list(names)
    more = f", … and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{head}{', '.join(names[:MAX_LISTED])}{more}." if names else ""


def _ranks_hint(ranks: Iterable[int]) -> str:
    return _listed("Ranks here: ", map(str, ranks))


def _has_host_work(run: Run, name: str) -> bool:
    return any(len(intervals_of(run, rank, name)) for rank in run.ranks)


def _number(text: str) -> float | None:
    if not re.fullmatch(r"[0-9.eE+-]+", text := text.strip()):  # float() takes 1_0 and nan too
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= MAX_FACTOR else None


def intervals_of(run: Run, rank: int, *names: str) -> Ints:
    """When the host of a rank did work of some classes: starts and ends, disjoint, in order."""
    rows = host_calls(run, rank).lazy().filter(pl.col("class").is_in(names))
    joined = union(rows.select("start_ns", "end_ns")).collect()
    return joined.to_numpy().astype(np.int64)
