"""Find out why a multi-GPU training job is slow, from the traces it can already produce.

Importing this package loads nothing else: names of the Python interface come from `tracekit.api`
when they are first used, so a training process that imports tracekit pays for no Polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.api import Finding, Result, analyze, convert, open_run

    __version__: str

__all__ = ["Finding", "Result", "__version__", "analyze", "convert", "open_run"]


def __getattr__(name: str) -> Any:
    """Load a name of the interface on its first use."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - 10 ms that most imports never need

        return version("tracekit-gpu")
    if name in __all__:
        from tracekit import api  # noqa: PLC0415 - loads Polars

        return getattr(api, name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the interface, loaded or not."""
    return sorted({*globals(), *__all__})
