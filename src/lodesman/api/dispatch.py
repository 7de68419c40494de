"""From a request to the function that answers it, by the table of calls: find, authorise, decode, call, encode."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from lodesman.answers.accounts import Principal
from lodesman.answers.call import Call, Nothing, Process
from lodesman.answers.calls import CALLS
from lodesman.api.auth import authorise
from lodesman.api.wire import (
    Answer,
    Disconnected,
    Receive,
    Scope,
    Send,
    decode,
    error_answer,
    json_answer,
    read_body,
    send_answer,
)
from lodesman.errors import InvalidRequest, LodesmanError, Unavailable

log = logging.getLogger(__name__)

Q = TypeVar("Q")
B = TypeVar("B")
A = TypeVar("A")
S = TypeVar("S")

_ENCODER = msgspec.json.Encoder()
_NOBODY = Principal(kind="none")
# A number in a path that the database can hold.
_NUMBER, _WORD = "([0-9]{1,18})", "([^/]+)"


@dataclass(slots=True)
class Request(Generic[Q, B]):
    """A request that may be made: who makes it, what path, query and body hold. `size`: bytes of the body.

    `scope` and `receive` are for functions that read a file.
    """

    who: Principal
    query: Q
    body: B
    size: int
    scope: Scope
    receive: Receive


Function = Callable[[S, Request[Q, B]], Awaitable[A | Response]]
# Who makes a request. Raises Unauthorized.
Authenticate = Callable[[Scope, Call[Any, Any, Any]], Principal]


@dataclass(frozen=True, slots=True)
class Served(Generic[S, Q, B, A]):
    """A call with its function; the function's first argument is the state of the process."""

    call: Call[Q, B, A]
    function: Function[S, Q, B, A]


def serves(call: Call[Q, B, A]) -> Callable[[Function[S, Q, B, A]], Served[S, Q, B, A]]:
    """Make a function the one that answers a call. It may answer with a response of its own, too: a file or a text."""
    return lambda function: Served(call, function)


def said(value: Any) -> Response:
    """An answer in JSON values that are of no declared type."""
    return Response(msgspec.json.encode(value), media_type="application/json")


class _Endpoint(Generic[S]):
    """A call that is ready to be made."""

    def __init__(self, served: Served[S, Any, Any, Any]) -> None:
        self.call = served.call
        self.function = served.function
        self._decoder = msgspec.json.Decoder(self.call.body) if self.call.has_body else None
        self._fields = msgspec.structs.fields(self.call.query)

    async def request(
        self, who: Principal, names: tuple[str, ...], scope: Scope, receive: Receive
    ) -> Request[Any, Any]:
        """Raises InvalidRequest, TooLarge, Disconnected."""
        query = self._query(names, scope["query_string"]) if self._fields else Nothing()
        if self._decoder is None:
            return Request(who, query, Nothing(), 0, scope, receive)
        raw = await read_body(scope, receive, self.call.most_bytes)
        return Request(who, query, decode(self._decoder, raw), len(raw), scope, receive)

    def _query(self, names: tuple[str, ...], text: bytes) -> Any:
        given = dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True))
        given |= zip(self.call.names, names, strict=True)
        values = {
            one.name: _value(one.name, one.type, given[one.name])
            for one in self._fields
            if given.get(one.name, "")
        }
        return self.call.query(**values)


def _value(name: str, kind: Any, text: str) -> Any:
    """A parameter as its type wants it. Raises InvalidRequest."""
    if kind is str:
        return text
    if kind is bool:
        return text == "true"
    words = [word for one in get_args(kind) if get_origin(one) is Literal for word in get_args(one)]
    if words:
        if text not in words:
            raise InvalidRequest(f"{name} must be one of {', '.join(words)}.", parameter=name)
        return text
    meta = getattr(kind, "__metadata__", ())
    least, most = (meta[0].ge, meta[0].le) if meta else (0, 10**18)
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or not least <= int(text) <= most:
        raise InvalidRequest(f"{name} must be a number from {least} to {most}.", parameter=name)
    return int(text)


