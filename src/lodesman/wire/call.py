"""One operation of the server as both ends know it: its address, who may call it, what it takes and what it answers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Struct, UnsetType

from lodesman.base.errors import LodesmanError

Q = TypeVar("Q")
B = TypeVar("B")
A = TypeVar("A")
# The type of an answer, or the types that it may have; none of a call whose answers are all raw.
Answer = type[A] | tuple[type[A], ...]

# `inner` is the hot process behind its Unix socket, which only processes of the server's own user may open.
Process = Literal["hot", "reading", "inner"]
# A scope admits users whose token has it; `service` is the server's own background process, which may do what users may.
Who = Literal[
    "none", "any", "user", "pilot", "service", "admin", "vo-admin",
    "jobs:read", "jobs:write", "pilots:read", "pilot or pilots:read", "site", "site or pilots:read",
]  # fmt: skip

# The largest bodies, in bytes. That of a pilot that joins comes before it is known who sends it.
JOIN_BODY = 1 << 14
SMALL_BODY = 1 << 20
REPORT_BODY = 8 << 20
PLAN_BODY = 16 << 20
SUBMIT_BODY = 32 << 20

_NAME = re.compile(r"{(\w+)}")


# Those of `lodesman.base.errors`: they never change between releases, and new ones may come.
Code = Literal[
    "backend", "conflict", "forbidden", "impossible", "invalid-config", "invalid-job", "invalid-request",
    "not-found", "server-fault", "storage-full", "syntax", "too-large", "too-often", "unauthorized", "unavailable",
]  # fmt: skip


class ErrorBody(Struct, frozen=True):
    """Why something is refused."""

    code: Code
    message: str
    hint: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET  # For programs: attribute, position, identifiers; by code.


class Error(Struct, frozen=True):
    """A refusal."""

    error: ErrorBody


class Nothing(Struct, frozen=True):
    """No parameters, no body, or an empty answer."""


class Page(Struct, frozen=True, kw_only=True):
    """A part of a list."""

    more: bool = False  # There is more of the list.
    cursor: str = ""  # What to give as `after` to get the next part.


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[Q, B, A]):
    """One operation."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    query: type[Q]  # Has the members that the path names in braces and those of the query string.
    body: type[B]
    answer: Answer[A]
    who: Who = "service"
    process: Process = "reading"
    summary: str = ""
    most_bytes: int = SMALL_BODY
    upload: str = ""  # The media type of an uploaded file, whose SHA-256 is in a header.
    raw: str = ""  # The media type of an answer that is a file or a text.
    repeatable: bool = False  # Repeating does no harm.
    refused: tuple[int, ...] = ()  # Statuses beside those that follow from the rest.
    timeout: float = 30.0  # Seconds that a client waits without a byte.
    events: tuple[tuple[str, type], ...] = ()  # Those of a stream, each with the type of its data.

    @property
    def names(self) -> tuple[str, ...]:
        """Members of the query that are part of the path."""
        return tuple(_NAME.findall(self.path))

    @property
    def answers(self) -> tuple[type[A], ...]:
        """Empty if all answers are raw."""
        return self.answer if isinstance(self.answer, tuple) else (self.answer,)

    @property
    def has_body(self) -> bool:
        """Whether it takes a JSON body."""
        return self.body is not Nothing

    def address(self, query: Q | None = None) -> str:
        """The path with its names, and a query string of what differs from the defaults."""
        members = msgspec.to_builtins(query or Nothing())
        path = _NAME.sub(lambda name: quote(str(members.pop(name[1])), safe=""), self.path)
        rest = {name: "true" if value is True else value for name, value in members.items()}
        return f"{path}?{urlencode(rest, doseq=True)}" if rest else path

    def read(self, raw: bytes) -> A:
        """Of the first type that it fits. Raises LodesmanError."""
        for kind in self.answers:
            try:
                return msgspec.json.decode(raw, type=kind)
            except msgspec.ValidationError as wrong:
                fault = f"is not what this release expects: {wrong}"
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                fault = "is not JSON"
        raise LodesmanError(f"The answer to {self.method} {self.path} {fault}.")


def encode(body: Any) -> bytes:
    """A file name may have left halves of characters, which UTF-8 cannot carry."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(body), ensure_ascii=False).encode("utf-8", "replace")


class Post(Protocol):
    """Makes calls of another process."""

    def __call__(self, call: Call[Nothing, B, A], body: B, /) -> A:
        """The answer. Raises LodesmanError."""
        ...


def get(
    path: str, query: type[Q], answer: Answer[A], who: Who, summary: str, **more: Any
) -> Call[Q, Nothing, A]:
    """A call that changes nothing. `more`: members of `Call` that most calls leave alone."""
    return Call("GET", path, query, Nothing, answer, who, summary=summary, **more)


def post(
    path: str,
    body: type[B],
    answer: Answer[A],
    who: Who,
    summary: str,
    *,
    process: Process = "hot",
    **more: Any,
) -> Call[Nothing, B, A]:
    """A call with a body. `more`: members of `Call` that most calls leave alone."""
    return Call("POST", path, Nothing, body, answer, who, process, summary, **more)
