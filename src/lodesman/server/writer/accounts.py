"""Users, their tokens and those of sites; the VOs and groups that a user may be in."""

from __future__ import annotations

import difflib
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from lodesman.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    LodesmanError,
    NotFound,
    TooLarge,
    Unauthorized,
    counted,
)
from lodesman.decide.resources import ANY, ResourceConfig
from lodesman.decide.resources.model import as_scalars, as_text, fold
from lodesman.server.store import accounts
from lodesman.server.store.accounts import RevokedTokens, note_members, principal_of, remains_of
from lodesman.server.store.read.usage import count_jobs
from lodesman.server.store.readers import forget_reader
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.pilots import hash_token
from lodesman.wire.accounts import (
    EVERYBODY,
    SCOPES,
    USER_SCOPES,
    AccountBody,
    ImportedUser,
    Reach,
    UserDisabled,
    UserRemoved,
    UserRow,
)
from lodesman.wire.vocabulary import JobState

# The kind of a pilot that has not joined yet, known by its join token.
JOINING = "join"
# The kind of a site that advertises itself; its tokens are of the site, not of a user.
SITE = "site"
# States of jobs that no pilot will have.
FINAL: Final = frozenset({JobState.DONE, JobState.FAILED, JobState.KILLED, JobState.DELETED})
# An expired token is listed for a week.
_KEEP_EXPIRED_SECONDS = 7 * 86_400.0
_MOST_FAULTS: Final = 10


def add_account(
    tx: Transaction, name: str, vo: str, groups: Sequence[str], *, admin: bool = False, vo_admin: bool = False,
    by: str = "server", reach: Reach = EVERYBODY,
) -> None:  # fmt: skip
    """As `put_account`."""
    put_account(tx, AccountBody(name, vo, list(groups), admin, vo_admin), by=by, reach=reach)


def put_account(tx: Transaction, body: AccountBody, *, by: str, reach: Reach) -> None:
    """Make or change a user. Raises InvalidRequest without a group, Forbidden out of `reach`, Conflict if a removed
    user, not the same person, left something under this name.
    """
    before = _admit(tx, body, reach)
    _check_administrators(body, _last_administrator(tx, [body]))
    _put_user(tx, body, before, by=by, reach=reach)


def _admit(tx: Transaction, body: AccountBody, reach: Reach) -> UserRow | None:
    name = body.name
    if not body.groups:
        raise InvalidRequest(f"User {name} needs at least one group.")
    if reach.vo and (body.vo != reach.vo or body.admin or body.vo_admin):
        raise _out_of_reach(reach)
    before = accounts.user_named(tx.reader(), name)
    if before is not None and reach.vo and before.vo != reach.vo:
        raise Forbidden(f"User {name} is one of another VO.", hint="Choose another name.")
    if before is not None:
        check_reach(before, reach)
    else:
        _check_name_is_free(tx, body, reach)
    return before


def _check_name_is_free(tx: Transaction, body: AccountBody, reach: Reach) -> None:
    left = remains_of(tx.reader(), body.name)
    if not left.is_anything:
        return
    # The VO of files without a submission is unknown.
    if body.same_person and (not reach.vo or left.vos == {reach.vo}):
        return
    counts = {"submission": left.submissions, "input file": left.files, "job class text": left.classes}
    things = ", ".join(counted(count, noun) for noun, count in counts.items() if count)
    hint = "Choose another name, or wait until they are forgotten. The same person gets them back: --same-person."
    if body.same_person:
        hint = f"Not all of that is of VO {reach.vo}: an administrator of the server can give it back."
    raise Conflict(f"There was a user {body.name} before, of whom there is still: {things}.", hint=hint)


def _check_administrators(body: AccountBody, last: str) -> None:
    if body.name == last:
        hint = "Make another one first: lode user add NAME --admin"
        raise Conflict(f"{body.name} is the only administrator.", hint=hint)


