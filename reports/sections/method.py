"""Method: how the figures of this page were made, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replays import MAX_ERROR_SHARE
from tracekit.reports.first_screen import HOST_SENTENCE, REPLAY_SENTENCE
from tracekit.reports.mean_step import PARTS
from tracekit.reports.replayed import replay_alone
from tracekit.reports.templating import rendered
from tracekit.results import HOST_THREAD
from tracekit.units import Unit, text

if TYPE_CHECKING:
    from markupsafe import Markup

    from tracekit.results import Result

ORDER = 90
TITLE = "How these figures were made"


def render(result: Result, /) -> Markup | None:
    """Sources of steps and averages, and the formulas."""
    run = result.run
    return rendered(
        "method.html.j2",
        run=run,
        parts=PARTS,
        host_sentence=_device_sentence(result),
        has_replay=result.replay is not None,
        max_error=text(MAX_ERROR_SHARE, Unit.SHARE),
        clock=None if run.clock_error_ns is None else text(run.clock_error_ns, Unit.NS),
        version=result.tracekit_version,
        created=result.created,
        schema_version=result.schema_version,
    )


def _device_sentence(result: Result) -> str:
    """What stands for devices where none was recorded."""
    if replay_alone(result):
        return REPLAY_SENTENCE
    return HOST_SENTENCE if result.run.device_kind == HOST_THREAD else ""
