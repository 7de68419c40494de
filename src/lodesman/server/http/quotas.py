"""Resource quota sets over HTTP: texts are checked here, and hold from the commit on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from lodesman.base.errors import InvalidConfig, InvalidRequest, SyntaxFault
from lodesman.decide.matching.policy import Policy
from lodesman.languages.jobclass import Classes
from lodesman.languages.quota.matching import check_size, prepare_patterns
from lodesman.languages.quota.notices import find_notices
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import FilterTag, QuotaSet, write_quota_sets
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import origin_of
from lodesman.server.live.core import Core
from lodesman.server.live.rules import change_limits
from lodesman.server.store import Reader
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.journal import Change
from lodesman.server.store.quotas import quota_sets
from lodesman.server.writer.quotas import remove_quotas, set_quotas
from lodesman.wire import calls
from lodesman.wire.accounts import AuditNote
from lodesman.wire.call import Nothing
from lodesman.wire.quotas import (
    DropQuotasBody,
    QuotaNoticeRow,
    QuotaResourceRow,
    QuotaResources,
    QuotasChanged,
    QuotaSetRow,
    QuotaSets,
    QuotaTextBody,
)


@serves(calls.QUOTAS)
async def _quotas(core: Core, _request: Request[Nothing, Nothing]) -> QuotaSets:
    sets = core.quotas.in_use
    return QuotaSets([
        QuotaSetRow(
            row.name, quota_set.enabled, len(quota_set.rules), row.text, row.changed_at, row.changed_by
        )
        for row in quota_sets(core.reader) if (quota_set := sets.get(row.name)) is not None
    ])  # fmt: skip


@serves(calls.SET_QUOTAS)
async def _set_quotas(core: Core, request: Request[Nothing, QuotaTextBody]) -> QuotasChanged:
    body = request.body
    names_in_use = known_names(core.policy, core.job_classes.now, core.reader)
    sets, odd = await asyncio.to_thread(read_sets, body.text, core.policy, names_in_use)
    await asyncio.to_thread(
        _make_ready, {**core.quotas.in_use, **{quota_set.name: quota_set for quota_set in sets}}
    )
    names = [quota_set.name for quota_set in sets]
    if not body.trial:
        note = AuditNote(
            "quota-changed", ", ".join(names), request.who.name, origin_of(request.scope),
            detail=write_quota_sets(sets),
        )  # fmt: skip
        await change_limits(core, Change(set_quotas, core.quotas, sets, new=body.how == "add", note=note))
    return QuotasChanged(names, odd)


def _make_ready(sets: Mapping[str, QuotaSet]) -> None:
    check_size(sets.values())
    prepare_patterns(sets.values())


@serves(calls.DROP_QUOTAS)
async def _drop_quotas(core: Core, request: Request[Nothing, DropQuotasBody]) -> QuotasChanged:
    names = list(dict.fromkeys(request.body.names))
    note = AuditNote("quota-removed", ", ".join(names)[:1_000], request.who.name, origin_of(request.scope))
    await change_limits(core, Change(remove_quotas, core.quotas, names, note))
    return QuotasChanged(names)


@serves(calls.QUOTA_RESOURCES)
async def _resources(core: Core, _request: Request[Nothing, Nothing]) -> QuotaResources:
    return QuotaResources([
        QuotaResourceRow(resource.name, resource.shortcut, resource.kind, resource.consumable, resource.default)
        for resource in core.policy.vocabulary.complexes
    ])  # fmt: skip


Known = Mapping[FilterTag, Collection[str]]
"""Names that there are now, by kind, of users those of groups (`@group`), too; of hosts, which are known from pilots alone,
and of PEs there is no list.
"""


def known_names(policy: Policy, classes: Classes, db: Reader) -> Known:
    """The names that filters may have."""
    accounts = groups_by_user(db)
    jcs = {
        f"{job_class.name}.{variant}"
        for job_class in classes.by_name.values()
        for variant in job_class.variants
    }
    return {
        FilterTag.QUEUES: {queue.queue for queue in policy.config.tree.queue_ids()},
        FilterTag.JCS: {*classes.by_name, *jcs},
        FilterTag.USERS: {*accounts, *(f"@{group}" for groups in accounts.values() for group in groups)},
    }


def read_sets(text: str, policy: Policy, known: Known) -> tuple[Sequence[QuotaSet], list[QuotaNoticeRow]]:
    """With what is odd in them. Raises InvalidConfig with all faults, InvalidRequest."""
    faults: list[SyntaxFault] = []
    sets = read_quota_sets(text, policy.vocabulary.complexes, faults=faults)
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
    odd = find_notices(sets, policy.vocabulary, known)
    return sets, [QuotaNoticeRow(notice.kind, notice.rule, notice.line, notice.message) for notice in odd]
