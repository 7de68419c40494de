"""The OpenAPI document, made from the types that check the requests, so that it cannot drift from them, and from those
of the answers, against which tests hold every answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args

import msgspec

from lodesman import __version__
from lodesman.answers import (
    accounts,
    director,
    errors,
    health,
    jobs,
    pilots,
    plan_jobs,
    plan_resources,
    resources,
    site_mask,
    standing,
    submit_pools,
    task_queues,
    why_jobs,
    why_pilots,
    why_queues,
)
from lodesman.api import bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation: method, path, what it does, its body, its answer, and who may ask.

    `sha256`: the body is a file whose checksum stands in a header. `answer`: in JSON, of one type or of several; `raw`:
    the media type of an answer that is a file or a text, alone or beside it. `refused`: statuses of refusals beside
    those that follow from the rest (`refusals`).
    """

    method: str
    path: str
    summary: str
    body: type | None = None
    who: str = "user"
    query: tuple[str, ...] = ()
    media: str = "application/json"
    sha256: bool = False
    answer: type | UnionType | None = None
    raw: str = ""
    refused: tuple[int, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether it may be answered with a file."""
        return bool(self.raw) and not self.raw.startswith("text/")


CALLS: tuple[Call, ...] = (
    Call(method="post", path="/v1/jobs", summary="Submit jobs", body=bodies.SubmitBody,
         answer=jobs.Submission | jobs.TrialSubmission, refused=(422,)),
    Call(method="get", path="/v1/jobs", summary="List jobs",
         query=("first", "last", "limit", "all", "newest", "group", "state", "reason"), answer=jobs.Jobs),
    Call(method="get", path="/v1/jobs/counts", summary="Jobs by owner, group and state", query=("own",),
         answer=jobs.Counts),
    Call(method="get", path="/v1/jobs/{job}", summary="One job with attempts and events", answer=jobs.JobInFull),
    Call(method="get", path="/v1/jobs/{job}/why", summary="Why a job waits, and what would let it run", query=("queue",),
         answer=why_jobs.JobWaits | why_jobs.JobWaitsNot, refused=(400,)),
    Call(method="get", path="/v1/jobs/{job}/description", summary="The description of a job", query=("form",),
         answer=jobs.JobDescription, refused=(400,)),
    Call(method="get", path="/v1/jobs/{job}/logs", summary="The last 64 kB of output", answer=jobs.Logs),
    Call(method="get", path="/v1/jobs/{job}/output", summary="The output sandbox: a tar.gz", raw="application/gzip"),
    Call(method="post", path="/v1/plan/job", summary="Plan a submission: what would become of it", body=bodies.PlanJobBody,
         answer=plan_jobs.JobPlan),
    Call(method="post", path="/v1/plan/resources", summary="Plan other resources: what they would change",
         body=bodies.PlanResourcesBody, who="admin", answer=plan_resources.ResourcesPlan),
    Call(method="post", path="/v1/plan/shares", summary="Plan other shares: what they would change",
         body=bodies.PlanSharesBody, who="admin", answer=plan_resources.SharesPlan, refused=(404,)),
    Call(method="post", path="/v1/jobs/control", summary="Kill, hold, release, reschedule, delete", body=bodies.ControlBody,
         answer=jobs.Controlled, refused=(404,)),
    Call(method="post", path="/v1/sandboxes", summary="Upload an input file", media="application/octet-stream",
         sha256=True, answer=jobs.Stored),
    Call(method="get", path="/v1/sandboxes/{digest}", summary="Is a file there (users), or the file (pilots)",
         who="anybody with a token", answer=jobs.Stored, raw="application/octet-stream"),
    Call(method="get", path="/v1/pilots", summary="Pilots", query=("all", "limit"), answer=pilots.Pilots),
    Call(method="get", path="/v1/pilots/{pilot}/why", summary="Why a pilot (number or stamp) got nothing",
         answer=why_pilots.PilotLives | why_pilots.PilotEnded),
    Call(method="post", path="/v1/pilots/drain", summary="Let pilots finish and leave", body=bodies.DrainBody, who="admin",
         answer=pilots.Drained),
    Call(method="get", path="/v1/task-queues", summary="Task queues with waiting jobs", query=("limit", "reason"),
         answer=task_queues.TaskQueues),
    Call(method="get", path="/v1/task-queues/reasons", summary="Why jobs wait: jobs and task queues by main reason",
         answer=task_queues.WaitingReasons),
    Call(method="get", path="/v1/submit-pools", summary="SubmitPools: requirements, queues, jobs, the last pass",
         query=("vo", "limit"), answer=submit_pools.Pools),
    Call(method="get", path="/v1/submit-pools/{pool}", summary="One SubmitPool, by the beginning of its id",
         query=("vo",), answer=submit_pools.PoolInFull, refused=(409,)),
    Call(method="post", path="/v1/submit-pools/for-queues", summary="The SubmitPools that CE queues serve",
         body=bodies.QueuesBody, who="user, pilot", answer=submit_pools.Served),
    Call(method="get", path="/v1/sites", summary="Sites, and what is closed", answer=resources.Sites),
    Call(method="post", path="/v1/sites/close", summary="Send no pilots to a site, CE or queue", body=bodies.CloseSiteBody,
         who="admin", answer=site_mask.SiteClosed, refused=(404,)),
    Call(method="post", path="/v1/sites/open", summary="Open what was closed", body=bodies.OpenSiteBody, who="admin",
         answer=site_mask.SiteOpened, refused=(409,)),
    Call(method="get", path="/v1/queues/why", summary="Why no pilots are sent to a CE queue",
         query=("site", "ce", "queue", "path", "vo"), answer=why_queues.QueueExplained, refused=(400, 404)),
    Call(method="get", path="/v1/queues", summary="CE queues with effective parameters", query=("vo", "origin"),
         answer=resources.Queues),
    Call(method="get", path="/v1/resources", summary="A site, CE or queue: every value, and where it is written",
         query=("path", "site", "ce", "queue", "vo"), answer=resources.ResourceNode, refused=(400, 404)),
    Call(method="get", path="/v1/configuration", summary="The configuration in use, and what was refused",
         answer=resources.Configuration),
    Call(method="get", path="/v1/standing", summary="States, shares, times and failures in one",
         answer=standing.Standing),
    Call(method="get", path="/v1/director", summary="The director's last iteration with its arithmetic",
         answer=director.DirectorAnswer),
    Call(method="get", path="/v1/me", summary="Who this token belongs to", who="anybody with a token",
         answer=accounts.Me),
    Call(method="post", path="/v1/users", summary="Make or change a user", body=bodies.AccountBody, who="admin",
         answer=accounts.UserMade),
    Call(method="get", path="/v1/tokens", summary="Tokens (never their text)", who="admin", answer=accounts.Tokens),
    Call(method="post", path="/v1/tokens", summary="Issue a token", body=bodies.TokenBody, answer=accounts.Token,
         refused=(404, 409)),
    Call(method="delete", path="/v1/tokens/{prefix}", summary="Revoke a token", who="admin", answer=accounts.Revoked,
         refused=(409,)),
    Call(method="post", path="/v1/pilots/join", summary="A pilot joins", body=bodies.JoinBody, who="nobody",
         answer=pilots.Joined, refused=(401,)),
    Call(method="post", path="/v1/pilots/claim", summary="A pilot asks for jobs", body=bodies.ClaimBody, who="pilot",
         answer=pilots.ClaimAnswer),
    Call(method="post", path="/v1/pilots/heartbeat", summary="A pilot lives", body=bodies.HeartbeatBody, who="pilot",
         answer=pilots.HeartbeatAnswer),
    Call(method="post", path="/v1/pilots/report", summary="A pilot reports", body=bodies.ReportsBody, who="pilot",
         answer=pilots.ReportsAnswer),
    Call(method="post", path="/v1/pilots/leave", summary="A pilot leaves", body=bodies.LeaveBody, who="pilot",
         answer=pilots.Left),
    Call(method="put", path="/v1/jobs/{job}/attempts/{attempt}/output", summary="A pilot stores an output sandbox",
         who="pilot", media="application/gzip", sha256=True, answer=jobs.Stored),
    Call(method="get", path="/health", summary="Is the server well", who="nobody", answer=health.Health),
    Call(method="get", path="/v1/openapi.json", summary="This document", who="nobody", answer=dict[str, Any]),
    Call(method="get", path="/metrics", summary="Prometheus metrics", raw="text/plain"),
)  # fmt: skip

INTEGERS = frozenset({"job", "attempt", "first", "last", "limit"})
# `true`; any other word is no.
BOOLEANS = frozenset({"all", "newest", "origin", "own"})
BINARY = {"type": "string", "format": "binary"}
TEXT = {"type": "string"}
Schemas = Mapping[Any, Mapping[str, Any]]
# What each status says, under the name that it has in the document (`wire.STATUS`).
REFUSALS = {
    400: ("BadRequest", "The request, a description or a configuration in it is wrong."),
    401: ("Unauthorized", "No token, or one that is unknown, has expired, or is of a pilot that has ended."),
    403: ("Forbidden", "The token does not allow this."),
    404: ("NotFound", "There is no such thing, or the caller may not know of it."),
    409: ("Conflict", "What the request goes by does not hold, or no longer."),
    413: ("TooLarge", "Something is over its limit, or would take too long."),
    422: ("Impossible", "No configured queue could ever run these jobs."),
    503: ("Unavailable", "The server cannot answer now: try again."),
}


@cache
def document() -> dict[str, Any]:
    """The whole document (OpenAPI 3.1)."""
    types: list[Any] = [errors.Error]
    for call in CALLS:
        types += [kind for kind in (call.body, *_kinds(call.answer)) if kind is not None]
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lodesman",
            "version": __version__,
            "description": "A pilot-based workload manager.",
        },
        "paths": paths,
        "components": {
            "schemas": _plain(components),
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
    `"items": false` where the length is told.
    """
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: _plain(one) for name, one in schema.items() if one is not False or name != "items"}
    found = {type(one) for one in schema["enum"]} if isinstance(schema.get("enum"), list) else set()
    return told | ({"type": _ENUMS[found.pop()]} if len(found) == 1 else {})


