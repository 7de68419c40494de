"""The OpenAPI document is true: it is valid, and it names each call that there is and no other."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
from starlette.routing import Route

from lodesman.api import bodies
from lodesman.api.openapi import CALLS, document

# Of the server's own processes, not of users and pilots.
INTERNAL = re.compile(r"/v1/service/|/v1/hot/")
ANY_ID = {"job": "1", "pilot": "1", "pool": "req2:0", "attempt": "1", "digest": "0" * 64, "prefix": "abcdef"}


def described():
    return {(method.upper(), path) for path, item in document()["paths"].items() for method in item}


def hot_routes(house):
    """What the hot process answers itself, found by asking: it forwards everything else."""
    app = house.app
    told = {("POST", path) for path in (*app.pilot_calls, *app.user_calls)}
    forwarded = []

    async def remember(scope, receive, send):
        forwarded.append((scope["method"], scope["path"]))
        await house.reads(scope, receive, send)

    app.forward = remember
    for method, path in sorted(described()):
        filled = re.sub(r"{(\w+)}", lambda name: ANY_ID[name[1]], path)
        house.call(method, filled, token="admin")
        if (method, filled) not in forwarded:
            told.add((method, path))
    return told


def read_routes(house):
    return {
        (method, re.sub(r":id", "", route.path))
        for route in house.reads.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }


def test_each_call_that_there_is_stands_in_the_document_and_no_other(house):
    there = {
        (method, path)
        for method, path in hot_routes(house) | read_routes(house)
        if not INTERNAL.match(path)
    }  # fmt: skip
    assert described() == there


def test_no_two_processes_answer_the_same_call(house):
    assert hot_routes(house) & read_routes(house) == set()


def test_the_document_is_served_to_everybody(house):
    answer = house.call("GET", "/v1/openapi.json")
    assert answer.status == 200
    assert answer.json == document()


def test_the_document_has_the_shape_of_openapi_3_1():
    told = document()
    assert told["openapi"].startswith("3.1")
    assert told["info"]["title"]
    assert told["info"]["version"]
    names = [item[method]["operationId"] for item in told["paths"].values() for method in item]
    assert len(set(names)) == len(names)
    for path, item in told["paths"].items():
        assert path.startswith("/")
        for operation in item.values():
            assert operation["summary"]
            assert "200" in operation["responses"]
            given = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_every_reference_leads_somewhere_and_every_schema_is_one():
    told = document()
    schemas = told["components"]["schemas"]
    for reference in set(references(told)):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in schemas
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert schema["type"] == "object", name


def validator(name):
    told = document()
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": told["components"]}
    )


GOOD = [
    ("SubmitBody", {"text": "[ ]", "form": "jdl"}),
    ("SubmitBody", {"jobs": [{"Executable": "x"}], "sandboxes": {"a": {"sha256": "0" * 64, "size": 1}}}),
    ("ControlBody", {"action": "kill", "ranges": [[1, 2]]}),
    ("ClaimBody", {"claim_token": "12345678", "resource": {}}),
    ("ReportsBody", {"reports": [{"id": 1, "attempt": 1, "state": "Done"}]}),
    ("JoinBody", {"join_token": "12345678", "node": {}}),
    ("AccountBody", {"name": "eve", "vo": "lab", "groups": ["g"]}),
]
BAD = [
    ("SubmitBody", {"form": "xml"}),
    ("SubmitBody", {"text": 5}),
    ("ControlBody", {"action": "fly", "ranges": [[1, 2]]}),
    ("ControlBody", {"action": "kill", "ranges": []}),
    ("ControlBody", {"action": "kill", "ranges": [[0, 2]]}),
    ("ClaimBody", {"claim_token": "short", "resource": {}}),
    ("ClaimBody", {"claim_token": "12345678", "resource": {}, "count": 10**9}),
    ("ReportsBody", {"reports": [{"id": 1, "attempt": 1, "state": "Flying"}]}),
    ("AccountBody", {"name": "a b", "vo": "lab", "groups": ["g"]}),
]


@pytest.mark.parametrize(("name", "body"), GOOD)
def test_the_schemas_allow_what_the_server_takes(house, name, body):
    assert validator(name).is_valid(body)
    assert hasattr(bodies, name)


@pytest.mark.parametrize(("name", "body"), BAD)
def test_the_schemas_forbid_what_the_server_refuses(house, name, body):
    assert not validator(name).is_valid(body)
    (call,) = [call for call in CALLS if call.body is getattr(bodies, name)]
    token = {"pilot": "pilot", "nobody": ""}.get(call.who, "admin")
    answer = house.call("POST", call.path, body, token=house.pilot() if token == "pilot" else token)
    assert answer.status == 400


def test_each_refusal_fits_the_schema_of_errors(house):
    check = validator("Error")
    refused = [
        house.call("GET", "/v1/jobs/99", token="ann"),
        house.call("GET", "/nothing", token="ann"),
        house.call("GET", "/v1/jobs"),
        house.call("POST", "/v1/jobs", b"{", token="ann"),
        house.submit({"CPUTime": -1}),
        house.submit({"CPUTime": 10**7}),
        house.submit(text="[ A = ;"),
        house.call("PATCH", "/v1/jobs", token="ann"),
    ]
    for answer in refused:
        assert answer.status >= 400
        check.validate(answer.json)


def test_who_may_call_is_as_the_document_says(house):
    """Calls for nobody in particular need no token, calls for pilots refuse users, and so on."""
    house.pilot()
    for call in CALLS:
        path = re.sub(r"{(\w+)}", lambda name: ANY_ID[name[1]], call.path)
        nobody = house.call(call.method.upper(), path, b"{}", headers={"x-sha256": "0" * 64})
        assert (nobody.status == 401) == (call.who != "nobody"), call.path
        user = house.call(call.method.upper(), path, b"{}", token="ann", headers={"x-sha256": "0" * 64})
        assert (user.status == 403) == (call.who in ("pilot", "admin")), call.path
