"""The effective values of one site, CE or queue, each with its origin: level, file, section and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from lodesman.director import QueueCaps
from lodesman.errors import InvalidRequest, NotFound
from lodesman.resources import (
    Effective,
    NodePath,
    Origin,
    ResourceConfig,
    ResourceTree,
    Source,
    access_refusal,
    effective_params,
    find_nodes,
    fold,
    origins,
    queue_settings,
)

MOST_CHOICES = 5
ACCESS = "vo"
BUILT_IN = "built-in"
LOCAL = "local"
UNITS = {"CPUTime": "s", "MaxRAM": "MB"}  # in which the program counts, whatever is declared

Row = dict[str, Any]


def find_node(tree: ResourceTree, path: str) -> NodePath:
    """The node that SITE, SITE/CE or SITE/CE/QUEUE names. Raises NotFound, InvalidRequest if several fit."""
    found = find_nodes(tree, path)
    if not found:
        site, _, rest = path.partition("/")
        ce, _, queue = rest.partition("/")
        hint = _near(tree, NodePath(site, ce, queue))
        raise NotFound(f"There is no site, CE or queue {path[:200]}.", hint=hint)
    if len(found) > 1:
        choices = [list(node) for node in found[:MOST_CHOICES]]
        raise InvalidRequest(
            f"{path[:200]} may be {len(found)} things.",
            hint="Give site, CE and queue apart.",
            choices=choices,
        )
    return found[0]


def exact_node(tree: ResourceTree, node: NodePath) -> NodePath:
    """The node, if it is there. Raises NotFound."""
    site = tree.sites.get(node.site)
    element = site.ces.get(node.ce) if site and node.ce else None
    there = site is not None and (not node.ce or element is not None)
    if not there or (node.queue and (element is None or node.queue not in element.queues)):
        raise NotFound(f"There is no {node.kind} {str(node)[:200]}.", hint=_near(tree, node))
    return node


def _near(tree: ResourceTree, node: NodePath) -> str:
    """What might be meant: the nearest names at the first level that does not have the one that is given."""
    site, names, above, wrong = tree.sites.get(node.site), list(tree.sites), "", node.site
    if site is not None:
        names, above, wrong = list(site.ces), f"{node.site}/", node.ce
        element = site.ces.get(node.ce)
        if element is not None:
            names, above, wrong = list(element.queues), f"{node.site}/{node.ce}/", node.queue
    close = [f"{above}{name}"[:200] for name in get_close_matches(wrong[:200], names, n=3)]
    return f"Is it one of {', '.join(close)}? See: lode site ls." if close else "See: lode site ls."


def show_node(config: ResourceConfig, node: NodePath, vo: str) -> Row:
    """One node as a VO sees it ("": nobody in particular): every value with its origin, and what is below it.

    A node below is told with the values that it does not merely inherit.
    """
    found = origins(config.tree, node, vo=vo, types=config.types)
    params = {folded: one.effective for folded, one in found.items()}
    rows = [*(_row(config, one) for one in found.values()), *_assumed(config, node, params)]
    return {
        **_identity(config, node, params, vo),
        "vo": vo,
        "parameters": _by_name(rows),
        "below": [_below(config, child, vo) for child in _children(config.tree, node)],
    }


def _identity(config: ResourceConfig, node: NodePath, params: Mapping[str, Effective], vo: str) -> Row:
    site = config.tree.sites[node.site]
    element = site.ces[node.ce] if node.ce else None
    written: Any = site if element is None else element.queues[node.queue] if node.queue else element
    return {
        "kind": node.kind,
        "site": node.site,
        "ce": node.ce,
        "queue": node.queue,
        "grid": site.grid,
        "allowed": access_refusal(params.get(ACCESS), vo) is None,
        **_place(written.source),
    }


def _children(tree: ResourceTree, node: NodePath) -> Iterator[NodePath]:
    site = tree.sites[node.site]
    if not node.ce:
        yield from (NodePath(node.site, ce) for ce in site.ces)
    elif not node.queue:
        yield from (NodePath(node.site, node.ce, queue) for queue in site.ces[node.ce].queues)


def _below(config: ResourceConfig, node: NodePath, vo: str) -> Row:
    found = origins(config.tree, node, vo=vo, types=config.types)
    above = NodePath(node.site, node.ce if node.queue else "")
    inherited = effective_params(config.tree, above, vo=vo, types=config.types)
    own = [one for folded, one in found.items() if one.said and inherited.get(folded) != one.effective]
    params = {folded: one.effective for folded, one in found.items()}
    return {
        **_identity(config, node, params, vo),
        "parameters": _by_name([_row(config, one) for one in own]),
        "below": [_below(config, child, vo) for child in _children(config.tree, node)],
    }


def _by_name(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: fold(row["name"]))


def _row(config: ResourceConfig, origin: Origin) -> Row:
    effective = origin.effective
    declared = config.types.get(effective.name)
    return {
        "name": effective.name,
        "value": effective.value,
        "type": declared.kind.value if declared else "",
        "unit": declared.unit if declared else "",
        "level": effective.level.value,
        "levels": [level.value for level in effective.levels],
        **_place(effective.source),
        "made_of": "",
        "said": [
            {
                "level": one.level.value,
                "value": one.value,
                "counts": one.level in effective.levels,
                **_place(one.source),
            }
            for one in origin.said
        ],
    }


def _assumed(config: ResourceConfig, node: NodePath, params: Mapping[str, Effective]) -> Iterator[Row]:
    """What the program itself takes for what a queue does not tell."""
    if not node.queue:
        return
    settings, caps = queue_settings(params, config.types), QueueCaps()
    facts: dict[str, tuple[Any, str]] = {
        "Backend": (settings.backend or LOCAL, "CEType" if settings.backend else ""),
        "CPUTime": (settings.cpu_seconds, "maxCPUTime"),
        "CPUScalingFactor": (settings.cpu_scaling_factor, "SI00" if settings.cpu_scaling_factor != 1 else ""),
        "MaxRAM": (settings.memory_mb, "Memory"),
        "NumberOfProcessors": (settings.processors or 1, ""),
        "MaxWaitingJobs": (caps.max_waiting, ""),
        "MaxTotalJobs": (caps.max_total, ""),
        "WaitingToRunningRatio": (caps.waiting_to_running, ""),
    }
    for name, (value, made_of) in facts.items():
        if fold(name) not in params and value is not None:
            declared = config.types.get(name)
            yield {
                "name": name,
                "value": value,
                "type": declared.kind.value if declared else "",
                "unit": UNITS.get(name, ""),
                "level": BUILT_IN,
                "levels": [],
                **_place(None),
                "made_of": made_of,
                "said": [],
            }


def _place(source: Source | None) -> Row:
    place = source or Source()
    return {"file": place.file, "section": place.section, "line": place.line}
