"""Who may ask: principals by the hashes of their tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from lodesman.base.errors import LodesmanError, Unauthorized, Unavailable
from lodesman.server.store import Reader
from lodesman.server.store.accounts import principal_of, principals
from lodesman.server.store.readers import ReadsAs
from lodesman.wire.accounts import Principal


def has_expired(principal: Principal, now: float) -> bool:
    """Whether its token has expired."""
    return principal.expires_at is not None and principal.expires_at < now


def expired_token() -> Unauthorized:
    """The refusal."""
    return Unauthorized("This token has expired.", hint="Ask for a new one: lode token issue")


def unknown_token() -> Unauthorized:
    """The refusal of a token that is not stored."""
    hint = "It was revoked, its user was disabled, or it belongs to another server."
    return Unauthorized("This token is unknown.", hint=hint)


def pilot_has_ended() -> Unauthorized:
    """The refusal by which a pilot gives up."""
    hint = "Its token is good for the results of its last attempts only."
    return Unauthorized("This pilot has ended.", hint=hint)


def reads_as(principal: Principal) -> ReadsAs:
    """As whom others share submissions. A user whose name begins with `@` is not the group."""
    if principal.kind != "user":
        return ReadsAs()
    own = () if principal.name.startswith("@") else (principal.name,)
    return ReadsAs(principal.vo, (*own, *(f"@{group}" for group in principal.groups)))


def may_as_much(now: Principal, before: Principal) -> bool:
    """Whether a token still opens all that it opened."""
    return (
        now.vo == before.vo
        and now.admin >= before.admin
        and now.vo_admin >= before.vo_admin
        and now.scopes >= before.scopes
        and {*before.groups} <= {*now.groups}
    )


class Principals:
    """The principals, and their long answers, which end when the token opens less. Belongs to the event loop."""

    def __init__(self, db: Reader, clock: Callable[[], float]) -> None:
        self._db, self._clock = db, clock
        self._known = principals(db)
        self._held: dict[bytes, set[asyncio.Timeout]] = {}
        # How often something was shared no more: what was looked up before that may be too much.
        self.unshared = 0

    def lookup(self, digest: bytes) -> Principal | None:
        """By a token's hash, read from the database if new."""
        principal = self._known.get(digest)
        if principal is None:
            principal = principal_of(self._db, digest)
            if principal is not None:
                self._known[digest] = principal
        return principal

    def add(self, principal: Principal) -> None:
        """Add a new token."""
        self._known[principal.token] = principal

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._known

    @asynccontextmanager
    async def held(self, who: Principal) -> AsyncIterator[None]:
        """Around a long answer. Raises what `check` does, when it would."""
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
        """Raises Unauthorized if the token opens nothing, Unavailable if it opens less than it did."""
        now = self.lookup(who.token)
        if now is None or has_expired(now, self._clock()) or not may_as_much(now, who):
            raise self._refusal(who)

    def _refusal(self, who: Principal) -> LodesmanError:
        now = self.lookup(who.token)
        if now is None:
            return pilot_has_ended() if who.kind == "pilot" else unknown_token()
        if has_expired(now, self._clock()):
            return expired_token()
        return Unavailable("What this token may do has changed meanwhile.", hint="Ask again.")

    # --- changes --------------------------------------------------------------------------------------------------------

    def forget(self, digests: Iterable[bytes]) -> None:
        """Read these again: they were revoked or changed."""
        for digest in digests:
            before = self._known.pop(digest, None)
            if before is not None and digest in self._held:
                now = self.lookup(digest)
                if now is None or not may_as_much(now, before):
                    self._end(digest)

    def forget_users(self, names: Collection[str]) -> None:
        """Read the tokens of these users again."""
        self.forget([digest for digest, who in self._known.items() if who.name in names])

    def forget_pilot(self, pilot_id: int) -> None:
        """The database knows whether its token is good for last words."""
        self.forget([digest for digest, who in self._known.items() if who.pilot_id == pilot_id])

    def unshare(self, groups: frozenset[str]) -> None:
        """Members of these groups see each other's jobs no more."""
        self.unshared += 1
        for digest in list(self._held):
            who = self._known.get(digest)  # one that was revoked just now ends by that
            if who is not None and groups.intersection(who.groups):
                self._end(digest)

    def end_readers(self, names: frozenset[str]) -> None:
        """Nothing more is shared with these users and groups (`@`)."""
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
