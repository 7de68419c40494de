"""From a request to the function that answers it: find the call, authorise, decode, call, encode."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from lodesman.base.errors import InvalidRequest, LodesmanError, Unavailable
from lodesman.languages.jobs.record import shown
from lodesman.server.http import wire
from lodesman.server.http.auth import authorise
from lodesman.server.http.wire import Answer, Disconnected, Receive, Response, Scope, Send, origin_of
from lodesman.server.store import let_go
from lodesman.server.store.audit import AuditedCommand
from lodesman.server.store.journal import Command
from lodesman.server.store.sqlite import refusal_of
from lodesman.wire.accounts import AuditAction, AuditNote, Principal
from lodesman.wire.call import Call, Nothing, Process
from lodesman.wire.calls import CALLS

log = logging.getLogger(__name__)

_Q = TypeVar("_Q")
_B = TypeVar("_B")
_A = TypeVar("_A")
_R = TypeVar("_R")
_S = TypeVar("_S")

_ENCODER = msgspec.json.Encoder()
_NOBODY = Principal(kind="none")
# A number in a path that the database can hold.
_NUMBER, _WORD = "([0-9]{1,18})", "([^/]+)"
# Escapes of what every client writes plainly in a path: / \\ and the unreserved characters of RFC 3986.
_DISGUISED = re.compile(rb"%(?:2[def]|5[cf]|7e|3[0-9]|[46][1-9a-f]|[57][0-9a])", re.IGNORECASE)


@dataclass(slots=True)
class Request(Generic[_Q, _B]):
    """A request that may be made."""

    who: Principal
    query: _Q
    body: _B
    size: int  # bytes of the body
    scope: Scope
    receive: Receive  # for functions that read a file

    def audited(
        self, command: Command[_R], action: AuditAction, subject: str, detail: str = ""
    ) -> AuditedCommand[_R]:
        """The command with its note for the audit trail."""
        return AuditedCommand(
            command, AuditNote(action, subject, self.who.name, origin_of(self.scope), detail=detail)
        )


_Function = Callable[[_S, Request[_Q, _B]], Awaitable[_A | Response]]


class Endpoint(Generic[_S]):
    """A call and its function of the process's state and a request."""

    def __init__(self, call: Call[Any, Any, Any], function: _Function[_S, Any, Any, Any]) -> None:
        self.call = call
        self.function = function
        self.path = pattern_of(call)
        self._decoder = msgspec.json.Decoder(call.body) if call.has_body else None
        self._fields = msgspec.structs.fields(call.query)
        self._lists = {field.name for field in self._fields if _is_list(field.type)}
        self._parameters = [field.name for field in self._fields if field.name not in call.names]

    async def request(
        self, who: Principal, names: tuple[str, ...], scope: Scope, receive: Receive
    ) -> Request[Any, Any]:
        """`names`: the values of those in the path. Raises InvalidRequest, TooLarge, Disconnected."""
        query: Any = Nothing()
        values: dict[str, Any] = {}
        if scope["query_string"]:
            values |= _parameters(scope["query_string"], self._parameters, self._lists)
        if self._fields:
            values |= zip(self.call.names, names, strict=True)
            fields = [field for field in self._fields if field.name in values]
            query = self.call.query(
                **{field.name: _value(field.name, field.type, values[field.name]) for field in fields}
            )
        if self._decoder is None:
            return Request(who, query, Nothing(), 0, scope, receive)
        raw = await wire.read_body(receive, self.call.most_bytes)
        return Request(who, query, wire.decode(self._decoder, raw), len(raw), scope, receive)


def serves(call: Call[_Q, _B, _A]) -> Callable[[_Function[_S, _Q, _B, _A]], Endpoint[_S]]:
    """Bind a function to a call. It may return a file or a text, too."""
    return lambda function: Endpoint(call, function)


