"""Shares and members of groups by command, beside those of the files."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from msgspec import UNSET

from lodesman.base.errors import Conflict, InvalidRequest, NotFound
from lodesman.decide.matching.policy import Policy
from lodesman.server.store import Reader, accounts
from lodesman.server.store.accounts import shares_set, shares_version
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.accounts import check_reach
from lodesman.server.writer.site_mask import check_reason
from lodesman.wire.accounts import EVERYBODY, Reach, UserRow
from lodesman.wire.groups import GroupRow

_SHOWN = 20


class NamedGroup(NamedTuple):
    """Configured, with members, or with a share by command."""

    name: str
    vos: frozenset[str]  # it is of one of these; none: of any VO
    users: tuple[UserRow, ...]


def know_shares(db: Reader, policy: Policy, now: float) -> None:
    """Let a policy have the shares by command, read only after a change, or an end."""
    version = shares_version(db)
    if policy.shares_version != version or now >= policy.shares_until:
        changes = shares_set(db, now)
        shares = {group: change.share for group, change in changes.items() if change.share is not None}
        ends = (change.until for change in changes.values() if change.until is not UNSET)
        policy.set_shares(version, shares, min(ends, default=inf))


def known_groups(policy: Policy, users: Iterable[UserRow]) -> dict[str, NamedGroup]:
    """Groups by name."""
    members: dict[str, list[UserRow]] = {}
    for user in users:
        for name in user.groups:
            members.setdefault(name, []).append(user)
    groups = {}
    for name in sorted({*policy.config.groups, *policy.set_by_command, *members}):
        configured, some = policy.config.groups.get(name), members.get(name, [])
        vos = {user.vo for user in some} if configured is None else {configured.vo} - {""}
        groups[name] = NamedGroup(name, frozenset(vos), tuple(some))
    return groups


def group_named(groups: Mapping[str, NamedGroup], name: str) -> NamedGroup:
    """Raises NotFound, with the most similar names."""
    if name not in groups:
        near = difflib.get_close_matches(name, groups, _SHOWN, 0.0)
        raise NotFound(f"There is no group {name[:80]}.", hint=f"Groups: {', '.join(near)}." if near else "")
    return groups[name]


def group_rows(db: Reader, policy: Policy, some: Iterable[NamedGroup], now: float) -> list[GroupRow]:
    """Groups with their shares, and where these come from."""
    by_command, rows = shares_set(db, now), []
    for group in some:
        change, configured = by_command.get(group.name), policy.config.groups.get(group.name)
        rows.append(
            GroupRow(
                group=group.name,
                vo=", ".join(sorted(group.vos)),
                share=policy.share_of(group.name),
                file_share=None if configured is None else configured.share,
                job_sharing=configured is not None and configured.job_sharing,
                set_by="" if change is None else change.by,
                set_at=None if change is None else change.at,
                reason="" if change is None else change.reason,
                users=[user.name for user in group.users],
                until=UNSET if change is None else change.until,
            )
        )
    return rows


def set_share(
    tx: Transaction, group: str, share: float | None, *, by: str, reason: str, until: float | None = None
) -> None:
    """Set a share in place of that of the files, `until` a time; None: that of the files again.

    Raises InvalidRequest without a reason or for a senseless time, Conflict if there is nothing to take back.
    """
    reason = check_reason(reason)
    if until is not None and (share is None or until <= tx.now):
        words = (
            "The time until which it shall hold has passed."
            if share is not None
            else "A share of the files has no end."
        )
        raise InvalidRequest(words, parameter="until")
    if share is None and group not in shares_set(tx.reader(), tx.now):
        raise Conflict(f"The share of group {group} is that of the files.", hint="See: lode group ls")
    accounts.note_share(tx, group, share, by=by, reason=reason, until=until)


def add_members(
    tx: Transaction, group: str, users: Sequence[str], *, by: str, reason: str, reach: Reach = EVERYBODY
) -> None:
    """All or none. Raises NotFound, Forbidden."""
    for user in _users(tx, users, reach):
        if group not in user.groups:
            _put(tx, user, [*user.groups, group], by=by, reason=reason)


def remove_members(
    tx: Transaction, group: str, users: Sequence[str], *, by: str, reason: str, reach: Reach = EVERYBODY
) -> None:
    """All or none; jobs stay. Raises NotFound, Conflict for a user's only group, Forbidden."""
    members = _users(tx, users, reach)
    for user in members:
        if group not in user.groups:
            raise NotFound(f"User {user.name} is not in group {group}.", hint=f"See: lode group show {group}")
        if user.groups == [group]:
            raise Conflict(f"User {user.name} needs at least one group.", hint="Add another one before.")
    for user in members:
        _put(tx, user, [name for name in user.groups if name != group], by=by, reason=reason)


def _put(tx: Transaction, user: UserRow, after: Collection[str], *, by: str, reason: str) -> None:
    accounts.set_groups(tx, user.name, list(after))
    accounts.note_members(tx, user.name, user.groups, after, by=by, reason=reason.strip())


def _users(tx: Transaction, names: Sequence[str], reach: Reach) -> list[UserRow]:
    by_name = {user.name: user for user in accounts.list_users(tx.reader())}
    for name in names:
        if name not in by_name:
            raise NotFound(f"There is no user {name}.", hint="See: lode user ls")
        check_reach(by_name[name], reach)
    return [by_name[name] for name in dict.fromkeys(names)]
