"""Every call of the document with every kind of token, held against the table of the manual (docs/permissions.md)."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

from lodesman.server.http.openapi import document
from lodesman.wire.calls import CALLS

TABLE = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
FILE = b"input"
SHA = hashlib.sha256(FILE).hexdigest()
QUEUE = "North/ce.north/short"
# The columns of the table, and the tokens that each stands for.
TOKENS = {
    "nobody": (
        "none",
        "garbage",
        "expired",
        "revoked",
        "disabled",
        "ended pilot",
        "used join token",
        "service",
    ),
    "owner": ("ann",),
    "same VO": ("amy", "bob"),
    "other VO": ("olaf",),
    "read-only": ("reader",),
    "VO admin": ("vera",),
    "other VO admin": ("otto",),
    "admin": ("admin",),
    "pilot": ("pilot1",),
    "other pilot": ("pilot2",),
    "lost pilot": ("pilot3",),
    "join token": ("unused join token",),
    "site": ("site North",),
    "other site": ("site South",),
}
# Path and body of a request that the owner, an administrator or the pilot with the job may make. Those last that end things.
REQUESTS = {
    "POST /v1/jobs": ("/v1/jobs", {"jobs": [{"Executable": "/bin/true", "CPUTime": 500}], "dry_run": True}),
    "POST /v1/jobs/control": ("/v1/jobs/control", {"action": "hold", "ranges": [[2, 2]]}),
    "POST /v1/jobs/change": ("/v1/jobs/change", {"ranges": [[2, 2]], "attributes": {"Memory": 5}, "dry_run": True}),
    "GET /v1/submissions/{submission}/readers": ("/v1/submissions/1/readers", None),
    "POST /v1/submissions/readers": ("/v1/submissions/readers", {"submission": 1, "readers": ["@bio"]}),
    "GET /v1/jobs/wait": ("/v1/jobs/wait?jobs=1&seconds=0", None),
    "GET /v1/jobs/events": ("/v1/jobs/events?jobs=1", None),
    "GET /v1/jobs/{job}/output": ("/v1/jobs/3/output", None),
    "PUT /v1/jobs/{job}/attempts/{attempt}/output": ("/v1/jobs/1/attempts/1/output", FILE),
    "POST /v1/sandboxes": ("/v1/sandboxes", FILE),
    "GET /v1/sandboxes/{digest}": (f"/v1/sandboxes/{SHA}", None),
    "POST /v1/plan/job": ("/v1/plan/job", {"jobs": [{"Executable": "/bin/true", "CPUTime": 500}]}),
    "POST /v1/plan/resources": ("/v1/plan/resources", {"files": [{"name": "a.toml", "text": ""}]}),
    "POST /v1/plan/quotas": ("/v1/plan/quotas", {"text": "{\nname a\nlimit to slots=1\n}\n"}),
    "POST /v1/plan/shares": ("/v1/plan/shares", {"shares": {"physics": 1.0}}),
    "GET /v1/pilots/{pilot}": ("/v1/pilots/1", None),
    "GET /v1/pilots/{pilot}/logs": ("/v1/pilots/1/logs", None),
    "GET /v1/pilots/{pilot}/why": ("/v1/pilots/1/why", None),
    "POST /v1/pilots/files": ("/v1/pilots/files", {"path": QUEUE}),
    "POST /v1/pilots/drain": ("/v1/pilots/drain", {"pilots": [99]}),
    "POST /v1/submit-pools/for-queues": ("/v1/submit-pools/for-queues", {"queues": [QUEUE.split("/")]}),
    "POST /v1/site-tests": ("/v1/site-tests", {"path": "North"}),
    "POST /v1/queues/breaker": ("/v1/queues/breaker", {"path": QUEUE, "order": "auto"}),
    "POST /v1/sites/close": ("/v1/sites/close", {"site": "South", "reason": "x", "dry_run": True}),
    "POST /v1/sites/open": ("/v1/sites/open", {"site": "South"}),
    "POST /v1/sites/ad": ("/v1/sites/ad", {"ad": 'Name = "North"\nUpdateSequenceNumber = 1\nMaxJobs = 5'}),
    "GET /v1/sites/gate": ("/v1/sites/gate?site=North", None),
    "POST /v1/sites/token": ("/v1/sites/token", {"site": "South"}),
    "POST /v1/hosts/close": ("/v1/hosts/close", {"host": "wn1", "site": "North", "reason": "x"}),
    "POST /v1/hosts/open": ("/v1/hosts/open", {"host": "wn1", "site": "North"}),
    "GET /v1/job-classes/text": ("/v1/job-classes/text?name=app", None),
    "POST /v1/job-classes": ("/v1/job-classes", {"text": "jcname app", "how": "change"}),
    "POST /v1/job-classes/remove": ("/v1/job-classes/remove", {"names": ["old"]}),
    "POST /v1/job-classes/switch": ("/v1/job-classes/switch", {"names": ["app"], "switch": "disable"}),
    "GET /v1/queues/why": (f"/v1/queues/why?path={QUEUE}", None),
    "GET /v1/resources": ("/v1/resources?path=North", None),
    "GET /v1/groups/{group}": ("/v1/groups/physics", None),
    "POST /v1/groups/share": ("/v1/groups/share", {"group": "physics", "share": 5.0, "reason": "x"}),
    "POST /v1/groups/users": ("/v1/groups/users", {"group": "physics", "users": ["ann"]}),
    "POST /v1/users": ("/v1/users", {"name": "eve", "vo": "lab", "groups": ["physics"]}),
    "POST /v1/users/disable": ("/v1/users/disable", {"name": "eve"}),
    "POST /v1/users/import": ("/v1/users/import", {"users": [{"name": "eve", "vo": "lab", "groups": ["physics"]}]}),
    "POST /v1/users/remove": ("/v1/users/remove", {"name": "eve", "dry_run": True}),
    "POST /v1/tokens": ("/v1/tokens", {"account": "ann", "scopes": ["jobs:read"]}),
    "POST /v1/pilots/claim": ("/v1/pilots/claim", {"claim_token": "claim-token-x", "resource": {"cores": 0}}),
    "POST /v1/pilots/heartbeat": ("/v1/pilots/heartbeat", {}),
    "POST /v1/pilots/report": ("/v1/pilots/report", {"reports": []}),
    "POST /v1/pilots/leave": ("/v1/pilots/leave", {"reason": "idle"}),
}  # fmt: skip


@cache
def table():
    """What the manual says: by call, by column."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found |= {
                key: dict(zip(TOKENS, cells[1:], strict=True)) for key in re.findall(r"`([^`]+)`", cells[0])
            }
    return found


