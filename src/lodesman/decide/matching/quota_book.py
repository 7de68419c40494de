"""Quota sets for the limit engine. A filter is asked once for each value, so a thousand rules cost a task queue a few
steps.
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
    """A limited resource; the smallest of its limits counts."""

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
        needs = self._needs.get(alike)
        if needs is None:
            needs = self._needs[alike] = tuple(self._found(rule))
        return needs

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
        by_label: dict[str, Value] = {}
        for label, _, limits in self._book.terms[rule]:
            values = [limit_value(limit, self._place) for limit in limits]
            by_label[label] = (
                values[0] if len(values) == 1 else min(v for v in values if not isinstance(v, str))
            )
        return by_label


class QuotaBook:
    """The rules of enabled sets. `load` gives what dynamic limits need of a host."""

    def __init__(self, sets: Iterable[QuotaSet], vocabulary: Vocabulary, load: Load = lambda _: {}) -> None:
        enabled = [quota_set for quota_set in sets if quota_set.enabled]
        self.rules: list[QuotaRule] = [rule for quota_set in enabled for rule in quota_set.rules]
        self.terms = [_terms(rule, vocabulary.complexes) for rule in self.rules]
        # By rule: a number, equal for those that limit the same resources.
        numbers: dict[tuple[tuple[str, Complex], ...], int] = {}
        self.alike = [
            numbers.setdefault(tuple(term[:2] for term in terms), len(numbers)) for terms in self.terms
        ]
        ends = [0]
        for quota_set in enabled:
            ends.append(ends[-1] + len(quota_set.rules))
        self._sets = tuple(pairwise(ends))
        self._names = tuple(rule.label for rule in self.rules)
        self._vocabulary = vocabulary
        self._load = load
        # Of each kind of filter: the rules that have none, and those that have each.
        self._filters = {tag: _by_filter(self.rules, tag) for tag in FilterTag}
        self._by_place = sum(
            1 << number
            for number, rule in enumerate(self.rules)
            if any(filters.braced for tag, filters in rule.filters.items() if tag not in OF_JOBS)
        )
        self._passed: dict[tuple[FilterTag, Hashable], int] = {}

    @property
    def sets(self) -> tuple[tuple[int, int], ...]:
        """See `RuleBook`."""
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
        """The rules whose filters of users, projects, PEs and classes it passes."""
        job = job_of(key, self._vocabulary)
        values: Mapping[FilterTag, Hashable] = {
            FilterTag.USERS: job.user,
            FilterTag.PROJECTS: job.project,
            FilterTag.PES: (job.pe, not job.pe and job.slots > 1),
            FilterTag.JCS: (job.job_class, job.variant),
        }
        return _JobSide(self, job, self._bits(values, lambda tag, quota_filter: fits(tag, quota_filter, job)))

    def of_place(self, place: RunPlace) -> _PlaceSide:
        """The rules whose filters of queues and hosts it passes."""
        host = place.host
        groups = self._vocabulary.groups_of(host)
        quota_place = QuotaPlace(queue=place.queue, host=host, host_groups=groups, load=self._load(host))
        values = {FilterTag.QUEUES: place.queue, FilterTag.HOSTS: host}
        return _PlaceSide(
            self,
            quota_place,
            self._bits(values, lambda tag, quota_filter: admits(tag, quota_filter, quota_place)),
        )

    def _bits(
        self, values: Mapping[FilterTag, Hashable], passes: Callable[[FilterTag, QuotaFilter], bool]
    ) -> int:
        bits = (1 << len(self.rules)) - 1
        for tag, value in values.items():
            passed = self._passed.get((tag, value))
            if passed is None:
                passed, having = self._filters[tag]
                for quota_filter, rules in having.items():
                    if passes(tag, quota_filter):
                        passed |= rules
                self._passed[tag, value] = passed
            bits &= passed
        return bits


def _by_filter(rules: Collection[QuotaRule], tag: FilterTag) -> tuple[int, dict[QuotaFilter, int]]:
    without, having = 0, dict[QuotaFilter, int]()
    for number, rule in enumerate(rules):
        quota_filter = rule.filters.get(tag)
        if quota_filter is None:
            without |= 1 << number
        else:
            having[quota_filter] = having.get(quota_filter, 0) | 1 << number
    return without, having


def _terms(rule: QuotaRule, complexes: Complexes) -> tuple[_Term, ...]:
    """Limits on what is used up are joined."""
    by_label: dict[str, tuple[Complex, list[QuotaLimit]]] = {}
    for limit in rule.limits:
        resource = complexes.get(limit.resource)
        if resource is None:
            continue
        label = resource.name
        if label in by_label and not is_booked(resource):
            label = f"{label}#{len(by_label)}"
        by_label.setdefault(label, (resource, []))[1].append(limit)
    return tuple(_Term(label, resource, tuple(limits)) for label, (resource, limits) in by_label.items())


def _memory(key: TaskQueueKey, complexes: Complexes) -> dict[str, Value]:
    """Exact amounts for each core, unless the resource is used up once per job."""
    requests: dict[str, Value] = {}
    for name in _OF_MEMORY:
        resource = complexes.get(name)
        is_by_job = resource is not None and resource.consumable is Consumable.JOB
        requests[name] = exact(Fraction(key.memory_mb * _MB, 1 if is_by_job else key.cores))
    return requests


def job_of(key: TaskQueueKey, vocabulary: Vocabulary) -> QuotaJob:
    """A task queue's jobs as rules see them. Memory and CPU time are requests, too."""
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
