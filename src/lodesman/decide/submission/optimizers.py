"""The optimizers: they check and complete a draft of a job, or refuse the job."""

from __future__ import annotations

import difflib
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as with_fields

from lodesman.base.errors import InvalidConfig, InvalidJob
from lodesman.decide.matching.policy import JudgedJob, VOConfig
from lodesman.decide.matching.submit_pool import NO_REQUIREMENTS, Requirements, requirements_of, with_stations
from lodesman.decide.matching.task_queue import job_ad, key_of, key_to_json
from lodesman.decide.resources import fold
from lodesman.decide.resources.requirement import CONSTRAINT
from lodesman.decide.submission.exclusions import find_exclusions, never_text
from lodesman.decide.submission.job_changes import unknown_names
from lodesman.languages.classad import Ad
from lodesman.languages.gridengine.complexes import Complexes, Requestable
from lodesman.languages.gridengine.values import write_value
from lodesman.languages.jobclass.classes import UsableClass, every_class
from lodesman.languages.jobs import JobSpec, is_plain_name
from lodesman.languages.jobs.attributes import ATTRIBUTES

_SHOWN: Final = 10
# Of what all jobs of a task queue have in common: each process keeps it in memory.
_MAX_KEY_BYTES: Final = 64 << 10
_CORRECT: Final = "Correct the name, or leave it out."
_WAIT: Final = (
    "Correct the name, leave it out, or submit with --hold-if-impossible: then it need not be there yet."
)
_WAITED_FOR: Final = ("Site", "SubmitPool")
_KINDS: Final = {"SubmitPool": "submission pool", "GridCE": "CE"}
_LISTED: Final = {"Site": "lode site ls lists the sites.", "GridCE": "lode queue ls lists the CEs."}


class JobDraft(Struct, frozen=True, kw_only=True):
    """One cohort of a submission."""

    spec: JobSpec
    owner: str
    group: str
    vo: str
    # an impossible job is Held instead of refused, even if it names what is not configured
    hold: bool = False
    usable: UsableClass = every_class  # the job classes that may be suggested


def _check_names(draft: JobDraft, config: VOConfig) -> None:
    """Refuse sites and submission pools that are not configured, with the nearest name. A job that may be Held waits
    for plain names.
    """
    for unknown in unknown_names(draft.spec, config, hold=draft.hold):
        name, attribute = unknown.names[0], unknown.attribute
        kind = _KINDS.get(attribute, "site")
        of_vo = "" if attribute == "SubmitPool" else f" for VO {config.vo}"
        there_are = _LISTED.get(attribute) or f"There are {', '.join(sorted(unknown.known)[:_SHOWN])}."
        action = _WAIT if attribute in _WAITED_FOR and is_plain_name(name) else _CORRECT
        raise InvalidJob(
            f"{attribute}: there is no {kind} {name!r}{of_vo}.",
            hint=f"{_nearest(name, unknown.known) or there_are} {action}",
            attribute=attribute,
        )


def ban_of_nothing(name: str, config: VOConfig, word: str = "BannedSite") -> str:
    """About a banned site that is not configured; '' if it is. `word`: the user's word for the attribute."""
    if name in config.sites:
        return ""
    near = _nearest(name, config.sites)
    return f"{word}: there is no site {name!r} for VO {config.vo}; the ban is kept.{near and f' {near}'}"


def _consumables(spec: JobSpec, complexes: Complexes) -> tuple[str, ...]:
    """`name=amount`, with full names and canonical amounts. Raises InvalidJob."""
    amounts: dict[str, str] = {}
    for text in spec.consumables:
        name, _, amount = text.partition("=")
        resource = complexes.get(name)
        if resource is None:
            hint = complexes.near(name) or "lode quota resources lists them."
            raise _of_consumables(f"there is no resource {name!r}", hint)
        if resource.requestable is Requestable.NO:
            raise _of_consumables(f"jobs cannot ask for {resource.name}", "Leave it out.")
        if resource.name in amounts:
            raise _of_consumables(f"{resource.name} is given twice", "Give one amount.")
        try:
            value = resource.value(amount)
        except InvalidConfig as wrong:
            raise _of_consumables(wrong.message.rstrip("."), wrong.hint) from None
        if resource.is_consumable and not (isinstance(value, str) or 0 <= value < inf):
            raise _of_consumables(f"no job can use {amount} of {resource.name}", "Give an amount from 0.")
        amounts[resource.name] = write_value(resource.kind, value)
    return tuple(sorted(f"{name}={amount}" for name, amount in amounts.items()))


def _of_consumables(message: str, hint: str) -> InvalidJob:
    return InvalidJob(f"Consumables: {message}.", hint=hint, attribute="Consumables")


def _nearest(name: str, names: frozenset[str]) -> str:
    folded = {candidate.casefold(): candidate for candidate in sorted(names)}
    near = difflib.get_close_matches(name.casefold(), folded, 1, 0.6)
    return f"Did you mean {folded[near[0]]}?" if near else ""


def _request(draft: JobDraft) -> Ad | None:
    if not draft.spec.stations and not any(fold(name) == CONSTRAINT for name in draft.spec.requirements):
        return None
    return job_ad(key_of(draft.spec, owner=draft.owner, group=draft.group, vo=draft.vo))


def _requirements(draft: JobDraft, config: VOConfig) -> Requirements:
    """With the job's stations. Raises InvalidJob."""
    written, stations, types = draft.spec.requirements, draft.spec.stations, config.table.types
    if not written and not stations:
        return NO_REQUIREMENTS
    request = _request(draft)
    # First without stations: a fault is named where the user wrote it.
    compiled = requirements_of(written, types, config.vo, request)
    if not stations:
        return compiled
    try:
        return requirements_of(with_stations(written, stations), types, config.vo, request)
    except InvalidJob as wrong:
        raise InvalidJob(
            f"Stations: with the Requirements, {wrong.message.partition(': ')[2]}",
            hint="Name fewer stations.",
            attribute="Stations",
        ) from None


def _too_large(spec: JobSpec, size: int) -> InvalidJob:
    """Names the longest attribute."""
    sizes = {
        attribute.name: len(str(getattr(spec, attribute.field)))
        for attribute in ATTRIBUTES
        if attribute.use == "key"
    }
    longest = max(sizes, key=sizes.__getitem__)
    return InvalidJob(
        f"{longest}: what decides where the job can run has {size} bytes in all; at most {_MAX_KEY_BYTES}.",
        hint="Name fewer places or values. A Tag or one of the Requirements can stand for many places.",
        attribute=longest,
    )


def optimize(draft: JobDraft, config: VOConfig) -> JudgedJob:
    """Find SubmitPool and task queue, then why no queue could run the job. Raises InvalidJob."""
    _check_names(draft, config)
    if draft.spec.consumables:
        draft = replace(
            draft, spec=with_fields(draft.spec, consumables=_consumables(draft.spec, config.complexes))
        )
    # Requirements become a SubmitPool: a hash of their canonical form, and its eligible queues (RFC #7).
    requirements = _requirements(draft, config)
    mask = config.table.eligible_mask(requirements.criteria) if requirements.pool else 0
    key = key_of(draft.spec, owner=draft.owner, group=draft.group, vo=draft.vo, submit_pool=requirements.pool)
    size = len(key_to_json(key).encode()) + len(requirements.text.encode())
    if size > _MAX_KEY_BYTES:
        raise _too_large(draft.spec, size)
    never = ""
    if not config.possible_queues(key, mask):
        never = never_text(find_exclusions(key, requirements.criteria, config, draft.usable))
    return JudgedJob(key, requirements, mask, never)
