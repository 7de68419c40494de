"""Who is asking: bearer tokens looked up by their hash, so that comparing takes the same time for all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from lodesman.api.wire import Scope, header
from lodesman.errors import Forbidden, Unauthorized
from lodesman.services.accounts import Principal

Lookup = Callable[[bytes], Principal | None]


def authenticate(scope: Scope, lookup: Lookup, now: float) -> Principal:
    """The principal of a request. Raises Unauthorized."""
    value = header(scope, b"authorization")
    if value[:7].lower() != b"bearer ":
        raise Unauthorized("This needs a token.", hint="Send it as: Authorization: Bearer TOKEN")
    principal = lookup(hashlib.sha256(value[7:].strip()).digest())
    if principal is None:
        raise Unauthorized("This token is unknown.", hint="It was revoked, or belongs to another server.")
    if principal.expires_at is not None and principal.expires_at < now:
        raise Unauthorized("This token has expired.", hint="Ask for a new one: lode token issue")
    return principal


def need_pilot(principal: Principal) -> int:
    """The pilot's id. Raises Forbidden for anybody else."""
    if principal.kind != "pilot":
        raise Forbidden("Only pilots may ask this.")
    return principal.pilot_id


def need_user(principal: Principal, scope: str) -> Principal:
    """A user with that scope. Raises Forbidden."""
    if principal.kind == "pilot" or not (principal.allows(scope) or principal.kind == "service"):
        raise Forbidden(f"This token may not do that: it lacks the scope {scope}.")
    return principal


def need_service(principal: Principal) -> Principal:
    """Our own background process. Raises Forbidden for anybody else."""
    if principal.kind != "service":
        raise Forbidden("Only the server's own processes may ask this.")
    return principal


def need_admin(principal: Principal) -> Principal:
    """An administrator with a token for it. Raises Forbidden."""
    if principal.kind == "service" or (principal.admin and principal.allows("admin")):
        return principal
    raise Forbidden("Only an administrator may do that.", hint="Use a token with the scope admin.")


def may_touch(principal: Principal, sharing: frozenset[str]) -> Callable[[str, str, str], bool]:
    """The rule for jobs: one's own, those of groups that share jobs, all for an administrator."""

    def may(owner: str, group: str, vo: str) -> bool:
        if principal.kind == "service" or (principal.admin and principal.allows("admin")):
            return True
        if principal.kind != "user":
            return False
        return owner == principal.name or (
            group in sharing and group in principal.groups and vo == principal.vo
        )

    return may
