"""The smallest change that lets a job run: "Memory 8000 -> 4000: 41 of 60 queues" that exactly this change admits."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress, islice
from typing import Any, Final

from msgspec import Struct, structs

from lodesman.decide.masks.bits import NearMiss, bits
from lodesman.decide.matching import ANY, TaskQueueKey
from lodesman.decide.matching.offers import CAUSES, PRIVATE_ONLY, SUBMISSION_POOLS, never_sent
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.matching.request import PRIVATE
from lodesman.decide.resources.model import as_text
from lodesman.decide.resources.requirement import Requirement, capacities, capacity_order, expression
from lodesman.languages.gridengine.jclist import ANY_JC
from lodesman.languages.jobclass.classes import NO_CLASS, UsableClass, every_class
from lodesman.languages.jobclass.rights import split_name
from lodesman.languages.jobs import JobSpec, is_plain_name
from lodesman.wire.vocabulary import Kind
from lodesman.wire.why_jobs import ExampleQueue, JobChange, JobChangeStep, Option

_SHOWN_NAMES: Final = 8
SHOWN: Final = 3
_TRIED: Final = 8  # sets of tags, job classes
_LOOKED_AT: Final = 20  # changes
_TAG_RULES: Final = ("tag", "required_tag")
_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """A job's wishes, held against a config."""

    key: TaskQueueKey
    criteria: tuple[Requirement, ...]
    unread: Mapping[str, str]  # Requirements that cannot be read: criterion -> reason
    config: VOConfig
    # the classes that may be suggested
    usable: UsableClass = dataclasses.field(default=every_class, compare=False, repr=False)

    def reasons(self, bit: int) -> tuple[str, ...]:
        """What a queue has against the job, but for what keeps pilots away."""
        matcher = self.config.by_bit[bit].reasons(self.key, 1 << bit)
        mismatches = self.config.table.reasons(bit, self.criteria) if self.criteria else ()
        return (*map(str, matcher), *map(str, mismatches), *self.unread.values())


class _ChangedJob(Struct, frozen=True, kw_only=True):
    key: TaskQueueKey
    config: VOConfig
    names: tuple[str, ...]  # what the change is about
    mask: int  # the queues left then
    usable: UsableClass

    def offered(self, field: str) -> Iterator[Any]:
        """Offers of the queues left: thousands, so no step of Python for each."""
        return compress(self.config.column(field), bin(self.mask)[:1:-1].encode().translate(_FLAGS))

    def changed(self, *rules: str, **changes: Any) -> _ChangedJob:
        """With the queues that these criteria do not refuse then."""
        key = replace(self.key, **changes)
        mask = self.config.places.narrow(self.mask, key, rules) if rules else self.mask
        if "submission_pools" in changes:
            mask &= self.config.carried(key.submission_pools)
        return structs.replace(self, key=key, mask=mask)


Made = tuple[JobChangeStep, _ChangedJob]
Options = Iterable[tuple[Any, int]]


class _UnknownNames(Struct, frozen=True, kw_only=True):
    attribute: str
    field: str
    names: tuple[str, ...]
    known: frozenset[str]  # those that there are


def unknown_names(
    job: JobSpec | TaskQueueKey, config: VOConfig, *, hold: bool = False
) -> Iterator[_UnknownNames]:
    """Sites and submission pools that are not configured. A job that may be held (`hold`) waits for them, unless the
    name is misspelled (`is_plain_name`). Bans do not count.
    """
    pools = None if hold or config.pools is None else frozenset(config.pools)
    for attribute, field, known, odd_only in (
        ("Site", "sites", config.sites, hold),
        ("SubmitPool", "submission_pools", pools, False),
        ("GridCE", "grid_ces", config.ces, True),
    ):
        unknown = () if known is None else tuple(name for name in getattr(job, field) if name not in known)
        names = tuple(name for name in unknown if not (odd_only and is_plain_name(name)))
        if known is not None and names:
            yield _UnknownNames(attribute=attribute, field=field, names=names, known=known)


def joined(steps: Sequence[JobChangeStep]) -> str:
    """The first few steps in words, and how many more."""
    shown = [step.text for step in steps[:SHOWN]]
    more = len(steps) - len(shown)
    return " and ".join([*shown, f"{more} more"] if more else shown)