class Dispatcher(Generic[S]):
    """The ASGI application of one process. `authenticate` finds who makes a request; `otherwise` answers requests that
    are not calls of this process.
    """

    def __init__(
        self,
        process: Process,
        state: S,
        modules: Iterable[ModuleType],
        *,
        authenticate: Authenticate,
        otherwise: Callable[[Scope, Receive, Send], Awaitable[None]],
    ) -> None:
        """`modules` have the functions: one for each call of the process. Raises LookupError if it is otherwise."""
        self._process = process
        self._state = state
        self._authenticate = authenticate
        self._otherwise = otherwise
        found = [one for module in modules for one in vars(module).values() if isinstance(one, Served)]
        counts = Counter(one.call for one in found)
        wrong = [call.path for call in CALLS if counts[call] != (call.process == process)]
        if wrong:
            raise LookupError(f"The {process} process has no function, or more than one, for {wrong}.")
        endpoints = [_Endpoint(cast("Served[S, Any, Any, Any]", one)) for one in found]
        self._plain: Mapping[tuple[str, str], _Endpoint[S]] = {
            (one.call.method, one.call.path): one for one in endpoints if not one.call.names
        }
        self._patterns = [(one, pattern_of(one.call)) for one in endpoints if one.call.names]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            endpoint, names = self._find(scope)
            if endpoint is None:
                await self._otherwise(scope, receive, send)
            else:
                await self._answer(endpoint, await self._request(endpoint, names, scope, receive), send)
        except LodesmanError as error:
            await self._refuse(send, error_answer(error))
        except Disconnected:
            return
        except Exception as bug:
            await self._refuse(send, failed(scope["path"], bug))

    def _find(self, scope: Scope) -> tuple[_Endpoint[S] | None, tuple[str, ...]]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        plain = self._plain.get((method, scope["path"]))
        if plain is not None:
            return plain, ()
        for endpoint, pattern in self._patterns:
            found = pattern.fullmatch(scope["path"]) if endpoint.call.method == method else None
            if found is not None:
                return endpoint, found.groups()
        return None, ()

    async def _request(
        self, endpoint: _Endpoint[S], names: tuple[str, ...], scope: Scope, receive: Receive
    ) -> Request[Any, Any]:
        who = _NOBODY
        if endpoint.call.who != "none":
            who = self._authenticate(scope, endpoint.call)
            authorise(who, endpoint.call.who)
        return await endpoint.request(who, names, scope, receive)

    async def _answer(self, endpoint: _Endpoint[S], request: Request[Any, Any], send: Send) -> None:
        answer = await endpoint.function(self._state, request)
        if isinstance(answer, Response):
            await answer(request.scope, request.receive, send)
        else:
            await send_answer(send, *json_answer(_ENCODER.encode(answer)))

    async def _refuse(self, send: Send, answer: Answer) -> None:
        status, headers, body = answer
        if self._process == "reading":
            # How long a connection lives is between the client and the hot process.
            headers = [one for one in headers if one[0] != b"connection"]
        await send_answer(send, status, headers, body)


def pattern_of(call: Call[Any, Any, Any]) -> re.Pattern[str]:
    """What the path of a call must be: numbers where its query has numbers."""
    kinds: Mapping[str, Any] = {one.name: one.type for one in msgspec.structs.fields(call.query)}
    path = re.sub(r"{(\w+)}", lambda name: _NUMBER if kinds[name[1]] is int else _WORD, call.path)
    return re.compile(path)


def failed(path: str, bug: Exception) -> Answer:
    """The answer to a request that met a bug, which is logged with its traceback."""
    log.error("a request failed", exc_info=bug, extra={"path": path})
    return error_answer(Unavailable("The server failed to answer this; its log says why."))
