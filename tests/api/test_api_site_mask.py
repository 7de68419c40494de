"""Administrators close and open sites over HTTP; everybody sees it, `why` and the director obey at once."""

from __future__ import annotations

import re

import pytest

from lodesman.decide.resources import QueueId, load_resources
from lodesman.server.engines.backend import BatchLoad, CancelOutcome
from lodesman.server.live.leases import Leases
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.store.read.why import waiting_by_reason
from lodesman.server.writer.site_mask import close_site

NORTH = {"CPUTime": 500, "Site": "North"}
QUEUE = "/v1/queues/why?site=North&ce=ce.north&queue=short"
SINCE = "1970-01-12 13:46 UTC"


def close(house, where="North", *, token="admin", **more):
    body = {"reason": "disk broken", **({"site": where} if where else {}), **more}
    return house.call("POST", "/v1/sites/close", body, token=token)


def closed(house, site="North", **more):
    answer = close(house, site, **more)
    assert answer.status == 200, answer.body
    return answer.json


def reopen(house, site="North", *, token="admin", **more):
    return house.call("POST", "/v1/sites/open", {**({"site": site} if site else {}), **more}, token=token)


class Batch:
    """A batch system that is empty and takes back what it is asked to."""

    queues = ()

    def __init__(self, house):
        self.house, self.cancelled, self.backend = house, [], self
        self.outcome = CancelOutcome.REMOVED

    def load(self, _queue):
        return BatchLoad(waiting=0, running=0, others_waiting=0, others_running=0, observed_at=self.house.now)

    def cancel(self, pilots):
        self.cancelled += pilots.values()
        return dict.fromkeys(pilots, self.outcome)


@pytest.fixture
def batch(house):
    return Batch(house)


def decide(house, director, placed=None):
    house.now += 1.0
    if placed is not None:
        director.launch = lambda decision, _: placed.extend(decision.placement.placements)
    director.tick(house.now)


def step_of(told, name="site_mask"):
    return next(one for one in told["chain"] if one["step"] == name)


# --- closing and opening -----------------------------------------------------------------------------------


def test_closing_says_what_it_did(house):
    house.pilot()
    told = closed(house, until=house.now + 60.0)
    assert told == {
        "site": "North", "ce": "", "queue": "", "reason": "disk broken", "closed_by": "admin", "since": 1_000_000.0,
        "until": 1_000_060.0, "keep_pilots": False, "queues": 1, "drained": 1, "renewed": False, "dry_run": False,
    }  # fmt: skip
    house.now += 5.0
    told = closed(house, reason="still broken")
    assert (told["since"], told["renewed"], told["drained"]) == (1_000_000.0, True, 0)
    told = reopen(house).json
    assert (told["reason"], told["queues"], told["still_closed"]) == ("still broken", 1, [])


@pytest.mark.parametrize("path", ["/v1/sites/close", "/v1/sites/open"])
def test_only_administrators_may(house, path):
    house.tokens["weak"] = house.user("weak", "physics")
    assert house.call("POST", path, {"site": "North", "reason": "x"}, token="ann").status == 403
    assert house.call("POST", path, {"site": "North", "reason": "x"}).status == 401
    assert house.call("POST", path, {"site": "North", "reason": "x"}, token=house.pilot()).status == 403


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"site": "Nroth"}, "There is no Site Nroth. Is it one of North, South? See: lode site ls."),
        (
            {"path": "Nroth"},
            "There is no site, CE or queue Nroth. Is it one of North, South? See: lode site ls.",
        ),
        (
            {"site": "North", "ce": "ce.nrth"},
            "There is no CE North/ce.nrth. Is it one of North/ce.north? See: lode site ls.",
        ),
        (
            {"path": "North/ce.north/shrot"},
            "There is no site, CE or queue North/ce.north/shrot. Is it one of North/ce.north/short? See: lode site ls.",
        ),
        ({"site": "Moon"}, "There is no Site Moon. See: lode site ls."),
    ],
)
def test_what_is_not_configured_is_refused_with_what_is_near(house, names, sentence):
    answer = close(house, "", **names)
    error = answer.json["error"]
    assert (answer.status, f"{error['message']} {error['hint']}") == (404, sentence)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 1_001}, "reason"),
        ({"until": 999_999.0}, "passed"),
        ({"until": 1e300}, "until"),
        ({"site": "", "ce": "ce.north"}, "Name a site"),
        ({"queue": "short"}, "Name a site"),
    ],
)
def test_what_makes_no_sense_is_refused(house, body, says):
    answer = close(house, **body)
    assert answer.status == 400
    assert says in answer.body.decode()
    assert house.get("/v1/sites")["closed"] == []


