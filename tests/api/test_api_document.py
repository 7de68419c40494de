"""The OpenAPI document is true: it is valid, and it names each call that there is and no other."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import get_args

import jsonschema_rs
import msgspec
import pytest
from tests.api.conftest import RESOURCES, SANDBOX_BYTES, judge

from lodesman.decide.resources import load_resources
from lodesman.server.http import (
    claims,
    explain,
    files,
    health,
    hosts,
    job_classes,
    job_lists,
    jobs,
    pilots,
    quotas,
    reads,
    service,
    sites,
    users,
    waiting,
)
from lodesman.server.http.dispatch import Dispatcher
from lodesman.server.http.openapi import BODIES, REFUSALS, document, refusals
from lodesman.server.http.openapi import described as described_calls
from lodesman.server.http.wire import STATUS
from lodesman.wire import field_comments
from lodesman.wire.call import Code
from lodesman.wire.calls import CALLS

ANY_ID = {"job": "1", "pilot": "1", "pool": "req2:0", "attempt": "1", "digest": "0" * 64, "prefix": "abcdef",
          "test": "0" * 16, "group": "physics", "submission": "1"}  # fmt: skip


def described():
    return {(method.upper(), path) for path, item in document()["paths"].items() for method in item}


def test_each_call_stands_in_the_document_but_those_of_the_background_process():
    assert described() == {(call.method, call.path) for call in CALLS if call.who != "service"}
    assert all(call.path.startswith("/v1/service/") == (call.who == "service") for call in CALLS)
    assert len({(call.method, call.path) for call in CALLS}) == len(CALLS)


@pytest.mark.parametrize("process", ["hot", "reading"])
def test_each_call_of_a_process_has_one_function(process):
    """The functions of both processes are their modules' names that `serves` made."""
    modules = {
        "hot": (claims, health, hosts, job_classes, jobs, pilots, quotas, service, sites, users, waiting),
        "reading": (explain, files, job_lists, jobs, pilots, reads, sites, users),
    }[process]
    Dispatcher(process, None, modules)
    with pytest.raises(LookupError):
        Dispatcher(process, None, modules[1:])
    with pytest.raises(LookupError):
        Dispatcher(process, None, (*modules, modules[0]))
    with pytest.raises(LookupError):
        Dispatcher("reading" if process == "hot" else "hot", None, modules)


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
    assert all(re.fullmatch("[a-z][a-z_]*[a-z]", name) for name in names)
    for path, item in told["paths"].items():
        assert path.startswith("/")
        for operation in item.values():
            assert operation["summary"]
            assert "200" in operation["responses"]
            given = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))


def test_examples_of_bodies_are_what_the_calls_take():
    for call, example in BODIES.items():
        assert msgspec.convert(example, call.body, strict=True) is not None
        told = document()["paths"][call.path][call.method.lower()]
        assert told["requestBody"]["content"]["application/json"]["example"] == example


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
    found = set(references(told))
    for reference in found:
        root, components, kind, name = reference.split("/")
        assert (root, components) == ("#", "components")
        assert name in told["components"][kind]
    unused = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "responses")
        for name in told["components"][kind]
    }
    assert unused - found == set()
    for name, schema in told["components"]["schemas"].items():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert schema.get("type") == "object" or schema["enum"], name
        assert re.fullmatch("[A-Z][A-Za-z]+", name)
        assert schema["description"]


def test_comments_of_fields_are_the_descriptions_of_properties():
    schemas = document()["components"]["schemas"]
    expected = {
        ("Limits", "cpu_seconds"): None,
        ("AttemptCounts", "all"): "The number of attempts.",  # by its name in JSON
        ("JobInFull", "base"): "The first id of its submission.",  # inherited
        ("CutPlace", "more"): "How many are left out.",  # of a generic type
        # Above the field: on one line, on two, and of a type with a comment for the formatter behind it.
        (
            "Closing",
            "begins",
        ): "The closing was announced at `since`, and nothing shall run there from then on.",
        ("UsedBy", "name"): (
            "'': of all users that the caller may not know (`others`); by class or job-group, of jobs without one, and "
            "`unknown` or `(unknown)` of those where it was not kept."
        ),
        ("JobStep", "step"): "server: what the server itself fails to do for it.",
    }
    found = {(name, field): schemas[name]["properties"][field].get("description") for name, field in expected}
    assert found == expected


