"""The OpenAPI document, made from the table of calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from lodesman import __version__
from lodesman.answers.call import Call, Error, Nothing, Who
from lodesman.answers.calls import CALLS

Schemas = Mapping[Any, Mapping[str, Any]]

_TEXT = {"type": "string"}
_BINARY = {"type": "string", "format": "binary"}
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
    503: ("Unavailable", "The server cannot answer now: try again."),
}
_FOR: Mapping[Who, str] = {
    "any": "anybody with a token",
    "user": "users",
    "pilot": "pilots",
    "admin": "administrators",
    "pilot or pilots:read": "pilots, and users with the scope pilots:read",
}
_SHA = {
    "name": "X-Sha256",
    "in": "header",
    "required": True,
    "description": "The SHA-256 of the body in lower-case hexadecimal.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_RANGE = {
    "name": "Range",
    "in": "header",
    "required": False,
    "description": "For a part of the file.",
    "schema": {"type": "string", "pattern": "^bytes=[0-9]+-$"},
}
# The header Range is read before anything of ours.
_NO_RANGE = {
    "400": {"description": "The header Range is wrong.", "content": {"text/plain": {"schema": _TEXT}}},
    "416": {"description": "The file has no such part."},
}
_HEADERS: Mapping[int | None, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": _TEXT}},
    503: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
}


def described() -> list[Call[Any, Any, Any]]:
    """The calls that the document has: those for users and pilots."""
    return [call for call in CALLS if call.who != "service"]


@cache
def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1)."""
    types: list[Any] = [Error]
    for call in described():
        types += [call.body, *call.answers] if call.has_body else call.answers
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in described():
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lodesman",
            "version": __version__,
            "description": "A pilot-based workload manager.",
        },
        "paths": paths,
        "components": {
            "schemas": {_spelled(name): _plain(one) for name, one in components.items()},
            "responses": {
                "Refused": _response(None, "Refused, for any reason."),
                **{name: _response(status, words) for status, (name, words) in REFUSALS.items()},
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _plain(schema: Any) -> Any:
    """The same schema in words that makers of clients know: they miss the type of enumerations, and stumble over
    `"items": false` where the length is given.
    """
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _spelled(one) if name == "$ref" else _plain(one)
        for name, one in schema.items()
        if one is not False or name != "items"
    }
    found = {type(one) for one in schema["enum"]} if isinstance(schema.get("enum"), list) else set()
    return plain | ({"type": _ENUMS[found.pop()]} if len(found) == 1 else {})


def _spelled(name: str) -> str:
    """The name of a schema, that of a generic type in letters only: `Cut_Place_` is CutPlace."""
    return re.sub(r"_+([A-Za-z]?)", lambda found: found[1].upper(), name)


def _operation(call: Call[Any, Any, Any], schemas: Schemas) -> dict[str, Any]:
    parameters = _parameters(call)
    if call.upload:
        parameters.append(_SHA)
    if _is_file(call):
        parameters.append(_RANGE)
    operation: dict[str, Any] = {
        "summary": call.summary,
        "operationId": f"{call.method.lower()}{re.sub(r'[^a-z]+', '_', call.path)}".strip("_"),
        "parameters": parameters,
        "responses": _responses(call, schemas),
    }
    if call.has_body:
        content = {"application/json": {"schema": schemas[call.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif call.upload:
        operation["requestBody"] = {"required": True, "content": {call.upload: {"schema": _BINARY}}}
    if call.who == "none":
        operation["security"] = []
    else:
        who = _FOR.get(call.who, f"users with the scope {call.who}")
        operation["description"] = f"For {who}."
    return operation


def _parameters(call: Call[Any, Any, Any]) -> list[dict[str, Any]]:
    if call.query is Nothing:
        return []
    _, components = msgspec.json.schema_components([call.query])
    return [
        {
            "name": name,
            "in": "path" if name in call.names else "query",
            "required": name in call.names,
            "schema": _parameter(schema),
        }
        for name, schema in _plain(components)[call.query.__name__]["properties"].items()
    ]


def _parameter(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is not null then."""
    options = [one for one in schema.pop("anyOf", []) if one.get("type") != "null"]
    found = {**schema, **(options[0] if options else {})}
    return {name: value for name, value in found.items() if name != "default" or value is not None}


def _responses(call: Call[Any, Any, Any], schemas: Schemas) -> dict[str, Any]:
    """What a call may answer, by status; `default` is for what may befall any request."""
    kinds = [schemas[kind] for kind in call.answers]
    content = {}
    if kinds:
        content["application/json"] = {"schema": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
    if call.raw:
        content[call.raw] = {"schema": _BINARY if _is_file(call) else _TEXT}
    found: dict[str, Any] = {"200": {"description": "Done", "content": content}}
    if _is_file(call):
        part = {"description": "The part that was asked for", "content": {call.raw: {"schema": _BINARY}}}
        found |= {"206": part, **_NO_RANGE}
    refused = {
        str(status): {"$ref": f"#/components/responses/{REFUSALS[status][0]}"} for status in refusals(call)
    }
    return {**found, **refused, "default": {"$ref": "#/components/responses/Refused"}}


def _is_file(call: Call[Any, Any, Any]) -> bool:
    """Whether it may be answered with a file."""
    return bool(call.raw) and not call.raw.startswith("text/")


def refusals(call: Call[Any, Any, Any]) -> list[int]:
    """The statuses with which a call may be refused."""
    found = {503, *call.refused}
    if call.who != "none":
        found |= {401} if call.who == "any" else {401, 403}
    if call.has_body or call.upload:
        found |= {400, 413}
    given = {one["name"]: one["schema"] for one in _parameters(call) if one["in"] == "query"}
    if any("maximum" in schema or "enum" in schema for schema in given.values()):
        found.add(400)
    if call.names or "vo" in given:
        found.add(404)
    return sorted(found)


def _response(status: int | None, words: str) -> dict[str, Any]:
    """A refusal; of the two that HTTP wants headers for, with them."""
    schema = {"$ref": "#/components/schemas/Error"}
    found: dict[str, Any] = {"description": words, "content": {"application/json": {"schema": schema}}}
    if status in _HEADERS:
        found["headers"] = _HEADERS[status]
    return found