def calls():
    """Every call of the document, and those of the server itself; what uses a token up comes last."""
    listed = [f"{method.upper()} {path}" for path, item in document()["paths"].items() for method in item]
    inner = [f"{call.method} {call.path}" for call in CALLS if call.who == "service"]
    return sorted([*listed, *inner], key=lambda call: (call.endswith(("/leave", "/join")), call))


@pytest.fixture
def crowd(house, backend):
    """One token of each kind; ann has a job that waits, one in pilot1 with an input file, and one that left output."""
    house.side.director = house.director(backend)
    house.user("amy", "physics")
    house.user("olaf", "guests", vo="other")
    house.user("vera", "bio", vo_admin=True)
    house.user("otto", "guests", vo="other", vo_admin=True)
    house.tokens["reader"] = house.call(
        "POST", "/v1/tokens", {"account": "ann", "scopes": ["jobs:read", "pilots:read"]}, token="ann"
    ).json["token"]
    house.tokens["none"], house.tokens["garbage"] = "", "x" * 43
    house.tokens["expired"] = house.call(
        "POST", "/v1/tokens", {"account": "bob", "seconds": 1.0}, token="bob"
    ).json["token"]
    classes = {"text": "jcname app\njcname old\n"}
    assert house.call("POST", "/v1/job-classes", classes, token="ann").status == 200
    house.upload(FILE)
    house.submitted({"InputSandbox": ["a"]}, sandboxes={"a": {"sha256": SHA, "size": len(FILE)}})
    assert house.claim(house.pilot())
    house.submitted({"Requirements": {"Software": "root"}, "BannedSite": "North"}, hold_if_impossible=True)
    house.submitted()
    (third,) = house.claim(house.pilot())
    path, sent = "/v1/jobs/3/attempts/1/output", {"x-sha256": SHA}
    assert house.call("PUT", path, FILE, token="pilot2", headers=sent).status == 200
    house.report("pilot2", third, output={"sha256": SHA, "size": len(FILE)})
    house.submitted()
    assert house.claim(house.pilot())
    lost = {"pilot": 3, "state": "Lost", "reason": "silent"}
    assert house.call("POST", "/v1/service/ended", lost, token="service").status == 200
    house.tokens["ended pilot"] = house.tokens[house.pilot()]
    house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token="ended pilot")
    house.tokens["used join token"], house.tokens["unused join token"] = "join-stamp1", house.prepare_pilot()
    house.site("North")
    house.site("South")
    for name in ("revoked", "disabled"):
        house.user(name)
    house.call("POST", "/v1/users/disable", {"name": "disabled"}, token="admin")
    spent = next(one for one in house.get("/v1/tokens", "admin")["tokens"] if one["account"] == "revoked")
    house.call("DELETE", f"/v1/tokens/{spent['hash']}", token="admin")
    house.now += 2.0
    return house


def ask(house, call, name):
    """The status of a request with a token of this name."""
    method, template = call.split(" ")
    path, body = REQUESTS.get(call, (template.replace("{job}", "1"), None if method == "GET" else {}))
    if call == "GET /v1/submit-pools/{pool}":
        path = f"/v1/submit-pools/{house.get('/v1/submit-pools', 'admin')['pools'][0]['id']}"
    if call.endswith("/v1/site-tests/{test}"):
        begun = house.call("POST", "/v1/site-tests", {"path": "North"}, token="admin").json["test"]
        path = f"/v1/site-tests/{begun}"
    if call == "DELETE /v1/tokens/{prefix}":
        made = house.call("POST", "/v1/tokens", {"account": "ann", "note": name}, token="ann").json["token"]
        path = f"/v1/tokens/{hashlib.sha256(made.encode()).hexdigest()}"
    if call == "POST /v1/pilots/join":
        body = {"join_token": house.tokens[name] or "none-at-all", "node": {}, "nonce": "another"}
    more = {"headers": {"x-sha256": SHA}, "public": True}
    if call == "GET /v1/jobs/events":
        more["chunks"] = [None]  # the client goes away when it has the first event
    return house.call(method, path, body, token=name if house.tokens[name] else "", **more).status


@pytest.mark.slow
@pytest.mark.parametrize(("column", "name"), [(column, name) for column in TOKENS for name in TOKENS[column]])
def test_each_token_opens_what_the_manual_says(crowd, column, name):
    answers = {call: ask(crowd, call, name) for call in calls()}
    shut = {call: "" if status not in (401, 403, 404) else str(status) for call, status in answers.items()}
    assert shut == {call: table()[call][column].replace("yes", "") for call in answers}
    assert not any(status >= 500 for status in answers.values()), answers


def test_the_table_has_the_calls_of_the_document_and_no_others():
    assert set(table()) == set(calls())
