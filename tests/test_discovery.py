"""Modules take part by being there, and are held to what they export."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import pytest

from tracekit import detectors
from tracekit.discovery import exported, modules_of


@dataclass
class Thing:
    id: str


def module(name, **values):
    made = ModuleType(f"package.{name}")
    vars(made).update(values)
    return made


def test_things_are_found_by_id_in_order_of_id():
    found = exported(
        [module("b_c", THING=Thing("b-c")), module("a", THING=Thing("a"))], "THING", Thing
    )
    assert list(found) == ["a", "b-c"]


def test_an_id_that_is_not_the_files_name_is_refused():
    with pytest.raises(ValueError, match=r"package\.a exports the id 'b'"):
        exported([module("a", THING=Thing("b"))], "THING", Thing)


@pytest.mark.parametrize("values", [{}, {"THING": 5}])
def test_a_module_that_exports_nothing_of_the_kind_is_refused(values):
    with pytest.raises(TypeError, match=r"package\.a exports no THING of type Thing"):
        exported([module("a", **values)], "THING", Thing)


def test_parts_of_other_modules_are_left_out():
    names = [found.__name__.rpartition(".")[2] for found in modules_of(detectors)]
    assert "idle_gpu" in names
    assert not [name for name in names if name.startswith("_")]
    assert names == sorted(names)
