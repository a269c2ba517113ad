"""Limits of detectors from a tracekit.toml; every name and type in it is checked, none is ignored.

[detectors.straggler-rank]
min_step_share = 0.05
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tracekit.errors import InputError
from tracekit.units import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

L = TypeVar("L")

_HINT = "What a detector's limits are: tracekit explain DETECTOR"


@dataclass(frozen=True, slots=True)
class Config:
    """What a tracekit.toml says: values by the detector's id and the limit's name."""

    detectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None


def read_config(path: Path | None) -> Config:
    """Read a tracekit.toml; without a path, every detector keeps its limits.

    Raises:
        InputError: the file cannot be read, is not TOML, or has another shape.
    """
    if path is None:
        return Config()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    _refuse_unknown(document, ("detectors",), f"{path}: table")
    detectors = document.get("detectors", {})
    tables = {"detectors": detectors}
    if isinstance(detectors, dict):
        tables |= {f"detectors.{name}": table for name, table in detectors.items()}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"{path}: [{name}] is a {_kind(table)}, not a table", hint=_HINT)
    return Config(detectors, path)


def check_config(config: Config, limits: Mapping[str, type]) -> None:
    """Refuse what no detector has.

    Args:
        config: What was read.
        limits: Every detector's id and `Limits` type.

    Raises:
        InputError: a detector or limit of that name does not exist, or a value is of a wrong type.
    """
    _refuse_unknown(config.detectors, limits, f"{config.path}: detector")
    for detector_id in config.detectors:
        limits_for(detector_id, limits[detector_id], config)


def limits_for(detector_id: str, limits_type: type[L], config: Config) -> L:
    """The detector's limits, with the values of the configuration in place of its own.

    Raises:
        InputError: a limit of that name does not exist, or a value is of a wrong type.
    """
    values = config.detectors.get(detector_id, {})
    where = f"{config.path}: [detectors.{detector_id}]"
    fields = {item.name: item for item in dataclasses.fields(limits_type)}  # type: ignore[arg-type]
    types = typing.get_type_hints(limits_type)
    _refuse_unknown(values, fields, f"{where} limit")
    return limits_type(
        **{
            name: _checked(value, types[name], fields[name].metadata.get("unit"), f"{where} {name}")
            for name, value in values.items()
        }
    )


def _checked(value: object, declared: type, unit: Unit | None, where: str) -> object:
    """The value as the declared type; only a whole number may stand for a float."""
    if declared is float and type(value) is int:
        value = float(value)
    if type(value) is not declared:
        raise InputError(
            f"{where}: {value!r} is a {_kind(value)}, not {_NOUNS[declared]}", hint=_HINT
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {value!r} is not a finite number", hint=_HINT)
    if unit is Unit.SHARE and isinstance(value, float) and not 0 <= value <= 1:
        raise InputError(f"{where}: {value:g} is not a share between 0 and 1", hint=_HINT)
    return value


_NOUNS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def _kind(value: object) -> str:
    names = {bool: "truth value", dict: "table", str: "text", list: "list", int: "whole number"}
    return names.get(type(value), type(value).__name__)


def _refuse_unknown(names: Iterable[str], known: Iterable[str], what: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            nearby = f"; the nearest is {nearest[0]!r}" if nearest else ""
            raise InputError(f"{what} {name!r} does not exist{nearby}", hint=_HINT)
