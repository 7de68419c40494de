"""Which VOs and groups a user may be put in: those that the configuration knows, if it names any. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from lodesman.errors import InvalidRequest
from lodesman.resources import ANY, ResourceConfig
from lodesman.resources.model import Node, as_scalars, as_text, fold

# A name that no configuration tells, so that a slip of the keyboard does not make one.
NAME = re.compile(r"[A-Za-z0-9._@-]+")
SHOWN = 20


def check_membership(config: ResourceConfig, vo: str, groups: Collection[str]) -> None:
    """Raises InvalidRequest for a VO that the configuration does not know and for a group that is not one of the VO,
    with those that it knows, the nearest first. What the configuration says nothing of only needs to be a name.
    """
    vos = set(known_vos(config))
    if vos and vo not in vos:
        raise InvalidRequest(f"The configuration has no VO {vo}.", hint=_nearest("VOs", vo, vos))
    known = {name for name, group in config.groups.items() if group.vo in ("", vo)}
    for name in groups:
        if name in config.groups and name not in known:
            message = f"Group {name} belongs to VO {config.groups[name].vo}, not to {vo}."
            raise InvalidRequest(message, hint=_nearest("Groups", name, known))
        if known and name not in known:
            raise InvalidRequest(f"VO {vo} has no group {name}.", hint=_nearest("Groups", name, known))
    for name in (vo, *groups):
        if name not in vos and name not in known and not NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name of a VO or a group.", hint="Write letters, digits and . _ @ - only."
            )


def known_vos(config: ResourceConfig) -> Iterator[str]:
    """The VOs of groups, of sections and of access lists; some several times."""
    yield from config.vos
    for node in _nodes(config):
        yield from node.overlays
        for name, value in node.params.items():
            if fold(name) == "vo":
                yield from (text for text in map(as_text, as_scalars(value)) if text and text != ANY)


def _nodes(config: ResourceConfig) -> Iterator[Node]:
    yield from (config.tree.defaults.of_all, *config.tree.defaults.of_type.values())
    for site in config.tree.sites.values():
        yield site
        for ce in site.ces.values():
            yield ce
            yield from ce.queues.values()


def _nearest(kind: str, name: str, known: Collection[str]) -> str:
    """All of them, those first that look most like it."""
    near = difflib.get_close_matches(name, sorted(known), SHOWN, 0.0)
    return f"{kind}: {', '.join(near)}." if near else ""