def test_parts_of_a_site_are_named_by_a_path_or_by_names(house):
    assert closed(house, "", path="North/ce.north")["ce"] == "ce.north"
    assert closed(house, ce="ce.north", queue="short")["queue"] == "short"
    assert reopen(house, "", path="North/ce.north/short").json["still_closed"][0]["ce"] == "ce.north"
    answer = reopen(house, "", path="North")
    assert (answer.status, answer.json["error"]["hint"]) == (409, "Closed there: North/ce.north.")
    assert reopen(house, "", path="North/ce.north/short").status == 409
    assert reopen(house, "", path="North/ce.north").status == 200


def test_what_is_configured_no_more_can_still_be_opened(house):
    closed(house)
    house.core.policy = house.policy(load_resources([("s.toml", "[site.South.ce.c.queue.q]")]))
    assert close(house).status == 404
    assert reopen(house, "", path="North").json["queues"] == 0
    assert house.get("/v1/sites")["closed"] == []


def test_a_path_that_may_be_two_closings_is_asked_back(house):
    rows = [("N", "a/b", ""), ("N", "a", "b")]
    for node in rows:
        house._writer.execute("INSERT INTO site_mask VALUES (?,?,?,'x','admin',1.0,NULL,0,NULL)", node)
    answer = reopen(house, "", path="N/a/b")
    assert (answer.status, sorted(answer.json["error"]["data"]["choices"])) == (
        400,
        [["N", "a", "b"], ["N", "a/b", ""]],
    )
    assert reopen(house, "N", ce="a/b").status == 200


def test_a_dry_run_closes_nothing(house):
    pilot = house.pilot()
    assert closed(house, dry_run=True)["drained"] == 1
    assert house.get("/v1/sites")["closed"] == []
    house.submitted(NORTH)
    assert house.claim(pilot)


# --- pilots ------------------------------------------------------------------------------------------------


def test_pilots_there_get_no_more_jobs_and_finish_what_they_have(house):
    pilot, other = house.pilot(), house.pilot("South")
    house.submitted(NORTH)
    (job,) = house.claim(pilot)
    assert closed(house)["drained"] == 1
    house.submitted(NORTH)
    answer = house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot)
    assert answer.json == {"jobs": [], "drain": True}
    beat = house.call("POST", "/v1/pilots/heartbeat", {"jobs": []}, token=pilot)
    assert beat.json["drain"] is True
    assert house.report(pilot, job)["accepted"]
    assert house.call("POST", "/v1/pilots/heartbeat", {"jobs": []}, token=other).json["drain"] is False


def test_pilots_that_still_run_jobs_go_on_when_it_is_opened(house):
    pilot = house.pilot()
    house.submitted(NORTH)
    (job,) = house.claim(pilot)
    closed(house)
    assert reopen(house).json["staying"] == 1
    named = {"jobs": [{"id": job["id"], "attempt": job["attempt"]}]}
    assert house.call("POST", "/v1/pilots/heartbeat", named, token=pilot).json["drain"] is False
    house.submitted(NORTH)
    assert house.claim(pilot)
    assert house.get("/v1/pilots", "admin")["pilots"][0]["drain"] == 0


def test_pilots_go_on_when_the_time_of_a_closing_has_passed(house):
    house.pilot()
    closed(house, until=house.now + 60)
    assert house.core.sessions[1].drain
    house.now += 61
    house.call("POST", "/v1/service/forget-idle", {}, token="service")
    assert not house.core.sessions[1].drain


def test_pilots_that_stay_go_on_taking_jobs(house):
    pilot = house.pilot()
    assert closed(house, keep_pilots=True)["drained"] == 0
    house.submitted(NORTH)
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["main_reason"], step_of(told)["holds"]) == ("now", "next", True)
    assert house.claim(pilot)


