"""The OpenAPI document, made from the types that check the requests, so that it cannot drift from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from lodesman import __version__
from lodesman.api import answer_bodies as answers
from lodesman.api import bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation: method, path, what it does, its body and answer (if they are described) and who may ask.

    `sha256`: the body is a file whose checksum stands in a header.
    """

    method: str
    path: str
    summary: str
    body: type | None = None
    who: str = "user"
    query: tuple[str, ...] = ()
    media: str = "application/json"
    sha256: bool = False
    answer: type | None = None


CALLS: tuple[Call, ...] = (
    Call(method="post", path="/v1/jobs", summary="Submit jobs", body=bodies.SubmitBody, answer=answers.Submission),
    Call(method="get", path="/v1/jobs", summary="List jobs",
         query=("first", "last", "limit", "all", "newest", "group", "state", "reason"), answer=answers.Jobs),
    Call(method="get", path="/v1/jobs/counts", summary="Jobs by owner, group and state", query=("own",),
         answer=answers.Counts),
    Call(method="get", path="/v1/jobs/{job}", summary="One job with attempts and events", answer=answers.JobInFull),
    Call(method="get", path="/v1/jobs/{job}/why", summary="Why a job waits, and what would let it run", query=("queue",),
         answer=answers.Why),
    Call(method="get", path="/v1/jobs/{job}/description", summary="The description of a job", query=("form",)),
    Call(method="get", path="/v1/jobs/{job}/logs", summary="The last 64 kB of output", answer=answers.Logs),
    Call(method="get", path="/v1/jobs/{job}/output", summary="The output sandbox", media="application/gzip"),
    Call(method="post", path="/v1/plan/job", summary="Plan a submission: what would become of it", body=bodies.PlanJobBody),
    Call(method="post", path="/v1/plan/resources", summary="Plan other resources: what they would change",
         body=bodies.PlanResourcesBody, who="admin"),
    Call(method="post", path="/v1/plan/shares", summary="Plan other shares: what they would change",
         body=bodies.PlanSharesBody, who="admin"),
    Call(method="post", path="/v1/jobs/control", summary="Kill, hold, release, reschedule, delete", body=bodies.ControlBody,
         answer=answers.Controlled),
    Call(method="post", path="/v1/sandboxes", summary="Upload an input file", media="application/octet-stream",
         sha256=True, answer=answers.Stored),
    Call(method="get", path="/v1/sandboxes/{digest}", summary="Is a file there (users), or the file (pilots)"),
    Call(method="get", path="/v1/pilots", summary="Pilots", query=("all", "limit"), answer=answers.Pilots),
    Call(method="get", path="/v1/pilots/{pilot}/why", summary="Why a pilot (number or stamp) got nothing"),
    Call(method="post", path="/v1/pilots/drain", summary="Let pilots finish and leave", body=bodies.DrainBody, who="admin"),
    Call(method="get", path="/v1/task-queues", summary="Task queues with waiting jobs", query=("limit", "reason")),
    Call(method="get", path="/v1/task-queues/reasons", summary="Why jobs wait: jobs and task queues by main reason"),
    Call(method="get", path="/v1/submit-pools", summary="SubmitPools: requirements, queues, jobs, the last pass",
         query=("vo", "limit"), answer=answers.Pools),
    Call(method="get", path="/v1/submit-pools/{pool}", summary="One SubmitPool, by the beginning of its id",
         query=("vo",)),
    Call(method="post", path="/v1/submit-pools/for-queues", summary="The SubmitPools that CE queues serve",
         body=bodies.QueuesBody, who="user, pilot", answer=answers.Served),
    Call(method="get", path="/v1/sites", summary="Sites"),
    Call(method="get", path="/v1/queues/why", summary="Why no pilots are sent to a CE queue",
         query=("site", "ce", "queue", "path", "vo")),
    Call(method="get", path="/v1/queues", summary="CE queues with effective parameters", query=("vo", "origin")),
    Call(method="get", path="/v1/resources", summary="A site, CE or queue: every value, and where it is written",
         query=("path", "site", "ce", "queue", "vo")),
    Call(method="get", path="/v1/configuration", summary="The configuration in use, and what was refused"),
    Call(method="get", path="/v1/standing", summary="States, shares, times and failures in one"),
    Call(method="get", path="/v1/director", summary="The director's last iteration with its arithmetic"),
    Call(method="get", path="/v1/me", summary="Who this token belongs to", answer=answers.Me),
    Call(method="post", path="/v1/users", summary="Make or change a user", body=bodies.AccountBody, who="admin"),
    Call(method="get", path="/v1/tokens", summary="Tokens (never their text)", who="admin", answer=answers.Tokens),
    Call(method="post", path="/v1/tokens", summary="Issue a token", body=bodies.TokenBody, answer=answers.Token),
    Call(method="delete", path="/v1/tokens/{prefix}", summary="Revoke a token", who="admin"),
    Call(method="post", path="/v1/pilots/join", summary="A pilot joins", body=bodies.JoinBody, who="nobody",
         answer=answers.Joined),
    Call(method="post", path="/v1/pilots/claim", summary="A pilot asks for jobs", body=bodies.ClaimBody, who="pilot",
         answer=answers.ClaimAnswer),
    Call(method="post", path="/v1/pilots/heartbeat", summary="A pilot lives", body=bodies.HeartbeatBody, who="pilot",
         answer=answers.HeartbeatAnswer),
    Call(method="post", path="/v1/pilots/report", summary="A pilot reports", body=bodies.ReportsBody, who="pilot",
         answer=answers.ReportsAnswer),
    Call(method="post", path="/v1/pilots/leave", summary="A pilot leaves", body=bodies.LeaveBody, who="pilot"),
    Call(method="put", path="/v1/jobs/{job}/attempts/{attempt}/output", summary="A pilot stores an output sandbox",
         who="pilot", media="application/gzip", sha256=True, answer=answers.Stored),
    Call(method="get", path="/health", summary="Is the server well", who="nobody"),
    Call(method="get", path="/v1/openapi.json", summary="This document", who="nobody"),
    Call(method="get", path="/metrics", summary="Prometheus metrics", media="text/plain"),
)  # fmt: skip

