"""The OpenAPI document, made from the table of calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from lodesman import __version__
from lodesman.wire import calls
from lodesman.wire.call import Call, Error, Nothing, Who
from lodesman.wire.calls import CALLS
from lodesman.wire.field_comments import describe_fields

_DESCRIPTION: Final = '[ Executable = "/bin/echo"; Arguments = {"%s"}; Parameters = 3; CPUTime = 60; ]'
BODIES: Final[dict[Call[Any, Any, Any], Any]] = {
    calls.SUBMIT: {"text": _DESCRIPTION, "form": "jdl", "group": "physics"},
    calls.PLAN_JOB: {"text": _DESCRIPTION, "form": "jdl"},
    calls.CONTROL: {"ranges": [[12, 40]], "action": "kill", "reason": "wrong input"},
    calls.CHANGE_JOBS: {"ranges": [[12, 12]], "attributes": {"Memory": 2000}, "dry_run": True},
    calls.CLOSE_SITE: {"path": "LCG.North/ce.north", "reason": "cooling"},
    calls.OPEN_SITE: {"path": "LCG.North/ce.north"},
    calls.DRAIN: {"pilots": [7, 8]},
    calls.BREAKER: {"path": "LCG.North/ce.north/short", "order": "close", "reason": "repaired"},
    calls.ADD_USER: {"name": "ada", "vo": "gridlab", "groups": ["physics"]},
    calls.ISSUE_TOKEN: {"account": "ada", "scopes": ["jobs:read", "jobs:write"]},
}


JsonObject = dict[str, Any]
_AnyCall = Call[Any, Any, Any]

# Operations are called as in the table of calls.
_IDS = {call: name.lower() for name, call in vars(calls).items() if isinstance(call, Call)}
_TEXT: JsonObject = {"type": "string"}
_BINARY: JsonObject = {"type": "string", "format": "binary"}
_ENUMS = {str: "string", int: "integer", bool: "boolean"}
# What each status says, under the name that it has in the document (`wire.STATUS`).
REFUSALS = {
    400: ("BadRequest", "The request, a description or a configuration in it is wrong."),
    401: ("Unauthorized", "No token, or one that is unknown, has expired, or is of a pilot that has ended."),
    403: ("Forbidden", "The token does not allow this."),
    404: ("NotFound", "It does not exist, or the caller may not know of it."),
    409: ("Conflict", "What the request goes by does not hold, or no longer."),
    413: ("TooLarge", "Something is over its limit, or would take too long."),
    422: ("Impossible", "No configured queue could ever run these jobs."),
    429: ("TooOften", "Too many requests without a good token came from this address."),
    500: ("ServerFault", "The server failed by a fault of its own, which its log names; nothing was stored."),
    502: (
        "BatchSystemFault",
        "The batch system of a pilot does not answer, or not so that it can be understood.",
    ),
    503: ("Unavailable", "The server cannot answer now: try again."),
}
_FOR: Mapping[Who, str] = {
    "any": "all with a token, but not sites",
    "user": "users",
    "pilot": "pilots",
    "admin": "administrators",
    "vo-admin": "administrators, and those of a VO for what is of that VO",
    "pilot or pilots:read": "pilots, and users with the scope pilots:read",
    "site": "the site itself",
    "site or pilots:read": "the site itself, and users with the scope pilots:read",
}
# A wrong header Range is refused in plain text.
_NO_RANGE: JsonObject = {
    "400": {
        "description": REFUSALS[400][1],
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
            "text/plain": {"schema": _TEXT},
        },
    },
    "416": {"description": "The file has no such part."},
}
# HTTP wants headers for these.
_HEADERS: Mapping[int, JsonObject] = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": _TEXT}},
    429: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
    503: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
}


def described() -> list[_AnyCall]:
    """The calls for users and pilots."""
    return [call for call in CALLS if call.who != "service"]


@cache
def document() -> JsonObject:
    """OpenAPI 3.1."""
    types: list[Any] = [Error]
    for call in described():
        types += [call.body, *call.answers] if call.has_body else call.answers
        types += [kind for _, kind in call.events]
    schemas_of_types, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    describe_fields(components)
    schemas = dict(zip(types, schemas_of_types, strict=True))
    paths: dict[str, JsonObject] = {}
    for call in described():
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schemas)
    responses = {name: _response(words, _HEADERS.get(status)) for status, (name, words) in REFUSALS.items()}
    words = "A pilot-based workload manager."
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lodesman", "version": __version__, "description": words},
        "paths": paths,
        "components": {
            "schemas": {_spelled(name): _plain(schema) for name, schema in components.items()},
            "responses": {"Refused": _response("Refused, for any reason."), **responses},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _plain(schema: Any) -> Any:
    """Without what makers of clients stumble over: enumerations get a type, `"items": false` goes."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _spelled(part) if name == "$ref" else _plain(part)
        for name, part in schema.items()
        if part is not False or name != "items"
    }
    kinds = {type(part) for part in schema["enum"]} if isinstance(schema.get("enum"), list) else set()
    return plain | ({"type": _ENUMS[kinds.pop()]} if len(kinds) == 1 else {})