def test_a_pilot_that_joins_a_closed_queue_is_drained(house):
    closed(house)
    pilot = house.pilot()
    house.submitted(NORTH)
    answer = house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot)
    assert answer.json == {"jobs": [], "drain": True}
    told = house.get("/v1/pilots/1/why", "admin")
    assert told["verdict"] == "draining"
    assert told["summary"] == (
        f"It finishes its jobs and leaves, since North is closed by admin since {SINCE}: disk broken."
    )
    assert "since North is closed by admin" in step_of(told, "pilot")["text"]


def test_a_pilot_that_joined_while_the_site_was_being_closed_is_drained_all_the_same(house, monkeypatch):
    """Its session did not exist when the sessions were drained, and it waits for a job already."""
    pilot = house.pilot()
    session = house.core.sessions.pop(1)
    command = house.core.commands.run

    async def meanwhile(what):
        if getattr(what, "command", what).change is close_site:
            house.core.sessions[1] = session
        return await command(what)

    monkeypatch.setattr(house.core.commands, "run", meanwhile)
    assert closed(house)["drained"] == 1
    assert session.drain
    assert house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot).json["drain"]


def test_a_closing_that_is_not_stored_drains_no_pilot(house, monkeypatch):
    pilot = house.pilot()
    monkeypatch.setattr(
        "lodesman.server.store.director._CLOSE", "INSERT INTO no_such_table VALUES (?,?,?,?,?,?,?,?)"
    )
    assert close(house).status == 503
    house.submitted(NORTH)
    assert house.claim(pilot)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_queue_whose_pilots_leave_has_none_that_take_jobs(house, by_name):
    house.pilot()
    place = frozenset({QueueId("North", "ce.north", "short")})
    (there,) = house.core.inhabited.requests(place)
    assert house.side.fresh().pilots.inhabited(place) == {there}
    if by_name:
        assert house.call("POST", "/v1/pilots/drain", {"pilots": [1]}, token="admin").json["changed"] == 1
    else:
        closed(house)
    assert house.core.inhabited.requests(place) == set()
    assert house.side.fresh().pilots.inhabited(place) == set()


@pytest.mark.stores
def test_waiting_pilots_are_taken_back(house, batch):
    house.prepare_pilot()
    house.prepare_pilot("South")
    closed(house)
    director = house.director(batch)
    decide(house, director)
    assert batch.cancelled == ["native-stamp1"]
    (left,) = house.get("/v1/pilots", "admin")["pilots"]
    assert left["site"] == "South"
    (gone,) = (one for one in house.get("/v1/pilots?all=true", "admin")["pilots"] if one["site"] == "North")
    assert (gone["state"], gone["reason"]) == (
        "Aborted", f"North is closed by admin since {SINCE}: disk broken",
    )  # fmt: skip


def test_a_batch_system_that_cannot_take_them_back_is_asked_again(house, batch):
    house.prepare_pilot()
    closed(house)
    batch.cancel = lambda native: dict.fromkeys(native, CancelOutcome.FAILED)
    director = house.director(batch)
    decide(house, director)
    assert len(house.get("/v1/pilots", "admin")["pilots"]) == 1
    del batch.cancel
    decide(house, director)
    assert house.get("/v1/pilots", "admin")["pilots"] == []


def test_a_pilot_that_no_batch_system_knows_has_ended(house, batch):
    house.prepare_pilot()
    closed(house)
    batch.outcome = CancelOutcome.UNKNOWN
    director = house.director(batch)
    decide(house, director)
    decide(house, director)
    assert len(house.get("/v1/pilots", "admin")["pilots"]) == 1  # unknown is not gone
    decide(house, director)
    assert house.get("/v1/pilots", "admin")["pilots"] == []


# --- the director ------------------------------------------------------------------------------------------


def test_no_pilot_is_sent_to_what_is_closed_and_the_record_says_why(house, batch):
    house.submitted({"CPUTime": 500, "Platform": "el9"})
    house.submitted({"CPUTime": 500, "Platform": "el8"})
    closed(house)
    director, placed = house.director(batch), []
    for _ in range(20):
        decide(house, director, placed)
    assert {one.queue_id.site for one in placed} == {"South"}
    rooms = house.get("/v1/director", "admin")["plan"]["rooms"]
    room = rooms["North/ce.north/short"]
    assert room["room"] == 0
    assert all(
        (bite[0], bite[-1]) == ("closed", f"closed by admin since {SINCE}: disk broken")
        for bite in room["clamps"]
    )
    reopen(house)
    placed.clear()
    for _ in range(20):
        decide(house, director, placed)
    assert {one.queue_id.site for one in placed} == {"North", "South"}


