"""Sites, CEs and queues as configured, with pilots, jobs, closings and gates, every value with its origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.decide import resources
from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.gate import SiteGate
from lodesman.decide.director.budgets import gate_limit
from lodesman.decide.director.limits import Breaker, Limit, settle_breaker
from lodesman.decide.director.queues import QueueCaps
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import (
    EffectiveParam,
    NodePath,
    PlaceLimit,
    QueueId,
    ResourceConfig,
    ResourceTree,
)
from lodesman.decide.resources.model import Value as Configured
from lodesman.languages.classad.clauses import write_pairs
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.store import Reader
from lodesman.server.store.director import breaker_orders, breakers
from lodesman.server.store.read.pilots import pilots_by_queue, running_jobs_by_site
from lodesman.server.store.site_ads import (
    ad_rows,
    ad_versions,
    ads_of_the_day,
    ended_matches,
    live_matches,
    newest_ad,
)
from lodesman.server.writer.site_ads import stored_ad
from lodesman.wire import nodes
from lodesman.wire.site_ads import GateInFull
from lodesman.wire.vocabulary import BreakerState

_MOST_CHOICES = 5
_MOST_ROOM = 10_000
_ACCESS = "vo"
_UNITS = {"CPUTime": "s", "MaxRAM": "MB"}  # in which the program counts, whatever is declared


def seen_by(policy: Policy, vo: str) -> ResourceConfig:
    """The configuration as the users of a VO see it: what admits the VO, and what that is in, without its files."""
    config, tree = policy.config, policy.config.tree
    usable = {NodePath(*offer.queue) for offer in policy.vo_config(vo).offers}

    def admits(path: NodePath) -> bool:
        params = resources.effective_params(tree, path, vo=vo, types=config.types)
        return resources.access_refusal(params.get(_ACCESS), vo) is None

    def seen(node: resources.Node, path: NodePath) -> resources.Node | None:
        below = {
            name: seen(child, NodePath(path.site, path.ce or name, path.ce and name))
            for name, child in node.children.items()
        }
        children = {name: child for name, child in below.items() if child is not None}
        is_seen = path in usable if path.queue else children or (not below and admits(path))
        return replace(_unwritten(node), children=children) if is_seen else None

    sites = {name: seen(site, NodePath(name)) for name, site in tree.sites.items()}
    types = {name: _unwritten(type_node) for name, type_node in tree.ce_types.items()}
    seen_sites = {name: site for name, site in sites.items() if site is not None}
    seen_tree = ResourceTree(sites=seen_sites, ce_defaults=_unwritten(tree.ce_defaults), ce_types=types)
    return replace(config, tree=seen_tree)


def _unwritten(node: resources.Node) -> resources.Node:
    return replace(node, source=None, sources={})


def list_sites(
    db: Reader, tree: ResourceTree, closings: Sequence[nodes.Closing] = (), *, vo: str = "",
    limits: Iterable[PlaceLimit] = (), now: float,
) -> list[nodes.SiteRow]:  # fmt: skip
    """The sites of a tree, with the `limits` on all jobs. `vo`: whose pilots and jobs count, '' for all."""
    most = {limit.path: limit.number for limit in limits if not limit.attribute}
    pilots: dict[str, Counter[str]] = {}
    for queue, state, count in pilots_by_queue(db, vo):
        pilots.setdefault(queue.site, Counter())[state] += count
    running, ads, failing = running_jobs_by_site(db, vo), ad_versions(db), _failing_queues(db, tree, now)
    return [
        nodes.SiteRow(
            site=site.name,
            ces=len(site.children),
            queues=sum(len(ce.children) for ce in site.children.values()),
            pilots=dict(sorted(pilots.get(site.name, {}).items())),
            running_jobs=running.get(site.name, 0),
            **nodes.by_time((closing for closing in closings if closing.site == site.name), now),
            failing=[queue for queue in failing.values() if queue.site == site.name],
            max_running_jobs=most.get(NodePath(site.name), UNSET),
            ad_at=ads[site.name].received_at if site.name in ads else UNSET,
            ad_is_too_old=ads[site.name].is_too_old(now) if site.name in ads else UNSET,
        )
        for site in tree.sites.values()
    ]


def list_queues(
    db: Reader,
    policy: Policy,
    vo: str,
    *,
    closed_by: Callable[[NodePath], Sequence[nodes.Closing]],
    now: float,
    pilots_of: str = "",
    origin: bool = False,
) -> list[nodes.UsableQueue]:
    """Every queue that a VO may use; with `origin` also file and line of each value. `pilots_of`: '' for all VOs."""
    pilots: dict[QueueId, dict[str, int]] = {}
    for queue, state, count in pilots_by_queue(db, pilots_of):
        pilots.setdefault(queue, {})[state] = count
    config, failing = policy.vo_config(vo), _failing_queues(db, policy.config.tree, now)
    return [
        nodes.UsableQueue(
            *offer.queue,
            parameters={
                value.name: _effective(value, origin) for value in config.table.params(offer.bit).values()
            },
            pilots=pilots.get(offer.queue, {}),
            **nodes.by_time(closed_by(offer.queue), now),
            failing=failing.get(offer.queue, UNSET),
        )
        for offer in config.offers
    ]


def _failing_queues(db: Reader, tree: ResourceTree, now: float) -> dict[QueueId, nodes.FailingQueue]:
    """Those whose last pilots did not start or whose breakers have orders."""
    breaker_of, orders = breakers(db), breaker_orders(db)
    failing = {}
    for queue in tree.queue_ids() if breaker_of or orders else ():
        breaker, order = settle_breaker(breaker_of.get(queue, Breaker()), now=now), orders.get(queue)
        state = breaker.state if order is None else BreakerState(order.state)
        if breaker.failures or order is not None:
            tried = order is None and state is not BreakerState.CLOSED
            failing[queue] = nodes.FailingQueue(
                *queue, breaker=state, failures=breaker.failures, retry_at=breaker.retry_at if tried else None,
                reason=breaker.reason, order="" if order is None else order.text,
            )  # fmt: skip
    return failing


def _effective(effective: EffectiveParam, origin: bool) -> nodes.EffectiveValue:
    value = _plain(effective.value)
    if not origin:
        return nodes.EffectiveValue(value, effective.level)
    file, _, line = _place(effective.source)
    return nodes.EffectiveValue(value, effective.level, file, line)


def find_node(tree: ResourceTree, path: str) -> NodePath:
    """The node of SITE, SITE/CE or SITE/CE/QUEUE. Raises NotFound, InvalidRequest if several fit."""
    matches = [node for node, _ in tree.nodes() if str(node) == path]
    if not matches:
        site, _, rest = path.partition("/")
        ce, _, queue = rest.partition("/")
        hint = _near(tree, NodePath(site, ce, queue))
        raise NotFound(f"There is no site, CE or queue {path[:200]}.", hint=hint)
    if len(matches) > 1:
        choices = [list(node) for node in matches[:_MOST_CHOICES]]
        hint = "Give site, CE and queue apart."
        raise InvalidRequest(f"{path[:200]} may be {len(matches)} things.", hint=hint, choices=choices)
    return matches[0]


def exact_node(tree: ResourceTree, node: NodePath) -> NodePath:
    """The node, if it is there. Raises NotFound."""
    if tree.find(node) is None:
        raise NotFound(f"There is no {node.kind} {str(node)[:200]}.", hint=_near(tree, node))
    return node


def _near(tree: ResourceTree, node: NodePath) -> str:
    """At the first level that lacks the given name, as a hint."""
    above, level, wrong = "", tree.sites, node.site
    for name, below in pairwise(node):
        if name not in level:
            break
        above, level, wrong = f"{above}{name}/", level[name].children, below
    close = [f"{above}{name}"[:200] for name in get_close_matches(wrong[:200], level, n=3)]
    return f"Is it one of {', '.join(close)}? See: lode site ls." if close else "See: lode site ls."


def show_node(config: ResourceConfig, node: NodePath, vo: str) -> nodes.ResourceNode:
    """A node as a VO ("": none in particular) sees it; nodes below have the values that they do not inherit."""
    return nodes.ResourceNode(**asdict(_node(config, node, vo, is_top=True)), vo=vo)


def _node(config: ResourceConfig, node: NodePath, vo: str, *, is_top: bool = False) -> nodes.NodeBelow:
    params = resources.effective_params(config.tree, node, vo=vo, types=config.types)
    if is_top:
        rows = [*(_parameter(config, value) for value in params.values()), *_assumed(config, node, params)]
    else:
        above = NodePath(node.site, node.ce if node.queue else "")
        inherited = resources.effective_params(config.tree, above, vo=vo, types=config.types)
        own = (value for folded, value in params.items() if inherited.get(folded) != value)
        rows = [_parameter(config, value) for value in own if any(value.all_said())]
    configured = config.tree.find(node) or resources.Node(name="")
    return nodes.NodeBelow(
        *_place(configured.source),
        kind=node.kind,
        site=node.site,
        ce=node.ce,
        queue=node.queue,
        grid=config.tree.sites[node.site].grid,
        allowed=resources.access_refusal(params.get(_ACCESS), vo) is None,
        parameters=sorted(rows, key=lambda row: resources.fold(row.name)),
        below=[
            _node(config, NodePath(node.site, node.ce or name, node.ce and name), vo)
            for name in configured.children
        ],
    )


def _parameter(config: ResourceConfig, effective: EffectiveParam) -> nodes.Parameter:
    declared = config.types.get(effective.name)
    return nodes.Parameter(
        *_place(effective.source),
        name=effective.name,
        value=_plain(effective.value),
        type=declared.kind.value if declared else "",
        unit=declared.unit if declared else "",
        level=effective.level.value,
        levels=list(effective.levels),
        made_of="",
        said=[
            nodes.LevelValue(
                *_place(origin.source),
                level=origin.level,
                value=_plain(origin.said),
                counts=origin.level in effective.levels,
            )
            for origin in effective.all_said()
        ],
    )


def _assumed(
    config: ResourceConfig, node: NodePath, params: Mapping[str, EffectiveParam]
) -> Iterator[nodes.Parameter]:
    """The program's own values for what the configuration leaves out."""
    if not node.queue:
        return
    settings, caps = resources.queue_settings(params, config.types), QueueCaps()
    facts: dict[str, tuple[nodes.Value | None, str]] = {
        "Backend": (settings.backend or "local", "CEType" if settings.backend else ""),
        "CPUTime": (settings.cpu_seconds, "maxCPUTime"),
        "CPUScalingFactor": (settings.cpu_scaling_factor, "SI00" if settings.cpu_scaling_factor != 1 else ""),
        "MaxRAM": (settings.memory_mb, "Memory"),
        "NumberOfProcessors": (settings.processors or 1, ""),
        "MaxWaitingJobs": (caps.max_waiting, ""),
        "MaxTotalJobs": (caps.max_total, ""),
        "WaitingToRunningRatio": (caps.waiting_to_running, ""),
    }
    for name, (value, made_of) in facts.items():
        if resources.fold(name) not in params and value is not None:
            declared = config.types.get(name)
            yield nodes.Parameter(
                *_place(None),
                name=name,
                value=value,
                type=declared.kind.value if declared else "",
                unit=_UNITS.get(name, ""),
                level="built-in",
                levels=[],
                made_of=made_of,
                said=[],
            )


