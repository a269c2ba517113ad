"""The HTML report: one file that needs no network, made from a result."""

from __future__ import annotations

import base64
import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tracekit.discovery import modules_of
from tracekit.reports import sections
from tracekit.reports.charts import numbers
from tracekit.reports.components import ranks_text
from tracekit.reports.first_screen import first_screen
from tracekit.reports.mean_step import faulty_ranks
from tracekit.reports.templating import asset, asset_names, rendered, visible

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tracekit.results import Result


class Section(Protocol):
    """What a module in `reports/sections` exports."""

    ORDER: int
    TITLE: str

    def render(self, result: Result, /) -> Markup | None:
        """The section's body; None leaves the section out."""


class Shown(NamedTuple):
    """A section as it stands on the page."""

    id: str
    title: str
    body: Markup


def report_html(result: Result, /) -> str:
    """The whole page as one self-contained document."""
    scripts = tuple(asset(name) for name in asset_names(".js"))
    shown = shown_sections(result)
    has_charts = any('<div class="chart"' in section.body for section in shown)
    plotly = Markup(get_plotlyjs() if has_charts else "")  # noqa: S704 - a library, not data
    page = rendered(
        "page.html.j2",
        title=visible(PurePath(result.source.path).name or result.source.path),
        result=result,
        policy=policy((*scripts, plotly)),
        styles=tuple(asset(name) for name in asset_names(".css")),
        scripts=scripts,
        plotly=plotly,
        numbers=numbers(result),
        first_screen=first_screen(result),
        sections=shown,
        has_filter=_has_filter(result),
        faulty=ranks_text(faulty_ranks(result), max_spans=64).replace("\u2013", "-"),
    )
    return str(page)


def write_report(result: Result, path: Path) -> None:
    """Write the page whole: to a temporary name first, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    # A lone surrogate from a broken trace has no UTF-8 form: it becomes visible text.
    temporary.write_bytes(report_html(result).encode("utf-8", "backslashreplace"))
    temporary.replace(path)


def section_modules() -> tuple[ModuleType, ...]:
    """Every module of `reports/sections`, by `ORDER`."""
    return tuple(sorted(modules_of(sections), key=lambda module: int(module.ORDER)))


def shown_sections(result: Result) -> tuple[Shown, ...]:
    """The sections that have something to say about this result, in their order."""
    shown = []
    for module in section_modules():
        body = module.render(result)
        if body is not None:
            section_id = module.__name__.rpartition(".")[2].replace("_", "-")
            shown.append(Shown(section_id, module.TITLE, body))
    return tuple(shown)


def policy(scripts: tuple[str, ...]) -> str:
    """The content security policy: no network, and no script but these."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _has_filter(result: Result) -> bool:
    """Whether there is something to choose from: ranks or steps that were measured."""
    is_measured = bool(result.breakdown or result.whole)
    return is_measured and (len(result.run.ranks) > 1 or len(result.run.steps) > 1)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
