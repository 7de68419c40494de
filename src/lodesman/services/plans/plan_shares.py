"""`lode plan share`: which part of the starts each group would get if shares were changed. Nothing is stored.

Parts are those of the lottery (`parts_of`) and of the director (`director_weights`), over the groups that have waiting
jobs now; which of them compete where is told by the masks of `lode why`.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lodesman.background.pool_pass import evaluate
from lodesman.errors import NotFound
from lodesman.matching import GroupShare, director_weights, parts_of
from lodesman.resources import Source
from lodesman.resources.build import build
from lodesman.resources.draft import Draft, RawParam
from lodesman.services.plans.scene import Scene
from lodesman.store.submit_pools import read_pools
from lodesman.submission import possible_queues

OFTEN: Final = 256
HOUR: Final = 3_600.0
MOST_STARTS: Final = 20_000
FEW_SITES: Final = 20
MOST_PLACES: Final = 200
STARTS = """SELECT s.vo, count(*), min(a.claimed_at) FROM attempt a JOIN job j ON j.id = a.job_id
JOIN submission s ON s.id = j.submission_id
WHERE a.id >= coalesce((SELECT id FROM attempt ORDER BY id DESC LIMIT 1 OFFSET ? - 1), 0) AND a.claimed_at > ?
GROUP BY s.vo"""

Masks = dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The shares of all groups before and after."""

    before: Mapping[str, GroupShare]
    after: Mapping[str, GroupShare]

    def parts(self, groups: Collection[str]) -> dict[str, dict[str, float]]:
        """What each of these groups gets of the starts while all of them compete."""
        before, after = parts_of(groups, self.before), parts_of(groups, self.after)
        return {group: {"before": before[group], "after": after[group]} for group in groups}

    def weights(self, scene: Scene) -> dict[tuple[str, str], dict[str, float]]:
        """What each group has of the director's weights: its part of the pilots that are sent by priority."""
        before, after = (_weights(scene, shares) for shares in (self.before, self.after))
        return {pair: {"before": before[pair], "after": after[pair]} for pair in before}


def plan_shares(wanted: Mapping[str, float], scene: Scene) -> dict[str, Any]:
    """The answer as JSON values. Raises NotFound for an unknown group, InvalidConfig for what is no share."""
    waiting = {pair: count for pair, count in scene.picture.groups.items() if count}
    _check_known(wanted, {*scene.policy.config.groups, *(group for _, group in waiting)})
    shares, notices = _as_configured(wanted)
    before = scene.policy.shares()
    new = {name: replace(before.get(name, GroupShare()), share=share) for name, share in shares.items()}
    change = _Change(before=before, after={**before, **new})
    competing = _competing(waiting)
    return {
        "changed": [
            {"group": name, "before": scene.policy.share_of(name), "after": share}
            for name, share in sorted(shares.items())
        ],
        "groups": _rows(change, waiting, competing, scene),
        "without_waiting_jobs": sorted(shares.keys() - {group for _, group in waiting}),
        "places": list(_places(change, competing, scene))[:MOST_PLACES],
        "notices": notices,
    }


def _check_known(wanted: Iterable[str], known: Collection[str]) -> None:
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1, 0.6)
            groups = ", ".join(sorted(known)[:FEW_SITES])
            hint = f"Did you mean {near[0]}?" if near else f"Groups: {groups}." if groups else ""
            raise NotFound(f"There is no group {name!r}.", hint=hint, group=name)


