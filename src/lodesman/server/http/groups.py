"""Groups: the hot process changes shares and members, the reading process shows them."""

from __future__ import annotations

from functools import partial

from msgspec.structs import asdict, replace

from lodesman.base.errors import Forbidden
from lodesman.server.http.auth import own_vo, reach_of, sees_all, vo_administered
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.live.core import Core
from lodesman.server.live.rules import use_policy, use_shares
from lodesman.server.store.accounts import group_changes, list_users
from lodesman.server.store.journal import Change
from lodesman.server.writer.accounts import check_membership
from lodesman.server.writer.groups import (
    NamedGroup,
    add_members,
    group_named,
    group_rows,
    know_shares,
    known_groups,
    remove_members,
    set_share,
)
from lodesman.wire import calls
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.groups import GroupAt, GroupInFull, GroupRow, GroupRows, GroupShareBody, GroupUsersBody
from lodesman.wire.nodes import utc

_MOST_CHANGES = 1_000


@serves(calls.SET_GROUP_SHARE)
async def _set_share(core: Core, request: Request[Nothing, GroupShareBody]) -> GroupRow:
    body, who = request.body, request.who
    group, vo = _group_to_change(core, body.group, who), vo_administered(who)
    if vo and group.vos != {vo}:
        raise Forbidden(
            f"Group {group.name} is not of VO {vo} alone.", hint="Administrators of the server may do that."
        )
    command = Change(set_share, group.name, body.share, by=who.name, reason=body.reason, until=body.until)
    what = "that of the files" if body.share is None else f"{body.share:g}"
    what += "" if body.until is None else f" until {utc(body.until)}"
    await core.commands.run(
        request.audited(command, "group-changed", group.name, f"share {what}; {body.reason}")
    )
    await use_shares(core)
    return group_rows(core.reader, core.policy, [group], core.clock())[0]


@serves(calls.SET_GROUP_USERS)
async def _set_users(core: Core, request: Request[Nothing, GroupUsersBody]) -> GroupRow:
    body, who, reach = request.body, request.who, reach_of(request.who)
    group, users = _group_to_change(core, body.group, who), list_users(core.reader)
    if body.how == "add":
        for vo in sorted(
            {user.vo for user in users if user.name in body.users and reach.vo in ("", user.vo)}
        ):
            check_membership(core.policy.config, vo, [group.name], reach)
    act = add_members if body.how == "add" else remove_members
    command = Change(
        partial(act, group=group.name, users=body.users, by=who.name, reason=body.reason, reach=reach)
    )
    word = "with" if body.how == "add" else "without"
    detail = "; ".join(filter(None, (f"{word} {', '.join(body.users)}", body.reason)))
    await core.commands.run(request.audited(command, "group-changed", group.name, detail))
    core.principals.forget_users(body.users)
    await use_policy(core, core.policy)
    return group_rows(core.reader, core.policy, [_group_to_change(core, body.group, who)], core.clock())[0]


def _group_to_change(core: Core, name: str, who: Principal) -> NamedGroup:
    """Raises NotFound."""
    return group_named(_seen(known_groups(core.policy, list_users(core.reader)), who), name)


@serves(calls.GROUPS)
async def _groups(side: ReadSide, request: Request[Nothing, Nothing]) -> GroupRows:
    """Users see the groups that their VO may have, and of the members themselves."""
    return GroupRows(group_rows(side.db, side.policy, _all_seen(side, request.who).values(), side.clock()))


@serves(calls.GROUP)
async def _group(side: ReadSide, request: Request[GroupAt, Nothing]) -> GroupInFull:
    """Raises NotFound for a group that is not there, or is one of another VO."""
    who = request.who
    group = group_named(_all_seen(side, who), request.query.group)
    (row,) = group_rows(side.db, side.policy, [group], side.clock())
    changes = group_changes(side.db, group.name, _MOST_CHANGES)
    if not sees_all(who):
        own = (
            {user.name for user in list_users(side.db, vo_administered(who))}
            if vo_administered(who)
            else {who.name}
        )
        changes = [replace(one, user=one.user if one.user in own else "") for one in changes]
    return GroupInFull(**asdict(row), changes=changes)


def _all_seen(side: ReadSide, who: Principal) -> dict[str, NamedGroup]:
    know_shares(side.db, side.policy, side.clock())
    return _seen(known_groups(side.policy, list_users(side.db)), who)


def _seen(known: dict[str, NamedGroup], who: Principal) -> dict[str, NamedGroup]:
    """The groups that the caller may know, with the members whom the caller may know."""
    vo, whole = own_vo(who), vo_administered(who)
    if not vo:
        return known
    return {
        name: one._replace(
            users=tuple(user for user in one.users if user.name == who.name or whole == user.vo)
        )
        for name, one in known.items()
        if not one.vos or vo in one.vos
    }
