"""Resource quota sets over HTTP: they are read and checked here, and hold from the commit on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from lodesman.answers import calls
from lodesman.answers.accounts import AuditNote
from lodesman.answers.call import Nothing
from lodesman.answers.quotas import (
    BucketRow,
    DropQuotasBody,
    QuotaNoticeRow,
    QuotaResourceRow,
    QuotaResources,
    QuotasChanged,
    QuotaSetRow,
    QuotaSets,
    QuotaTextBody,
    QuotaUses,
)
from lodesman.answers.requests import AllQuery
from lodesman.api.core import Core
from lodesman.api.dispatch import Request, serves
from lodesman.api.fairness import origin_of
from lodesman.api.wire import following, page
from lodesman.commands.quotas import buckets, go_on, remove_quotas, set_quotas, use_limits
from lodesman.errors import InvalidConfig, InvalidRequest, SyntaxFault
from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.matching.policy import Policy
from lodesman.quota.notices import QuotaNotice, notices
from lodesman.quota.reading import read_quota_sets
from lodesman.quota.rules import FilterTag, QuotaSet, write_quota_sets
from lodesman.store.audit import Audited
from lodesman.store.journal import Change, Command
from lodesman.store.quotas import quota_sets


@serves(calls.QUOTAS)
async def _quotas(core: Core, _request: Request[Nothing, Nothing]) -> QuotaSets:
    found = core.quotas.sets
    return QuotaSets([
        QuotaSetRow(
            row.name, one.enabled, len(one.rules), row.text, row.changed_at, row.changed_by
        )
        for row in quota_sets(core.reader) if (one := found.get(row.name)) is not None
    ])  # fmt: skip


@serves(calls.SET_QUOTAS)
async def _set_quotas(core: Core, request: Request[Nothing, QuotaTextBody]) -> QuotasChanged:
    """Raises InvalidConfig with all faults of the text, Conflict, NotFound."""
    body, vocabulary = request.body, core.policy.vocabulary
    sets, odd = await asyncio.to_thread(_read, body.text, vocabulary, _known(core))
    names = [one.name for one in sets]
    if not body.trial:
        change = Change(set_quotas, core.quotas, sets, new=body.how == "add", by=request.who.name)
        note = AuditNote(
            "quota-changed", ", ".join(names), request.who.name, origin_of(request.scope),
            detail=write_quota_sets(sets),
        )  # fmt: skip
        await follow(core, Audited(change, note))
    return QuotasChanged(names, [QuotaNoticeRow(one.kind, one.rule, one.line, one.message) for one in odd])


@serves(calls.DROP_QUOTAS)
async def _drop_quotas(core: Core, request: Request[Nothing, DropQuotasBody]) -> QuotasChanged:
    names = list(dict.fromkeys(request.body.names))
    note = AuditNote("quota-removed", ", ".join(names)[:1_000], request.who.name, origin_of(request.scope))
    await follow(core, Audited(Change(remove_quotas, core.quotas, names), note))
    return QuotasChanged(names)


@serves(calls.QUOTA_USES)
async def _uses(core: Core, request: Request[AllQuery, Nothing]) -> QuotaUses:
    asked = request.query
    found: list[BucketRow] = await core.command(Change(buckets, core.live))
    some, more = page(following(found, asked.after, asked.limit, _bucket), asked.limit, _bucket)
    return QuotaUses(uses=some, **more)


def _bucket(row: BucketRow) -> str:
    return "\n".join((row.rule, *row.of, row.resource))


@serves(calls.QUOTA_RESOURCES)
async def _resources(core: Core, _request: Request[Nothing, Nothing]) -> QuotaResources:
    return QuotaResources([
        QuotaResourceRow(one.name, one.shortcut, one.kind, one.consumable, one.default)
        for one in core.policy.vocabulary.complexes
    ])  # fmt: skip


async def follow(core: Core, change: Command) -> None:
    """Make a change of rules; it answers when they are in use. Raises as the change."""
    are_used = await core.command(change)
    while are_used is False:
        are_used = await core.command(Change(go_on, core.quotas))


async def use_policy(core: Core, policy: Policy) -> None:
    """Limit by the vocabulary and the limits of sites of a new configuration. Raises as the change."""
    await follow(core, Change(use_limits, core.quotas, policy.vocabulary, policy.config.limits))


def _read(
    text: str, vocabulary: Vocabulary, known: Mapping[FilterTag, set[str]]
) -> tuple[Sequence[QuotaSet], list[QuotaNotice]]:
    faults: list[SyntaxFault] = []
    sets = read_quota_sets(text, vocabulary.complexes, faults=faults)
    if faults:
        raise InvalidConfig(
            f"{faults[0]}"
            if len(faults) == 1
            else f"The quota sets have {len(faults)} faults, first: {faults[0]}",
            hint="Nothing was changed.",
            faults=[fault.as_dict() for fault in faults],
        )
    if not sets:
        raise InvalidRequest("There is no quota set in the text.", hint="lode quota add --help shows one.")
    # Lines count in the text as it was given.
    return sets, notices(sets, vocabulary, known)


def _known(core: Core) -> Mapping[FilterTag, set[str]]:
    """The names that there are; users come and go, and hosts are known from pilots alone."""
    return {FilterTag.QUEUES: {queue.queue for queue in core.policy.config.tree.queue_ids()}}
