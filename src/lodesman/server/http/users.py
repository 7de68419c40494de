"""Users, tokens and groups: the hot process changes them, the reading process shows groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict, replace

from lodesman.base.errors import (
    Conflict,
    Forbidden,
)
from lodesman.server.http.auth import authorise, own_vo, reach_of, sees_all, vo_administered
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.live.rules import use_policy, use_shares
from lodesman.server.store.accounts import RevokedTokens, group_changes, list_users
from lodesman.server.store.journal import Change, Command
from lodesman.server.writer.accounts import (
    UserFaults,
    check_membership,
    disable_user,
    import_users,
    issue_token,
    put_account,
    remove_user,
    revoke_token,
)
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
from lodesman.wire import accounts, calls
from lodesman.wire.accounts import AccountBody, AuditAction, DisableBody, Principal, TokenAt, TokenBody
from lodesman.wire.call import Nothing
from lodesman.wire.groups import GroupAt, GroupInFull, GroupRow, GroupRows, GroupShareBody, GroupUsersBody
from lodesman.wire.nodes import utc

if TYPE_CHECKING:
    from lodesman.server.http.read_side import ReadSide

_DAY_SECONDS: Final = 86_400
# Letters of the names in an entry of the audit trail.
_MOST_DETAIL: Final = 1_000
_MOST_CHANGES = 1_000


@serves(calls.ADD_USER)
async def _add_user(core: Core, request: Request[Nothing, AccountBody]) -> accounts.UserMade:
    body = request.body
    check_membership(core.policy.config, body.vo, body.groups, reach_of(request.who))
    command = Change(put_account, body, by=request.who.name, reach=reach_of(request.who))
    rights = (", administrator" if body.admin else "") + (
        ", administrator of the VO" if body.vo_admin else ""
    )
    detail = f"VO {body.vo}, groups {', '.join(body.groups)}{rights}"
    await core.commands.run(request.audited(command, "user-changed", body.name, detail))
    core.principals.forget_users([body.name])
    await use_policy(core, core.policy)
    return accounts.UserMade(body.name)


@serves(calls.REMOVE_USER)
async def _remove_user(
    core: Core, request: Request[Nothing, accounts.RemoveUserBody]
) -> accounts.UserRemoved:
    """What the tokens of the user are used for ends with them."""
    name, who, dry_run = request.body.name, request.who, request.body.dry_run
    command: Command[accounts.UserRemoved] = Change(
        remove_user, name, by=who.name, reach=reach_of(who), dry_run=dry_run
    )
    if dry_run:
        found: accounts.UserRemoved = await core.commands.run(command)
        return found
    done: accounts.UserRemoved = await core.commands.run(request.audited(command, "user-removed", name))
    core.principals.forget_users([name])
    await use_policy(core, core.policy)
    return done


@serves(calls.IMPORT_USERS)
async def _import_users(
    core: Core, request: Request[Nothing, accounts.ImportUsersBody]
) -> accounts.ImportedUsers:
    body, who, faults = request.body, request.who, UserFaults()
    for number, user in enumerate(body.users):
        with faults.of(number):
            check_membership(core.policy.config, user.vo, user.groups, reach_of(who))
    faults.refuse()
    command: Command[list[accounts.ImportedUser]] = Change(
        partial(
            import_users,
            users=body.users,
            update=body.update,
            dry_run=body.dry_run,
            by=who.name,
            reach=reach_of(who),
        )
    )
    if not body.dry_run:
        names = [user.name for user in body.users]
        command = request.audited(command, "users-imported", str(len(names)), ", ".join(names)[:_MOST_DETAIL])
    done: list[accounts.ImportedUser] = await core.commands.run(command)
    if not body.dry_run:
        core.principals.forget_users([user.name for user in done if user.change == "changed"])
        await use_policy(core, core.policy)
    return accounts.ImportedUsers(done, body.dry_run)


@serves(calls.DISABLE_USER)
async def _disable_user(core: Core, request: Request[Nothing, DisableBody]) -> accounts.UserDisabled:
    body = request.body
    who = request.who
    command = Change(disable_user, body.name, disabled=body.disabled, by=who.name, reach=reach_of(who))
    action: AuditAction = "user-disabled" if body.disabled else "user-enabled"
    done: accounts.UserDisabled = await core.commands.run(request.audited(command, action, body.name))
    core.principals.forget_users([body.name])
    return done


@serves(calls.ISSUE_TOKEN)
async def _issue_token(core: Core, request: Request[Nothing, TokenBody]) -> accounts.Token:
    """Users make tokens no better than their own; administrators any, those of a VO for its users."""
    body, who = request.body, request.who
    if body.account != who.name:
        authorise(who, "vo-admin")
    elif not set(body.scopes) <= who.scopes:
        raise Conflict("A token cannot give more than the one it is asked with.")
    seconds = body.seconds or None
    if who.expires_at is not None and body.account == who.name:
        # A token cannot outlive itself by making another.
        left = max(0.0, who.expires_at - core.clock())
        seconds = left if seconds is None else min(seconds, left)
    command = Change(
        issue_token,
        body.account,
        body.scopes,
        seconds=seconds,
        note=body.note,
        parent=who.token or None,
        most=core.limits.tokens,
        reach=reach_of(who),
    )
    how_long = "until revoked" if seconds is None else f"for {seconds / _DAY_SECONDS:,.6g} d"
    detail = "; ".join(filter(None, (", ".join(body.scopes), how_long, body.note)))
    return accounts.Token(
        await core.commands.run(request.audited(command, "token-issued", body.account, detail))
    )


@serves(calls.REVOKE_TOKEN)
async def _revoke_token(core: Core, request: Request[TokenAt, Nothing]) -> accounts.Revoked:
    """With those that it made for the same user, or for all. Users revoke their own."""
    who, query = request.who, request.query
    mine, others = "" if sees_all(who) or vo_administered(who) else who.name, query.all and sees_all(who)
    command = Change(revoke_token, query.prefix, account=mine, with_others=others, reach=reach_of(who))
    detail = "with all that it made" if others else ""
    done: RevokedTokens = await core.commands.run(
        request.audited(command, "token-revoked", query.prefix, detail)
    )
    core.principals.forget(done.hashes)
    return accounts.Revoked(len(done.hashes), done.kept)


# --- groups --------------------------------------------------------------------------------------------------------------


@serves(calls.SET_GROUP_SHARE)
async def _set_share(core: Core, request: Request[Nothing, GroupShareBody]) -> GroupRow:
    body, who = request.body, request.who
    group, vo = _group_to_change(core, body.group, who), vo_administered(who)
    if vo and group.vos != {vo}:
        raise Forbidden(
            f"Group {group.name} is not of VO {vo} alone.", hint="Administrators of the server may do that."
        )
    command = Change(set_share, group.name, body.share, by=who.name, reason=body.reason, until=body.until)
    share = "that of the files" if body.share is None else f"{body.share:g}"
    share += "" if body.until is None else f" until {utc(body.until)}"
    await core.commands.run(
        request.audited(command, "group-changed", group.name, f"share {share}; {body.reason}")
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
    return group_named(_seen(known_groups(core.policy, list_users(core.reader)), who), name)


@serves(calls.GROUPS)
async def _groups(side: ReadSide, request: Request[Nothing, Nothing]) -> GroupRows:
    """Of users those that their VO may have, with themselves as members."""
    return GroupRows(group_rows(side.db, side.policy, _all_seen(side, request.who).values(), side.clock()))


@serves(calls.GROUP)
async def _group(side: ReadSide, request: Request[GroupAt, Nothing]) -> GroupInFull:
    """Raises NotFound for a group of another VO, too."""
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
        changes = [replace(change, user=change.user if change.user in own else "") for change in changes]
    return GroupInFull(**asdict(row), changes=changes)


def _all_seen(side: ReadSide, who: Principal) -> dict[str, NamedGroup]:
    know_shares(side.db, side.policy, side.clock())
    return _seen(known_groups(side.policy, list_users(side.db)), who)


def _seen(groups: dict[str, NamedGroup], who: Principal) -> dict[str, NamedGroup]:
    vo, whole = own_vo(who), vo_administered(who)
    if not vo:
        return groups
    return {
        name: group._replace(
            users=tuple(user for user in group.users if user.name == who.name or whole == user.vo)
        )
        for name, group in groups.items()
        if not group.vos or vo in group.vos
    }