# --- why ---------------------------------------------------------------------------------------------------


def test_a_job_whose_queues_are_all_closed_names_who_opens_them(house, batch):
    house.submitted(NORTH)
    decide(house, house.director(batch))
    assert house.get("/v1/jobs/1/why")["verdict"] == "now"
    closed(house, until=house.now + 3_600.0)  # the director has not decided since
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["main_reason"]) == ("not now", "closed-by-administrator")
    assert (
        told["who"]
        == "admin or another administrator: lode site open North, or time: at 1970-01-12 14:46 UTC"
    )
    assert told["summary"] == (
        "1 of 2 queues can run it, but no pilot is there and all of them are closed: North is closed by admin since "
        f"{SINCE} until 1970-01-12 14:46 UTC: disk broken."
    )
    step = step_of(told)
    assert (step["holds"], step["queues"], step["more"]) == (False, 1, 0)
    assert step["closings"][0]["closed_by"] == "admin"
    assert step["text"].startswith("1 of 1 eligible queue closed by administrators: North is closed by admin")
    assert told["director"]["room"] == 0
    names = [one["step"] for one in told["chain"]]
    assert names.index("site") + 1 == names.index("site_mask") < names.index("limits")


def test_the_verdict_follows_the_mask_and_not_the_last_record(house, batch):
    house.submitted(NORTH)
    closed(house)
    director = house.director(batch)
    decide(house, director)
    assert house.get("/v1/jobs/1/why")["main_reason"] == "closed-by-administrator"
    reopen(house)
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-room-for-pilots")
    assert "closed by" not in told["summary"]
    assert told["who"] == "the server, at the director's next iteration"
    decide(house, director)
    assert house.get("/v1/jobs/1/why")["verdict"] == "now"


def test_until_passes_and_the_verdict_with_it(house, batch):
    house.submitted(NORTH)
    decide(house, house.director(batch))
    closed(house, until=house.now + 10.0)
    house.now += 9.0
    assert house.get("/v1/jobs/1/why")["verdict"] == "not now"
    house.now += 1.0
    assert house.get("/v1/jobs/1/why")["verdict"] == "now"
    assert house.get("/v1/sites")["closed"] == []


def test_some_closed_queues_leave_the_others(house, batch):
    house.submitted({"CPUTime": 500})
    decide(house, house.director(batch))
    closed(house)
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], step_of(told)["holds"], step_of(told)["queues"]) == ("now", True, 1)
    assert told["queues"]["eligible"] == 2
    assert step_of(told, "gates")["text"].startswith(
        "free capacity for a pilot in 1 of 2 eligible queues; no capacity in 1 queue: "
    )


def test_closed_and_full_queues_name_both_actors(house, batch):
    house.submitted({"CPUTime": 500})
    batch.load = lambda _: BatchLoad(waiting=1_000, running=0, observed_at=house.now)
    decide(house, house.director(batch))
    closed(house)
    told = house.get("/v1/jobs/1/why")
    assert told["main_reason"] == "no-room-for-pilots"
    assert told["who"].startswith(
        "time, as pilots there start or end; or the site administrator; admin or another"
    )
    gates = {one["gate"]: one["queues"] for one in step_of(told, "gates")["closed"]}
    assert gates == {"max-waiting": 1, "closed": 1}


def test_nothing_is_never_because_it_is_closed(house):
    closed(house)
    closed(house, "South")
    assert house.submit(NORTH).status == 200
    told = house.get("/v1/jobs/1/why")
    assert (told["verdict"], told["queues"]["eligible"]) == ("not now", 1)
    impossible = house.submit({"Memory": 9_000}, hold_if_impossible=True)
    told = house.get(f"/v1/jobs/{impossible.json['first']}/why")
    assert (told["verdict"], step_of(told)["text"]) == (
        "never",
        "0 of 0 eligible queues closed by administrators",
    )