INTEGERS = frozenset({"job", "attempt", "first", "last", "limit"})
# `true`; any other word is no.
BOOLEANS = frozenset({"all", "newest", "origin", "own"})


@cache
def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1)."""
    types = {kind for call in CALLS for kind in (call.body, call.answer) if kind is not None}
    _, components = msgspec.json.schema_components(
        sorted(types, key=_name), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lodesman",
            "version": __version__,
            "description": "A pilot-based workload manager.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(call: Call) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", call.path)
    parameters = [_parameter(name, "path") for name in names] + [
        _parameter(name, "query") for name in call.query
    ]
    if call.sha256:
        parameters.append(_SHA)
    operation: dict[str, Any] = {
        "summary": call.summary,
        "operationId": f"{call.method}{re.sub(r'[^a-z]+', '_', call.path)}".strip("_"),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": {_answer_type(call): {"schema": _schema(call.answer)}}},
            "default": {
                "description": "Refused",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if call.body is not None:
        content = {"application/json": {"schema": _schema(call.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    elif call.method in ("post", "put"):
        operation["requestBody"] = {"required": True, "content": {call.media: {"schema": {}}}}
    if call.who == "nobody":
        operation["security"] = []
    else:
        operation["description"] = f"For: {call.who}."
    return operation


def _name(kind: type) -> str:
    return kind.__name__


def _schema(kind: type | None) -> dict[str, Any]:
    """What a body or an answer looks like; anything if that is not described."""
    return {} if kind is None else {"$ref": f"#/components/schemas/{kind.__name__}"}


def _answer_type(call: Call) -> str:
    return call.media if call.method == "get" else "application/json"


def _parameter(name: str, place: str) -> dict[str, Any]:
    kind = "integer" if name in INTEGERS else "boolean" if name in BOOLEANS else "string"
    schema: dict[str, Any] = {"type": kind, **({"minimum": 0} if kind == "integer" else {})}
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


_SHA = {
    "name": "X-Sha256",
    "in": "header",
    "required": True,
    "description": "The SHA-256 of the body in lower-case hexadecimal.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "data": {"type": "object"},
            },
        }
    },
}
