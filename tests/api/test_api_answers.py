"""Every call is answered in one life of a server; each answer to any test here is held against the document
(`House.call`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from urllib.parse import quote

import jsonschema_rs
import pytest
from tests.api.conftest import RESOURCES, Answer, ScriptedBackend, judge
from tests.api.test_api_lost_pilots import lose
from tests.api.test_api_refresh import configure

from lodesman.decide.director.limits import Breaker
from lodesman.decide.resources import load_resources
from lodesman.server.http.openapi import described, document
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.store.journal import Change
from lodesman.server.writer.report import note_silence
from lodesman.wire.nodes import QueueId
from lodesman.wire.server import ConfigurationState
from lodesman.wire.vocabulary import BreakerState

FILE = b"#!/bin/sh\n"
SHA = hashlib.sha256(FILE).hexdigest()
WHY_SOUTH = "/v1/queues/why?path=South/ce.south/long"
SHORT, LONG = QueueId("North", "ce.north", "short"), QueueId("South", "ce.south", "long")


@pytest.fixture
def answered(house):
    """Which calls were answered, as (method, path of the document)."""
    found, ask = set(), house.call

    def call(method, path, *more, **rest):
        answer = ask(method, path, *more, **rest)
        if answer.status == 200:
            found.add((method, judge().template(method, path.partition("?")[0])))
        return answer

    house.call = call
    return found


def ok(house, method, path, body=None, token="ann", **more):
    answer = house.call(method, path, body, token=token, **more)
    assert answer.status == 200, answer.body
    return answer


def jobs_of_all_kinds(house):
    """1 with a file, 2-4 an array, 5 that nothing can run, 6 without a submission pool, 7 that was killed, 8 odd."""
    ok(house, "POST", "/v1/sandboxes", FILE, headers={"x-sha256": SHA})
    first = {"Executable": "run.sh", "InputSandbox": ["run.sh"], "CPUTime": 500, "Odd": 1, "Arguments": "a b",
             "Environment": {"A": "b"}, "OutputSandbox": ["x"], "Requirements": {"Software": "root"}}  # fmt: skip
    file = {"run.sh": {"sha256": SHA, "size": len(FILE)}}
    assert ok(house, "POST", "/v1/jobs", {"jobs": [first], "sandboxes": file}).json["notices"]
    house.submitted({"Parameters": 3})
    house.submitted({"CPUTime": 10**7, "Memory": 10**6, "Site": "East"}, hold_if_impossible=True)
    house.submitted({"SubmitPool": "Nowhere"})
    house.submitted({})
    house.submitted({"Requirements": {"Memory": 10}}, token="bob")
    ok(house, "POST", "/v1/jobs", {"text": '[Executable = "x"; Odd = 1;]', "dry_run": True})
    changes = {"ranges": [[7, 7]], "attributes": {"Memory": 7}}
    assert house.call("POST", "/v1/jobs/change", changes, token="ann").json["changed"] == 1
    house.control("kill", 7, reason="not needed")
    house.control("kill", 7)


def a_pilot_s_life(house):
    """It joins, gets all waiting jobs, runs job 1 to its end, and is ordered to kill another."""
    token = house.prepare_pilot()
    ok(house, "GET", f"/v1/pilots/{token.removeprefix('join-')}/why")
    joined = ok(house, "POST", "/v1/pilots/join", {"join_token": token, "nonce": "n", "node": {}}, "")
    house.tokens["p"] = joined.json["token"]
    ok(house, "POST", "/v1/submit-pools/for-queues", {"queues": [[*SHORT]]}, "p")
    free = {"cores": 64, "memory_mb": 10**6, "norm_cpu_seconds": 0}
    got = sorted(house.claim("p", 10, resource=free), key=lambda job: job["id"])
    assert ok(house, "GET", got[0]["input"][0]["url"], token="p").body == FILE
    beat(house, "p", *({"id": job["id"], "attempt": job["attempt"], "tail": "live"} for job in got))
    ok(house, "GET", f"/v1/jobs/{got[0]['id']}/logs")
    house.control("kill", got[1]["id"])
    assert beat(house, "p", *got[:2])["kill"]
    house.report("p", got[0], "Running", started=house.now)
    path = f"/v1/jobs/{got[0]['id']}/attempts/1/output"
    stored = ok(house, "PUT", path, FILE, "p", headers={"x-sha256": SHA}).json
    house.report("p", got[0], exit_code=0, started=house.now, ended=house.now + 1, output=stored, tail="x")
    house.report("p", {"id": 99, "attempt": 1})
    house.report("p", got[1], "Failed", cause="exit", exit_code=3)
    ok(house, "GET", f"/v1/jobs/{got[0]['id']}/logs")
    assert ok(house, "GET", f"/v1/jobs/{got[0]['id']}/output").body == FILE
    part = house.call("GET", f"/v1/jobs/{got[0]['id']}/output", token="ann", headers={"range": "bytes=3-"})
    assert (part.status, part.body) == (206, FILE[3:])


def beat(house, pilot, *jobs):
    news = [{"id": job["id"], "attempt": job["attempt"]} for job in jobs]
    return ok(house, "POST", "/v1/pilots/heartbeat", {"jobs": news}, pilot).json


def losses_and_silence(house):
    """A lost pilot's success counts late; a silent one's job stalls."""
    house.submitted()
    (job,) = house.claim(house.pilot())
    lose(house, f"pilot{house.pilots}")
    house.report(f"pilot{house.pilots}", job)
    house.submitted()
    (again,) = house.claim(house.pilot())
    house.report(f"pilot{house.pilots}", again, "Running", started=house.now)
    house.do(Change(note_silence, house.core.live, {house.pilots: house.now}))
    house.control("reschedule", again["id"])


def lists(house):
    """All that is listed, with and without what can be asked for."""
    for number in range(1, house.counted() + 1):
        ok(house, "GET", f"/v1/jobs/{number}", token="admin")
        ok(house, "GET", f"/v1/jobs/{number}/why", token="admin")
    for path in ("/v1/jobs?all=true", "/v1/jobs/counts", "/v1/jobs/1/description", "/v1/pilots?all=true", "/v1/me",
                 "/v1/tokens", "/v1/task-queues", "/v1/task-queues/reasons", "/v1/sites", "/v1/queues", "/v1/submit-pools",
                 "/v1/queues?origin=true", "/v1/usage", "/v1/usage/days?by=user", "/v1/director", "/v1/resources?path=North",
                 "/v1/resources?site=North&ce=ce.north&queue=short", "/v1/configuration", "/metrics", "/health",
                 "/v1/openapi.json"):  # fmt: skip
        ok(house, "GET", path, token="admin")
    ok(house, "GET", "/v1/jobs/wait?jobs=1-3,5&seconds=0", token="admin")
    ok(house, "GET", "/v1/jobs/wait?jobs=1-9&any=true", token="admin")
    ok(house, "GET", "/v1/jobs/events?jobs=1-9", token="admin", chunks=[None])  # it goes away at once
    (pool, *_) = house.get("/v1/submit-pools")["pools"]
    ok(house, "GET", f"/v1/submit-pools/{pool['id']}")
    ok(house, "GET", f"/v1/sandboxes/{SHA}")


def what_the_director_does(house, backend):
    """First it never decided, then pilots are placed, wanted and refused; then a queue is shut by all that can be."""
    ok(house, "GET", "/v1/director")
    director = house.director(backend)
    house.side.director = director
    ok(house, "GET", "/v1/queues/why?site=North&ce=ce.north&queue=short")
    director.tick(house.now)
    assert house.get("/v1/director")["plan"]["no_pool"]
    ok(house, "GET", WHY_SOUTH)
    planned_resources(house)
    house.submitted({"Memory": 11})
    for _ in range(30):
        house.prepare_pilot("South")
    director.tick(house.now)
    house.submitted({"Memory": 12})
    ok(house, "GET", WHY_SOUTH)
    told = MainReasons(house.side.db, house.side.keeper)
    house.side.fresh()
    changed = {"changed": told.judge(house.side.policy, house.now), "facts_at": told.facts_at()}
    ok(house, "POST", "/v1/service/reasons", changed, "service")
    backend.waiting = backend.running = 1_000
    director.breakers = {
        LONG: Breaker(state=BreakerState.OPEN, failures=3, retry_at=house.now + 900.0, reason="no route")
    }
    director.tick(house.now)
    director.options = replace(director.options, pilots_per_iteration=1e-9)
    director.tick(house.now)
    for place in (SHORT, LONG, QueueId("Far", "ce.far", "q"), QueueId("No", "such", "queue")):
        where = f"site={place.site}&ce={place.ce}&queue={place.queue}"
        house.call("GET", f"/v1/queues/why?{where}", token="ann")
        ok(house, "GET", f"/v1/jobs/3/why?queue={quote('/'.join(place))}", token="admin")


def why_of_pilots(house):
    """Of those on their way, that run, that are lost, and that nothing fits."""
    for pilot in range(1, house.pilots + 1):
        ok(house, "GET", f"/v1/pilots/{pilot}/why")
        ok(house, "GET", f"/v1/pilots/{pilot}")
    ok(house, "GET", "/v1/submissions?all=true", token="admin")
    before, house.side.director = house.side.director, house.director(ScriptedBackend())
    ok(house, "GET", "/v1/pilots/1/logs")
    house.side.director = before


def orders_for_breakers(house):
    for order in ("open", "close", "auto"):
        body = {"path": "North/ce.north/short", "order": order, "reason": "a new disk"}
        ok(house, "POST", "/v1/queues/breaker", body, "admin")


def what_is_closed(house):
    """Sites are closed and opened, jobs are Held for it, and everybody sees it."""
    for body in ({"site": "North", "reason": "disk broken"}, {"path": "South/ce.south", "reason": "full", "dry_run": True},
                 {"path": "North/ce.north", "reason": "switch", "until": house.now + 10.0}):  # fmt: skip
        ok(house, "POST", "/v1/sites/close", body, "admin")
    waits = house.submitted({"Requirements": {"Memory": 100}})
    for path in (
        "/v1/sites",
        "/v1/queues",
        f"/v1/jobs/{waits}/why",
        "/v1/queues/why?path=North/ce.north/short",
    ):
        ok(house, "GET", path)
    ok(house, "POST", "/v1/sites/open", {"site": "North"}, "admin")
    ok(house, "POST", "/v1/sites/open", {"path": "North/ce.north"}, "admin")


def which_hosts_are_shut(house):
    """One is closed and opened again."""
    house.pilot(node={"cores": 4, "host": "wn1"})
    ok(house, "POST", "/v1/hosts/close", {"host": "wn1", "reason": "disk"}, "admin")
    assert ok(house, "GET", "/v1/hosts").json["hosts"][0]["shut"]
    why_of_pilots(house)
    ok(house, "POST", "/v1/hosts/open", {"host": "wn1"}, "admin")


def classes_of_jobs(house):
    """One is added, switched and removed."""
    ok(house, "POST", "/v1/job-classes", {"text": "jcname app\nodd x\n"})
    ok(house, "POST", "/v1/job-classes/switch", {"names": ["app"], "switch": "disable"})
    ok(house, "GET", "/v1/job-classes")
    ok(house, "GET", "/v1/job-classes/text?name=app")
    ok(house, "POST", "/v1/job-classes/remove", {"names": ["app"]})


def limits_on_what_runs(house):
    """A set is odd, changed, full and removed."""
    text = "{\n name n\n enabled true\n limit users {*} to slots=1\n limit users ann to slots=0\n}\n"
    ok(house, "POST", "/v1/quotas", {"text": text.replace("{*}", "*")}, "admin")
    ok(house, "POST", "/v1/plan/quotas", {"text": text}, "admin")
    ok(house, "POST", "/v1/quotas", {"text": text, "how": "change"}, "admin")
    first = house.submitted({})
    assert ok(house, "GET", "/v1/quotas/use").json["uses"]  # of what runs already
    assert ok(house, "GET", f"/v1/jobs/{first}/why").json["main_reason"] == "limited"
    for path in ("/v1/quotas", "/v1/quotas/resources"):
        ok(house, "GET", path)
    ok(house, "POST", "/v1/quotas/remove", {"names": ["n"]}, "admin")


def a_test_of_a_site(house):
    """No batch system is there, so that no job is sent."""
    test = ok(house, "POST", "/v1/site-tests", {"path": "North"}, "admin").json
    assert {one["result"] for one in test["checks"]} == {"unknown"}
    for method in ("GET", "DELETE"):
        assert ok(house, method, f"/v1/site-tests/{test['test']}", token="admin").json == test


def pilots_that_people_start(house):
    """In a queue that the server sends none to."""
    before = house.side.policy
    by_hand = '[site.By]\nVO = ["lab"]\n[site.By.ce.hand.queue.q]\nBackend = "manual"\n[group.physics]\nvo = "lab"\n'
    house.side.policy = house.policy(load_resources([("by.toml", by_hand)]))
    assert (
        len(ok(house, "POST", "/v1/pilots/files", {"path": "By/hand/q", "count": 2}, "admin").json["pilots"])
        == 2
    )
    house.side.policy = before


def a_site_that_advertises(house):
    """With room, and odd; then without."""
    house.tokens["site"] = ok(house, "POST", "/v1/sites/token", {"site": "North", "note": "n"}, "admin").json[
        "token"
    ]
    ok(house, "GET", "/v1/sites/gate?site=North")
    for number, more in enumerate(
        ("MaxJobs = 99", "MaxJobs = 1.5", "Requirements = X < {7}[9] && TARGET.Y"), 1
    ):
        text = f'Name = "North"\nUpdateSequenceNumber = {number}\nCurrentJobs = 2\nCurMatches = 1\n{more}\n'
        ok(house, "POST", "/v1/sites/ad", {"ad": text}, "site")
        ok(house, "GET", "/v1/sites/gate?site=North", token="site")
        ok(house, "GET", "/v1/sites/ads")
        ok(house, "GET", "/v1/sites")


OTHER = """
[job_description]
Software = "string"
Disk = "number"
[site.North]
Platform = "el9"
VO = ["lab"]
[site.North.ce."ce.north".queue.short]
CPUTime = 600
Memory = 2000
Software = "root"
[site.East.ce.c.queue.q]
CPUTime = 1000000000
Memory = 10000000
[group.physics]
vo = "lab"
share = 10
job_sharing = true
background = true
[group.bio]
vo = "other"
[group.new]
vo = "lab"
"""


def planned_resources(house):
    ok(house, "POST", "/v1/plan/resources", {"files": [{"name": "other.toml", "text": OTHER}]}, "admin")


def what_nothing_can_run(house):
    """Jobs that are Held with their task queue since the configuration changed, and who would run them else."""
    held = house.submitted({"Requirements": {"Software": "geant"}})
    configure(house, RESOURCES.replace('Software = ["root", "geant"]', ""))
    ok(house, "GET", f"/v1/jobs/{held}")
    index = house.core.live.queues.index
    for tq_id, _, _ in list(index.queues()):
        index.block(tq_id, "physics at most 0")
    why_of_pilots(house)


def plans(house):
    """Of jobs that fit, that never can, and that join others; of resources that change in every way; of shares."""
    wanted = [{"Executable": "x", "CPUTime": 500}, {"Executable": "x", "CPUTime": 10**7, "Odd": 1}]
    assert ok(house, "POST", "/v1/plan/job", {"jobs": wanted}).json["refusal"]
    ok(house, "POST", "/v1/plan/job", {"jobs": wanted[:1]})
    planned_resources(house)
    ok(house, "POST", "/v1/plan/resources", {"files": [{"name": "a.toml", "text": RESOURCES}]}, "admin")
    ok(house, "POST", "/v1/plan/shares", {"shares": {"physics": 1, "guests": 0}}, "admin")
    ok(house, "POST", "/v1/plan/director", {"policies": ["seed", "gap"]}, "admin")
    ok(house, "POST", "/v1/plan/director", {"policies": ["seed", "gap"], "iteration": 1}, "admin")
    ok(house, "POST", "/v1/plan/gates", {"gates": {"North": {"MaxJobs": "0"}}}, "admin")


def a_record_of_an_older_release(house):
    """Right after an upgrade, until the director decides anew."""
    record = house.get("/v1/director", "admin")["plan"]
    del record["load_fields"]
    for room in record["rooms"].values():
        del room["load"]
    ok(house, "POST", "/v1/service/iteration", {"plan": record}, "service")
    assert house.get("/v1/director", "admin")["plan"] == record


def users_and_the_end(house):
    """A user comes, a token goes, and so does the pilot."""
    assert house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token="ann").status == 403
    ok(house, "POST", "/v1/users", {"name": "eve", "vo": "lab", "groups": ["bio"]}, "admin")
    ok(house, "POST", "/v1/tokens", {"account": "eve", "seconds": 0}, "admin")
    (digest, *_) = [
        one["hash"] for one in house.get("/v1/tokens", "admin")["tokens"] if one["account"] == "eve"
    ]
    ok(house, "DELETE", f"/v1/tokens/{digest}", token="admin")
    for share in (7.0, None):
        ok(house, "POST", "/v1/groups/share", {"group": "bio", "share": share, "reason": "x"}, "admin")
    ok(
        house,
        "POST",
        "/v1/groups/users",
        {"group": "bio", "users": ["ann"], "how": "add", "reason": "x"},
        "admin",
    )
    ok(house, "POST", "/v1/submissions/readers", {"submission": 1, "readers": ["bob"]})
    ok(house, "GET", "/v1/submissions/1/readers")
    ok(house, "GET", "/v1/usage/pilots", token="admin")
    ok(house, "GET", "/v1/groups")
    ok(house, "GET", "/v1/groups/bio", token="admin")
    kim = {"name": "kim", "vo": "lab", "groups": ["physics"]}
    ok(house, "POST", "/v1/users/import", {"users": [kim]}, "admin")
    ok(house, "POST", "/v1/users/remove", {"name": "kim"}, "admin")
    ok(house, "POST", "/v1/users/disable", {"name": "eve"}, "admin")
    assert house.get("/v1/users", "admin")["users"][-1]["disabled_at"] == house.now
    assert house.get("/v1/audit", "admin")["entries"][0]["action"] == "user-disabled"
    ok(house, "POST", "/v1/pilots/drain", {"pilots": [1, 2, 99]}, "admin")
    ok(house, "POST", "/v1/pilots/leave", {"reason": "idle"}, "p")


@pytest.mark.slow
def test_every_call_answers_as_it_is_described(house, answered, backend):
    fault = {"message": "CPUTime: no", "source": "sites.toml", "section": "site.S", "line": 3}
    state = ConfigurationState(
        files=("a",), faults=(fault,), notices=(fault,), refused_at=1.0, at_next_start=("b",)
    )
    house.core.configuration = house.side.configuration = lambda: state
    jobs_of_all_kinds(house)
    what_the_director_does(house, backend)
    a_pilot_s_life(house)
    losses_and_silence(house)
    why_of_pilots(house)
    orders_for_breakers(house)
    what_is_closed(house)
    which_hosts_are_shut(house)
    classes_of_jobs(house)
    limits_on_what_runs(house)
    a_test_of_a_site(house)
    pilots_that_people_start(house)
    a_site_that_advertises(house)
    what_nothing_can_run(house)
    lists(house)
    plans(house)
    a_record_of_an_older_release(house)
    users_and_the_end(house)
    assert {(call.method, call.path) for call in described()} <= answered


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/v1/jobs/counts", {"counts": [{"owner": "ann"}]}),
        ("/v1/jobs/counts", {"counts": [{"owner": "a", "group": "g", "state": "Lost", "jobs": 1}]}),
        ("/v1/jobs/counts", {"counts": [], "more": 1}),
        ("/v1/sites", {"sites": [], "closed": [], "more": 1}),
        ("/v1/pilots/7/why", {"id": 7}),
        ("/v1/jobs/1/why", {"id": 1, "state": "Done", "reason": "", "verdict": "now", "summary": ""}),
        ("/v1/director", {"iteration": 1, "at": 1.0, "plan": {"now": 1.0}}),
    ],
)
def test_an_answer_that_is_not_as_described_is_noticed(path, value):
    answer = Answer(200, {"content-type": "application/json"}, json.dumps(value).encode())
    with pytest.raises(jsonschema_rs.ValidationError):
        judge().hold("GET", path, answer)


@pytest.mark.parametrize(("status", "media"), [(418, "application/json"), (200, "text/html")])
def test_a_status_or_a_kind_of_text_that_is_not_described_is_noticed(status, media):
    with pytest.raises(KeyError):
        judge().hold("GET", "/v1/sites", Answer(status, {"content-type": media}, b"{}"))


def test_parameters_have_their_types():
    kinds = {}
    for item in document()["paths"].values():
        for operation in item.values():
            kinds |= {
                one["name"]: one["schema"]["type"] for one in operation["parameters"] if one["in"] == "query"
            }
    assert {name for name, kind in kinds.items() if kind == "boolean"} == {
        "all",
        "any",
        "dry_run",
        "held",
        "newest",
        "origin",
        "own",
        "shared",
        "start",
    }
    assert {name for name, kind in kinds.items() if kind == "integer"} == {
        "first", "last", "limit", "seconds", "since", "submission", "until",
    }  # fmt: skip
    assert kinds["state"] == "string"


def test_only_true_is_true(house):
    house.submitted(token="bob")
    assert house.get("/v1/jobs?all=false", "admin")["jobs"] == []
    assert len(house.get("/v1/jobs?all=true", "admin")["jobs"]) == 1