def _last_administrator(tx: Transaction, changed: Sequence[AccountBody]) -> str:
    """Who must stay one, since these changes would leave none; '' if some are left."""
    now = {user.name: user for user in accounts.list_users(tx.reader())}
    after = {name: user.admin for name, user in now.items()} | {body.name: body.admin for body in changed}
    ended = [body.name for body in changed if body.name in now and now[body.name].admin and not body.admin]
    left = any(admin and (name not in now or now[name].disabled_at is None) for name, admin in after.items())
    return "" if left else next(iter(ended), "")


def _put_user(tx: Transaction, body: AccountBody, before: UserRow | None, *, by: str, reach: Reach) -> None:
    # Who administers a VO stays who they are.
    vo_admin = body.vo_admin or (bool(reach.vo) and body.name == reach.user)
    accounts.put_user(tx, body.name, body.vo, body.groups, admin=body.admin, vo_admin=vo_admin)
    note_members(tx, body.name, [] if before is None else before.groups, body.groups, by=by, reason="")


def _out_of_reach(reach: Reach) -> Forbidden:
    return Forbidden(f"You administer VO {reach.vo}: its users, but no administrators.")


def check_reach(user: UserRow, reach: Reach) -> None:
    """Raises NotFound for another VO's user, Forbidden for another administrator."""
    if not reach.vo:
        return
    if user.vo != reach.vo:
        raise NotFound(f"There is no user {user.name} in VO {reach.vo}.", hint="See: lode user ls")
    if (user.admin or user.vo_admin) and user.name != reach.user:
        raise Forbidden(
            f"User {user.name} is an administrator.", hint="Administrators of the server may do that."
        )


def issue_token(
    tx: Transaction, account: str, scopes: Collection[str] = USER_SCOPES, *, note: str = "",
    seconds: float | None = 30 * 86_400.0, parent: bytes | None = None, most: int = 0, reach: Reach = EVERYBODY,
) -> str:  # fmt: skip
    """Make a user's token; returns its text, which is stored nowhere. `parent`: the hash of the token in use.
    `most`: how many a user may have (0: any number); expired ones go first.

    Raises NotFound, InvalidRequest for an unknown scope, Conflict for admin rights, Forbidden, TooLarge,
    Unauthorized for a revoked parent.
    """
    unknown = set(scopes) - set(SCOPES)
    if unknown:
        raise InvalidRequest(f"There is no scope {min(unknown)!r}.", hint=f"Scopes: {', '.join(SCOPES)}.")
    user = accounts.user_named(tx.reader(), account)
    if user is None:
        raise NotFound(f"There is no user {account}.", hint="Make it with: lode user add")
    check_reach(user, reach)
    if "admin" in scopes and not (user.admin or user.vo_admin):
        raise Conflict(f"User {account} is not an administrator.")
    if user.disabled_at is not None:
        raise Conflict(f"User {account} is disabled.", hint=f"See: lode user enable {account}")
    _check_parent(tx, parent)
    if most and accounts.count_tokens(tx, account) >= most:
        if accounts.count_tokens(tx, account, good_at=tx.now) >= most:
            raise TooLarge(
                f"User {account} has {counted(most, 'token')}, and may have no more.",
                hint="Revoke some: lode token ls, lode token revoke. Administrators set tokens in [limits].",
                limit=most,
            )
        while accounts.delete_expired(tx, tx.now, account):
            tx.flush()
    return _insert(tx, account, scopes, note=note, seconds=seconds, parent=parent)


def issue_site_token(
    tx: Transaction, site: str, *, note: str = "", seconds: float | None = None, parent: bytes | None = None
) -> str:
    """As `issue_token`, for a site that advertises itself. Raises Unauthorized for a revoked parent."""
    _check_parent(tx, parent)
    return _insert(tx, site, (), kind=SITE, note=note, seconds=seconds, parent=parent)


