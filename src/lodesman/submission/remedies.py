"""The smallest change that would let a job run, with the values: "Memory 8000 -> 4000: 41 of 60 queues".

The number is that of the queues which exactly the change that is told would admit: it is counted with the changed
job, by the criteria of the matcher and of the Requirements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lodesman.matching import ANY, QueueOffer, TaskQueueKey
from lodesman.resources import Change, Criterion, QueueId, bits, capacity_order, describe, offers
from lodesman.submission.draft import World

SHOWN: Final = 3
TRIED: Final = 8  # sets of tags
LOOKED_AT: Final = 20  # changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One attribute to be changed. `options`: what would do instead and in how many of the queues, best first.

    Of a number each option admits its own queues and those of the options before it. `instead`: the value that the text
    tells, for a list all of it; None if the attribute is to be left out, or nothing is known.
    """

    criterion: str
    asked: Any
    instead: Any = None
    options: tuple[tuple[Any, int], ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Steps that together admit `queues` queues, for instance `example`; `reasons` are what it has against the job."""

    steps: tuple[Step, ...]
    queues: int
    example: QueueId
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """The steps for people."""
        return " and ".join(step.text for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "change": [step.criterion for step in self.steps],
            "text": self.text,
            "queues": self.queues,
            "steps": [
                {
                    "criterion": step.criterion,
                    "asked": step.asked,
                    "instead": step.instead,
                    "options": [{"value": value, "queues": n} for value, n in step.options],
                }
                for step in self.steps
            ],
            "example": {
                "site": self.example.site,
                "ce": self.example.ce,
                "queue": self.example.queue,
                "reasons": list(self.reasons),
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A job as it would be after the steps so far, and the queues (of those that a change is about) left then."""

    key: TaskQueueKey
    world: World
    mask: int

    def offers(self) -> Iterator[QueueOffer]:
        """The queues left."""
        return (self.world.by_ordinal[ordinal] for ordinal in bits(self.mask))

    def admitted(self, rule: str, **changes: Any) -> int:
        """The queues left that this criterion of the matcher would not refuse if the job were changed."""
        refused = dict(self.world.places.lost(self.mask, replace(self.key, **changes)))
        return self.mask & ~refused.get(rule, 0)

    def changed(self, mask: int, **changes: Any) -> _Case:
        """After one more step."""
        return replace(self, key=replace(self.key, **changes), mask=mask)


Made = tuple[Step, _Case]


def remedies(
    key: TaskQueueKey, criteria: Sequence[Criterion], world: World, found: Sequence[Change], *, most: int
) -> list[Remedy]:
    """The remedies, at most so many, that admit most queues; `found`: those with most queues first."""
    made: list[Remedy] = []
    for change in found[:LOOKED_AT]:
        if len(made) >= most and made[most - 1].queues >= change.count:
            break  # none that follows can admit more
        one = _remedy(key, criteria, world, change)
        if one is not None:
            made = sorted([*made, one], key=lambda other: -other.queues)
    return made[:most]


def _remedy(key: TaskQueueKey, criteria: Sequence[Criterion], world: World, change: Change) -> Remedy | None:
    """What the change would be, and the queues that it admits; None if it turns out to admit none."""
    by_name = {f"Requirements.{one.parameter}": one for one in criteria}
    place = replace(key, submit_pool="") if key.submit_pool else key
    case = _Case(key=place, world=world, mask=change.mask)
    steps = []
    for name in change.parameters:
        step, case = _step(case, name, by_name.get(name))
        steps.append(step)
    # Again all criteria: tags are both what a queue must offer and what it may require.
    mask = world.places.narrow(case.mask, case.key)
    if not mask:
        return None
    ordinal = next(bits(mask))
    return Remedy(
        steps=tuple(steps),
        queues=mask.bit_count(),
        example=world.table.queues[ordinal],
        reasons=_reasons(key, criteria, world, ordinal),
    )


def _reasons(key: TaskQueueKey, criteria: Sequence[Criterion], world: World, ordinal: int) -> tuple[str, ...]:
    """All that a queue has against the job, in sentences."""
    matcher = world.by_ordinal[ordinal].reasons(key, 1 << ordinal)
    wanted = world.table.reasons(ordinal, tuple(criteria)) if criteria else ()
    return (*map(str, matcher), *map(describe, wanted))


def _step(case: _Case, name: str, criterion: Criterion | None) -> Made:
    if criterion is not None:
        return _required(case, name, criterion)
    make = STEPS.get(name)
    return (
        (Step(criterion=name, asked=None, options=(), text=name), case) if make is None else make(case, name)
    )


def _number(field: str, offered: Callable[[QueueOffer], int]) -> Callable[[_Case, str], Made]:
    def make(case: _Case, name: str) -> Made:
        asked = getattr(case.key, field)
        options = _as_much(Counter(offered(offer) for offer in case.offers()))
        least = options[-1][0]
        step = Step(
            criterion=name, asked=asked, instead=least, options=options, text=f"{name} {asked} -> {least}"
        )
        return step, case.changed(case.mask, **{field: least})

    return make


def _as_much(
    found: Counter[Any], order: Callable[[Any], Any] = lambda value: value
) -> tuple[tuple[Any, int], ...]:
    """(value, queues that offer it or more): the most that is offered, what half of them offer, what all do."""
    reached = 0
    steps = []
    for value in sorted(found, key=order, reverse=True):
        reached += found[value]
        steps.append((value, reached))
    middle = next(step for step in steps if 2 * step[1] >= reached)
    return tuple(dict.fromkeys((steps[0], middle, steps[-1])))


def _one_of(
    field: str, rule: str, offered: Callable[[QueueOffer], Iterable[str]]
) -> Callable[[_Case, str], Made]:
    """A list of names in the job, of which the queue must offer one."""

    def make(case: _Case, name: str) -> Made:
        options = tuple(Counter(one for offer in case.offers() for one in offered(offer)).most_common(SHOWN))
        instead = tuple(value for value, _ in options)
        step = Step(
            criterion=name,
            asked=getattr(case.key, field),
            instead=instead or None,
            options=options,
            text=f"{name} -> {_or(options)}" if options else f"{name} left out",
        )
        return step, case.changed(case.admitted(rule, **{field: instead}), **{field: instead})

    return make


def _banned(case: _Case, name: str) -> Made:
    options = tuple(Counter(offer.queue.site for offer in case.offers()).most_common(SHOWN))
    allowed = [value for value, _ in options]
    instead = tuple(site for site in case.key.banned_sites if site not in allowed)
    step = Step(
        criterion=name,
        asked=case.key.banned_sites,
        instead=instead or None,
        options=options,
        text=f"{name} without {', '.join(allowed)}",
    )
    return step, case.changed(case.admitted("banned_site", banned_sites=instead), banned_sites=instead)


def _tags(
    lacking: Callable[[TaskQueueKey, QueueOffer], Iterable[str]], rule: str, text: str
) -> Callable[..., Made]:
    """Tags that are too many, or missing: the set of one of the queues that admits most of them."""

    def make(case: _Case, name: str) -> Made:
        sets = Counter(frozenset(lacking(case.key, offer)) for offer in case.offers())
        tried = []
        for tags, _ in sets.most_common(TRIED):
            changed = tuple(sorted(tags.symmetric_difference(case.key.tags)))
            tried.append((case.admitted(rule, tags=changed), tags, changed))
        tried.sort(key=lambda one: (-one[0].bit_count(), len(one[1]), sorted(one[1])))
        options = tuple((", ".join(sorted(tags)), mask.bit_count()) for mask, tags, _ in tried[:SHOWN])
        mask, _, instead = tried[0]
        step = Step(
            criterion=name,
            asked=case.key.tags,
            instead=instead or None,
            options=options,
            text=f"{text} {options[0][0]}",
        )
        return step, case.changed(mask, tags=instead)

    return make


def _pools(case: _Case, name: str) -> Made:
    """Submission pools: any of them carries pilots to any of the queues."""
    pools = tuple(sorted(case.world.pools or ()))
    options = tuple((one, case.mask.bit_count()) for one in pools[:SHOWN])
    step = Step(
        criterion=name,
        asked=case.key.submission_pools,
        instead=pools[:SHOWN] or None,
        options=options,
        text=f"{name} -> {_or(options)}" if options else f"{name} left out",
    )
    return step, case


def _required(case: _Case, name: str, criterion: Criterion) -> Made:
    """A parameter of the Requirements, held against what the queues declare."""
    asked = criterion.wanted[0] if len(criterion.wanted) == 1 else criterion.wanted
    declared = [_declared(case.world, ordinal, criterion) for ordinal in bits(case.mask)]
    if not any(declared):
        return Step(criterion=name, asked=asked, options=(), text=f"{name} left out"), case
    options, instead = _instead(criterion, [values for values in declared if values])
    changed = replace(criterion, wanted=instead)
    told = " or ".join(map(str, instead))
    step = Step(
        criterion=name,
        asked=asked,
        instead=instead[0] if len(instead) == 1 else instead,
        options=options,
        text=f"{name} {_shown(asked)} -> {told}",
    )
    return step, replace(case, mask=case.mask & case.world.table.eligible_mask((changed,)))


def _declared(world: World, ordinal: int, criterion: Criterion) -> tuple[Any, ...]:
    """What a queue offers of a parameter; () if it does not declare it."""
    found = world.table.params(world.table.queues[ordinal]).get(criterion.folded)
    return () if found is None else offers(found.value, criterion.kind, criterion.unit) or ()


def _instead(
    criterion: Criterion, declared: Sequence[tuple[Any, ...]]
) -> tuple[tuple[tuple[Any, int], ...], tuple[Any, ...]]:
    """What would do instead, and what of it is told: of a capacity what all offer, of what must be equal what most
    have, of names the few that most have.
    """
    order = capacity_order(criterion, [value for values in declared for value in values])
    if order is not None:
        steps = _as_much(Counter(max(values, key=order) for values in declared), order)
        return steps, (steps[-1][0],)
    # 1 and True are equal in Python and two values here.
    counted = Counter((type(value) is bool, value) for values in declared for value in set(values))
    options = tuple((value, n) for (_, value), n in counted.most_common(SHOWN))
    told = 1 if all(isinstance(value, int | float) for value, _ in options) else SHOWN
    return options, tuple(value for value, _ in options[:told])


def _or(options: Sequence[tuple[Any, int]]) -> str:
    return " or ".join(str(value) for value, _ in options)


def _shown(asked: Any) -> str:
    return " or ".join(map(str, asked[:SHOWN])) if isinstance(asked, tuple) else str(asked)


def _platforms(offer: QueueOffer) -> Iterable[str]:
    return () if ANY in offer.request.platforms else offer.request.platforms


def _too_many(key: TaskQueueKey, offer: QueueOffer) -> Iterable[str]:
    return (tag for tag in key.tags if tag not in offer.request.tags)


def _missing(key: TaskQueueKey, offer: QueueOffer) -> Iterable[str]:
    return (tag for tag in offer.request.required_tags if tag not in key.tags)


STEPS: Final[Mapping[str, Callable[[_Case, str], Made]]] = {
    "Site": _one_of("sites", "site", lambda offer: (offer.queue.site,)),
    "BannedSite": _banned,
    "GridCE": _one_of("grid_ces", "ce", lambda offer: (offer.queue.ce,)),
    "Platform": _one_of("platforms", "platform", _platforms),
    "Tag": _tags(_too_many, "tag", "Tag without"),
    "RequiredTag": _tags(_missing, "required_tag", "Tag with"),
    "SubmitPool": _pools,
    "NumberOfProcessors": _number("cores", lambda offer: offer.request.cores),
    "Memory": _number("memory_mb", lambda offer: offer.request.memory_mb),
    "CPUTime": _number("norm_cpu_seconds", lambda offer: offer.request.norm_cpu_seconds),
}