def _spelled(name: str) -> str:
    """The name of a generic type in letters only: `Cut_Place_` is CutPlace."""
    return re.sub(r"_+([A-Za-z]?)", lambda match: match[1].upper(), name)


def _operation(call: _AnyCall, schemas: Mapping[Any, JsonObject]) -> JsonObject:
    parameters = _parameters(call)
    if call.upload:
        words = "The SHA-256 of the body in lower-case hexadecimal."
        parameters.append(_header("X-Sha256", words, "^[0-9a-f]{64}$", required=True))
    if _is_file(call):
        parameters.append(_header("Range", "For a part of the file.", "^bytes=[0-9]+-$", required=False))
    operation: JsonObject = {
        "summary": call.summary,
        "operationId": _IDS[call],
        "parameters": parameters,
        "responses": _responses(call, schemas),
    }
    if call.has_body or call.upload:
        content = _json(schemas[call.body]) if call.has_body else {call.upload: {"schema": _BINARY}}
        if call in BODIES:
            content["application/json"]["example"] = BODIES[call]
        operation["requestBody"] = {"required": True, "content": content}
    if call.who == "none":
        operation["security"] = []
    else:
        operation["description"] = f"For {_FOR.get(call.who, f'users with the scope {call.who}')}."
    return operation


def _header(name: str, words: str, pattern: str, *, required: bool) -> JsonObject:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": required, "description": words, "schema": schema}


def _json(schema: JsonObject) -> JsonObject:
    return {"application/json": {"schema": schema}}


def _parameters(call: _AnyCall) -> list[JsonObject]:
    if call.query is Nothing:
        return []
    _, components = msgspec.json.schema_components([call.query])
    return [
        {
            "name": name,
            "in": "path" if name in call.names else "query",
            "required": name in call.names,
            # One that may be left out is not null then.
            "schema": next(
                (choice for choice in schema.get("anyOf", ()) if choice["type"] != "null"), schema
            ),
        }
        for name, schema in _plain(components)[call.query.__name__]["properties"].items()
    ]


def _responses(call: _AnyCall, schemas: Mapping[Any, JsonObject]) -> JsonObject:
    """By status; `default` is for what may befall any request."""
    kinds = [schemas[kind] for kind in call.answers]
    content = _json(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}) if kinds else {}
    if call.raw:
        content[call.raw] = {"schema": _BINARY if _is_file(call) else _TEXT}
        if call.events:
            # The types of their data: OpenAPI 3.1 has no word for them.
            content[call.raw]["x-events"] = {name: schemas[kind] for name, kind in call.events}
    responses: JsonObject = {"200": {"description": "Done", "content": content}}
    if _is_file(call):
        part = {"description": "The part that was asked for", "content": {call.raw: {"schema": _BINARY}}}
        responses |= {"206": part, **_NO_RANGE}
    refused = {str(status): REFUSALS[status][0] for status in refusals(call)} | {"default": "Refused"}
    return {
        status: {"$ref": f"#/components/responses/{name}"} for status, name in refused.items()
    } | responses


def _is_file(call: _AnyCall) -> bool:
    return bool(call.raw) and not call.raw.startswith("text/")


def refusals(call: _AnyCall) -> list[int]:
    """The statuses with which a call may be refused."""
    # 400: its path or its query string may be wrong.
    # 429: a stranger asks too often. 500: the server fails by a fault of its own.
    statuses = {400, 429, 500, 503, *call.refused}
    if call.who != "none":
        statuses |= {401, 403}
    if call.has_body or call.upload:
        statuses.add(413)
    if call.names or any(parameter["name"] == "vo" for parameter in _parameters(call)):
        statuses.add(404)
    return sorted(statuses)


def _response(words: str, headers: JsonObject | None = None) -> JsonObject:
    response: JsonObject = {"description": words, "content": _json({"$ref": "#/components/schemas/Error"})}
    return response | ({"headers": headers} if headers else {})