def _check_parent(tx: Transaction, parent: bytes | None) -> None:
    if parent is not None and principal_of(tx.reader(), parent) is None:
        raise Unauthorized("This token was revoked.")


def _insert(
    tx: Transaction, account: str, scopes: Collection[str], *, kind: str = "user", note: str, seconds: float | None,
    parent: bytes | None,
) -> str:  # fmt: skip
    token = secrets.token_urlsafe(32)
    accounts.insert_token(
        tx, hash_token(token), account, scopes, kind=kind, note=note,
        expires_at=None if seconds is None else tx.now + seconds, parent=parent,
    )  # fmt: skip
    return token


def disable_user(
    tx: Transaction, name: str, *, disabled: bool, by: str, reach: Reach = EVERYBODY
) -> UserDisabled:
    """Shut out a user, or let in again. Raises NotFound, Conflict for oneself, Forbidden."""
    _other_user(tx, name, "disable", by=by, reach=reach)
    accounts.set_disabled(tx, name, disabled=disabled)
    return UserDisabled(name, disabled)


def _other_user(tx: Transaction, name: str, verb: str, *, by: str, reach: Reach) -> UserRow:
    if name == by:
        raise Conflict(f"You cannot {verb} yourself.", hint="Another administrator can.")
    user = accounts.user_named(tx.reader(), name)
    if user is None:
        raise NotFound(f"There is no user {name}.", hint="See: lode user ls")
    check_reach(user, reach)
    return user


def remove_user(
    tx: Transaction, name: str, *, by: str, reach: Reach = EVERYBODY, dry_run: bool = False
) -> UserRemoved:
    """Remove a user with all tokens. Ended jobs, files and usage stay under the name for the same person alone.
    Raises NotFound, Forbidden, Conflict for oneself and for live jobs.
    """
    user = _other_user(tx, name, "remove", by=by, reach=reach)
    live: Counter[str] = Counter()
    ended = 0
    for row in count_jobs(tx.reader(), name):
        if row.state in FINAL:
            ended += row.jobs
        else:
            live[row.state.value] += row.jobs
    if live and not dry_run:
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(live.items()))
        hint = f"Kill them: lode user rm {name} --kill; or wait, and let no new ones come: lode user disable {name}"
        raise Conflict(f"User {name} has jobs that have not ended: {states}.", hint=hint, live=dict(live))
    left, tokens = remains_of(tx.reader(), name), user.tokens
    if not dry_run:
        note_members(tx, name, user.groups, [], by=by, reason="removed")
        tokens = accounts.delete_user(tx, name)
        if not name.startswith("@"):  # that is how the group of the name reads
            forget_reader(tx, name)
    return UserRemoved(
        name=name, tokens=tokens, live=dict(live), jobs=ended, files=left.files, dry_run=dry_run
    )


class UserFaults:
    """The first ten refusals of a list of users."""

    def __init__(self) -> None:
        self._found: list[tuple[int, LodesmanError]] = []

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Keeps a refusal of this user."""
        try:
            yield
        except LodesmanError as fault:
            self._found.append((number, fault))

    def refuse(self) -> None:
        """Raises the first one with its user's number, and `others`."""
        if self._found:
            (number, fault), *others = self._found[:_MOST_FAULTS]
            fault.data["user"] = number
            if others:
                fault.data["others"] = [{"user": other, "message": why.message} for other, why in others]
            raise fault


def import_users(
    tx: Transaction, users: Sequence[AccountBody], *, update: bool, dry_run: bool, by: str, reach: Reach
) -> list[ImportedUser]:
    """All or none; existing users change only by `update`. Raises as `put_account`, with numbers of users."""
    outcomes: list[tuple[ImportedUser, UserRow | None]] = []
    seen: set[str] = set()
    faults, last = UserFaults(), _last_administrator(tx, users)
    for number, user in enumerate(users):
        with faults.of(number):
            if user.name in seen:
                raise InvalidRequest(f"User {user.name} comes twice.")
            seen.add(user.name)
            before = _admit(tx, user, reach)
            outcomes.append((_imported(user, before, update=update), before))
            _check_administrators(user, last)
    faults.refuse()
    for body, (done, before) in zip(users, outcomes, strict=True):
        if done.change != "same" and not dry_run:
            _put_user(tx, body, before, by=by, reach=reach)
    return [done for done, _ in outcomes]


