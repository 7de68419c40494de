"""The OpenAPI document against a live server: whatever a client makes of it, the server answers in its terms."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.openapi.checks import (
    JsonSchemaError,
    MissingContentType,
    UndefinedContentType,
    UndefinedStatusCode,
)
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.e2e.conftest import PATIENCE

EXAMPLES = 2
CHECKS: list[Any] = [content_type_conformance, response_schema_conformance, status_code_conformance]
BROKEN = (JsonSchemaError, MissingContentType, UndefinedContentType, UndefinedStatusCode)
# A pilot that has left is not authenticated, nor is a user without a token: asked last.
LAST = {("POST", "/v1/pilots/leave"), ("DELETE", "/v1/tokens/{prefix}")}


@schemathesis.serializer("application/gzip")
def _as_bytes(_context, value):
    """An archive is bytes; what the document generates for one is anything."""
    return value if isinstance(value, bytes) else repr(value).encode()


def operations(server):
    config = schemathesis.Config.from_dict({"base-url": f"http://127.0.0.1:{server.port}"})
    told = server.ask("GET", "/v1/openapi.json").json
    del told["security"]  # else most of what it makes up is a request without a token
    schema = schemathesis.openapi.from_dict(told, config=config)
    found = [result.ok() for result in schema.get_all_operations()]
    return sorted(found, key=lambda one: (one.method.upper(), one.path) in LAST)


def token_for(operation, server, pilot):
    who = operation.definition.raw.get("description", "")
    if operation.definition.raw.get("security") == []:
        return ""
    return pilot.token if "pilot" in who else server.tokens["admin"]


def try_one(operation, mode, token, statuses):
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        response = case.call(headers=headers, timeout=PATIENCE)
        name = f"{operation.method.upper()} {operation.path}"
        statuses[response.status_code] += 1
        assert response.status_code < 500 or response.status_code == 503, (name, response.text)
        if response.status_code >= 400:
            told = response.json()["error"]
            assert told["code"], name
            assert told["message"], name
            assert "log says why" not in told["message"], (name, case.body, case.query, case.path_parameters)
        case.validate_response(response, checks=CHECKS)
        # `default` is for what may befall any request, and nothing did here.
        assert str(response.status_code) in operation.definition.raw["responses"], (name, response.text)

    try:
        run()
    except Unsatisfiable:
        return 0  # nothing can be wrong about a call that takes nothing
    return EXAMPLES


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_the_server_keeps_to_its_document(make_server, mode):
    # One of its own: the last calls revoke tokens, perhaps those of users.
    server = make_server().start()
    server.user("ann", "physics")
    pilot = server.fake_pilot()
    server.submit({"Site": "Bench"})
    statuses: Counter[int] = Counter()
    tried = sum(try_one(one, mode, token_for(one, server, pilot), statuses) for one in operations(server))
    assert tried >= 30
    assert 400 in statuses
    if (
        mode is schemathesis.GenerationMode.POSITIVE
    ):  # wrong parameters are refused, and nothing is found by them
        assert set(statuses) >= {200, 404}
    assert server.ask("GET", "/health").status == 200
    assert [line for line in server.log_lines() if "trace" in line] == []
