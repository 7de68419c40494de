"""The resource tree: Site > ComputingElement > Queue, each with parameters and overlays for VOs.

Names may hold any character: a queue is known by the triple (site, ce, queue), never by a joined string.
Parameter names keep the configured spelling and are compared without regard to case (`fold`).
Source: seed rfc7-job-requirements (RFC #5 schema), DESIGN 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lodesman.answers.nodes import QueueId

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]

ANY = "ANY"  # in a resource, exactly so spelled: fits every requirement


class BadValue(ValueError):
    """A value or declaration that its type cannot read; callers add where it stands and raise their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where in the configuration something is written; `line` counts from 1, 0 is unknown."""

    file: str = ""
    section: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What site, CE and queue have in common.

    `overlays` maps a VO to the parameters that hold for it alone. `sources` maps (VO or "", folded
    parameter name) to the place where the value is written.
    """

    name: str
    params: Mapping[str, Value] = field(default_factory=dict)
    overlays: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    sources: Mapping[tuple[str, str], Source] = field(default_factory=dict)
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Node):
    """A queue of a computing element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputingElement(Node):
    """A computing element: an entry point of a site, with queues by name."""

    queues: Mapping[str, Queue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Node):
    """A site, with CEs by name. `grid` is the section it stands under in a DIRAC configuration."""

    grid: str = ""
    ces: Mapping[str, ComputingElement] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CeDefaults:
    """What CEs have if neither they nor their site say otherwise: all of them, and those of a type (CEType)."""

    of_all: Node = field(default_factory=lambda: Node(name="CEDefaults"))
    of_type: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTree:
    """All sites by name, in the order of the configuration, and the defaults of their CEs."""

    sites: Mapping[str, Site] = field(default_factory=dict)
    defaults: CeDefaults = field(default_factory=CeDefaults)

    def queue_ids(self) -> Iterator[QueueId]:
        """Every queue, in the order of the configuration."""
        for site in self.sites.values():
            for ce in site.ces.values():
                for queue in ce.queues:
                    yield QueueId(site.name, ce.name, queue)

    def has_queue(self, site: str, ce: str, queue: str) -> bool:
        """Whether the triple names a configured queue."""
        found = self.sites.get(site)
        element = found.ces.get(ce) if found else None
        return element is not None and queue in element.queues


DEFAULT_SHARE = 1000.0  # DIRAC: JobShare


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """A group of users (DIRAC `/Registry/Groups`): its VO, its share against other groups, its habits.

    `job_sharing`: the members share their jobs, no owner level in the lottery. `background`: task queues of
    background priority are served only when nothing else waits (AllowBackgroundTQs).
    """

    name: str
    vo: str = ""
    share: float = DEFAULT_SHARE
    job_sharing: bool = False
    background: bool = False


def fold(name: str) -> str:
    """The form in which parameter names are compared."""
    return name.strip().casefold()


def as_text(scalar: Scalar) -> str:
    """A scalar as the text that a string parameter would hold; 4.0 and 4 are alike."""
    if isinstance(scalar, str):
        return scalar.strip()
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    if isinstance(scalar, float) and scalar.is_integer():
        return str(int(scalar))
    return str(scalar)


def without_repetition(scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Each scalar once, in order; 1 and True are equal in Python and two values here."""
    return tuple({(isinstance(item, bool), item): item for item in scalars}.values())


def as_scalars(value: Value) -> tuple[Scalar, ...]:
    """A value as a list of scalars: a scalar is a list of one."""
    return value if isinstance(value, tuple) else (value,)