def _imported(body: AccountBody, before: UserRow | None, *, update: bool) -> ImportedUser:
    if before is None:
        return ImportedUser(body.name, "new")
    if (before.vo, before.groups, before.admin, before.vo_admin) == (
        body.vo, body.groups, body.admin, body.vo_admin,
    ):  # fmt: skip
        return ImportedUser(body.name, "same")
    if not update:
        is_one = f"VO {before.vo}, groups {', '.join(before.groups)}"
        raise Conflict(
            f"User {body.name} is there already, otherwise: {is_one}.", hint="To change such users: --update."
        )
    return ImportedUser(body.name, "changed")


def delete_expired_tokens(tx: Transaction) -> tuple[bytes, ...]:
    """Delete what expired long ago; returns hashes."""
    return accounts.delete_expired(tx, tx.now - _KEEP_EXPIRED_SECONDS)


def revoke_token(
    tx: Transaction, prefix: str, *, account: str = "", with_others: bool = False, reach: Reach = EVERYBODY
) -> RevokedTokens:
    """Delete a token, by the beginning of its hash, and all it made for the same user; `with_others`: for anybody.
    Raises NotFound, Conflict for several.
    """
    hashes = accounts.tokens_with_prefix(tx, prefix, account, reach) if prefix.isalnum() else []
    if not hashes:
        raise NotFound(f"There is no token {prefix}.")
    if len(hashes) > 1:
        raise Conflict(f"{len(hashes)} tokens begin with {prefix}.", hint="Give more characters.")
    return accounts.delete_token(tx, hashes[0], with_others=with_others)


# Names outside the configuration: a slip of the keyboard does not make one.
NAME = re.compile(r"[A-Za-z0-9._@-]+")
SHOWN = 20


def check_membership(
    config: ResourceConfig, vo: str, groups: Collection[str], reach: Reach = EVERYBODY
) -> None:
    """Raises InvalidRequest for an unknown VO or a group of another; Forbidden out of reach. What the configuration
    does not list only needs to be a name.
    """
    if reach.vo and vo != reach.vo:
        raise _out_of_reach(reach)
    vos = set(known_vos(config))
    if vos and vo not in vos:
        raise InvalidRequest(f"The configuration has no VO {vo}.", hint=_nearest("VOs", vo, vos))
    vo_groups = {name for name, group in config.groups.items() if group.vo in ("", vo)}
    for name in groups:
        if name in config.groups and name not in vo_groups and not reach.vo:
            message = f"Group {name} belongs to VO {config.groups[name].vo}, not to {vo}."
            raise InvalidRequest(message, hint=_nearest("Groups", name, vo_groups))
        if (vo_groups or name in config.groups) and name not in vo_groups:
            raise InvalidRequest(f"VO {vo} has no group {name}.", hint=_nearest("Groups", name, vo_groups))
    for name in (vo, *groups):
        if name not in vos and name not in vo_groups and not NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name of a VO or a group.", hint="Write letters, digits and . _ @ - only."
            )


def known_vos(config: ResourceConfig) -> Iterator[str]:
    """From groups, sections and access lists; with repetitions."""
    yield from config.vos
    tree = config.tree
    for node in (tree.ce_defaults, *tree.ce_types.values(), *(node for _, node in tree.nodes())):
        yield from node.overlays
        for name, value in node.params.items():
            if fold(name) == "vo":
                yield from (text for text in map(as_text, as_scalars(value)) if text and text != ANY)


def _nearest(kind: str, name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), SHOWN, 0.0)
    return f"{kind}: {', '.join(near)}." if near else ""
