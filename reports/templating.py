"""Templates of the page: every value that goes into one is escaped."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).parent

# Inside <script> the parser knows no entities: "</script>" ends the element wherever it stands.
_SCRIPT_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}

# What a browser would obey rather than show: a command with a bidirectional override reads
# differently from what is copied. Control characters, lone surrogates, bidirectional controls.
_HIDDEN = dict.fromkeys(
    (
        *(code for code in range(0x20) if chr(code) not in "\t\n"),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    ),
    "\ufffd",
)


def visible(value: str) -> str:
    """The text with every character replaced that would act instead of being seen."""
    return value.translate(_HIDDEN)


def rendered(template: str, **values: object) -> Markup:
    """The named template, filled in."""
    html = _environment().get_template(template).render(values)
    return Markup(html)  # noqa: S704 - autoescape is on: the template has escaped every value


def script_json(value: object) -> Markup:
    """JSON that is safe inside a `<script>` element and reads back as the same value."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(encoded.translate(_SCRIPT_ESCAPES))  # noqa: S704 - escaped in this line


def asset(name: str) -> Markup:
    """A stylesheet or script of this package, to be put into the page as it is."""
    text = (FOLDER / "assets" / name).read_text("utf-8")
    return Markup(text)  # noqa: S704 - a file of this package, not data


def asset_names(suffix: str) -> tuple[str, ...]:
    """Names of all assets with this suffix, sorted."""
    return tuple(sorted(path.name for path in (FOLDER / "assets").glob(f"*{suffix}")))


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
