"""A rule of CONTRIBUTING.md about values that a test can hold: what one answers is frozen."""

from importlib import import_module
from pkgutil import walk_packages

from msgspec import Struct

from lodesman import wire


def test_every_struct_of_wire_is_frozen():
    modules = [import_module(one.name) for one in walk_packages(wire.__path__, f"{wire.__name__}.")]
    found = [thing for module in modules for thing in vars(module).values() if isinstance(thing, type)]
    structs = {one for one in found if issubclass(one, Struct) and one.__module__.startswith(wire.__name__)}
    assert len(structs) > 300
    assert [one.__qualname__ for one in structs if not one.__struct_config__.frozen] == []