def _kinds(answer: type | UnionType | None) -> tuple[type, ...]:
    """The types that an answer may have; msgspec takes no unions of structures."""
    return get_args(answer) if isinstance(answer, UnionType) else () if answer is None else (answer,)


def _operation(call: Call, schemas: Schemas) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", call.path)
    parameters = [_parameter(name, "path") for name in names] + [
        _parameter(name, "query") for name in call.query
    ]
    if call.sha256:
        parameters.append(_SHA)
    if call.is_file:
        parameters.append(_RANGE)
    operation: dict[str, Any] = {
        "summary": call.summary,
        "operationId": f"{call.method}{re.sub(r'[^a-z]+', '_', call.path)}".strip("_"),
        "parameters": parameters,
        "responses": _responses(call, schemas),
    }
    if call.body is not None:
        content = {"application/json": {"schema": schemas[call.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif call.method in ("post", "put"):
        operation["requestBody"] = {"required": True, "content": {call.media: {"schema": BINARY}}}
    if call.who == "nobody":
        operation["security"] = []
    else:
        operation["description"] = f"For: {call.who}."
    return operation


def _responses(call: Call, schemas: Schemas) -> dict[str, Any]:
    """What a call may answer, by status; `default` is for what may befall any request."""
    kinds = [schemas[kind] for kind in _kinds(call.answer)]
    content = {}
    if kinds:
        content["application/json"] = {"schema": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
    if call.raw:
        content[call.raw] = {"schema": BINARY if call.is_file else TEXT}
    found: dict[str, Any] = {"200": {"description": "Done", "content": content}}
    if call.is_file:
        part = {"description": "The part that was asked for", "content": {call.raw: {"schema": BINARY}}}
        found |= {"206": part, **_NO_RANGE}
    refused = {
        str(status): {"$ref": f"#/components/responses/{REFUSALS[status][0]}"} for status in refusals(call)
    }
    default = {"$ref": "#/components/responses/Refused"}
    return {**found, **refused, "default": default}


def refusals(call: Call) -> list[int]:
    """The statuses with which a call may be refused."""
    found = {503, *call.refused}
    if call.who != "nobody":
        found |= {401} if call.who.startswith("anybody") else {401, 403}
    if call.body is not None or call.sha256:
        found |= {400, 413}
    if INTEGERS.intersection(call.query):
        found.add(400)
    if "{" in call.path or "vo" in call.query:
        found.add(404)
    return sorted(found)


def _response(status: int | None, words: str) -> dict[str, Any]:
    """A refusal; of the two that HTTP wants headers for, with them."""
    schema = {"$ref": "#/components/schemas/Error"}
    found: dict[str, Any] = {"description": words, "content": {"application/json": {"schema": schema}}}
    if status in _HEADERS:
        found["headers"] = _HEADERS[status]
    return found


def _parameter(name: str, place: str) -> dict[str, Any]:
    kind = "integer" if name in INTEGERS else "boolean" if name in BOOLEANS else "string"
    schema: dict[str, Any] = {"type": kind, **({"minimum": 0} if kind == "integer" else {})}
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


_ENUMS = {str: "string", int: "integer", bool: "boolean"}
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
    "400": {
        "description": "The header Range is wrong.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    "416": {"description": "The file has no such part."},
}
_HEADERS: dict[int | None, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}},
}