def _as_configured(wanted: Mapping[str, float]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The shares as they would count if the configuration said so, and what it would remark."""
    draft = Draft()
    for name, share in wanted.items():
        place = Source(section=f"group {name}")
        draft.put_group(name, RawParam(name="share", value=share, source=place))
    config = build(draft)
    return {name: group.share for name, group in config.groups.items()}, [
        notice.as_dict() for notice in config.notices
    ]


def _competing(waiting: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The groups with waiting jobs of each VO: pilots run for one VO."""
    found: dict[str, list[str]] = {}
    for vo, group in sorted(waiting):
        found.setdefault(vo, []).append(group)
    return found


def _rows(
    change: _Change,
    waiting: Mapping[tuple[str, str], int],
    competing: Mapping[str, Collection[str]],
    scene: Scene,
) -> list[dict[str, Any]]:
    """Every group with waiting jobs; those that gain most come first."""
    rates = _starts_an_hour(scene)
    weights = change.weights(scene)
    rows = []
    for vo, groups in competing.items():
        for group, part in change.parts(groups).items():
            rate = rates.get(vo)
            rows.append(
                {
                    "vo": vo,
                    "group": group,
                    "waiting": waiting[vo, group],
                    "share": {"before": _share(change.before, group), "after": _share(change.after, group)},
                    "part": part,
                    "director": weights.get((vo, group)),
                    "starts_an_hour": rate and {when: value * rate for when, value in part.items()},
                }
            )
    return sorted(rows, key=_gain_first)


def _gain_first(row: Mapping[str, Any]) -> tuple[float, str, str]:
    part = row["part"]
    return part["before"] - part["after"], row["vo"], row["group"]


def _share(shares: Mapping[str, GroupShare], group: str) -> float:
    return shares.get(group, GroupShare()).share


def _starts_an_hour(scene: Scene) -> dict[str, float]:
    """Starts of each VO in the last hour, counted over less if there were very many."""
    since = scene.now - HOUR
    rows = list(scene.db.execute(STARTS, (MOST_STARTS, since)))
    if sum(count for _, count, _ in rows) >= MOST_STARTS:
        since = min(first for _, _, first in rows)
    seconds = max(1.0, scene.now - since)
    return {vo: count * HOUR / seconds for vo, count, _ in rows}


def _weights(scene: Scene, shares: Mapping[str, GroupShare]) -> dict[tuple[str, str], float]:
    waiting = scene.picture.waiting
    found: dict[tuple[str, str], float] = defaultdict(float)
    weights = director_weights(waiting, shares)
    for tq_id, key, _ in waiting:
        found[key.vo, key.group] += weights[tq_id]
    total = sum(found.values())
    return {pair: weight / total for pair, weight in found.items()}


# --- where they compete ---------------------------------------------------------------------------------


def _places(
    change: _Change, competing: Mapping[str, Collection[str]], scene: Scene
) -> Iterator[dict[str, Any]]:
    """Queues for which the same groups compete, most queues first: there the parts are these."""
    masks = _masks(scene)
    for vo, groups in competing.items():
        table = scene.policy.world(vo).table
        for alike, mask in _alike({group: masks.get((vo, group), 0) for group in groups}):
            sites = table.sites(mask)
            yield {
                "vo": vo,
                "queues": mask.bit_count(),
                "sites": list(sites[:FEW_SITES]),
                "more_sites": max(0, len(sites) - FEW_SITES),
                "groups": change.parts(alike),
            }


def _masks(scene: Scene) -> Masks:
    """The queues that can run some waiting job of each (VO, group)."""
    pools = evaluate(scene.policy, read_pools(scene.db))
    found: Masks = {}
    for number, (_, key, _) in enumerate(scene.picture.waiting):
        if number % OFTEN == 0:
            scene.tick()
        eligible = possible_queues(key, pools.get(key.submit_pool, 0), scene.policy.world(key.vo))
        found[key.vo, key.group] = found.get((key.vo, key.group), 0) | eligible
    return found


def _alike(masks: Mapping[str, int]) -> list[tuple[tuple[str, ...], int]]:
    """(groups, queues) for each set of groups that compete anywhere, most queues first."""
    everywhere = 0
    for mask in masks.values():
        everywhere |= mask
    parts: dict[tuple[str, ...], int] = {(): everywhere}
    for group, mask in masks.items():
        halves = [((*groups, group), queues & mask) for groups, queues in parts.items()]
        halves += [(groups, queues & ~mask) for groups, queues in parts.items()]
        parts = {groups: queues for groups, queues in halves if queues}
    return sorted(parts.items(), key=lambda one: (-one[1].bit_count(), one[0]))
