"""Method: how the figures of this page were made, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.findings import HOST_THREAD
from tracekit.reports.first_screen import HOST_SENTENCE
from tracekit.reports.mean_step import PARTS
from tracekit.reports.templating import rendered
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.findings import Result

ORDER = 90
TITLE = "How these figures were made"


def render(result: Result, /) -> Markup | None:
    """Sources of steps and averages, and the formulas."""
    run = result.run
    return rendered(
        "method.html.j2",
        run=run,
        parts=PARTS,
        host_sentence=HOST_SENTENCE if run.device_kind == HOST_THREAD else "",
        clock=None if run.clock_error_ns is None else text(run.clock_error_ns, Unit.NS),
        version=result.tracekit_version,
        created=result.created,
        schema_version=result.schema_version,
    )
