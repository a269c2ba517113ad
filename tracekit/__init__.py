"""Find out why a multi-GPU training job is slow, from the traces it can already produce.

Importing this package loads nothing else: names of the Python interface come from `tracekit.api`
when they are first used, those for training loops from `tracekit.collectors.live`, so that a
training process that imports tracekit pays for no Polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.api import Finding, Result, analyze, convert, open_run, replay
    from tracekit.collectors.callbacks.accelerate import AccelerateCollection  # noqa: F401
    from tracekit.collectors.callbacks.hugging_face import (
        TracekitCallback as TransformersCallback,  # noqa: F401
    )
    from tracekit.collectors.callbacks.lightning import (
        TracekitCallback as LightningCallback,  # noqa: F401
    )
    from tracekit.collectors.live.handler import trace_handler
    from tracekit.collectors.live.hook import collect
    from tracekit.collectors.live.limits import Limits

    __version__: str

__all__ = [
    "Finding",
    "Limits",
    "Result",
    "__version__",
    "analyze",
    "collect",
    "convert",
    "open_run",
    "replay",
    "trace_handler",
]
_LIVE = {"Limits": "limits", "collect": "hook", "trace_handler": "handler"}
"""Names for training loops, and the modules of `tracekit.collectors.live` that have them."""
_CALLBACKS = {
    "AccelerateCollection": ("accelerate", "AccelerateCollection"),
    "LightningCallback": ("lightning", "TracekitCallback"),
    "TransformersCallback": ("hugging_face", "TracekitCallback"),
}
"""Likewise, with modules of `tracekit.collectors.callbacks` and their names there. They are not in
`__all__`: `import *` must work without the frameworks."""


def __getattr__(name: str) -> Any:
    """Load a name of the interface on its first use."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - 10 ms that most imports never need

        return version("tracekit-gpu")
    if name in _LIVE:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"tracekit.collectors.live.{_LIVE[name]}"), name)
    if name in _CALLBACKS:
        from importlib import import_module  # noqa: PLC0415

        module, of_module = _CALLBACKS[name]
        return getattr(import_module(f"tracekit.collectors.callbacks.{module}"), of_module)
    if name in __all__:
        from tracekit import api  # noqa: PLC0415 - loads Polars

        return getattr(api, name)
    raise AttributeError(f"module 'tracekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the interface, loaded or not."""
    return sorted({*globals(), *__all__})
