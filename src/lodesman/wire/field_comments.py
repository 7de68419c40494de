"""What users read of the fields of structs: the comments beside them, as descriptions of JSON schemas."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from typing import Any

import msgspec


def describe_fields(components: dict[str, dict[str, Any]]) -> None:
    """A struct's docstring describes its schema already."""
    structs = {kind.__name__: kind for kind in _subclasses(msgspec.Struct)}
    for name, schema in components.items():
        kind = structs.get(name.partition("_")[0])  # `Cut_Place_` is of the generic type Cut
        if kind is None:
            continue
        bases = [base for base in reversed(kind.__mro__) if base.__module__.startswith("lodesman.")]
        comments: dict[str, str] = {}
        for base in bases:
            comments |= _comments(base.__module__).get(base.__name__, {})
        for field in msgspec.structs.fields(kind):
            if field.name in comments:
                schema["properties"][field.encode_name]["description"] = comments[field.name]


def _subclasses(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("lodesman."):
            yield child
        yield from _subclasses(child)


@cache
def _comments(module: str) -> dict[str, dict[str, str]]:
    """By class and field; none without the source."""
    try:
        text = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    lines = text.splitlines()
    return {
        kind.name: {
            field.target.id: comment
            for field in kind.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if (comment := _comment(lines, field))
        }
        for kind in ast.parse(text).body
        if isinstance(kind, ast.ClassDef)
    }


def _comment(lines: list[str], field: ast.AnnAssign) -> str:
    """After a field on its last line, else on the lines above."""
    end = (field.end_lineno or field.lineno) - 1
    after = lines[end].encode()[field.end_col_offset or 0 :].decode().strip(" #")
    above = takewhile(lambda line: line.startswith("#"), map(str.strip, reversed(lines[: field.lineno - 1])))
    return (
        after if after and not after.startswith("fmt:") else " ".join(reversed([line[2:] for line in above]))
    )