def test_without_sources_the_document_lacks_only_comments(monkeypatch):
    whole = document()

    def no_source(_module):
        raise OSError("could not get source code")

    monkeypatch.setattr(field_comments.inspect, "getsource", no_source)
    field_comments._comments.cache_clear()
    bare = document.__wrapped__()
    field_comments._comments.cache_clear()
    assert bare["paths"] == whole["paths"]
    assert "description" not in bare["components"]["schemas"]["Closing"]["properties"]["begins"]


def dictionaries(value):
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dictionaries(child)


def test_the_schemas_are_in_words_that_makers_of_clients_know():
    """Found with openapi-python-client, which makes no client of a document with other ones."""
    found = list(dictionaries(document()["components"]["schemas"]))
    for one in found:
        if one.get("type") == "array":
            assert isinstance(one.get("items"), dict) or one["prefixItems"], one
        if isinstance(one.get("enum"), list):
            assert one["type"] in ("string", "integer", "boolean"), one
    assert any("prefixItems" in one for one in found)


def test_every_call_is_described_in_full():
    """No call without a description of what it takes, what it answers, and how it may refuse."""
    for call in described_calls():
        operation = document()["paths"][call.path][call.method.lower()]
        answers = operation["responses"]
        assert {"200", "503", "default"} <= set(answers), call.path
        assert all(one["schema"] for one in answers["200"]["content"].values()), call.path
        assert answers["200"]["content"], call.path
        assert ("requestBody" in operation) == (call.method in ("POST", "PUT"))
        for one in operation.get("requestBody", {"content": {}})["content"].values():
            assert one["schema"], call.path
        for one in operation["parameters"]:
            assert one["schema"]["type"] in ("integer", "boolean", "string", "array")


def test_refusals_have_the_statuses_and_codes_of_errors():
    assert set(STATUS.values()) == set(REFUSALS)
    assert set(STATUS) == set(get_args(Code))
    told = document()["components"]["responses"]
    assert set(told["Unauthorized"]["headers"]) == {"WWW-Authenticate"}
    assert set(told["Unavailable"]["headers"]) == {"Retry-After"}


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
    ("ControlBody", {"action": "kill", "selection": {"states": ["Odd"]}}),
    ("ControlBody", {"action": "kill", "ranges": [[0, 2]]}),
    ("ClaimBody", {"claim_token": "short", "resource": {}}),
    ("ClaimBody", {"claim_token": "12345678", "resource": {}, "count": 10**9}),
    ("ReportsBody", {"reports": [{"id": 1, "attempt": 1, "state": "Flying"}]}),
    ("AccountBody", {"name": "a b", "vo": "lab", "groups": ["g"]}),
]


@pytest.mark.parametrize(("name", "body"), GOOD)
def test_the_schemas_allow_what_the_server_takes(house, name, body):
    assert validator(name).is_valid(body)
    assert name in {call.body.__name__ for call in CALLS}


@pytest.mark.parametrize(("name", "body"), BAD)
def test_the_schemas_forbid_what_the_server_refuses(house, name, body):
    assert not validator(name).is_valid(body)
    (call,) = [call for call in CALLS if call.body.__name__ == name]
    token = {"pilot": "pilot", "none": ""}.get(call.who, "admin")
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


