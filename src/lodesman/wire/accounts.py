"""Users, their tokens, and the audit trail."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct, field

from lodesman.wire.call import Page
from lodesman.wire.requests import END, LONGEST_TOKEN, Count, Given, Paged, Rows, Sent, Text

# What a token may allow, and what one allows if nothing else is asked for.
SCOPES = ("jobs:read", "jobs:write", "pilots:read", "admin")
USER_SCOPES = ("jobs:read", "jobs:write", "pilots:read")


class Principal(Struct, frozen=True, kw_only=True):
    """Who asks: a user, a service (the background process), a pilot, `join` (a pilot that has not joined), or a site,
    which is its `name`. `token` is the hash of the token that was used. `has_ended`: it is a lost pilot, and its token
    opens the calls of ADR 0022.
    """

    kind: str
    name: str = ""
    vo: str = ""
    groups: tuple[str, ...] = ()
    admin: bool = False
    vo_admin: bool = False
    scopes: frozenset[str] = frozenset()
    pilot_id: int = 0
    expires_at: float | None = None
    token: bytes = b""
    has_ended: bool = False

    def allows(self, scope: str) -> bool:
        """Whether this token may be used for that."""
        return scope in self.scopes


_Limit = Annotated[int, Meta(ge=0)]


class Reach(NamedTuple):
    """Whose accounts a caller may change: all, or those of a `vo` who administer nothing, and that of `user`."""

    vo: str = ""
    user: str = ""


EVERYBODY: Final = Reach()


class LimitSection(Struct, forbid_unknown_fields=True, frozen=True):
    """What one user may have; 0: no such limit. Input files and outputs: `sandbox_quota_mb`. Of each job: its `attempts`,
    and up to which memory retries may grow.
    """

    waiting_jobs: _Limit = 1_000_000
    task_queues: _Limit = 10_000
    tokens: _Limit = 100
    input_files: _Limit = 100_000
    job_classes: _Limit = 100
    attempts: _Limit = 0
    retry_memory_mb: _Limit = 0


class Token(Struct, frozen=True):
    """A token, shown this once."""

    token: str


class TokenRow(Struct, frozen=True):
    """A token of a user, or of the site that `account` names. `made_with` is the hash of the token that made it, `made_by`
    its user; None if unknown or purged.
    """

    hash: str
    kind: Literal["user", "site"]
    account: str
    scopes: list[str]
    note: str
    created_at: float
    expires_at: float | None
    made_with: str | None
    made_by: str | None


class Tokens(Page, frozen=True):
    """The tokens of the one who asks; for administrators those of all users and sites."""

    tokens: list[TokenRow]


class Inputs(Struct, frozen=True):
    """The input files of a user, in number and bytes, and bytes of outputs; `limit` in bytes for both, None: unlimited."""

    files: int
    bytes: int
    limit: int | None
    outputs: int = 0


class Me(Struct, frozen=True):
    """Whose token this is, what it allows, and until when (UNIX seconds; None: no end); of a pilot only its `kind`."""

    name: str
    kind: Literal["user", "service", "pilot"]
    vo: str
    groups: list[str]
    admin: bool
    scopes: list[str]
    inputs: Inputs
    vo_admin: bool = False
    expires_at: float | None = None


class UserRow(Struct, frozen=True):
    """A user, with the number of tokens. `disabled_at`: since when no token of the user opens anything; None: they do.
    `vo_admin`: the user administers the VO.
    """

    name: str
    vo: str
    groups: list[str]
    admin: bool
    created_at: float
    disabled_at: float | None
    tokens: int
    vo_admin: bool = False


class Users(Page, frozen=True):
    """All users, by name."""

    users: list[UserRow]


class UserDisabled(Struct, frozen=True):
    """A user who is disabled, or is no more."""

    name: str
    disabled: bool


class UserMade(Struct, frozen=True):
    """The user who was made or changed."""

    name: str


class Revoked(Struct, frozen=True):
    """How many tokens were revoked: the one named, and those it made for the same user, or for all. `kept`: made for other
    users.
    """

    revoked: int
    kept: int


AuditAction = Literal[
    "user-changed", "user-disabled", "user-enabled", "user-removed", "users-imported",
    "token-issued", "token-revoked", "pilots-drained", "site-closed",
    "site-opened", "site-tested", "breaker-opened", "breaker-closed", "breaker-ordered", "host-shut", "host-closed",
    "host-opened", "quota-changed", "quota-removed", "class-changed", "class-removed", "class-enabled", "class-disabled",
    "group-changed", "submission-shared", "configuration-changed", "configuration-refused", "login-refused", "pilots-made",
]  # fmt: skip


class AuditNote(Struct, frozen=True):
    """What is noted: who did (`by`) what (`action`) to what (`subject`), from which address (`origin`), how often."""

    action: AuditAction
    subject: str
    by: str = "server"
    origin: str = ""
    count: int = 1
    detail: str = ""


class AuditEntry(Struct, frozen=True):
    """An entry of the trail, UNIX seconds; `count`: how often until then. `by` '': not known. `detail`: in words."""

    id: int
    at: float
    action: AuditAction
    subject: str
    by: str
    origin: str
    count: int
    detail: str


class Audit(Page, frozen=True):
    """Entries, the newest first."""

    entries: list[AuditEntry]


class AuditQuery(Paged, frozen=True):
    """Entries of the audit trail since a time, of one action or user; without: of any."""

    since: Count = 0
    action: AuditAction | None = None
    by: str = ""
    limit: Rows = 100


class TokenAt(Sent, frozen=True):
    """A token by the beginning of its hash; `all`: with the tokens that it made for other users, too."""

    prefix: str
    all: bool = False


class AccountBody(Sent, frozen=True):
    """A user of this server. `admin`: who administers it; `vo_admin`: who administers the VO. `same_person`: who had this
    name before, was removed, and gets back the jobs and files that are still there.
    """

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=rf"^[A-Za-z0-9._@-]+{END}")]
    vo: Given
    groups: Annotated[list[Given], Meta(min_length=1, max_length=100)]
    admin: bool = False
    vo_admin: bool = False
    same_person: bool = False


class DisableBody(Sent, frozen=True):
    """A user to disable; or to enable again, with `disabled` false."""

    name: Text
    disabled: bool = True


class TokenBody(Sent, frozen=True):
    """A token to issue. `seconds` 0 means that it does not expire."""

    account: Text
    scopes: list[str] = field(default_factory=lambda: list(USER_SCOPES))
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_TOKEN)] = 2_592_000.0
    note: Text = ""


MOST_IMPORTED: Final = 1_000


class ImportUsersBody(Sent, frozen=True):
    """Users to make, all or none. `update`: those who are there otherwise are changed. `dry_run`: nothing is changed."""

    users: Annotated[list[AccountBody], Meta(min_length=1, max_length=MOST_IMPORTED)]
    update: bool = False
    dry_run: bool = False


class RemoveUserBody(Sent, frozen=True):
    """A user to remove. `dry_run`: nothing is changed."""

    name: Text
    dry_run: bool = False


class UserRemoved(Struct, frozen=True, kw_only=True):
    """A user who was removed, or would be: the `tokens` that end, the jobs that have not ended by state, if these refuse it,
    and what stays: jobs that ended, and input files.
    """

    name: str
    tokens: int
    live: dict[str, int]
    jobs: int
    files: int
    dry_run: bool


class ImportedUser(Struct, frozen=True):
    """A user of a list: made, changed, or there already as the list says."""

    name: str
    change: Literal["new", "changed", "same"]


class ImportedUsers(Struct, frozen=True):
    """The users of a list, in its order."""

    users: list[ImportedUser]
    dry_run: bool