@pytest.mark.stores
def test_a_pilot_that_was_drained_counts_for_nothing_at_once(house):
    house.pilot()
    house.prepare_pilot()
    house.submitted(NORTH)
    assert house.get("/v1/jobs/1/why")["main_reason"] == "next"
    house.side.patience = 1e9  # the snapshot stays as it was
    closed(house)
    told = house.get("/v1/jobs/1/why")
    assert told["main_reason"] == "closed-by-administrator"
    assert (told["pilots"]["usable_idle"], told["pilots"]["usable_waiting"], told["pilots"]["draining"]) == (
        0,
        0,
        2,
    )


def test_main_reasons_of_task_queues_agree(house, batch):
    house.submitted(NORTH)
    house.submitted({"CPUTime": 500})
    decide(house, house.director(batch))
    closed(house)
    house.side.fresh()
    judged = MainReasons(house.side.db, house.side.keeper).judge(house.side.policy, house.now)
    assert {tq_id: one[:2] for tq_id, one in judged.items()} == {
        1: ("closed-by-administrator", "North"), 2: ("pilot-expected", ""),
    }  # fmt: skip
    body = {"changed": judged, "facts_at": None}
    assert house.call("POST", "/v1/service/reasons", body, token="service").status == 200
    found = waiting_by_reason(house.side.db)
    assert {(one.reason, one.detail, one.verdict) for one in found.reasons} == {
        ("closed-by-administrator", "North", "not now"), ("pilot-expected", "", "now"),
    }  # fmt: skip


def test_a_task_queue_has_the_limit_that_closes_most_queues(house, batch):
    house.submitted({"CPUTime": 500})
    batch.load = lambda _: BatchLoad(waiting=1_000, running=0, observed_at=house.now)
    decide(house, house.director(batch))
    reasons = MainReasons(house.side.db, house.side.keeper)
    house.side.fresh()
    ((_, told),) = reasons.judge(house.side.policy, house.now).items()
    assert told[:2] == ("no-room-for-pilots", "max-waiting")
    closed(house)
    closed(house, "South")
    house.now += 100.0
    house.side.fresh()
    ((_, told),) = reasons.judge(house.side.policy, house.now).items()
    assert told[0] == "closed-by-administrator"


def test_one_queue_of_a_job(house):
    house.submitted(NORTH)
    closed(house)
    told = house.get("/v1/jobs/1/why?queue=North/ce.north/short")["queue"]
    assert (told["eligible"], told["room"]) == (True, 0)
    assert told["gate"] == f"closed by admin since {SINCE}: disk broken"


@pytest.mark.parametrize("looks", [True, False])
def test_why_no_pilots_are_sent_to_a_closed_queue(house, batch, looks):
    house.submitted(NORTH)
    director = house.director(batch)
    decide(house, director)
    house.side.director = director if looks else None
    assert house.get(QUEUE)["verdict"] == "now"
    assert step_of(house.get(QUEUE))["text"] == "no administrator has closed it"
    closed(house, ce="ce.north")
    told = house.get(QUEUE)
    since = "1970-01-12 13:46 UTC"
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-room-for-pilots")
    assert told["who"] == "admin or another administrator: lode site open North/ce.north"
    assert told["summary"].endswith(f"none may be sent now: closed by admin since {since}: disk broken.")
    step = step_of(told)
    assert (step["holds"], step["closings"][0]["ce"]) == (False, "ce.north")
    if looks:
        assert told["gate"]["limits"][0] == {
            "clamp": "closed", "limit": 0, "text": f"closed by admin since {since}: disk broken", "shut": True,
        }  # fmt: skip


def test_a_plan_of_a_job_knows_what_is_closed(house):
    closed(house)
    body = {"jobs": [{"Executable": "/bin/true", **NORTH}]}
    answer = house.call("POST", "/v1/plan/job", body, token="ann")
    assert answer.status == 200, answer.body
    (cohort,) = answer.json["cohorts"]
    assert (cohort["verdict"], cohort["main_reason"]) == ("not now", "closed-by-administrator")


# --- lists -------------------------------------------------------------------------------------------------


def test_everybody_sees_what_is_closed(house):
    closed(house, ce="ce.north")
    told = house.get("/v1/sites")
    sites = {row["site"]: row["closed"] for row in told["sites"]}
    assert sites["South"] == []
    assert sites["North"] == told["closed"]
    assert (told["closed"][0]["closed_by"], told["closed"][0]["reason"]) == ("admin", "disk broken")
    queues = {row["site"]: row["closed"] for row in house.get("/v1/queues")["queues"]}
    assert queues == {"North": told["closed"], "South": []}


