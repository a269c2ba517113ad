"""What a run would take if something in it were different: replay of its operations as a graph.

`schedule` is the engine: longest paths, for many scenarios at once. Each input has a module that
makes the graph from what was recorded: `pipeline` from coarse operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.what_if.pipeline import pipeline
from tracekit.what_if.slowdowns import slowdowns

if TYPE_CHECKING:
    from tracekit.replays import Slowdowns
    from tracekit.store import Run

__all__ = ["replayed"]


def replayed(run: Run) -> Slowdowns | None:
    """The slowdowns of a run by stragglers; None where nothing was recorded that can be replayed.

    Raises:
        InputError: what was recorded cannot be a schedule.
    """
    if not run.n_rows("ops"):
        return None
    return slowdowns(pipeline(run.scan_all("ops").collect()))