TWINS = '[site."A/B".ce.C.queue.D]\n[site.A.ce."B/C".queue.D]\n'
TWINS += '[site.By]\nVO = ["lab"]\n[site.By.ce.hand.queue.q]\nBackend = "manual"\nMaxTotalJobs = 0\n'
QUOTAS = "{\n name one\n limit to slots=1\n}\n"
AD = {"ad": 'Name = "North"\nUpdateSequenceNumber = 7'}
# How calls are refused with the statuses that are not derived: (method, path, who, body, status).
REFUSED = [
    ("GET", "/v1/pilots/1/logs", "admin", None, 502),
    ("POST", "/v1/queues/breaker", "admin", {"path": "North", "order": "auto"}, 404),
    ("POST", "/v1/jobs", "ann", {"jobs": [{"Executable": "x", "CPUTime": 10**7}]}, 422),
    ("POST", "/v1/plan/shares", "admin", {"shares": {"nobody": 1.0}}, 404),
    ("POST", "/v1/plan/director", "admin", {"iteration": 99}, 404),
    ("POST", "/v1/plan/gates", "admin", {"gates": {"Nowhere": {"MaxJobs": "1"}}}, 404),
    ("POST", "/v1/jobs/control", "ann", {"action": "kill", "ranges": [[99, 99]]}, 404),
    ("POST", "/v1/jobs/change", "ann", {"ranges": [[99, 99]], "attributes": {"Memory": 5}}, 404),
    ("POST", "/v1/jobs/change", "ann", {"ranges": [[1, 9]], "attributes": {"Memory": 10**6}}, 422),
    ("GET", "/v1/jobs/wait?jobs=99", "ann", None, 404),
    ("GET", "/v1/jobs/events?jobs=99", "ann", None, 404),
    ("GET", "/v1/submit-pools/req2:", "ann", None, 409),
    ("GET", "/v1/queues/why?site=a&ce=b&queue=c", "ann", None, 404),
    ("GET", "/v1/resources?path=Nowhere", "ann", None, 404),
    ("POST", "/v1/submit-pools/for-queues", "ann", {"queues": [["Far", "ce.far", "q"]]}, 404),
    ("POST", "/v1/tokens", "admin", {"account": "nobody"}, 404),
    ("POST", "/v1/tokens", "ann", {"account": "ann", "scopes": ["admin"]}, 409),
    ("POST", "/v1/users/disable", "admin", {"name": "nobody"}, 404),
    ("POST", "/v1/users/disable", "admin", {"name": "admin"}, 409),
    ("POST", "/v1/users", "admin", {"name": "gone", "vo": "lab", "groups": ["physics"]}, 409),
    ("POST", "/v1/users/remove", "admin", {"name": "nobody"}, 404),
    ("POST", "/v1/users/remove", "admin", {"name": "admin"}, 409),
    ("POST", "/v1/users/import", "admin", {"users": [{"name": "bob", "vo": "lab", "groups": ["bio", "open"]}]}, 409),
    ("POST", "/v1/groups/share", "admin", {"group": "none", "share": 1.0, "reason": "x"}, 404),
    ("POST", "/v1/groups/share", "admin", {"group": "bio", "share": None, "reason": "x"}, 409),
    ("POST", "/v1/groups/users", "admin", {"group": "none", "users": ["ann"]}, 404),
    ("POST", "/v1/groups/users", "admin", {"group": "bio", "users": ["bob"], "how": "remove"}, 409),
    ("GET", "/v1/submissions/99/readers", "ann", None, 404),
    ("POST", "/v1/submissions/readers", "ann", {"submission": 1, "readers": ["nobody"]}, 404),
    ("DELETE", "/v1/tokens/{twice}", "admin", None, 409),
    ("POST", "/v1/pilots/join", "", {"join_token": "no-such-token", "node": {}}, 401),
    ("POST", "/v1/sites/close", "admin", {"site": "Nowhere", "reason": "x"}, 404),
    ("POST", "/v1/sites/open", "admin", {"site": "North"}, 409),
    ("POST", "/v1/sites/token", "admin", {"site": "Nowhere"}, 404),
    ("POST", "/v1/sites/ad", "site Nowhere", AD, 404),
    ("POST", "/v1/sites/ad", "site North", AD, 409),
    ("GET", "/v1/sites/gate?site=Nowhere", "ann", None, 404),
    ("POST", "/v1/site-tests", "admin", {"path": "Nowhere"}, 404),
    ("POST", "/v1/pilots/files", "admin", {"path": "Nowhere"}, 404),
    ("POST", "/v1/pilots/files", "admin", {"path": "By/hand/q"}, 409),
    ("POST", "/v1/quotas", "admin", {"text": QUOTAS}, 409),
    ("POST", "/v1/quotas", "admin", {"text": QUOTAS.replace("one", "two"), "how": "change"}, 404),
    ("POST", "/v1/quotas/remove", "admin", {"names": ["two"]}, 404),
    ("GET", "/v1/job-classes/text?name=app", "ann", None, 404),
    ("POST", "/v1/job-classes", "ann", {"text": "jcname app", "how": "change"}, 404),
    ("POST", "/v1/job-classes", "admin", {"text": "jcname template"}, 409),
    ("POST", "/v1/job-classes/remove", "ann", {"names": ["app"]}, 404),
    ("POST", "/v1/job-classes/remove", "admin", {"names": ["template"]}, 409),
    ("POST", "/v1/job-classes/switch", "ann", {"names": ["app"], "switch": "enable"}, 404),
    ("POST", "/v1/job-classes/switch", "admin", {"names": ["template"], "switch": "enable"}, 409),
]  # fmt: skip


