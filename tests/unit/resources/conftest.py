"""Which queues of a configuration fulfil Requirements, and what speaks against the others."""

from lodesman.decide.masks.bits import bits
from lodesman.decide.resources import QueueTable, compile_requirements, load_resources
from lodesman.decide.resources.inherit import all_queues
from lodesman.decide.resources.requirement import mismatches
from lodesman.wire.nodes import QueueId


def eligible_mask(table, wanted):
    """By the table's masks."""
    return table.eligible_mask(compile_requirements(wanted, table.types))


def named(table, mask):
    """The queues of a mask, by their bits."""
    return [table.queues[bit] for bit in bits(mask)]


def eligible(config, wanted=None, vo=""):
    """The eligible queues as {site: {CE: [queues]}}."""
    table, found = QueueTable(config, vo), {}
    for site, ce, queue in named(table, eligible_mask(table, wanted or {})):
        found.setdefault(site, {}).setdefault(ce, []).append(queue)
    return found


def reasons(config, wanted, vo="") -> dict[QueueId, tuple[object, ...]]:
    """By the predicate for one queue."""
    criteria = compile_requirements(wanted, config.types)
    queues = all_queues(config.tree, vo=vo, types=config.types)
    return {queue: mismatches(criteria, params, vo=vo) for queue, params in queues}


def load_cfg(text, *, source="", vos=()):
    """The configuration in one text of CFG."""
    return load_resources([(source, text)], vos=vos)


def load_toml(text, *, source="t.toml", vos=()):
    """The configuration in one text of TOML."""
    return load_resources([(source, text)], vos=vos)
