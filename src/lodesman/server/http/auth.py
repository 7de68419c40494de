"""Who makes a request, and what they may do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Final

from lodesman.base.errors import Forbidden, NotFound, Unauthorized
from lodesman.server.http.wire import Scope, header, origin_of
from lodesman.server.live.core import Core
from lodesman.server.live.principals import expired_token, has_expired, pilot_has_ended, unknown_token
from lodesman.server.store.accounts import joining_pilot
from lodesman.server.writer.accounts import JOINING, SITE
from lodesman.wire.accounts import EVERYBODY, Principal, Reach
from lodesman.wire.call import Who

# Of the hash of a token, in the audit trail.
_SHOWN: Final = 12
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
        raise expired_token()
    return principal


def identify(core: Core, scope: Scope, *, joining: bool = False, noted: bool = True) -> Principal:
    """Who asks on the public port, kept in the scope; `joining`: also a pilot that has not joined. Raises
    Unauthorized, `noted` for the audit trail.
    """
    principal: Principal | None = scope.get("principal")
    if principal is not None:
        return principal
    lookup = core.principals.lookup
    try:
        principal = authenticate(
            scope,
            (lambda digest: lookup(digest) or joining_pilot(core.reader, digest)) if joining else lookup,
            core.clock(),
        )
        if principal.kind == "service":  # good on the socket of the server's own processes only
            raise unknown_token()
    except Unauthorized:
        if noted:
            core.strangers.refused(origin_of(scope), (digest_of(scope) or b"").hex()[:_SHOWN])
        raise
    scope["principal"] = principal
    return principal


def admits(core: Core, scope: Scope) -> bool:
    """Whether a request brings a good token."""
    try:
        identify(core, scope, noted=False)
    except Unauthorized:
        return False
    return True


def digest_of(scope: Scope) -> bytes | None:
    """None without a token. Tokens are found by their hash: that takes the same time for all."""
    value = header(scope, b"authorization")
    return hashlib.sha256(value[7:].strip()).digest() if value[:7].lower() == b"bearer " else None


def authorise(principal: Principal, who: Who) -> None:
    """Raises Forbidden, Unauthorized for a lost pilot outside its own calls."""
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
    """Whether nothing is hidden from the caller."""
    return principal.kind == "service" or (principal.admin and principal.allows("admin"))


def vo_administered(principal: Principal) -> str:
    """The VO that the caller administers, and nothing else; '' without."""
    is_one = principal.kind == "user" and principal.vo_admin and principal.allows("admin")
    return principal.vo if is_one and not principal.admin else ""


def reach_of(principal: Principal) -> Reach:
    """Whose accounts an administrator may change."""
    vo = vo_administered(principal)
    return Reach(vo, principal.name) if vo else EVERYBODY


def own_vo(principal: Principal) -> str:
    """The VO whose jobs and pilots the caller may see; '' for all."""
    return "" if sees_all(principal) else principal.vo


def vo_of(wanted: str, principal: Principal, *, usual: str, known: Collection[str] | None = None) -> str:
    """Raises NotFound if it is not `known`, or not for the caller."""
    vo = wanted or usual
    strange = known is not None and vo not in known
    if vo not in (usual, principal.vo) and (strange or not sees_all(principal)):
        raise NotFound(f"There is no VO {vo[:80]}.")
    return vo


def may_touch(
    principal: Principal, sharing: frozenset[str], *, for_vo_admins: bool = False
) -> Callable[[str, str, str], bool]:
    """The rule by owner, group and VO of a job; `for_vo_admins`: all of the VO that one administers."""
    if principal.kind != "user" or sees_all(principal):
        return lambda *_: sees_all(principal)
    shared = sharing.intersection(principal.groups)
    whole = vo_administered(principal) if for_vo_admins else ""
    return lambda owner, group, vo: (
        owner == principal.name or (group in shared and vo == principal.vo) or (whole != "" and vo == whole)
    )
