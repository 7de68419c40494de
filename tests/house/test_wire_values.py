"""Rules about the structs of `wire`: they are frozen, and each field is explained beside it."""

import re
from importlib import import_module
from pkgutil import walk_packages

import pytest
from msgspec import Struct

from lodesman import wire


@pytest.fixture(scope="module")
def structs():
    modules = [import_module(module.name) for module in walk_packages(wire.__path__, f"{wire.__name__}.")]
    kinds = [thing for module in modules for thing in vars(module).values() if isinstance(thing, type)]
    return {kind for kind in kinds if issubclass(kind, Struct) and kind.__module__.startswith(wire.__name__)}


def test_every_struct_of_wire_is_frozen(structs):
    assert len(structs) > 300
    assert [kind.__qualname__ for kind in structs if not kind.__struct_config__.frozen] == []


def test_no_docstring_of_a_struct_explains_its_own_fields(structs):
    explained = [
        f"{kind.__qualname__}.{name}"
        for kind in structs
        for name in re.findall(r"`(\w+)`[^.`]*:", kind.__doc__ or "")
        if name in vars(kind).get("__annotations__", {})
    ]
    assert explained == []
