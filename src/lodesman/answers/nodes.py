"""What many answers have in common: names of sites, CEs and queues, values of parameters, where something is written."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

Scalar = str | int | float | bool
# Of a parameter, as configured or asked for.
Value = Scalar | list[Scalar]


class NodePath(NamedTuple):
    """A site, a CE of it, or a queue of that: the names below the node are empty."""

    site: str
    ce: str = ""
    queue: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, self))

    @property
    def kind(self) -> Literal["Site", "CE", "Queue"]:
        """What it is."""
        return "Queue" if self.queue else "CE" if self.ce else "Site"


class QueueId(NodePath):
    """The identity of a CE queue: all three names are given."""

    __slots__ = ()

    @property
    def ce_path(self) -> NodePath:
        """The computing element it belongs to."""
        return NodePath(self.site, self.ce)


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
