"""Users, their tokens, and the audit trail."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct, field

from lodesman.wire.call import Page
from lodesman.wire.requests import END, LONGEST_TOKEN, Count, KnownName, Paged, Rows, SparseStruct, Text

# What a token may allow, and what one allows if nothing else is asked for.
SCOPES = ("jobs:read", "jobs:write", "pilots:read", "admin")
USER_SCOPES = ("jobs:read", "jobs:write", "pilots:read")


class Principal(Struct, frozen=True, kw_only=True):
    """Who asks."""

    kind: str  # user, service (the background process), pilot, join (a pilot that has not joined) or site
    name: str = ""  # The user, or the site.
    vo: str = ""
    groups: tuple[str, ...] = ()
    admin: bool = False
    vo_admin: bool = False
    scopes: frozenset[str] = frozenset()
    pilot_id: int = 0
    expires_at: float | None = None
    token: bytes = b""  # The hash of the token that was used.
    has_ended: bool = False  # It is a lost pilot, and its token opens the calls of ADR 0022.

    def allows(self, scope: str) -> bool:
        """Whether this token may be used for that."""
        return scope in self.scopes


_Limit = Annotated[int, Meta(ge=0)]


class Reach(NamedTuple):
    """Whose accounts a caller may change."""

    vo: str = ""  # Those of this VO who administer nothing; '': all.
    user: str = ""  # The caller, whose own account is within reach, too.


EVERYBODY: Final = Reach()


class LimitSection(Struct, forbid_unknown_fields=True, frozen=True):
    """What one user may have; 0: no such limit."""

    waiting_jobs: _Limit = 1_000_000
    task_queues: _Limit = 10_000
    tokens: _Limit = 100
    # How many; their bytes, and those of outputs, are limited by `sandbox_quota_mb`.
    input_files: _Limit = 100_000
    job_classes: _Limit = 100
    attempts: _Limit = 0  # Of each job.
    retry_memory_mb: _Limit = 0  # Up to which memory of each job retries may grow.


class Token(Struct, frozen=True):
    """A token, shown this once."""

    token: str


class TokenRow(Struct, frozen=True):
    """A token of a user or of a site."""

    hash: str
    kind: Literal["user", "site"]
    account: str  # The user or the site.
    scopes: list[str]
    note: str
    created_at: float
    expires_at: float | None
    made_with: str | None  # The hash of the token that made it; None if unknown or purged.
    made_by: str | None  # The user of that token; None likewise.


class Tokens(Page, frozen=True):
    """The tokens of the one who asks; for administrators those of all users and sites."""

    tokens: list[TokenRow]


class Inputs(Struct, frozen=True):
    """The files that a user keeps on the server."""

    files: int  # The number of input files.
    bytes: int  # Of input files.
    limit: int | None  # In bytes, for input files and outputs each; None: unlimited.
    outputs: int = 0  # Bytes of outputs.


class Me(Struct, frozen=True):
    """Whose token this is and what it allows; of a pilot only its `kind`."""

    name: str
    kind: Literal["user", "service", "pilot"]
    vo: str
    groups: list[str]
    admin: bool
    scopes: list[str]
    inputs: Inputs
    vo_admin: bool = False
    expires_at: float | None = None  # UNIX seconds; None: no end.


class UserRow(Struct, frozen=True):
    """A user."""

    name: str
    vo: str
    groups: list[str]
    admin: bool
    created_at: float
    disabled_at: float | None  # Since when no token of the user opens anything; None: they do.
    tokens: int  # The number of tokens.
    vo_admin: bool = False  # The user administers the VO.


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
    """How many tokens were revoked and kept."""

    revoked: int  # The one named, and those it made for the same user, or for all.
    kept: int  # Those it made for other users.


AuditAction = Literal[
    "user-changed", "user-disabled", "user-enabled", "user-removed", "users-imported",
    "token-issued", "token-revoked", "pilots-drained", "site-closed",
    "site-opened", "site-tested", "breaker-opened", "breaker-closed", "breaker-ordered", "host-shut", "host-closed",
    "host-opened", "quota-changed", "quota-removed", "class-changed", "class-removed", "class-enabled", "class-disabled",
    "group-changed", "submission-shared", "configuration-changed", "configuration-refused", "login-refused", "pilots-made",
]  # fmt: skip


class AuditNote(Struct, frozen=True):
    """What is noted in the audit trail."""

    action: AuditAction  # What was done.
    subject: str  # To what.
    by: str = "server"  # Who did it.
    origin: str = ""  # From which address.
    count: int = 1  # How often.
    detail: str = ""


class AuditEntry(Struct, frozen=True):
    """An entry of the audit trail."""

    id: int
    at: float  # UNIX seconds.
    action: AuditAction
    subject: str
    by: str  # '': not known.
    origin: str
    count: int  # How often until then.
    detail: str  # In words.


class Audit(Page, frozen=True):
    """Entries, the newest first."""

    entries: list[AuditEntry]


class AuditQuery(Paged, frozen=True):
    """Entries of the audit trail."""

    since: Count = 0  # UNIX seconds.
    action: AuditAction | None = None  # None: any.
    by: str = ""  # The user who did it; '': any.
    limit: Rows = 100


class TokenAt(SparseStruct, frozen=True):
    """A token by the beginning of its hash."""

    prefix: str
    all: bool = False  # With the tokens that it made for other users, too.


class AccountBody(SparseStruct, frozen=True):
    """A user of this server."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=rf"^[A-Za-z0-9._@-]+{END}")]
    vo: KnownName
    groups: Annotated[list[KnownName], Meta(min_length=1, max_length=100)]
    admin: bool = False  # Who administers the server.
    vo_admin: bool = False  # Who administers the VO.
    # Who had this name before, was removed, and gets back the jobs and files that are still there.
    same_person: bool = False


class DisableBody(SparseStruct, frozen=True):
    """A user to disable or enable."""

    name: Text
    disabled: bool = True  # False: enable the user again.


class TokenBody(SparseStruct, frozen=True):
    """A token to issue."""

    account: Text
    scopes: list[str] = field(default_factory=lambda: list(USER_SCOPES))
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_TOKEN)] = 2_592_000.0  # 0: it does not expire.
    note: Text = ""


MOST_IMPORTED: Final = 1_000


class ImportUsersBody(SparseStruct, frozen=True):
    """Users to make, all or none."""

    users: Annotated[list[AccountBody], Meta(min_length=1, max_length=MOST_IMPORTED)]
    update: bool = False  # Change those who are there and differ.
    dry_run: bool = False  # Change nothing.


class RemoveUserBody(SparseStruct, frozen=True):
    """A user to remove."""

    name: Text
    dry_run: bool = False  # Change nothing.


class UserRemoved(Struct, frozen=True, kw_only=True):
    """A user who was removed, or would be."""

    name: str
    tokens: int  # Those that end.
    live: dict[str, int]  # The jobs that have not ended, by state, if these refuse it.
    jobs: int  # Those that ended, which stay.
    files: int  # Input files, which stay.
    dry_run: bool


class ImportedUser(Struct, frozen=True):
    """A user of a list."""

    name: str
    change: Literal["new", "changed", "same"]  # same: the user was there already as the list says.


class ImportedUsers(Struct, frozen=True):
    """The users of a list, in its order."""

    users: list[ImportedUser]
    dry_run: bool
