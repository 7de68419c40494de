"""The resource tree: Site > ComputingElement > Queue, with parameters and overlays for VOs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from lodesman.wire.nodes import NodePath, QueueId

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]

ANY = "ANY"  # in a resource, in any letter case: fits every requirement


class BadValue(ValueError):
    """A value or declaration that its type cannot read; callers add the place."""


class FilePosition(Struct, frozen=True, kw_only=True):
    """A place in the configuration."""

    file: str = ""
    section: str = ""
    line: int = 0  # from 1; 0: unknown


class Node(Struct, frozen=True, kw_only=True):
    """A site with CEs as `children`, a CE with queues, or a queue; also the defaults of CEs."""

    name: str
    params: Mapping[str, Value] = field(default_factory=dict)
    # by VO, the parameters that hold for it alone
    overlays: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    # by (VO or "", folded parameter name)
    sources: Mapping[tuple[str, str], FilePosition] = field(default_factory=dict)
    source: FilePosition | None = None
    grid: str = ""  # the section that a site stands under in a DIRAC configuration
    children: Mapping[str, Node] = field(default_factory=dict)


class ResourceTree(Struct, frozen=True, kw_only=True):
    """Sites in configured order."""

    sites: Mapping[str, Node] = field(default_factory=dict)
    # hold where neither CE, queue nor site say otherwise
    ce_defaults: Node = field(default_factory=lambda: Node(name="CEDefaults"))
    ce_types: Mapping[str, Node] = field(default_factory=dict)  # the same by CEType, before `ce_defaults`

    def nodes(self) -> Iterator[tuple[NodePath, Node]]:
        """Every site, CE and queue, in order."""
        for site in self.sites.values():
            yield NodePath(site.name), site
            for ce in site.children.values():
                yield NodePath(site.name, ce.name), ce
                for queue in ce.children.values():
                    yield QueueId(site.name, ce.name, queue.name), queue

    def queue_ids(self) -> Iterator[QueueId]:
        """Every queue, in order."""
        return (path for path, _ in self.nodes() if isinstance(path, QueueId))

    def find(self, path: NodePath) -> Node | None:
        """The node, or None."""
        node = self.sites.get(path.site)
        for name in filter(None, path[1:]):
            node = node.children.get(name) if node else None
        return node


DEFAULT_SHARE = 1000.0  # DIRAC: JobShare


class GroupConfig(Struct, frozen=True, kw_only=True):
    """A group of users (DIRAC `/Registry/Groups`)."""

    name: str
    vo: str = ""
    share: float = DEFAULT_SHARE  # against other groups
    job_sharing: bool = False  # no owner level in the lottery
    # task queues of low priority are served when nothing else waits (AllowBackgroundTQs)
    background: bool = False


def fold(name: str) -> str:
    """The form in which parameter names are compared."""
    return name.strip().casefold()


def as_text(scalar: Scalar) -> str:
    """4.0 and 4 are alike."""
    if isinstance(scalar, str):
        return scalar.strip()
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    if isinstance(scalar, float) and scalar.is_integer():
        return str(int(scalar))
    return str(scalar)


def without_repetition(scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Each once, in order; 1 and True are two values."""
    return tuple({(isinstance(item, bool), item): item for item in scalars}.values())


def as_scalars(value: Value) -> tuple[Scalar, ...]:
    """A scalar is a list of one."""
    return value if isinstance(value, tuple) else (value,)


def split_list(text: str) -> list[str]:
    """The items of a text with commas; empty ones are dropped."""
    return [item for part in text.split(",") if (item := part.strip())]
