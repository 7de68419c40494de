"""Who makes a request, and what they may do. Tokens are found by their hash: that takes the same time for all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from lodesman.base.errors import Forbidden, LodesmanError, NotFound, Unauthorized, Unavailable
from lodesman.server.http.wire import Scope, header
from lodesman.server.store import Reader
from lodesman.server.store.accounts import principal_of, principals
from lodesman.server.store.readers import ReadsAs
from lodesman.server.writer.accounts import JOINING, SITE
from lodesman.wire.accounts import EVERYBODY, Principal, Reach
from lodesman.wire.call import Who

_ONLY = {
    "pilot": "Only pilots may ask this.",
    "service": "Only the server's own processes may ask this.",
    "site": "Only the site itself may do that, with a token of its own.",
    "user": "Only users may do that.",
    "admin": "Only an administrator of the server may do that.",
    "vo-admin": "Only an administrator, of the server or of a VO, may do that.",
}


def authenticate(scope: Scope, lookup: Callable[[bytes], Principal | None], now: float) -> Principal:
    """The principal of a request. Raises Unauthorized."""
    digest = digest_of(scope)
    if digest is None:
        raise Unauthorized("This needs a token.", hint="Send it as: Authorization: Bearer TOKEN")
    principal = lookup(digest)
    if principal is None and b"." in header(scope, b"authorization"):
        hint = "It ended long ago, or joined another state of this database: it has to end its payloads."
        raise Unauthorized("No such pilot is known.", hint=hint)
    if principal is None:
        raise unknown_token()
    if has_expired(principal, now):
        raise _expired_token()
    return principal


def has_expired(principal: Principal, now: float) -> bool:
    """Whether its token is good no more."""
    return principal.expires_at is not None and principal.expires_at < now


def _expired_token() -> Unauthorized:
    return Unauthorized("This token has expired.", hint="Ask for a new one: lode token issue")


def unknown_token() -> Unauthorized:
    """The refusal of a token that is not stored."""
    hint = "It was revoked, its user was disabled, or it belongs to another server."
    return Unauthorized("This token is unknown.", hint=hint)


def digest_of(scope: Scope) -> bytes | None:
    """The hash of the token that a request brings; None if it brings none."""
    value = header(scope, b"authorization")
    return hashlib.sha256(value[7:].strip()).digest() if value[:7].lower() == b"bearer " else None


def authorise(principal: Principal, who: Who) -> None:
    """Raises Forbidden for all but those who may make a call that is for `who`, Unauthorized for a lost pilot that asks more
    than the calls of pilots, which say themselves what is left to it.
    """
    if principal.has_ended and who != "pilot":
        raise pilot_has_ended()
    if who == "pilot or pilots:read":
        who = "any" if principal.kind in ("pilot", JOINING) else "pilots:read"
    if who == "site or pilots:read":
        who = "site" if principal.kind == SITE else "pilots:read"
    if not _may(principal, who):
        if principal.kind == SITE:
            raise Forbidden(
                f"A token of a site may advertise {principal.name} and read its gate, nothing else."
            )
        raise _refusal(principal, who)


def _refusal(principal: Principal, who: Who) -> Forbidden:
    ranks = {"admin": principal.admin, "vo-admin": principal.admin or principal.vo_admin}
    if principal.kind == "user" and ranks.get(who, False):
        hint = f"Ask an administrator for one that has it: lode token issue {principal.name} --admin"
        return Forbidden("This token may not do that: it lacks the scope admin.", hint=hint)
    hint = "Administrators make one: lode site token SITE" if who == "site" else ""
    return Forbidden(_ONLY.get(who, f"This token may not do that: it lacks the scope {who}."), hint=hint)


def pilot_has_ended() -> Unauthorized:
    """What a pilot is answered after its end: it gives up then."""
    hint = "Its token is good for the results of its last attempts only."
    return Unauthorized("This pilot has ended.", hint=hint)


def _may(principal: Principal, who: Who) -> bool:
    if who in ("pilot", "service", SITE) or principal.kind == SITE:
        return principal.kind == who
    if who == "admin":
        return sees_all(principal)
    if who == "vo-admin":
        return sees_all(principal) or bool(vo_administered(principal))
    if principal.kind == "pilot":
        return who == "any"
    return who in ("any", "user") or principal.kind == "service" or principal.allows(who)


def sees_all(principal: Principal) -> bool:
    """Whether nothing is hidden: administrators with a token for it, and our own background process."""
    return principal.kind == "service" or (principal.admin and principal.allows("admin"))


def vo_administered(principal: Principal) -> str:
    """The VO that the caller administers, and nothing else; '' for all others."""
    is_one = principal.kind == "user" and principal.vo_admin and principal.allows("admin")
    return principal.vo if is_one and not principal.admin else ""


def reach_of(principal: Principal) -> Reach:
    """Whose accounts an administrator may change."""
    vo = vo_administered(principal)
    return Reach(vo, principal.name) if vo else EVERYBODY


def own_vo(principal: Principal) -> str:
    """The VO whose jobs, task queues and pilots the caller may see: their own; '' for administrators: all."""
    return "" if sees_all(principal) else principal.vo


def vo_of(wanted: str, principal: Principal, *, usual: str, known: Collection[str] | None = None) -> str:
    """The VO asked about: `usual`, or the one `wanted`. Raises NotFound if it is not `known`, or not for the caller."""
    vo = wanted or usual
    strange = known is not None and vo not in known
    if vo not in (usual, principal.vo) and (strange or not sees_all(principal)):
        raise NotFound(f"There is no VO {vo[:80]}.")
    return vo


def may_touch(
    principal: Principal, sharing: frozenset[str], *, for_vo_admins: bool = False
) -> Callable[[str, str, str], bool]:
    """The rule for jobs: one's own, those of groups that share jobs, all for an administrator; `for_vo_admins`: what the
    administrator of a VO may do with its jobs.
    """
    if principal.kind != "user" or sees_all(principal):
        return lambda *_: sees_all(principal)
    shared = sharing.intersection(principal.groups)
    whole = vo_administered(principal) if for_vo_admins else ""
    return lambda owner, group, vo: (
        owner == principal.name or (group in shared and vo == principal.vo) or (whole != "" and vo == whole)
    )


def reads_as(principal: Principal) -> ReadsAs:
    """By which names others share submissions with the caller, who may read them then, and nothing else. A user whose name
    begins with `@` is not the group.
    """
    if principal.kind != "user":
        return ReadsAs()
    own = () if principal.name.startswith("@") else (principal.name,)
    return ReadsAs(principal.vo, (*own, *(f"@{group}" for group in principal.groups)))


def may_as_much(now: Principal, before: Principal) -> bool:
    """Whether a token still opens all that it opened, so that what was asked for with it may go on."""
    return (
        now.vo == before.vo
        and now.admin >= before.admin
        and now.vo_admin >= before.vo_admin
        and now.scopes >= before.scopes
        and {*before.groups} <= {*now.groups}
    )


class Principals:
    """Who may ask, by the hashes of their tokens, and the answers under way that take long: these end as soon as a token
    opens less than when they were asked for. Belongs to the event loop.
    """

    def __init__(self, db: Reader, clock: Callable[[], float]) -> None:
        self._db, self._clock = db, clock
        self._known = principals(db)
        self._held: dict[bytes, set[asyncio.Timeout]] = {}
        # How often something was shared no more: what was looked up before that may be too much.
        self.unshared = 0

    def lookup(self, digest: bytes) -> Principal | None:
        """The principal of a token's hash; tokens made elsewhere are read once from the database."""
        known = self._known.get(digest)
        if known is None:
            known = principal_of(self._db, digest)
            if known is not None:
                self._known[digest] = known
        return known

    def add(self, principal: Principal) -> None:
        """A token was made just now."""
        self._known[principal.token] = principal

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._known

    @asynccontextmanager
    async def held(self, who: Principal) -> AsyncIterator[None]:
        """Around an answer that takes long. Raises what `check` does as soon as it would."""
        self.check(who)
        left = None if who.expires_at is None else who.expires_at - self._clock()
        held = self._held.setdefault(who.token, set())
        until = asyncio.timeout(left)
        held.add(until)
        try:
            async with until:
                yield
        except TimeoutError:
            if not until.expired():
                raise
            raise self._refusal(who) from None
        finally:
            held.discard(until)
            if not held:
                self._held.pop(who.token, None)

    def check(self, who: Principal) -> None:
        """Raises Unauthorized if a token opens nothing any more, Unavailable if it opens less than it did for this request:
        who asks again sees what is left.
        """
        now = self.lookup(who.token)
        if now is None or has_expired(now, self._clock()) or not may_as_much(now, who):
            raise self._refusal(who)

    def _refusal(self, who: Principal) -> LodesmanError:
        now = self.lookup(who.token)
        if now is None:
            return pilot_has_ended() if who.kind == "pilot" else unknown_token()
        if has_expired(now, self._clock()):
            return _expired_token()
        return Unavailable("What this token may do has changed meanwhile.", hint="Ask again.")

    # --- changes --------------------------------------------------------------------------------------------------------

    def forget(self, digests: Iterable[bytes]) -> None:
        """These were revoked or changed: they are read again."""
        for digest in digests:
            before = self._known.pop(digest, None)
            if before is not None and digest in self._held:
                now = self.lookup(digest)
                if now is None or not may_as_much(now, before):
                    self._end(digest)

    def forget_users(self, names: Collection[str]) -> None:
        """These have changed."""
        self.forget([digest for digest, who in self._known.items() if who.name in names])

    def forget_pilot(self, pilot_id: int) -> None:
        """It has ended. If its token is good for its last words, that is found in the database from now on."""
        self.forget([digest for digest, who in self._known.items() if who.pilot_id == pilot_id])

    def unshare(self, groups: frozenset[str]) -> None:
        """Members of these groups see each other's jobs no more."""
        self.unshared += 1
        for digest in list(self._held):
            who = self._known.get(digest)  # one that was revoked just now ends by that
            if who is not None and groups.intersection(who.groups):
                self._end(digest)

    def end_readers(self, names: frozenset[str]) -> None:
        """Something is not shared with these users and groups (`@`) any more."""
        self.unshared += 1
        for digest in list(self._held):
            who = self._known.get(digest)
            if who is not None and names.intersection(reads_as(who).names):
                self._end(digest)

    def _end(self, digest: bytes) -> None:
        now = asyncio.get_running_loop().time()
        for until in self._held[digest]:
            if not until.expired():
                until.reschedule(now)
