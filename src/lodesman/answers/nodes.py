"""The names of sites, CEs and queues."""

from __future__ import annotations

from typing import NamedTuple


class NodePath(NamedTuple):
    """A site, a CE of it, or a queue of that: the names below the node are empty."""

    site: str
    ce: str = ""
    queue: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, self))

    @property
    def kind(self) -> str:
        """Site, CE or Queue."""
        return "Queue" if self.queue else "CE" if self.ce else "Site"


class QueueId(NodePath):
    """The identity of a CE queue: all three names are given."""

    __slots__ = ()

    @property
    def ce_path(self) -> NodePath:
        """The computing element it belongs to."""
        return NodePath(self.site, self.ce)