def _parameters(raw: bytes, names: Sequence[str], lists: Collection[str]) -> dict[str, Any]:
    """Each once, but for `lists`. Raises InvalidRequest."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        raise InvalidRequest("The query string is not of the form name=value&name=value in UTF-8.") from None
    several = {name: [value for parameter, value in pairs if parameter == name] for name in lists}
    pairs = [pair for pair in pairs if pair[0] not in lists]
    parameters: dict[str, Any] = dict(pairs)
    if unknown := parameters.keys() - set(names):
        hint = f"There are {', '.join(names)}." if names else "This call has none."
        raise InvalidRequest(f"There is no parameter {shown(min(unknown))}.", hint=hint)
    if len(parameters) < len(pairs):
        raise InvalidRequest("A parameter is given twice.")
    return parameters | {name: values for name, values in several.items() if values}


def _is_list(kind: Any) -> bool:
    return any(get_origin(one) is list for one in get_args(kind))


def _value(name: str, kind: Any, text: Any) -> Any:
    if isinstance(text, list):
        try:
            return msgspec.convert(text, kind)
        except msgspec.ValidationError as wrong:
            raise InvalidRequest(f"{name}: {wrong}.", parameter=name) from None
    if kind is str:
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false.", parameter=name)
        return text == "true"
    words = [
        word for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)
    ]
    if words:
        if text not in words:
            raise InvalidRequest(f"{name} must be one of {', '.join(words)}.", parameter=name)
        return text
    meta = getattr(kind, "__metadata__", ())
    least, most = (meta[0].ge, meta[0].le) if meta else (0, 10**18)
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or not least <= int(text) <= most:
        raise InvalidRequest(f"{name} must be a number from {least} to {most}.", parameter=name)
    return int(text)


@cache
def _endpoints(
    process: Process, modules: tuple[ModuleType, ...]
) -> tuple[Mapping[tuple[str, str], Endpoint[Any]], Sequence[Endpoint[Any]]]:
    """Those without names in their paths by method and path, and the others."""
    served = [
        endpoint for module in modules for endpoint in vars(module).values() if isinstance(endpoint, Endpoint)
    ]
    endpoints = [endpoint for endpoint in served if endpoint.call.process == process]
    counts = Counter(endpoint.call for endpoint in endpoints)
    wrong = [call.path for call in CALLS if counts[call] != (call.process == process)]
    if wrong:
        raise LookupError(f"The {process} process has no function, or more than one, for {wrong}.")
    plain: Mapping[tuple[str, str], Endpoint[Any]] = {
        (endpoint.call.method, endpoint.call.path): endpoint
        for endpoint in endpoints
        if not endpoint.call.names
    }
    return plain, [endpoint for endpoint in endpoints if endpoint.call.names]


class Dispatcher(Generic[_S]):
    """The ASGI application of one process."""

    def __init__(self, process: Process, state: _S, modules: Iterable[ModuleType]) -> None:
        """Raises LookupError unless `modules` have one function for each call of the process."""
        self.state = state
        self._process = process
        self._plain: Mapping[tuple[str, str], Endpoint[_S]]
        self._patterns: Sequence[Endpoint[_S]]
        self._plain, self._patterns = _endpoints(process, tuple(modules))

    def authenticate(self, scope: Scope, call: Call[Any, Any, Any]) -> Principal:
        """Raises Unauthorized."""
        raise NotImplementedError

    def check(self, who: Principal) -> None:
        """After the body, which may take its time. Raises LodesmanError."""

    async def otherwise(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is no call of this process."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            endpoint, names = self._find(scope)
            if endpoint is None:
                await self.otherwise(scope, receive, send)
                return
            who = _NOBODY
            if endpoint.call.who != "none":
                who = self.authenticate(scope, endpoint.call)
                authorise(who, endpoint.call.who)
            call = endpoint.call
            with wire.room_for(scope, call.most_bytes, who) if call.has_body else nullcontext():
                request = await endpoint.request(who, names, scope, receive)
                if call.has_body and who is not _NOBODY:
                    self.check(who)
                answer = await endpoint.function(self.state, request)
            if isinstance(answer, Response):
                await answer(scope, receive, send)
            else:
                await wire.send_answer(send, *wire.json_answer(_ENCODER.encode(answer)))
        except LodesmanError as error:
            await self._refuse(scope, send, wire.error_answer(error))
        except Disconnected:
            return
        except Exception as bug:
            let_go(bug)
            await self._refuse(scope, send, failed(scope["path"], bug))

    def _find(self, scope: Scope) -> tuple[Endpoint[_S] | None, tuple[str, ...]]:
        """Raises InvalidRequest for a path that a proxy would read as another."""
        if b"%" in scope["raw_path"] and _DISGUISED.search(scope["raw_path"].split(b"?")[0]):
            raise InvalidRequest("The path has slashes, letters or digits that are percent-encoded.")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        plain = self._plain.get((method, scope["path"]))
        if plain is not None:
            return plain, ()
        for endpoint in self._patterns:
            match = endpoint.path.fullmatch(scope["path"]) if endpoint.call.method == method else None
            if match is not None:
                return endpoint, match.groups()
        return None, ()

    async def _refuse(self, _scope: Scope, send: Send, answer: Answer) -> None:
        status, headers, body = answer
        if self._process == "reading":
            # How long a connection lives is between the client and the hot process.
            headers = [pair for pair in headers if pair[0] != b"connection"]
        await wire.send_answer(send, status, headers, body)


@cache
def pattern_of(call: Call[Any, Any, Any]) -> re.Pattern[str]:
    """The path of a call: numbers where its query has numbers."""
    kinds: Mapping[str, Any] = {field.name: field.type for field in msgspec.structs.fields(call.query)}
    path = re.sub(r"{(\w+)}", lambda name: _NUMBER if kinds[name[1]] is int else _WORD, call.path)
    return re.compile(path)


def failed(path: str, bug: Exception) -> Answer:
    """The answer to a full disk, wrong rights, or a bug."""
    if isinstance(bug, OSError) and (refusal := refusal_of(bug, Path())):
        log.warning("a request failed: %s", refusal, extra={"path": path})
        return wire.error_answer(refusal)
    if isinstance(bug, PermissionError):
        # Where its data are is for administrators.
        log.error("the server may not use a file or folder of its own: %s", bug, extra={"path": path})
        words = "The server may not use a file or folder of its own data, which its log names."
    else:
        log.error("a request failed", exc_info=bug, extra={"path": path})
        words = "The server failed to answer this; its log says why."
    return wire.error_answer(Unavailable(words, hint="Ask its administrators."))
