"""What a server with this configuration will do at each of its queues, and why it would run no pilots there by mistake."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import compress, groupby
from operator import itemgetter

from msgspec import Struct

from lodesman.decide.matching.offers import SUBMISSION_POOLS, Pools, QueueOffer, not_sent, offers_of
from lodesman.decide.resources import LOCAL, MANUAL, TYPES, QueueTable
from lodesman.server.config.reading import ServerConfig


class QueueOutlook(Struct, frozen=True, kw_only=True):
    """What becomes of one queue, for the VOs that see it so. `fault`: pilots would stay away by mistake."""

    queue: str
    vos: list[str]
    pilots: str
    fault: bool


def queue_outlooks(config: ServerConfig) -> list[QueueOutlook]:
    """Every configured queue, in their order."""
    table, names = QueueTable(config.resources, ""), config.backend_names
    pools = config.director.scopes
    found: dict[str, dict[tuple[str, bool], list[str]]] = {"/".join(one): {} for one in table.queues.values()}
    for vo in sorted(config.resources.vos):
        life = config.pilots.life_seconds
        for offer in offers_of(QueueTable(config.resources, vo), vo, life_seconds=life):
            found["/".join(offer.queue)].setdefault(_pilots(offer, names, pools), []).append(vo)
    return [
        QueueOutlook(queue=queue, vos=vos, pilots=text, fault=fault)
        for queue, kinds in found.items()
        for (text, fault), vos in (kinds or {("none: no configured VO may use it", False): []}).items()
    ]


def _pilots(offer: QueueOffer, names: Collection[str], pools: Pools) -> tuple[str, bool]:
    """What is done about pilots, and whether a mistake keeps them away. `names`: of the batch systems that there are."""
    settings, backend = offer.settings, offer.backend
    without = not_sent(offer, names, pools)
    if backend == MANUAL:
        return "by hand: others start them", False
    if without is not None:
        unknown = backend not in names
        wrong = unknown or without.parameter == SUBMISSION_POOLS
        near = get_close_matches(backend, (*names, *TYPES), 1) if unknown else ()
        return f"none: {without.text}{f' (perhaps {near[0]} is meant)' if near else ''}", wrong
    ways = (not settings.generic_pilots, settings.push, settings.forwards)
    name = ", ".join([backend, *compress(("private pilots only", "push", "forwards"), ways)])
    if backend != LOCAL:
        return f"{name}: as its batch system and the caps of the queue allow", False
    most = settings.max_total_jobs if settings.slots is None else settings.slots
    at_once = "as many at once as this machine has cores for" if most is None else f"{most} at once"
    cores = settings.processors or 1
    return f"{name}: {at_once}, {cores} core{'s' * (cores != 1)} each", False


def mistakes(config: ServerConfig, queues: list[QueueOutlook]) -> Iterator[str]:
    """What is wrong though each value by itself can be read; sentences without a full stop."""
    python = config.pilots.python
    is_used = not queues or any(one.pilots.startswith((f"{LOCAL}:", f"{LOCAL},")) for one in queues)
    if is_used and shutil.which(python) is None:
        yield f"pilots.python: there is no program {python!r}, and local pilots could not start"
    for text, alike in groupby(sorted((one.pilots, one.queue) for one in queues if one.fault), itemgetter(0)):
        first, *others = [queue for _, queue in alike]
        which = f"{first} and {len(others)} more" if others else first
        yield f"{which}: no pilots are sent there: {text.removeprefix('none: ')}"
