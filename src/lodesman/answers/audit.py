"""Answers about the audit trail."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from lodesman.answers.call import Page

AuditAction = Literal[
    "user-changed", "user-disabled", "user-enabled", "token-issued", "token-revoked", "pilots-drained", "site-closed",
    "site-opened", "breaker-opened", "breaker-closed", "configuration-changed", "configuration-refused",
    "login-refused",
]  # fmt: skip


class AuditNote(Struct, frozen=True):
    """What is noted: who did (`by`) what (`action`) to what (`subject`), from which address (`origin`), how often."""

    action: AuditAction
    subject: str
    by: str = "server"
    origin: str = ""
    count: int = 1
    detail: str = ""


class AuditEntry(Struct):
    """An entry of the trail, UNIX seconds; `count`: how often until then. `by` '': not known. `detail`: in words."""

    id: int
    at: float
    action: AuditAction
    subject: str
    by: str
    origin: str
    count: int
    detail: str


class Audit(Page):
    """Entries, the newest first."""

    entries: list[AuditEntry]
