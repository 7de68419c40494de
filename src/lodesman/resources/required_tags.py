"""`RequiredTag` must be within `Tag`: no job can have a tag that a queue requires and does not offer.

DIRAC loads such a configuration and refuses the request of each such pilot. A file in its language is still loaded, with a
notice, and `lode why QUEUE` says that no job could ever run there; in TOML it is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from lodesman.answers.nodes import QueueId
from lodesman.resources.inherit import Effective, all_queues
from lodesman.resources.kinds import TypeTable
from lodesman.resources.model import ANY, Node, ResourceTree, Source, as_scalars, as_text, fold

TAG, REQUIRED = fold("Tag"), fold("RequiredTag")


def lacking_tags(tree: ResourceTree, types: TypeTable) -> Iterator[tuple[str, Source]]:
    """What is wrong and where the requirement stands, once for each place: queues inherit from it."""
    nodes = list(_nodes(tree))
    if not any(fold(name) == REQUIRED for node in nodes for name in _names(node)):
        return
    told: set[object] = set()
    for vo in dict.fromkeys(("", *(vo for node in nodes for vo in node.overlays))):
        for queue, params in all_queues(tree, vo=vo, types=types):
            required, offered = params.get(REQUIRED), _texts(params.get(TAG))
            if required is None or ANY in offered:
                continue
            lacking = tuple(tag for tag in _texts(required) if tag not in offered)
            place = required.source or queue
            if lacking and (place, lacking) not in told:
                told.add((place, lacking))
                yield _sentence(queue, lacking, vo), required.source or Source()


def _sentence(queue: QueueId, lacking: tuple[str, ...], vo: str) -> str:
    of_vo = f" for VO {vo}" if vo else ""
    return (
        f"RequiredTag: queue {'/'.join(queue)} requires {', '.join(lacking)}{of_vo} and does not offer it: no job "
        "could ever run there; name it in Tag, too"
    )


def _texts(found: Effective | None) -> tuple[str, ...]:
    return () if found is None else tuple(map(as_text, as_scalars(found.value)))


def _nodes(tree: ResourceTree) -> Iterator[Node]:
    yield tree.defaults.of_all
    yield from tree.defaults.of_type.values()
    for site in tree.sites.values():
        yield site
        for element in site.ces.values():
            yield element
            yield from element.queues.values()


def _names(node: Node) -> Iterator[str]:
    return chain(node.params, *node.overlays.values())
