"""Ranks make different calls where all must make the same: the job hangs, or computes nonsense.

What it measures:
    From flight recorder dumps, calls with one number in a group that differ over ranks.

Formula:
    For each group and sequence number the operation, element types and (of operations that need
    equal ones) shapes of all ranks. At fault are the ranks that differ from most at the first such
    call. measured = calls that differ.

Threshold:
    Found when a call differs. Two ranks that differ from each other are told apart by nothing: the
    higher one is named, with low confidence.

Evidence:
    The first calls that differ, what each rank at fault called and what the others did; where it
    called, if stacks were recorded.

What-if saving:
    None: the job stands still or is wrong.

Recommendation:
    Look for a branch that only some ranks take, and for inputs whose shape depends on data.

References:
    https://pytorch.org/tutorials/prototype/flight_recorder_tutorial.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.derive.hangs import records
from tracekit.derive.mismatches import mismatches
from tracekit.detectors import Detector, finding, rank_list
from tracekit.findings import (
    Cause,
    Change,
    Column,
    Confidence,
    Evidence,
    Finding,
    Level,
    Recommendation,
    Severity,
    Status,
)
from tracekit.schema import FLIGHT_RECORDS
from tracekit.units import Quantity, Unit, limit

if TYPE_CHECKING:
    import polars as pl

    from tracekit.store import Run

MAX_ROWS = 32
ADVICE = Recommendation(
    "Find the branch that only some ranks take before this call, or the input whose shape depends "
    "on the data of the rank; torch checks every call against the others when told to.",
    Change.CODE,
    ("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How many calls must differ."""

    min_calls: int = limit(1, Unit.COUNT, "One call that differs is enough to stop a job.")


def detect(run: Run, limits: Limits, /) -> tuple[Finding, ...]:
    """One finding for the first call that differs."""
    rows = mismatches(run)
    n_calls = rows.select("label", "sequence").n_unique()
    shared: dict[str, Any] = {
        "measured": Quantity(n_calls, Unit.COUNT),
        "limit": Quantity(limits.min_calls, Unit.COUNT),
    }
    if n_calls < limits.min_calls:
        return (finding(DETECTOR, Status.CLEAR, **shared),)
    label, number = rows.row(0)[:2]
    first = rows.filter(label=label, sequence=number)
    ranks = tuple(first["rank"].to_list())
    called, others, what = first["value"][0], first["usual"][0], first["what"][0]
    n_ranks = records(run).filter(label=label, sequence=number, is_message=False)["rank"].n_unique()
    says = f"{called} where others call {others}"
    if what != "operation":
        says = f"a tensor of another {what} than others"
    return (
        finding(
            DETECTOR,
            Status.FOUND,
            title=f"Rank{'s' * (len(ranks) > 1)} {rank_list(list(ranks))} called {says}, in call "
            f"{number} of group {label}",
            severity=Severity.CRITICAL,
            cause=Cause.MISMATCHED_CALL,
            ranks=ranks,
            groups=(label,),
            confidence=_confidence(len(ranks), n_ranks),
            recommendation=ADVICE,
            evidence=(_calls(rows), *_stacks(first)),
            **shared,
        ),
    )


def _confidence(n_other: int, n_ranks: int) -> Confidence:
    if 2 * n_other >= n_ranks:
        return Confidence(Level.LOW, "as many ranks made the one call as the other")
    return Confidence(Level.HIGH, f"{n_ranks - n_other} of {n_ranks} ranks agree")


def _calls(rows: pl.DataFrame) -> Evidence:
    return Evidence(
        title="Calls that differ, the first one first",
        columns=(
            Column("group"),
            Column("number"),
            Column("rank"),
            Column("what differs"),
            Column("this rank"),
            Column("most ranks"),
        ),
        rows=tuple(
            rows.select("label", "sequence", "rank", "what", "value", "usual")
            .head(MAX_ROWS)
            .iter_rows()
        ),
    )


def _stacks(first: pl.DataFrame) -> tuple[Evidence, ...]:
    known = first.drop_nulls("stack").head(MAX_ROWS)
    if known.is_empty():
        return ()
    return (
        Evidence(
            title="Where these ranks called",
            columns=(Column("rank"), Column("stack, innermost first")),
            rows=tuple(known.select("rank", "stack").iter_rows()),
        ),
    )


DETECTOR = Detector(
    id="collective-mismatch",
    title="Ranks make different calls",
    clear="All ranks make the same calls",
    needs=(FLIGHT_RECORDS,),
    how="Dumps of the flight recorder of all ranks hold each call: set TORCH_FR_BUFFER_SIZE=2000, "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_DUMP_TEMP_FILE=/shared/folder/rank_ before the job.",
    min_ranks=2,
    limits=Limits,
    detect=detect,
)