def _step_of(
    name: str, text: str, *, asked: Any = None, instead: Any = None, options: Options = ()
) -> JobChangeStep:
    return JobChangeStep(
        criterion=name, text=text, asked=asked, instead=instead,
        options=[Option(value=value, queues=count) for value, count in options],
    )  # fmt: skip


def job_changes(demand: JobDemand, misses: Sequence[NearMiss], *, most: int) -> list[JobChange]:
    """Changes that admit most queues."""
    made: list[JobChange] = []
    for change in misses[:_LOOKED_AT]:
        if len(made) >= most and made[most - 1].queues >= change.count:
            break  # none that follows can admit more
        if admitting := _job_change(demand, change):
            made = sorted([*made, admitting], key=lambda other: -other.queues)
    return made[:most]


def _job_change(demand: JobDemand, change: NearMiss) -> JobChange | None:
    """None if the change admits no queue: another criterion may ask for what one step changes (the tags of cores)."""
    config = demand.config
    steps, case = _steps(demand, change)
    mask = config.places.narrow(case.mask, case.key)
    if case.mask and not mask and "RequiredTag" not in change.criteria:
        step, case = _STEPS["RequiredTag"](case, "RequiredTag")
        steps.append(step)
        mask = config.places.narrow(case.mask, case.key)
    if not mask:
        return None
    bit = next(bits(mask))
    place, reasons = config.table.queues[bit], list(demand.reasons(bit))
    closed = never_sent(config.by_bit[bit], config.backends, config.pools)
    if closed:
        text = f"{closed.parameter} of the queues, by the site administrator ({closed.text})"
        if closed.parameter == SUBMISSION_POOLS:
            text = f"the submission pools, by the server administrator ({closed.text})"
        reasons += [closed.text for step in steps if step.criterion in CAUSES]
        steps = [structs.replace(step, text=text) if step.criterion in CAUSES else step for step in steps]
    reasons += [PRIVATE_ONLY.text] if PRIVATE_ONLY.parameter in change.criteria else []
    return JobChange(
        change=[step.criterion for step in steps],
        text=joined(steps),
        queues=mask.bit_count(),
        steps=steps,
        example=ExampleQueue(site=place.site, ce=place.ce, queue=place.queue, reasons=reasons),
    )


def _steps(demand: JobDemand, change: NearMiss) -> tuple[list[JobChangeStep], _ChangedJob]:
    key, config = demand.key, demand.config
    by_name = {f"Requirements.{criterion.parameter}": criterion for criterion in demand.criteria}
    unpooled = replace(key, submit_pool="") if key.submit_pool else key
    case = _ChangedJob(
        key=unpooled, config=config, names=change.criteria, mask=change.mask, usable=demand.usable
    )
    steps = []
    for name in change.criteria:
        if not case.mask:
            break  # the steps before left no queue that could be asked what it offers
        if name in demand.unread:
            step = _left_out(name)
        elif name in by_name:
            step, case = _required(case, name, by_name[name])
        elif name in _STEPS:
            step, case = _STEPS[name](case, name)
        else:
            step = _step_of(name, name)
        steps.append(step)
    for unknown in unknown_names(case.key, config):
        names = getattr(case.key, unknown.field)
        left = tuple(name for name in names if name not in unknown.names)
        text = f"{unknown.attribute} without {_few(unknown.names)}"
        steps.append(_step_of(unknown.attribute, text, asked=names, instead=left or None))
        case = case.changed(**{unknown.field: left})
    return steps, case


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}"


def _left_out(name: str, asked: Any = None) -> JobChangeStep:
    return _step_of(name, f"{name} left out", asked=asked)


def _number(field: str) -> Callable[[_ChangedJob, str], Made]:
    def make(case: _ChangedJob, name: str) -> Made:
        number = getattr(case.key, field)
        options = _as_much(Counter(case.offered(field)))
        least = options[-1][0]
        # A queue that says no memory offers none to those that ask for some.
        text = f"{name} {number} -> {least}" if least else f"{name} left out"
        step = _step_of(name, text, asked=number, instead=least, options=options)
        return step, case.changed(**{field: least})

    return make


