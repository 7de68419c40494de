"""The smallest change that would let a job run, with the values: "Memory 8000 -> 4000: 41 of 60 queues"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lodesman.matching import ANY, QueueOffer, TaskQueueKey
from lodesman.resources import Change, Criterion, QueueId, bits, describe
from lodesman.submission.draft import World

SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One attribute to be changed. `options`: what would do instead and in how many of the queues, best first.

    Of a number each option admits its own queues and those of the options before it.
    """

    criterion: str
    asked: Any
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
class _Ask:
    """What a job asks, and the queues that a change would admit."""

    key: TaskQueueKey
    world: World
    mask: int

    def offers(self) -> Iterator[QueueOffer]:
        """The queues of the mask."""
        return (self.world.by_ordinal[ordinal] for ordinal in bits(self.mask))


def remedies(
    key: TaskQueueKey, criteria: Sequence[Criterion], world: World, found: Iterable[Change]
) -> list[Remedy]:
    """A remedy for each change, in the same order."""
    by_name = {f"Requirements.{one.parameter}": one for one in criteria}
    out = []
    for change in found:
        ask = _Ask(key=key, world=world, mask=change.mask)
        steps = [_step(ask, name, by_name.get(name)) for name in change.parameters]
        ordinal = next(bits(change.mask))
        out.append(
            Remedy(
                steps=tuple(steps),
                queues=change.count,
                example=world.table.queues[ordinal],
                reasons=_reasons(key, criteria, world, ordinal),
            )
        )
    return out


def _reasons(key: TaskQueueKey, criteria: Sequence[Criterion], world: World, ordinal: int) -> tuple[str, ...]:
    """All that a queue has against the job, in sentences."""
    matcher = world.by_ordinal[ordinal].reasons(key, 1 << ordinal)
    wanted = world.table.reasons(ordinal, tuple(criteria)) if criteria else ()
    return (*map(str, matcher), *map(describe, wanted))


def _step(ask: _Ask, name: str, criterion: Criterion | None) -> Step:
    if criterion is not None:
        return _required(ask, name, criterion)
    make = STEPS.get(name)
    return Step(criterion=name, asked=None, options=(), text=name) if make is None else make(ask, name)


def _number(read: Callable[[TaskQueueKey], int], offered: Callable[[QueueOffer], int]) -> Callable[..., Step]:
    def make(ask: _Ask, name: str) -> Step:
        found = Counter(offered(offer) for offer in ask.offers())
        asked = read(ask.key)
        options = _as_much(found)
        return Step(criterion=name, asked=asked, options=options, text=f"{name} {asked} -> {options[-1][0]}")

    return make


def _as_much(found: Counter[Any]) -> tuple[tuple[Any, int], ...]:
    """(value, queues that offer it or more): the most that is offered, what half of them offer, what all do."""
    reached = 0
    steps = []
    for value in sorted(found, reverse=True):
        reached += found[value]
        steps.append((value, reached))
    middle = next(step for step in steps if 2 * step[1] >= reached)
    return tuple(dict.fromkeys((steps[0], middle, steps[-1])))


def _one_of(
    read: Callable[[TaskQueueKey], Any], offered: Callable[[QueueOffer], Iterable[str]]
) -> Callable[..., Step]:
    """A list of names in the job, of which the queue must offer one."""

    def make(ask: _Ask, name: str) -> Step:
        found = Counter(one for offer in ask.offers() for one in offered(offer))
        options = tuple(found.most_common(SHOWN))
        others = f" -> {_or(options)}" if options else " left out"
        return Step(criterion=name, asked=read(ask.key), options=options, text=f"{name}{others}")

    return make


def _banned(ask: _Ask, name: str) -> Step:
    found = Counter(offer.queue.site for offer in ask.offers())
    options = tuple(found.most_common(SHOWN))
    return Step(
        criterion=name, asked=ask.key.banned_sites, options=options, text=f"{name} without {_or(options)}"
    )


def _tags(ask: _Ask, name: str) -> Step:
    """The tags that the queues lack."""
    found = Counter(tag for offer in ask.offers() for tag in ask.key.tags if tag not in offer.request.tags)
    options = tuple(found.most_common(SHOWN))
    lacking = ", ".join(tag for tag, _ in options)
    return Step(criterion=name, asked=ask.key.tags, options=options, text=f"{name} without {lacking}")


def _required_tags(ask: _Ask, name: str) -> Step:
    """The tags that the queues want a job to have."""
    found = Counter(
        tag for offer in ask.offers() for tag in offer.request.required_tags if tag not in ask.key.tags
    )
    options = tuple(found.most_common(SHOWN))
    wanted = ", ".join(tag for tag, _ in options)
    return Step(criterion=name, asked=ask.key.tags, options=options, text=f"Tag with {wanted}")


def _required(ask: _Ask, name: str, criterion: Criterion) -> Step:
    """A parameter of the Requirements, held against what the queues declare."""
    asked = criterion.wanted[0] if len(criterion.wanted) == 1 else criterion.wanted
    found: Counter[Any] = Counter()
    for ordinal in bits(ask.mask):
        declared = ask.world.table.params(ask.world.table.queues[ordinal]).get(criterion.folded)
        if declared is None:
            continue
        values = declared.value if isinstance(declared.value, tuple) else (declared.value,)
        found.update(values)
    if not found:
        return Step(criterion=name, asked=asked, options=(), text=f"{name} left out")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
    options = _as_much(found) if numbers else tuple(found.most_common(SHOWN))
    instead = str(options[-1][0]) if numbers else _or(options)
    return Step(criterion=name, asked=asked, options=options, text=f"{name} {_shown(asked)} -> {instead}")


def _or(options: Sequence[tuple[Any, int]]) -> str:
    return " or ".join(str(value) for value, _ in options)


def _shown(asked: Any) -> str:
    return " or ".join(map(str, asked[:SHOWN])) if isinstance(asked, tuple) else str(asked)


def _platforms(offer: QueueOffer) -> Iterable[str]:
    return () if ANY in offer.request.platforms else offer.request.platforms


STEPS: Final[Mapping[str, Callable[[_Ask, str], Step]]] = {
    "Site": _one_of(lambda key: key.sites, lambda offer: (offer.queue.site,)),
    "BannedSite": _banned,
    "GridCE": _one_of(lambda key: key.grid_ces, lambda offer: (offer.queue.ce,)),
    "Platform": _one_of(lambda key: key.platforms, _platforms),
    "JobType": _one_of(lambda key: key.job_type, lambda offer: offer.request.job_types or ()),
    "Tag": _tags,
    "RequiredTag": _required_tags,
    "NumberOfProcessors": _number(lambda key: key.cores, lambda offer: offer.request.cores),
    "Memory": _number(lambda key: key.memory_mb, lambda offer: offer.request.memory_mb),
    "CPUTime": _number(lambda key: key.norm_cpu_seconds, lambda offer: offer.request.norm_cpu_seconds),
}
