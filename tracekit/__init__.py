"""Find out why a multi-GPU training job is slow, from the traces it can already produce.

Importing this package loads nothing else: names of the Python interface come from `tracekit.api`
when they are first used, those for training loops from `tracekit.collectors.live`, so that a
training process that imports tracekit pays for no Polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.api import Finding, Result, analyze, convert, open_run
    from tracekit.collectors.live.handler import trace_handler
    from tracekit.collectors.live.hook import collect

    __version__: str

__all__ = [
    "Finding",
    "Result",
    "__version__",
    "analyze",
    "collect",
    "convert",
    "open_run",
    "trace_handler",
]
_LIVE = {"collect": "hook", "trace_handler": "handler"}
"""Names for training loops, and the modules of `tracekit.collectors.live` that have them."""


def __getattr__(name: str) -> Any:
    """Load a name of the interface on its first use."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - 10 ms that most imports never need

        return version("tracekit-gpu")
    if name in _LIVE:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"tracekit.collectors.live.{_LIVE[name]}"), name)
    if name in __all__:
        from tracekit import api  # noqa: PLC0415 - loads Polars

        return getattr(api, name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the interface, loaded or not."""
    return sorted({*globals(), *__all__})
