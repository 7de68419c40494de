"""One root for every error of the program; it travels in the pilot.

`code` never changes between releases, `message` is one sentence for people, `hint` says what to do, `data` is for programs.
Only `api` knows HTTP statuses and only `cli` exit codes; both map from `code`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

_LETTERS = 300  # of a fault in words


def counted(count: int, noun: str) -> str:
    """`1 job`, `3 jobs`, `1,000 task queues`: a number in a sentence."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plain(text: object, *, keep: str = "") -> str:
    """Nothing in the text steers a terminal: control, format and direction marks are written out, but for `keep`."""
    words = str(text)
    if words.isprintable():
        return words
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in words
    )


def words_of(fault: BaseException) -> str:
    """The kind of a fault and what it says, fit to be sent; its own words may be what fails."""
    try:
        words = str(fault)
    except Exception:
        words = "it cannot be put into words"
    return f"{type(fault).__name__}: {words}"[:_LETTERS].encode("utf-8", "replace").decode()


def each_once(pairs: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """As of a JSON object that a person wrote. Raises ValueError for a name that comes twice."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name[:80]!r} is given twice")
        values[name] = value
    return values


class LodesmanError(Exception):
    """Root of all errors. `data` values are JSON values."""

    code: ClassVar[str] = "error"

    def __init_subclass__(cls, *, code: str = "") -> None:
        super().__init_subclass__()
        cls.code = code or cls.code

    def __init__(self, message: str, *, hint: str = "", **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.data = data

    def __str__(self) -> str:
        # Others may have written what it quotes, and tracebacks and logs show it as it is.
        return plain(f"{self.message} {self.hint}".rstrip(), keep="\n\t")

    def as_dict(self) -> dict[str, Any]:
        """Code, message, hint (if any) and data (if any)."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            out["hint"] = self.hint
        if self.data:
            out["data"] = self.data
        return out


class SyntaxFault(LodesmanError, code="syntax"):
    """A text cannot be read; `data` has `line` and `column` (from 1) and maybe `source`."""

    def __init__(self, message: str, *, line: int, column: int, hint: str = "", **data: Any) -> None:
        where = f"line {line}, column {column}: "
        super().__init__(where + message, hint=hint, line=line, column=column, **data)


def line_column(text: str, offset: int) -> tuple[int, int]:
    """Both from 1; lines end with a newline character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def fault_at(text: str, offset: int, message: str, *, hint: str = "") -> SyntaxFault:
    """`message` comes without its full stop."""
    line, column = line_column(text, offset)
    return SyntaxFault(f"{message}.", line=line, column=column, hint=hint)


class InvalidJob(LodesmanError, code="invalid-job"):
    """A job description is well formed and wrong; `data` has `attribute` and, if known, a position."""


class InvalidConfig(LodesmanError, code="invalid-config"):
    """A configuration value is wrong; `data` has `source`, `section`, `line` where known."""


class InvalidRequest(LodesmanError, code="invalid-request"):
    """A request to the server is malformed."""


class Impossible(LodesmanError, code="impossible"):
    """A job that no configured queue could ever run; `data` has the reasons."""


class NotFound(LodesmanError, code="not-found"):
    """The named thing does not exist, or the caller may not know that it does."""


class Unauthorized(LodesmanError, code="unauthorized"):
    """No token, an unknown token or an expired one."""


class Forbidden(LodesmanError, code="forbidden"):
    """The token is good and does not allow this."""


class Conflict(LodesmanError, code="conflict"):
    """A precondition does not hold any more (a state moved, an attempt is stale)."""


class TooLarge(LodesmanError, code="too-large"):
    """An input is over its limit; `data` has `limit` and, if known, `size`."""


class StorageFull(TooLarge, code="storage-full"):
    """There is no space for files of a user now; `data` as of TooLarge."""


class Unavailable(LodesmanError, code="unavailable"):
    """The server or a batch system cannot answer now; trying again later makes sense."""


class ServerFault(Unavailable, code="server-fault"):
    """The server failed by a fault that its log names; nothing was stored."""


class TooOften(Unavailable, code="too-often"):
    """Too many requests of this address were refused lately."""


class BackendFault(LodesmanError, code="backend"):
    """A batch system refused; `data['transient']` says whether a retry makes sense."""
