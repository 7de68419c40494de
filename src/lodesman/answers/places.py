"""What many answers have in common: places, values of parameters, and where something is written."""

from __future__ import annotations

from msgspec import Struct

Scalar = str | int | float | bool
# Of a parameter, as configured or asked for.
Value = Scalar | list[Scalar]


class Place(Struct):
    """A CE queue."""

    site: str
    ce: str
    queue: str


class Written(Struct):
    """Where in the configuration something is written; `line` counts from 1. Empty and 0: nowhere."""

    file: str
    section: str
    line: int


class Remark(Struct):
    """What is wrong with a configuration, or odd about it, and where: `source` is the file, `line` 0 is unknown."""

    message: str
    source: str
    section: str
    line: int


class Criterion(Struct):
    """How many CE queues one criterion rules out, whatever the others say."""

    criterion: str
    queues: int