def _as_much(offers: Counter[Any], order: Callable[[Any], Any] | None = None) -> tuple[tuple[Any, int], ...]:
    """(value, queues that offer it or more): the most, the median, what all offer."""
    values = sorted(offers, key=order, reverse=True)
    reached = list(accumulate(map(offers.__getitem__, values)))
    middle = bisect_left(reached, (reached[-1] + 1) // 2)
    return tuple((values[place], reached[place]) for place in dict.fromkeys((0, middle, len(values) - 1)))


def _one_of(
    field: str, rule: str, offered: Callable[[_ChangedJob], Counter[str]] | None = None
) -> Callable[[_ChangedJob, str], Made]:
    def make(case: _ChangedJob, name: str) -> Made:
        offers = offered(case) if offered else Counter(case.offered(rule))
        options = tuple(offers.most_common(SHOWN))
        instead = tuple(value for value, _ in options)
        text = f"{name} -> {' or '.join(instead)}" if options else f"{name} left out"
        names = getattr(case.key, field)
        step = _step_of(name, text, asked=names, instead=instead or None, options=options)
        return step, case.changed(rule, **{field: instead})

    return make


def _banned(case: _ChangedJob, name: str) -> Made:
    options = tuple(Counter(case.offered("site")).most_common(SHOWN))
    banned, sites = case.key.banned_sites, case.config.sites
    allowed = [*(value for value, _ in options), *(site for site in banned if site not in sites)]
    instead = tuple(site for site in banned if site not in allowed)
    step = _step_of(
        name, f"{name} without {_few(allowed)}", asked=banned, instead=instead or None, options=options
    )
    return step, case.changed("banned_site", banned_sites=instead)


def _tags(field: str, text: str) -> Callable[[_ChangedJob, str], Made]:
    """The set of the queue that admits most. A queue both offers and requires tags, so the last step about them
    concerns both.
    """

    def make(case: _ChangedJob, name: str) -> Made:
        rules = _TAG_RULES[:1] if name == "Tag" and "RequiredTag" in case.names else _TAG_RULES
        wanted_tags = frozenset(case.key.tags)
        sets: Counter[frozenset[str]] = Counter()
        for offered_tags, n in Counter(case.offered(field)).items():
            sets[
                wanted_tags.difference(offered_tags)
                if field == "tags"
                else frozenset(offered_tags) - wanted_tags
            ] += n
        tried = []
        for tags, _ in sets.most_common(_TRIED):
            tried.append((case.changed(*rules, tags=tuple(sorted(tags ^ wanted_tags))), tags))
        tried.sort(key=lambda try_: (-try_[0].mask.bit_count(), len(try_[1]), sorted(try_[1])))
        options = tuple((", ".join(sorted(tags)), left.mask.bit_count()) for left, tags in tried[:SHOWN])
        best, names = tried[0][0], sorted(tried[0][1])
        step = _step_of(
            name, f"{text} {_few(names)}", asked=case.key.tags, instead=best.key.tags or None, options=options
        )
        return step, best

    return make


def _required(case: _ChangedJob, name: str, criterion: Requirement) -> Made:
    if criterion.kind is Kind.EXPRESSION:
        return _clause_step(case, name, criterion), case
    asked = criterion.wanted[0] if len(criterion.wanted) == 1 else criterion.wanted
    table = case.config.table
    offered = table.offered(criterion.folded, case.mask)
    if not offered:
        return _left_out(name, asked), case
    tried = []
    for options, instead in _instead(criterion, offered):
        mask = case.mask & table.eligible_mask([replace(criterion, wanted=instead)])
        tried.append((mask, options, instead))
    mask, options, instead = max(tried, key=lambda trial: trial[0].bit_count())
    words = " or ".join(map(str, criterion.wanted[:SHOWN]))
    text = f"{name} {words} -> {' or '.join(map(str, instead))}"
    value = instead[0] if len(instead) == 1 else instead
    return _step_of(name, text, asked=asked, instead=value, options=options), structs.replace(case, mask=mask)


def _clause_step(case: _ChangedJob, name: str, criterion: Requirement) -> JobChangeStep:
    (clause,) = expression(criterion).clauses
    counted: Counter[str] = Counter()
    for values, n in case.config.table.offered(clause.asks[0], case.mask) if len(clause.asks) == 1 else ():
        counted[", ".join(map(as_text, values))] += n
    return _step_of(name, f"{name} left out", asked=clause.text, options=counted.most_common(SHOWN))


def _instead(
    criterion: Requirement, offered: Sequence[tuple[tuple[Any, ...], int]]
) -> Iterator[tuple[tuple[tuple[Any, int], ...], tuple[Any, ...]]]:
    """What would do, and what is shown: of a capacity what all offer; of what must be equal what most have."""
    much = capacities(criterion, [values for values, _ in offered])
    counts: Counter[Any] = Counter()
    for most, (_, n) in zip(much, offered, strict=True):
        counts[most] += n
    equal = counts.pop(None, 0)
    if counts:
        steps = _as_much(counts, capacity_order(criterion))
        yield steps, (steps[-1][0],)
    if equal:
        # 1 and True are equal in Python and two values here.
        counted: Counter[tuple[bool, Any]] = Counter()
        for values, n in offered:
            for offer in sorted({(type(value) is bool, value) for value in values}, key=repr):
                counted[offer] += n
        options = tuple((value, n) for (_, value), n in counted.most_common(SHOWN))
        shown = 1 if all(isinstance(value, int | float) for value, _ in options) else SHOWN
        yield options, tuple(value for value, _ in options[:shown])


def _pools(case: _ChangedJob) -> Counter[str]:
    counts = {name: (case.mask & case.config.carried([name])).bit_count() for name in case.config.pools or ()}
    return Counter({name: counts[name] for name in sorted(counts) if counts[name]})


def _platforms(case: _ChangedJob) -> Counter[str]:
    counts: Counter[str] = Counter()
    for names, n in Counter(case.offered("platforms")).items():
        for name in () if ANY in names else names:
            counts[name] += n
    return counts


def _job_class(case: _ChangedJob, name: str) -> Made:
    """Another class, or none: the one that enters most of the queues."""
    key = case.key
    full_class = f"{key.job_class}.{key.variant}" if key.job_class else None
    listed = Counter(class_name for names in case.offered("job_classes") for class_name in names or ())
    usable = map(case.usable, sorted(listed, key=lambda class_name: -listed[class_name]))
    classes = dict.fromkeys(islice((class_name for class_name in usable if class_name is not None), _TRIED))
    tried = []
    for class_name in classes:
        job_class, variant = ("", "") if class_name in ("", NO_CLASS) else split_name(class_name)
        tried.append((case.changed("job_class", job_class=job_class, variant=variant), class_name))
    tried.sort(key=lambda class_name: -class_name[0].mask.bit_count())
    if not tried:
        return _step_of(name, name, asked=full_class), structs.replace(case, mask=0)
    best, instead = tried[0]
    text = f"{name} -> {'any class' if instead == ANY_JC else instead}" if instead else f"{name} left out"
    options = [(class_name or NO_CLASS, left.mask.bit_count()) for left, class_name in tried[:SHOWN]]
    return _step_of(name, text, asked=full_class, instead=instead or None, options=options), best


def _private(case: _ChangedJob, name: str) -> Made:
    text = f"PilotType -> {PRIVATE}{' and ForceGeneric left out' if case.key.force_generic else ''}"
    step = _step_of(name, text, asked=case.key.pilot_type or None, instead=PRIVATE)
    return step, case.changed(pilot_type=PRIVATE, force_generic=False)


_STEPS: Final[Mapping[str, Callable[[_ChangedJob, str], Made]]] = {
    "Site": _one_of("sites", "site"),
    "BannedSite": _banned,
    "GridCE": _one_of("grid_ces", "ce"),
    "JobClass": _job_class,
    "Platform": _one_of("platforms", "platform", _platforms),
    "Tag": _tags("tags", "Tag without"),
    "RequiredTag": _tags("required_tags", "Tag with"),
    "SubmitPool": _one_of("submission_pools", "", _pools),
    "NumberOfProcessors": _number("cores"),
    "Memory": _number("memory_mb"),
    "CPUTime": _number("norm_cpu_seconds"),
    PRIVATE_ONLY.parameter: _private,
}