def _plain(value: Configured) -> nodes.Value:
    return list(value) if isinstance(value, tuple) else value


def _place(source: resources.FilePosition | None) -> tuple[str, str, int]:
    place = source or resources.FilePosition()
    return place.file, place.section, place.line


# --- gates -----------------------------------------------------------------------------------------------


class GateReader(Struct, frozen=True, kw_only=True):
    """Reads the gates of configured sites."""

    db: Reader
    tree: ResourceTree
    options: GateOptions

    def gate_of(self, site: str, ad: SiteAd | None, now: float) -> SiteGate:
        """The gate of a site with this ad, by the stored pilots."""
        return self.options.gate(
            site, ad, mode=resources.gate_modes(self.tree).get(site), live=live_matches(self.db, site).get(site, ()),
            ended=partial(ended_matches, self.db), now=now,
        )  # fmt: skip

    def limit(self, site: str, now: float) -> Limit | None:
        """What the gate of a site lets through now; None: all."""
        with self.db:
            return gate_limit(self.gate_of(site, stored_ad(self.db, site), now), _MOST_ROOM)


def gate_in_full(reader: GateReader, site: str, now: float) -> GateInFull:
    """The gate of a site as one moment has it."""
    with (db := reader.db):
        gate = reader.gate_of(site, stored_ad(db, site), now)
        newest = newest_ad(db, site)
        return GateInFull(
            site=site,
            mode=gate.mode,
            at=now,
            ad=next(iter(ad_rows(db, now, site)), None),
            text=newest[1] if newest else "",
            shut=gate.shut,
            notice=gate.notice,
            room=gate.room(_MOST_ROOM),
            matched=gate.matched,
            pilots=len(live_matches(db, site).get(site, ())),
            values=write_pairs(gate.values().items()),
            clauses=[clause.row for clause in gate.clauses()],
            day=ads_of_the_day(db, site, now),
        )
