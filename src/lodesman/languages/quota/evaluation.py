"""A job's use of limits at a place, and whether there is room (sge_resource_quota(5))."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import NamedTuple

from msgspec import Struct

from lodesman.languages.gridengine.complexes import Complex, Complexes, Consumable
from lodesman.languages.gridengine.values import Number, Value, exact, holds, write_value
from lodesman.languages.quota.matching import (
    JobValues,
    PlaceValues,
    QuotaJob,
    QuotaPlace,
    job_side,
    place_side,
)
from lodesman.languages.quota.rules import QuotaLimit, QuotaRule, QuotaSet

_SLOTS = "slots"


class Bucket(NamedTuple):
    """What is counted together."""

    rule: str  # Its label.
    job: JobValues  # For filters in braces, like `place`.
    place: PlaceValues

    def __str__(self) -> str:
        """As Grid Engine prints it, with a job class behind it."""
        where = f"{self.job.user}/{self.job.project}/{self.job.pe}/{self.place.queue}/{self.place.host}/"
        return f"{where}{self.job.job_class}/" if self.job.job_class else where


class Charge(Struct, frozen=True, kw_only=True):
    """A job's use of one resource."""

    resource: Complex
    amount: Value  # If not booked: the job's own request, compared with `limit` alone.
    limit: Value
    # Used plus `amount` stays within `limit`, all numbers; not so of resources that are not consumable.
    booked: bool


class QuotaHit(Struct, frozen=True, kw_only=True):
    """The rule of a set that counts for a job at a place."""

    rule: QuotaRule
    bucket: Bucket
    charges: tuple[Charge, ...]


class LimitExcess(Struct, frozen=True, kw_only=True):
    """Why a job may not start."""

    bucket: Bucket
    charge: Charge
    used: Number  # What other jobs hold; 0 if nothing is booked.

    @property
    def sentence(self) -> str:
        """In Grid Engine's words."""
        return f'exceeds limit "{self.bucket}" in rule "{self.bucket.rule}"'

    @property
    def data(self) -> dict[str, str]:
        """The values as texts."""
        kind, charge = self.charge.resource.kind, self.charge
        values = {"requested": charge.amount, "used": self.used, "limit": charge.limit}
        names = {"rule": self.bucket.rule, "bucket": str(self.bucket), "resource": charge.resource.name}
        return names | {name: write_value(kind, value) for name, value in values.items()}


def evaluate(
    sets: Iterable[QuotaSet], job: QuotaJob, place: QuotaPlace, complexes: Complexes
) -> tuple[QuotaHit, ...]:
    """Of each enabled set the first rule about this job at this place."""
    hits = []
    for quota_set in sets:
        for rule in quota_set.rules if quota_set.enabled else ():
            of_place = place_side(rule, place)
            of_job = None if of_place is None else job_side(rule, job)
            if of_place is not None and of_job is not None:
                bucket = Bucket(rule.label, of_job, of_place)
                hits.append(QuotaHit(rule=rule, bucket=bucket, charges=charges(rule, job, place, complexes)))
                break
    return tuple(hits)


def charges(rule: QuotaRule, job: QuotaJob, place: QuotaPlace, complexes: Complexes) -> tuple[Charge, ...]:
    """What a job takes of each resource of a rule, but for those of which it takes nothing.

    A limit on an unknown complex charges nothing.
    """
    booked: dict[str, Charge] = {}
    compared = []
    for limit in rule.limits:
        entry = complexes.get(limit.resource)
        charge = _charge(entry, limit, job, place) if entry else None
        if charge is None:
            continue
        if not charge.booked:
            compared.append(charge)
            continue
        # The smallest of several limits on one resource holds, and it is booked once.
        before = booked.get(charge.resource.name)
        if before is None or _number(charge.limit) < _number(before.limit):
            booked[charge.resource.name] = charge
    return (*booked.values(), *compared)


def _charge(entry: Complex, limit: QuotaLimit, job: QuotaJob, place: QuotaPlace) -> Charge | None:
    amount = amount_of(entry, job)
    if amount is None:
        return None
    return Charge(resource=entry, amount=amount, limit=limit_value(limit, place), booked=is_booked(entry))


def is_booked(entry: Complex) -> bool:
    """Whether jobs use it up; else a request alone is compared with a limit."""
    return entry.name == _SLOTS or entry.is_consumable


def amount_of(entry: Complex, job: QuotaJob) -> Value | None:
    """What a job takes, or requests; None if nothing."""
    requested = job.requests.get(entry.name)
    if entry.name == _SLOTS:
        return job.slots
    if not entry.is_consumable:
        return requested
    amount = _number(entry.default_value if requested is None else requested)
    if entry.consumable is Consumable.YES:
        amount = exact(amount * job.slots)
    return amount or None


def limit_value(limit: QuotaLimit, place: QuotaPlace) -> Value:
    """Infinite without a load value that it needs: what is unknown holds nothing back."""
    if not limit.terms:
        return limit.value
    total: Number = 0
    for term in limit.terms:
        total += term.weight * (place.load.get(term.name, inf) if term.name else 1)
    return total if isfinite(total) else inf


def _number(value: Value) -> Number:
    return 0 if isinstance(value, str) else value


def find_excesses(hits: Iterable[QuotaHit], used: Mapping[tuple[Bucket, str], Number]) -> list[LimitExcess]:
    """What keeps a job from starting. `used`: by bucket and full name of the resource."""
    return [
        LimitExcess(bucket=hit.bucket, charge=charge, used=before)
        for hit in hits
        for charge in hit.charges
        for before in [used.get((hit.bucket, charge.resource.name), 0) if charge.booked else 0]
        if not _has_room(charge, before)
    ]


def _has_room(charge: Charge, used: Number) -> bool:
    if charge.booked:
        return used + _number(charge.amount) <= _number(charge.limit)
    return holds(charge.resource.kind, charge.resource.relation, charge.amount, charge.limit)
