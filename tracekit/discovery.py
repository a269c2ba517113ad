"""Modules that take part by being there: a folder's modules, and the one object each exports.

A module whose name begins with an underscore, and a package, are parts of the others.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


class _Named(Protocol):
    @property
    def id(self) -> str: ...


Exported = TypeVar("Exported", bound=_Named)


def modules_of(package: ModuleType | str) -> list[ModuleType]:
    """The modules in a package's folder, by name."""
    found = importlib.import_module(package) if isinstance(package, str) else package
    return [
        importlib.import_module(f"{found.__name__}.{each.name}")
        for each in sorted(pkgutil.iter_modules(found.__path__), key=lambda each: each.name)
        if not each.ispkg and not each.name.startswith("_")
    ]


def exported(
    modules: Iterable[ModuleType], attribute: str, kind: type[Exported]
) -> dict[str, Exported]:
    """What each module exports under a name, by id, in order of id.

    Raises:
        TypeError: a module exports something else, or nothing.
        ValueError: its id is not the module's name, with `-` for `_`.
    """
    found: dict[str, Exported] = {}
    for module in modules:
        each = getattr(module, attribute, None)
        if not isinstance(each, kind):
            raise TypeError(f"{module.__name__} exports no {attribute} of type {kind.__name__}")
        if each.id != module.__name__.rpartition(".")[2].replace("_", "-"):
            raise ValueError(f"{module.__name__} exports the id {each.id!r}")
        found[each.id] = each
    return dict(sorted(found.items()))
