"""The answers that the document describes are those that the server gives, member by member."""

from __future__ import annotations

import hashlib
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from lodesman.api import answer_bodies as answers
from lodesman.api.openapi import BOOLEANS, CALLS, INTEGERS, document

# More of these by kind of step, pool and verdict; what stands in the document is there.
OPEN = (answers.Why, answers.Step, answers.Pool)


def validate(method, path, value):
    """Against the document as it is served. Raises ValidationError."""
    told = document()
    schema = told["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": told["components"]}).validate(value)


def undescribed(value, kind):
    """Members that the type does not know, by path."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for name, child in value.items():
            if name in fields:
                yield from (f"{name}.{one}" for one in undescribed(child, fields[name]))
            elif kind not in OPEN:
                yield name
    elif isinstance(value, list):
        (inner, *_) = getattr(kind, "__args__", (Any,))
        for child in value:
            yield from undescribed(child, inner)


@pytest.fixture
def told(house):
    """Ask, and hold the answer against the document; all calls asked are remembered."""
    described = {(call.method, call.path): call.answer for call in CALLS if call.answer is not None}
    asked = set()

    def ask(method, path, body=None, *, of="", token="ann", **more):
        answer = house.call(method, path, body, token=token, **more)
        assert answer.status == 200, answer.body
        template = of or path.partition("?")[0]
        kind = described[method.lower(), template]
        validate(method.lower(), template, answer.json)
        assert list(undescribed(answer.json, kind)) == []
        asked.add((method.lower(), template))
        return answer.json

    ask.asked, ask.described = asked, set(described)
    return ask


def test_every_described_answer(house, told):
    file = b"#!/bin/sh\n"
    sha = hashlib.sha256(file).hexdigest()
    house.user("root", "physics", admin=True)
    told("POST", "/v1/sandboxes", file, headers={"x-sha256": sha})
    job = {"Executable": "run.sh", "InputSandbox": ["run.sh"], "CPUTime": 500, "Odd": 1, "Arguments": "a b",
           "Environment": {"A": "b"}, "OutputSandbox": ["x"], "Requirements": {"Software": "root"}}  # fmt: skip
    made = told(
        "POST", "/v1/jobs", {"jobs": [job], "sandboxes": {"run.sh": {"sha256": sha, "size": len(file)}}}
    )
    assert made["notices"]
    told("POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true", "Parameters": 3, "CPUTime": 500}]})
    told("POST", "/v1/jobs", {"text": '[Executable = "x"; Odd = 1;]', "dry_run": True})
    told("GET", "/v1/jobs/1/why", of="/v1/jobs/{job}/why")

    token = told(
        "POST", "/v1/pilots/join", {"join_token": house.prepare_pilot(), "nonce": "n", "node": {}}, token=""
    )
    house.tokens["p"] = token["token"]
    told("POST", "/v1/submit-pools/for-queues", {"queues": [["North", "ce.north", "short"]]}, token="p")
    claimed = told("POST", "/v1/pilots/claim", house.claim_body(4), token="p")["jobs"]
    (got,) = (one for one in claimed if one["input"])
    entry = {"id": got["id"], "attempt": got["attempt"], "tail": "live"}
    told("GET", f"/v1/jobs/{got['id']}/logs", of="/v1/jobs/{job}/logs")
    house.control("kill", got["id"])
    assert told("POST", "/v1/pilots/heartbeat", {"jobs": [entry]}, token="p")["kill"]
    path = "/v1/jobs/{job}/attempts/{attempt}/output"
    second = next(one for one in claimed if one is not got)
    there = path.format(job=second["id"], attempt=second["attempt"])
    stored = told("PUT", there, file, of=path, token="p", headers={"x-sha256": sha})
    done = {"id": second["id"], "attempt": second["attempt"], "state": "Done", "cause": "ok", "exit_code": 0,
            "started": house.now, "ended": house.now + 1, "output": stored, "tail": "x", "message": ""}  # fmt: skip
    told("POST", "/v1/pilots/report", {"reports": [done, {**done, "id": 99}]}, token="p")

    assert told("GET", f"/v1/jobs/{second['id']}", of="/v1/jobs/{job}")["attempts"]
    assert len(told("GET", "/v1/jobs?all=true", token="root")["jobs"]) == 4
    told("GET", "/v1/jobs/1/why", of="/v1/jobs/{job}/why")
    told("POST", "/v1/jobs/control", {"action": "reschedule", "ranges": [[1, 9]]})
    told("GET", "/v1/jobs/counts")
    told("GET", "/v1/pilots?all=true")
    told("GET", "/v1/me")
    told("POST", "/v1/tokens", {"account": "ann", "seconds": 0}, token="root")
    assert len(told("GET", "/v1/tokens", token="root")["tokens"]) > 1
    assert told("GET", "/v1/submit-pools")["pools"]
    assert told.asked == told.described


def test_a_document_that_is_wrong_is_noticed(house, told):
    house.submitted()
    with pytest.raises(jsonschema_rs.ValidationError):
        validate("get", "/v1/jobs/counts", {"counts": [{"owner": "ann"}]})
    assert list(undescribed({"counts": [{"owner": "a", "more": 1}], "x": 2}, answers.Counts)) == [
        "counts.more",
        "x",
    ]


def test_parameters_have_their_types():
    kinds = {}
    for item in document()["paths"].values():
        for operation in item.values():
            kinds |= {
                one["name"]: one["schema"]["type"] for one in operation["parameters"] if one["in"] == "query"
            }
    assert {name for name, kind in kinds.items() if kind == "boolean"} == BOOLEANS
    assert {name for name, kind in kinds.items() if kind == "integer"} <= INTEGERS
    assert kinds["state"] == "string"


@pytest.mark.parametrize("word", ["false", "1", "yes", ""])
def test_only_true_is_true(house, word):
    house.submitted(token="bob")
    assert house.get(f"/v1/jobs?all={word}", "admin")["jobs"] == []
    assert len(house.get("/v1/jobs?all=true", "admin")["jobs"]) == 1
