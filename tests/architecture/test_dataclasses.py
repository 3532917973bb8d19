"""Dataclasses of the core: frozen, slotted, and never compared array by array."""

import dataclasses
import importlib
import inspect
import pkgutil
from functools import cached_property
from typing import Any

import convergence_core

COLLECTORS = {"CellAllocation", "ConfigSource", "Report"}
"""What is filled while one call lasts, and kept by nobody."""


def dataclasses_of_the_core() -> list[Any]:
    found = []
    for module in pkgutil.walk_packages(convergence_core.__path__, "convergence_core."):
        named = vars(importlib.import_module(module.name)).values()
        found += [
            value
            for value in named
            if inspect.isclass(value)
            and value.__module__ == module.name
            and dataclasses.is_dataclass(value)
        ]
    return found


ALL = dataclasses_of_the_core()


def test_nobody_changes_what_was_decided():
    assert len(ALL) > 200
    assert {one.__name__ for one in ALL if not one.__dataclass_params__.frozen} == COLLECTORS


def test_fields_are_slots_unless_something_is_computed_once():
    def caches(one: type) -> bool:
        return any(isinstance(value, cached_property) for value in vars(one).values())

    assert [one for one in ALL if ("__slots__" in vars(one)) == caches(one)] == []


def test_arrays_are_not_compared_as_one_truth():
    """`==` of arrays is an array, which is neither true nor false."""

    def holds_arrays(one: Any) -> bool:
        named = vars(importlib.import_module(one.__module__))
        return any(
            "ndarray" in f"{field.type} {named.get(str(field.type))}"
            for field in dataclasses.fields(one)
        )

    assert [one for one in ALL if holds_arrays(one) and one.__dataclass_params__.eq] == []
