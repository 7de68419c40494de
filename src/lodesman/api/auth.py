"""Who is asking: bearer tokens looked up by their hash, so that comparing takes the same time for all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from lodesman.api.wire import Scope, header
from lodesman.commands.accounts import Principal
from lodesman.errors import Forbidden, NotFound, Unauthorized

if TYPE_CHECKING:
    from starlette.requests import Request

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
    if sees_all(principal):
        return principal
    raise Forbidden("Only an administrator may do that.", hint="Use a token with the scope admin.")


def sees_all(principal: Principal) -> bool:
    """Whether nothing is hidden: administrators with a token for it, and our own background process."""
    return principal.kind == "service" or (principal.admin and principal.allows("admin"))


def own_vo(principal: Principal) -> str:
    """Of whose jobs, task queues and pilots the caller is told: of their own VO; '' for all, to who sees all."""
    return "" if sees_all(principal) else principal.vo


def vo_of(
    request: Request,
    principal: Principal,
    *,
    default: str | None = None,
    known: Collection[str] | None = None,
) -> str:
    """The VO that a request asks about: `default` (one's own) or the one it names, which is one's own, too, for
    everybody who does not see all.

    Raises NotFound for another, and for one that is not `known`.
    """
    usual = principal.vo if default is None else default
    vo = request.query_params.get("vo", usual)
    strange = known is not None and vo not in known
    if vo not in (usual, principal.vo) and (strange or not sees_all(principal)):
        raise NotFound(f"There is no VO {vo[:80]}.")
    return vo


def may_touch(principal: Principal, sharing: frozenset[str]) -> Callable[[str, str, str], bool]:
    """The rule for jobs: one's own, those of groups that share jobs, all for an administrator."""

    def may(owner: str, group: str, vo: str) -> bool:
        if sees_all(principal):
            return True
        if principal.kind != "user":
            return False
        return owner == principal.name or (
            group in sharing and group in principal.groups and vo == principal.vo
        )

    return may
