"""Quota sets as the limit engine takes them. A filter is asked once for each value (a user, a project, ...), so a
thousand rules cost a task queue a few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from math import isfinite
from typing import Final, NamedTuple

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.limit_rules import Need, RunPlace, Values
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.complexes import Complex, Complexes, Consumable
from lodesman.languages.gridengine.values import ComplexType, Number, RelOp, Value, exact, holds
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.quota.evaluation import amount_of, is_booked, limit_value
from lodesman.languages.quota.matching import (
    OF_JOBS,
    QuotaJob,
    QuotaPlace,
    admits,
    fits,
    job_values,
    place_values,
)
from lodesman.languages.quota.rules import FilterTag, QuotaFilter, QuotaLimit, QuotaRule, QuotaSet

_MB: Final = 1 << 20
_OF_MEMORY: Final = ("h_vmem", "mem_free", "virtual_free")
# values of a host by full name of the complex; a missing one is unknown
Load = Callable[[str], Mapping[str, Number]]


class _Term(NamedTuple):
    """A resource that a rule limits, and its limits, of which the smallest counts."""

    label: str
    resource: Complex
    limits: tuple[QuotaLimit, ...]


@cache
def _compare(kind: ComplexType, relation: RelOp) -> Callable[[Value, Value], bool]:
    """Cached, so that equal resources have equal needs."""
    return partial(holds, kind, relation)


class _JobSide:
    def __init__(self, book: QuotaBook, job: QuotaJob, bits: int) -> None:
        self.bits = bits
        self._book = book
        self._job = job
        self._needs: dict[int, tuple[Need, ...]] = {}

    def values(self, rule: int) -> Values:
        return job_values(self._book.rules[rule], self._job)

    def needs(self, rule: int) -> tuple[Need, ...]:
        alike = self._book.alike[rule]
        known = self._needs.get(alike)
        if known is None:
            known = self._needs[alike] = tuple(self._found(rule))
        return known

    def _found(self, rule: int) -> Iterator[Need]:
        for label, resource, _ in self._book.terms[rule]:
            amount = amount_of(resource, self._job)
            if amount is None:
                continue
            if is_booked(resource) and not isinstance(amount, str):
                # What is infinite could never be given back.
                yield Need(label, amount, amount if isfinite(amount) else 0)
            else:
                yield Need(label, amount, 0, _compare(resource.kind, resource.relation))


class _PlaceSide:
    def __init__(self, book: QuotaBook, place: QuotaPlace, bits: int) -> None:
        self.bits = bits
        self._book = book
        self._place = place

    def values(self, rule: int) -> Values:
        return place_values(self._book.rules[rule], self._place)

    def limits(self, rule: int) -> Mapping[str, Value]:
        found: dict[str, Value] = {}
        for label, _, limits in self._book.terms[rule]:
            values = [limit_value(one, self._place) for one in limits]
            found[label] = values[0] if len(values) == 1 else min(v for v in values if not isinstance(v, str))
        return found


class QuotaBook:
    """The rules of all enabled sets. `load` gives what dynamic limits need of a host."""

    def __init__(self, sets: Iterable[QuotaSet], vocabulary: Vocabulary, load: Load = lambda _: {}) -> None:
        enabled = [one for one in sets if one.enabled]
        self.rules: list[QuotaRule] = [rule for one in enabled for rule in one.rules]
        self.terms = [_terms(rule, vocabulary.complexes) for rule in self.rules]
        # By rule: a number, equal for those that limit the same resources.
        numbers: dict[tuple[tuple[str, Complex], ...], int] = {}
        self.alike = [
            numbers.setdefault(tuple(one[:2] for one in terms), len(numbers)) for terms in self.terms
        ]
        ends = [0]
        for one in enabled:
            ends.append(ends[-1] + len(one.rules))
        self._sets = tuple(pairwise(ends))
        self._names = tuple(rule.label for rule in self.rules)
        self._vocabulary = vocabulary
        self._load = load
        # Of each kind of filter: the rules that have none, and those that have each.
        self._filters = {tag: _by_filter(self.rules, tag) for tag in FilterTag}
        self._by_place = sum(
            1 << number
            for number, rule in enumerate(self.rules)
            if any(one.braced for tag, one in rule.filters.items() if tag not in OF_JOBS)
        )
        self._passed: dict[tuple[FilterTag, Hashable], int] = {}

    @property
    def sets(self) -> tuple[tuple[int, int], ...]:
        """The first rule of each set, and the one after its last."""
        return self._sets

    @property
    def by_place(self) -> int:
        """The rules that count places apart."""
        return self._by_place

    @property
    def names(self) -> tuple[str, ...]:
        """`set/rule` of each."""
        return self._names

    def kind_of(self, key: TaskQueueKey) -> Hashable:
        """All that rules see of a task queue."""
        return (
            key.owner, key.project, key.job_class, key.variant, key.pe, key.cores, key.memory_mb,
            key.norm_cpu_seconds, key.consumables,
        )  # fmt: skip

    def of_key(self, key: TaskQueueKey) -> _JobSide:
        """The rules whose filters of users, projects, PEs and job classes let its jobs pass."""
        job = job_of(key, self._vocabulary)
        asked: Mapping[FilterTag, Hashable] = {
            FilterTag.USERS: job.user,
            FilterTag.PROJECTS: job.project,
            FilterTag.PES: (job.pe, not job.pe and job.slots > 1),
            FilterTag.JCS: (job.job_class, job.variant),
        }
        return _JobSide(self, job, self._bits(asked, lambda tag, one: fits(tag, one, job)))

    def of_place(self, place: RunPlace) -> _PlaceSide:
        """The rules whose filters of queues and hosts let it pass."""
        host = place.host
        groups = self._vocabulary.groups_of(host)
        found = QuotaPlace(queue=place.queue, host=host, host_groups=groups, load=self._load(host))
        asked = {FilterTag.QUEUES: place.queue, FilterTag.HOSTS: host}
        return _PlaceSide(self, found, self._bits(asked, lambda tag, one: admits(tag, one, found)))

    def _bits(
        self, asked: Mapping[FilterTag, Hashable], passes: Callable[[FilterTag, QuotaFilter], bool]
    ) -> int:
        """The rules whose filters of these kinds let these values pass; each filter is asked once for each value."""
        bits = (1 << len(self.rules)) - 1
        for tag, value in asked.items():
            passed = self._passed.get((tag, value))
            if passed is None:
                passed, having = self._filters[tag]
                for one, rules in having.items():
                    if passes(tag, one):
                        passed |= rules
                self._passed[tag, value] = passed
            bits &= passed
        return bits


def _by_filter(rules: Collection[QuotaRule], tag: FilterTag) -> tuple[int, dict[QuotaFilter, int]]:
    without, having = 0, dict[QuotaFilter, int]()
    for number, rule in enumerate(rules):
        one = rule.filters.get(tag)
        if one is None:
            without |= 1 << number
        else:
            having[one] = having.get(one, 0) | 1 << number
    return without, having


def _terms(rule: QuotaRule, complexes: Complexes) -> tuple[_Term, ...]:
    """Limits on what is used up are joined; of what is only compared, each counts."""
    found: dict[str, tuple[Complex, list[QuotaLimit]]] = {}
    for limit in rule.limits:
        resource = complexes.get(limit.resource)
        if resource is None:
            continue
        label = resource.name
        if label in found and not is_booked(resource):
            label = f"{label}#{len(found)}"
        found.setdefault(label, (resource, []))[1].append(limit)
    return tuple(_Term(label, resource, tuple(limits)) for label, (resource, limits) in found.items())


def _memory(key: TaskQueueKey, complexes: Complexes) -> dict[str, Value]:
    """Requests are for each core, exactly, unless the resource is used up once per job."""
    found: dict[str, Value] = {}
    for name in _OF_MEMORY:
        resource = complexes.get(name)
        is_by_job = resource is not None and resource.consumable is Consumable.JOB
        found[name] = exact(Fraction(key.memory_mb * _MB, 1 if is_by_job else key.cores))
    return found


def job_of(key: TaskQueueKey, vocabulary: Vocabulary) -> QuotaJob:
    """The jobs of a task queue as rules see them. Memory and CPU time are requests, too, where complexes mean the same."""
    requests = _memory(key, vocabulary.complexes) if key.memory_mb else {}
    requests["h_cpu"] = key.norm_cpu_seconds
    for text in key.consumables:
        name, _, value = text.partition("=")
        resource = vocabulary.complexes.get(name)
        if resource is not None:
            with suppress(InvalidConfig):  # its type is another since the job was submitted
                requests[resource.name] = resource.value(value)
    return QuotaJob(
        user=key.owner,
        user_lists=vocabulary.lists_of(key.owner),
        project=key.project,
        job_class=key.job_class,
        variant=key.variant or "default",
        pe=key.pe,
        slots=key.cores,
        requests=requests,
    )