def test_each_refusal_that_is_not_derived_comes_and_no_other(house, backend):
    house.pilot()
    for site in ("North", "Nowhere"):
        house.site(site)
    assert house.call("POST", "/v1/sites/ad", AD, token="site North").status == 200
    backend.is_away = True
    house.side.director = house.director(backend)
    assert house.call("POST", "/v1/quotas", {"text": QUOTAS}, token="admin").status == 200
    house.submitted(*({"Requirements": {"Memory": size}} for size in (100, 200)))
    for _ in range(17):  # two of their hashes begin alike
        house.user("carl")
    house.user("gone")
    job = house.submitted({}, token="gone")
    kill = {"action": "kill", "ranges": [[job, job]]}
    assert house.call("POST", "/v1/jobs/control", kill, token="admin").status == 200
    assert house.call("POST", "/v1/users/remove", {"name": "gone"}, token="admin").status == 200
    first = Counter(one["hash"][0] for one in house.get("/v1/tokens", "admin")["tokens"])
    house.side.policy = house.policy(load_resources([("sites.toml", RESOURCES + TWINS)]))
    found = set()
    for method, path, who, body, status in REFUSED:
        filled = path.format(twice=first.most_common(1)[0][0])
        answer = house.call(method, filled, body, token=who)
        assert answer.status == status, (method, path, answer.body)
        found.add((method, judge().template(method, path.partition("?")[0]), status))
    assert found == {
        (call.method, call.path, status) for call in CALLS for status in call.refused if status != 429
    }


def refused(house, call, path, body=None, **more):
    token = {"pilot": "pilot1", "none": "", "site": "site North"}.get(call.who, "admin")
    answer = house.call(call.method, path, body, **{"token": token, **more})
    assert answer.code
    return answer.status


def wrong_requests(call, path):
    """(path, body, what else) with what is wrong about a body, a file, a number or a name."""
    huge = b"x" * (SANDBOX_BYTES + 1)
    if call.path != path:
        yield re.sub(r"{(\w+)}", "no_such", call.path), None, {}
    names = {one.name for one in msgspec.structs.fields(call.query)} - set(call.names)
    yield f"{path}?nonsense=1", None, {"headers": {"x-sha256": "0" * 64}}
    if "vo" in names:
        yield f"{path}?vo=nobody", None, {"token": "ann"}
    for checked in names & {"first", "last", "limit", "form"}:
        yield f"{path}?{checked}=x", None, {}
    if call.has_body:
        yield path, b"{", {}
        yield path, b"{", {"headers": {"content-length": "9" * 12}}
    if call.upload:
        yield path, b"x", {}
        yield path, huge, {"headers": {"x-sha256": hashlib.sha256(huge).hexdigest()}}


@pytest.mark.slow
def test_each_refusal_that_is_derived_comes(house):
    """Who may ask is asked below."""
    house.submitted()
    house.claim(house.pilot())
    house.site("North")
    for call in described_calls():
        path = re.sub(r"{(\w+)}", lambda name: ANY_ID[name[1]], call.path)
        found = {
            refused(house, call, where, body, **more) for where, body, more in wrong_requests(call, path)
        }
        assert found | set(call.refused) == set(refusals(call)) - {401, 403, 429, 500, 503} | set(
            call.refused
        ), path


def test_parts_of_a_file(house):
    """As described: `House.call` judges every answer."""
    file = b"0123456789"
    house.upload(file)
    house.submitted(
        {"InputSandbox": "in"}, sandboxes={"in": {"sha256": hashlib.sha256(file).hexdigest(), "size": 10}}
    )
    (job,) = house.claim(house.pilot())
    asked = [
        house.call("GET", job["input"][0]["url"], token="pilot1", headers={"range": part})
        for part in ("bytes=7-", "bytes=10-", "lines=1-")
    ]
    assert [(one.status, one.body[:3]) for one in asked] == [(206, b"789"), (416, b""), (400, b'{"e')]


@pytest.mark.slow
def test_permissions_agree_with_the_document(house):
    """Calls that are open to all need no token, calls for pilots refuse users, and so on."""
    house.pilot()
    for call in described_calls():
        path = re.sub(r"{(\w+)}", lambda name: ANY_ID[name[1]], call.path)
        nobody = house.call(call.method, path, b"{}", headers={"x-sha256": "0" * 64})
        assert (nobody.status == 401) == (call.who != "none"), call.path
        user = house.call(call.method, path, b"{}", token="ann", headers={"x-sha256": "0" * 64})
        assert (user.status == 403) == (call.who in ("pilot", "admin", "vo-admin", "site")), call.path