def test_closed_queues_are_counted_in_the_metrics(house):
    def gauge():
        text = house.call("GET", "/metrics", token="admin").body.decode()
        return re.search(r"^lodesman_closed_queues (\S+)$", text, re.MULTILINE)[1]

    assert gauge() == "0.0"
    closed(house)
    closed(house, ce="ce.north")
    closed(house, "Far")
    assert gauge() == "2.0"


def test_upkeep_removes_closings_whose_time_has_passed(house):
    closed(house, until=house.now + 5.0)
    house.now += 5.0
    assert house.call("POST", "/v1/service/forget-idle", {}, token="service").status == 200
    assert list(house.side.db.execute("SELECT * FROM site_mask")) == []


# --- announced ---------------------------------------------------------------------------------------------


def test_what_is_announced_is_seen_in_lists_and_explained(house, batch):
    begins, until = house.now + 1_800.0, house.now + 9_000.0
    told = closed(house, begins=begins, until=until)
    assert (told["begins"], told["drained"], told["endless"]) == (begins, 0, 1)
    sites = house.get("/v1/sites")
    assert (sites["closed"], [one["site"] for one in sites["announced"]]) == ([], ["North"])
    (north, south) = sites["sites"]
    assert (north["closed"], north["announced"][0]["begins"], "announced" in south) == ([], begins, False)
    assert house.get("/v1/resources?site=North")["closings"][0]["begins"] == begins
    queues = {one["site"]: one for one in house.get("/v1/queues")["queues"]}
    assert (queues["North"]["closed"], len(queues["North"]["announced"])) == ([], 1)
    house.submitted(NORTH)
    director, placed = house.director(batch), []
    decide(house, director, placed)
    assert placed == []  # no end of its pilots is known
    told = house.get(QUEUE)
    assert (told["main_reason"], step_of(told)["holds"]) == ("no-room-for-pilots", False)
    assert "jobs that ask for at most 29 min of CPUTime still start" in step_of(told)["text"]
    assert "to be closed from" in told["summary"]
    job = house.get("/v1/jobs/1/why")
    assert (job["main_reason"], "to be closed from" in step_of(job)["text"]) == (
        "closed-by-administrator",
        True,
    )
    assert "lode site open North" in job["who"]
    assert "by a WallTime with which new pilots end before" in job["who"]
    assert "no pilot is there that could run it, no pilot is sent that could still run then" in job["summary"]
    house.now = until
    assert "announced" not in house.get("/v1/sites")
    decide(house, director, placed)
    assert [one.queue_id.site for one in placed] == ["North"]


def test_a_pilot_that_is_there_takes_what_ends_in_time_and_says_so(house):
    pilot = house.pilot()
    closed(house, begins=house.now + 700.0)
    house.submitted(NORTH)
    assert house.get("/v1/jobs/1/why")["verdict"] == "now"
    house.submitted({"CPUTime": 900, "Site": "North"})
    told = house.get("/v1/jobs/2/why")
    assert told["main_reason"] == "closed-by-administrator"
    assert told["who"].startswith(
        "you, by asking for at most 11 min of CPUTime: lode change 2 CPUTime=660; or admin"
    )
    assert told["summary"].startswith(
        "1 of 2 queues can run it, but its CPUTime is longer than the time left, no pilot"
    )
    assert told["summary"].endswith("; jobs that ask for at most 11 min of CPUTime still start.")
    assert step_of(told)["text"].startswith(
        "1 of 1 eligible queue closed or to be closed by administrators: North"
    )
    assert house.get("/v1/pilots/1/why", "admin")["offer"]["whole"]["norm_cpu_seconds"] <= 700
    assert [one["id"] for one in house.claim(pilot)] == [1]
    assert house.claim(pilot) == []


def test_pilots_leave_when_it_begins_and_an_administrator_may_cancel(house):
    pilot = house.pilot()
    closed(house, begins=house.now + 600.0)
    assert reopen(house).status == 200
    closed(house, begins=house.now + 600.0)
    assert closed(house, dry_run=True)["replaced"]["begins"] == house.now + 600.0
    house.now += 541.0
    house.run(Leases(house.core).watch())
    beat = house.call("POST", "/v1/pilots/heartbeat", {"jobs": []}, token=pilot)
    assert beat.json["drain"] is True
