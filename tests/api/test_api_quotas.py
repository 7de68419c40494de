"""Quota sets over HTTP, and the claims that they let pass."""

from __future__ import annotations

import random
import socket
from copy import copy
from functools import partial

import pytest
from tests.api.conftest import resources

from lodesman.decide.explain.actors import NO_END_HELPS
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.resources import load_resources
from lodesman.languages.gridengine.complexes import read_complexes
from lodesman.languages.gridengine.vocabulary import UserList, Vocabulary
from lodesman.server.loops.limit_use import ask_limits, limits_at
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.store.journal import Change
from lodesman.server.writer.claim import Claim
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.quotas import use_limits
from lodesman.server.writer.sessions import FreeResources
from lodesman.wire import inner_calls
from lodesman.wire.service import LimitQuery

EACH = "{\n name each\n enabled true\n limit users {*} to slots=1\n}\n"
ALL = "{\n name both\n enabled true\n limit queues * to slots=2\n}\n"
OFF = "{\n name off\n limit to slots=0\n}\n"
HOSTS = "{\n name hosts\n enabled true\n limit hosts {*} to slots=$num_proc\n limit users ann hosts n1 to slots=0\n}\n"


@pytest.fixture
def admin(house):
    house.user("eva", "physics", admin=True)
    return house


def put(house, text, how="add", **more):
    answer = house.call("POST", "/v1/quotas", {"text": text, "how": how, **more}, token="eva")
    assert answer.status == 200, answer.json
    return answer.json


def used(house):
    found = house.get("/v1/quotas/use")["uses"]
    return {
        (one["rule"], *one["of"], one["resource"]): (one["used"], one["limit"], one["full"], one["jobs"])
        for one in found
    }


def ids(jobs):
    return [one["id"] for one in jobs]


def test_a_set_holds_from_its_commit_until_it_is_removed(admin):
    pilot = admin.pilot()
    admin.submitted({}, {}, {})
    assert put(admin, EACH) == {"names": ["each"], "notices": []}
    (job,) = admin.claim(pilot, 3)
    assert used(admin) == {("each/1", "ann", "slots"): ("1", "1", True, 2)}
    assert admin.claim(pilot, 3) == []
    admin.report(pilot, job)
    assert used(admin) == {}
    assert len(admin.claim(pilot, 3)) == 1
    answer = admin.call("POST", "/v1/quotas/remove", {"names": ["each"]}, token="eva")
    assert answer.json["names"] == ["each"]
    assert len(admin.claim(pilot, 3)) == 1
    assert used(admin) == {}


def test_what_runs_counts_when_a_set_comes_and_goes_on_beyond_a_lower_limit(admin):
    pilot = admin.pilot()
    admin.submitted(*[{}] * 4)
    jobs = admin.claim(pilot, 3)
    put(admin, EACH)
    assert used(admin) == {("each/1", "ann", "slots"): ("3", "1", True, 1)}
    for job in jobs[:2]:
        admin.report(pilot, job)
        assert admin.claim(pilot) == []
    admin.report(pilot, jobs[2])
    assert len(admin.claim(pilot)) == 1
    put(admin, EACH.replace("=1", "=9"), "change")
    assert admin.claim(pilot) == []  # there is none left
    assert used(admin)["each/1", "ann", "slots"] == ("1", "9", False, 0)


def test_a_set_that_is_not_enabled_limits_nothing(admin):
    put(admin, OFF)
    admin.submitted({})
    assert len(admin.claim(admin.pilot())) == 1
    assert [(one["name"], one["enabled"], one["rules"]) for one in admin.get("/v1/quotas")["sets"]] == [
        ("off", False, 1)
    ]


def test_limits_hold_for_every_job_of_one_claim_and_for_all_pilots_of_a_queue(admin):
    one, other = admin.pilot(), admin.pilot()
    put(admin, ALL)
    admin.submitted(*[{}] * 5)
    assert len(admin.claim(one, 5)) == 2
    assert admin.claim(other, 5) == []


def test_a_claim_that_waits_gets_a_job_as_soon_as_a_limit_frees(admin):
    one, other = admin.pilot(), admin.pilot()
    put(admin, EACH)
    admin.submitted({}, {})
    (job,) = admin.claim(one)
    waiting, connection = admin.open("POST", "/v1/pilots/claim", admin.claim_body(wait_s=30.0), token=other)
    assert len(admin.claim(one)) == 0  # it is parked by now
    admin.report(one, job)
    admin.run(waiting)
    assert ids(connection.answer().json["jobs"]) == [2]
    assert used(admin)["each/1", "ann", "slots"] == ("1", "1", True, 0)


def test_hosts_have_buckets_of_their_own_and_the_first_rule_counts(admin):
    first, second = (admin.pilot(node={"cores": 4, "host": name}) for name in ("n1", "n2"))
    put(admin, HOSTS.replace("$num_proc", "1"))
    admin.submitted(*[{}] * 4)
    assert [len(admin.claim(one, 4)) for one in (first, second)] == [1, 1]
    assert used(admin) == {
        ("hosts/1", "n1", "slots"): ("1", "1", True, 2),
        ("hosts/1", "n2", "slots"): ("1", "1", True, 2),
    }


def test_all_faults_of_a_text_are_said_at_once_and_nothing_is_stored(admin):
    text = EACH + "{\n name bad\n enabled true\n limit usrs x to slots=1\n limit to nothing=1\n}\n"
    answer = admin.call("POST", "/v1/quotas", {"text": text}, token="eva")
    assert (answer.status, answer.code) == (400, "invalid-config")
    assert [one["data"]["line"] for one in answer.json["error"]["data"]["faults"]] == [9, 10]
    assert admin.get("/v1/quotas")["sets"] == []


@pytest.mark.parametrize(("how", "status"), [("add", 409), ("change", 404)])
def test_sets_are_added_once_and_changed_when_they_are_there(admin, how, status):
    put(admin, EACH)
    text = EACH if how == "add" else ALL
    # Also if the first of them could be stored.
    assert admin.call("POST", "/v1/quotas", {"text": OFF + text, "how": how}, token="eva").status == status
    assert [one["name"] for one in admin.get("/v1/quotas")["sets"]] == ["each"]


def test_a_trial_changes_nothing_and_says_what_is_odd(admin):
    found = put(
        admin, "{\n name odd\n enabled true\n limit to slots=5\n limit users ann to slots=1\n}\n", trial=True
    )
    assert [(one["kind"], one["rule"], one["line"]) for one in found["notices"]] == [("shadowed", "odd/2", 5)]
    assert admin.get("/v1/quotas")["sets"] == []


def test_users_read_and_administrators_change(admin):
    assert admin.call("POST", "/v1/quotas", {"text": EACH}, token="ann").status == 403
    assert admin.call("POST", "/v1/quotas/remove", {"names": ["each"]}, token="ann").status == 403
    assert admin.call("POST", "/v1/quotas/remove", {"names": ["each"]}, token="eva").status == 404
    put(admin, EACH)
    (row,) = admin.get("/v1/quotas")["sets"]
    assert (row["changed_by"], row["changed_at"]) == ("eva", admin.now)


def test_why_names_the_limit_that_a_job_waits_for(admin):
    first, second = (admin.pilot(node={"cores": 4, "host": name}) for name in ("n1", "n2"))
    put(admin, EACH)
    admin.submitted({}, {})
    (job,) = admin.claim(first)
    why = admin.get("/v1/jobs/2/why")
    assert (why["main_reason"], why["verdict"]) == ("limited", "not now")
    assert "quota each/1 for ann allows slots=1, 1 is used, the job needs 1" in why["summary"]
    (step,) = [one for one in why["chain"] if one["step"] == "limits"]
    assert (step["holds"], step["full"][0]["rule"]) == (False, "each/1")
    admin.report(first, job)
    assert admin.get("/v1/jobs/2/why")["main_reason"] != "limited"
    assert len(admin.claim(second)) == 1


def test_a_limit_of_one_host_leaves_a_job_free_elsewhere(admin):
    pilot = admin.pilot(node={"cores": 4, "host": "n1"})
    put(admin, "{\n name host\n enabled true\n limit hosts {n1} to slots=1\n}\n")
    admin.submitted({}, {})
    admin.claim(pilot)
    why = admin.get("/v1/jobs/2/why")
    assert why["main_reason"] != "limited"
    (step,) = [one for one in why["chain"] if one["step"] == "limits"]
    assert (step["holds"], [one["of"] for one in step["full"]]) == (True, [["n1"]])


HOST_RULE = "{\n name host\n enabled true\n limit hosts {*} to slots=1\n}\n"


def step_of(why, name):
    (step,) = [one for one in why["chain"] if one["step"] == name]
    return step


def test_pilots_that_people_start_are_not_offered_to_jobs_behind_a_limit(admin):
    words = '[site.North.ce."ce.north".queue.short]\nBackend = "manual"\nCPUTime = 100000\n'
    admin.core.policy = admin.side.policy = admin.policy(load_resources([("sites.toml", words)]))
    none = EACH.replace("each", "zero").replace("slots=1", "slots=0")

    def told():
        found = admin.get("/v1/queues/why?path=North/ce.north/short", "eva")
        return found["verdict"], found["main_reason"], found["summary"], found["who"]

    admin.submitted({})
    kept = "1 task queue could be run there, but limits keep it from starting there now."
    assert told()[1] == "manual-pilots"
    put(admin, none)
    verdict, reason, summary, who = told()
    assert (verdict, reason, summary) == ("not now", "limited", kept)
    assert who == NO_END_HELPS
    # Another task queue may start: pilots are of use, and only for it.
    admin.user("bob", "physics")
    put(admin, none.replace("{*}", "ann"), how="change")
    admin.submitted({}, token="bob")
    assert told()[1] == "manual-pilots"


def test_a_pilot_on_a_full_host_is_none_that_can_take_a_job(admin):
    put(admin, HOST_RULE)
    first = admin.pilot(node={"cores": 4, "host": "n1"})
    admin.submitted({}, {})
    admin.claim(first)
    why = admin.get("/v1/jobs/2/why")
    assert (why["verdict"], why["pilots"]["limited"], why["pilots"]["usable_busy"]) == ("not now", 1, 0)
    assert "1 of them could but a limit keeps it from starting there" in step_of(why, "pilots")["text"]
    assert step_of(why, "limits")["text"].endswith(
        "(elsewhere, or on hosts that are not known yet, it is free)"
    )
    admin.pilot(node={"cores": 4, "host": "n2"})
    why = admin.get("/v1/jobs/2/why")
    assert (why["main_reason"], why["pilots"]["usable_idle"], why["pilots"]["limited"]) == ("next", 1, 1)


def test_pilots_of_the_local_backend_run_on_the_servers_own_host(admin, backend):
    """There is no other host to wait for: the job is limited, and no pilot is sent."""
    backend.queues = tuple(admin.side.policy.config.tree.queue_ids())
    director = admin.side.director = admin.director(backend)
    director.limited = lambda queues: admin.post(inner_calls.LIMITED, limits_at(queues, director.watches))
    put(admin, HOST_RULE)
    pilot = admin.pilot(node={"cores": 4, "host": socket.gethostname()})
    admin.submitted(*[{}] * 3)
    (job,) = admin.claim(pilot)
    why = admin.get("/v1/jobs/2/why")
    assert (why["verdict"], why["main_reason"]) == ("not now", "limited")
    assert step_of(why, "limits")["holds"] is False
    assert director.tick(admin.now) == 0
    seen = partial(ask_limits, admin.post, admin.side.policy, director.watches)
    reasons = MainReasons(admin.side.db, admin.side.fresh(), limits=seen)
    judged = reasons.judge(admin.side.policy, admin.now)
    assert [(one.reason, one.next_jobs) for one in judged.values()] == [("limited", 0)]
    admin.report(pilot, job)
    assert admin.get("/v1/jobs/2/why")["main_reason"] != "limited"
    assert director.tick(admin.now + 60.0) > 0


def test_users_behind_a_limit_are_told_when_their_jobs_start(admin):
    """By the jobs of the task queue that run, and those that ended: one at a time, 30 s each."""
    put(admin, EACH)
    pilot = admin.pilot(node={"cores": 4})
    admin.submitted({"Parameters": 30})
    for _ in range(6):
        (job,) = admin.claim(pilot)
        assert admin.get("/v1/jobs/30/why")["main_reason"] == "limited"
        admin.now += 30.0
        admin.report(pilot, job)
    (job,) = admin.claim(pilot)
    told = admin.get("/v1/jobs/20/why")
    start = told["turn"]["start"]
    assert start["low_seconds"] < 13 * 30 < start["high_seconds"] < 26 * 30
    assert "; it starts in about" in told["summary"]
    assert told["summary"].endswith("by 1 job that runs and takes about 30 s.")
    seen = partial(ask_limits, admin.post, admin.side.policy, {})
    reasons = MainReasons(admin.side.db, admin.side.fresh(), limits=seen)
    body = {"changed": reasons.judge(admin.side.policy, admin.now), "facts_at": None}
    assert admin.call("POST", "/v1/service/reasons", body, token="service").status == 200
    rows = admin.get("/v1/jobs?first=20&last=20&start=true")["jobs"]
    assert rows[0]["start"] == {name: start[name] for name in ("low_seconds", "high_seconds")}


def test_nothing_is_foretold_behind_a_limit_that_no_end_of_a_job_opens(admin):
    put(admin, EACH)
    pilot = admin.pilot(node={"cores": 4})
    admin.submitted({"Parameters": 9})
    for _ in range(3):
        (job,) = admin.claim(pilot)
        admin.now += 30.0
        admin.report(pilot, job)
    admin.claim(pilot)
    assert admin.get("/v1/jobs/9/why")["turn"]["start"] is not None
    put(admin, EACH.replace("slots=1", "slots=0"), "change")
    told = admin.get("/v1/jobs/9/why")
    assert (told["main_reason"], told["turn"]["start"]) == ("over-limit", None)
    seen = partial(ask_limits, admin.post, admin.side.policy, {})
    reasons = MainReasons(admin.side.db, admin.side.fresh(), limits=seen)
    body = {"changed": reasons.judge(admin.side.policy, admin.now), "facts_at": None}
    assert admin.call("POST", "/v1/service/reasons", body, token="service").status == 200
    (row,) = admin.get("/v1/jobs?first=9&last=9&start=true")["jobs"]
    assert (row["main_reason"], row["start"]) == ("over-limit", None)


def test_nothing_is_foretold_behind_a_limit_where_nothing_ended(admin):
    put(admin, EACH)
    pilot = admin.pilot(node={"cores": 4})
    admin.submitted({"Parameters": 3})
    admin.claim(pilot)
    told = admin.get("/v1/jobs/2/why")
    assert (told["main_reason"], told["turn"]["start"]) == ("limited", None)
    assert "it starts" not in told["summary"]


def test_an_idle_pilot_on_a_full_host_is_no_supply(admin, backend):
    """Pilots go to hosts where the job may start."""
    director = admin.director(backend)
    director.limited = lambda queues: admin.post(inner_calls.LIMITED, LimitQuery(queues))
    put(admin, "{\n name n\n enabled true\n limit hosts n1 to slots=0\n}\n")
    admin.pilot(node={"cores": 4, "host": "n1"})
    admin.submitted({})
    seen = director.look(admin.now)
    assert [one.barred for one in seen.pilots] == [frozenset({1})]
    assert director.tick(admin.now) > 0
    put(admin, "{\n name n\n enabled true\n limit hosts n2 to slots=0\n}\n", "change")
    assert [one.barred for one in director.look(admin.now).pilots] == [frozenset()]


def test_a_planned_job_is_held_against_limits(admin):
    put(admin, EACH)
    pilot = admin.pilot()
    body = {"jobs": [{"Executable": "x", "CPUTime": 500}]}
    assert admin.call("POST", "/v1/plan/job", body, token="ann").json["verdicts"]["now"] == 1
    admin.submitted({})
    admin.claim(pilot)
    found = admin.call("POST", "/v1/plan/job", body, token="ann").json
    (cohort,) = found["cohorts"]
    assert (found["verdicts"], cohort["main_reason"]) == ({"never": 0, "not now": 1, "now": 0}, "limited")
    (full,) = step_of(cohort, "limits")["full"]
    assert (full["rule"], [one["owner"] for one in full["holders"]]) == ("each/1", ["ann"])


def test_the_director_sends_no_pilots_for_what_limits_keep_from_starting(admin, backend):
    director = admin.director(backend)
    director.limited = lambda queues: admin.post(inner_calls.LIMITED, LimitQuery(queues))
    put(admin, "{\n name shut\n enabled true\n limit users ann to slots=0\n}\n")
    admin.submitted({}, {})
    assert director.tick(admin.now) == 0
    put(admin, "{\n name shut\n enabled true\n limit users bob to slots=0\n}\n", "change")
    assert director.tick(admin.now + 60.0) > 0


# --- claims that wait ---------------------------------------------------------------------------------------


def parked(house, pilot, **more):
    found = house.open("POST", "/v1/pilots/claim", house.claim_body(wait_s=30.0, **more), token=pilot)
    house.do(Change(lambda _tx: None))  # it is parked by now
    return found


@pytest.mark.parametrize("how", ["change", "remove"])
def test_a_claim_that_waits_gets_a_job_as_soon_as_rules_let_it(admin, how):
    put(admin, EACH.replace("=1", "=0"))
    admin.submitted({})
    waiting, connection = parked(admin, admin.pilot())
    if how == "change":
        put(admin, EACH, "change")
    else:
        assert admin.call("POST", "/v1/quotas/remove", {"names": ["each"]}, token="eva").json["names"] == [
            "each"
        ]
    admin.run(waiting)
    assert ids(connection.answer().json["jobs"]) == [1]


def test_a_new_job_goes_to_a_pilot_where_limits_let_it_run(admin):
    """The pilot that waits longest is on a host that is full: the job is for the next one."""
    first, second = (admin.pilot(node={"cores": 4, "host": name}) for name in ("n1", "n2"))
    put(admin, "{\n name n\n enabled true\n limit hosts n1 to slots=0\n}\n")
    parked(admin, first)
    waiting, connection = parked(admin, second)
    admin.submitted({})
    admin.run(waiting)
    assert ids(connection.answer().json["jobs"]) == [1]


def test_of_a_thousand_claims_that_wait_one_slot_wakes_few(admin, monkeypatch):
    one = admin.pilot()
    put(admin, EACH)
    admin.submitted(*[{}] * 3)
    (job,) = admin.claim(one)
    session = admin.core.sessions[1]
    for n in range(1_000):
        copied = copy(session)
        copied.id = 1_000 + n
        admin.core.live.pilots.running.add(copied.id)
        claim = Claim(
            admin.core.live, copied, FreeResources(4, 2000, 1000), 1, f"token-{n}", True, lambda _: None
        )
        admin.core.journal.post(claim, lambda _: None)
    admin.do(Change(lambda _tx: None))
    assert len(admin.core.live.parked) == 1_000
    made, choose = [], Matcher.choose
    monkeypatch.setattr(Matcher, "choose", lambda *a, **k: made.append(1) or choose(*a, **k))
    admin.report(one, job)
    assert len(made) == 2  # the first gets it, the second finds that nothing is left and speaks for all
    assert len(admin.core.live.parked) == 999


# --- consumables --------------------------------------------------------------------------------------------

LICENCES = "matlab ml INT <= YES JOB 0 0\nscratch sc MEMORY <= YES YES 0 0\nlevel lv INT >= YES NO 0 0\n"


def with_complexes(house, text):
    found = read_complexes(text, faults=[])
    house.core.policy = house.policy(resources(), vocabulary=Vocabulary(complexes=found))
    assert house.do(Change(use_limits, house.core.quotas, house.core.policy.vocabulary)) is True


def test_memory_of_several_cores_is_charged_once(admin):
    with_complexes(admin, f"{LICENCES}virtual_free vf MEMORY <= YES YES 0 0\nslots s INT <= YES YES 1 0\n")
    put(admin, "{\n name mem\n enabled true\n limit to vf=1G\n}\n")
    pilot = admin.pilot(cores=4)
    admin.submitted({"NumberOfProcessors": 4, "Memory": 1024})
    assert len(admin.claim(pilot)) == 1
    admin.submitted({"Memory": 1})
    assert used(admin) == {("mem/1", "virtual_free"): ("1073741824", "1073741824", True, 1)}


def test_consumables_are_counted_and_other_types_do_no_harm(admin):
    with_complexes(admin, LICENCES)
    put(admin, "{\n name lic\n enabled true\n limit to matlab=2,scratch=10G\n}\n")
    admin.submitted(*[{"Consumables": "ml=1, scratch=4G", "NumberOfProcessors": 2}] * 3)
    pilot = admin.pilot()
    assert len(admin.claim(pilot, 4)) == 1
    assert {name: row[:2] for name, row in used(admin).items()} == {
        ("lic/1", "matlab"): ("1", "2"),
        ("lic/1", "scratch"): ("8589934592", "10737418240"),
    }


def test_what_a_complex_of_another_type_cannot_read_is_not_asked_for(admin):
    with_complexes(admin, LICENCES)
    put(admin, "{\n name lic\n enabled true\n limit to matlab=1\n}\n")
    admin.submitted({"Consumables": "lv=7"}, {"Consumables": "lv=7, ml=1"})
    with_complexes(admin, LICENCES.replace("level lv INT >=", "level lv BOOL =="))
    assert len(admin.claim(admin.pilot(), 2)) == 2
    assert used(admin) == {("lic/1", "matlab"): ("1", "1", True, 0)}


@pytest.mark.parametrize("amount", ["ml=-1", "ml=INFINITY", "nothing=1", "ml=x", "ml=1, matlab=2"])
def test_amounts_that_no_job_can_use_are_refused(admin, amount):
    with_complexes(admin, LICENCES)
    answer = admin.submit({"Consumables": amount})
    assert (answer.status, answer.code) == (400, "invalid-job")
    assert admin.submit({"Consumables": "lv=-1"}).status == 200  # it is only compared


def test_resources_are_listed(admin):
    with_complexes(admin, LICENCES)
    rows = admin.get("/v1/quotas/resources")["resources"]
    assert rows[0] == {"name": "matlab", "shortcut": "ml", "type": "INT", "consumable": "JOB", "default": "0"}
    assert len(rows) == 3


def test_the_audit_trail_has_what_was_set(admin):
    put(admin, EACH)
    admin.call("POST", "/v1/quotas/remove", {"names": ["each"]}, token="eva")
    rows = [one for one in admin.get("/v1/audit", "eva")["entries"] if one["action"].startswith("quota-")]
    assert [(one["action"], one["subject"], one["by"]) for one in rows] == [
        ("quota-removed", "each", "eva"),
        ("quota-changed", "each", "eva"),
    ]
    assert "users {*} to slots=1" in rows[1]["detail"]


# --- load values of hosts --------------------------------------------------------------------------------------

LOAD = "{\n name load\n enabled true\n limit hosts {*} to slots=$num_proc*2-2\n}\n"


def at_host(house, name, **more):
    return house.pilot(node={"cores": 4, "host": name, **more})


def test_dynamic_limits_go_by_the_machines_that_pilots_report(admin):
    put(admin, LOAD)
    admin.submitted(*[{}] * 9)
    small, large = at_host(admin, "n1", cores_total=2), at_host(admin, "n2", cores_total=3)
    assert [len(admin.claim(one, 4)) for one in (small, large)] == [2, 4]
    assert {row[0]: row[1][:3] for row in used(admin).items()} == {
        ("load/1", "n1", "slots"): ("2", "2", True),
        ("load/1", "n2", "slots"): ("4", "4", True),
    }


@pytest.mark.parametrize("report", [{}, {"cores_total": 0}, {"cores_total": "many"}, {"cores_total": -3}])
def test_an_unknown_host_holds_nothing_back(admin, report):
    put(admin, LOAD)
    admin.submitted(*[{}] * 4)
    assert len(admin.claim(at_host(admin, "n1", **report), 4)) == 4
    assert used(admin) == {("load/1", "n1", "slots"): ("4", "unknown", False, 0)}


@pytest.mark.parametrize(("cores", "more"), [(3, 1), (2, 0), (1, 0)])
def test_limits_follow_when_a_pilot_reports_more_of_a_host(admin, cores, more):
    put(admin, LOAD)
    admin.submitted(*[{}] * 9)
    first = at_host(admin, "n1")
    assert len(admin.claim(first, 3)) == 3
    second = at_host(admin, "n1", cores_total=cores)
    ((_, (count, limit, full, _)),) = used(admin).items()
    assert (count, limit, full) == ("3", str(cores * 2 - 2), cores * 2 - 2 < 3 + 1)
    assert len(admin.claim(second, 4)) == more


def test_a_claim_that_waits_starts_when_more_is_known_of_its_host(admin):
    put(admin, LOAD)
    admin.submitted({}, {})
    pilot = at_host(admin, "n1", cores_total=1)
    waiting, connection = parked(admin, pilot)
    assert not waiting.done()
    at_host(admin, "n1", cores_total=2)
    admin.run(waiting)
    assert len(connection.answer().json["jobs"]) == 1


def test_bytes_for_each_core_of_a_host_are_a_limit_to_the_byte(admin):
    text = "mc mc MEMORY <= YES YES 0 0\nslots s INT <= YES YES 1 0\nnum_proc p INT == YES NO 0 0\n"
    with_complexes(admin, text)
    put(admin, "{\n name b\n enabled true\n limit hosts {*} to mc=$num_proc*1073741824\n}\n")
    pilot, started = at_host(admin, "n1", cores_total=4), []
    for amount in ("3G", "1073741825", "1073741824"):  # one byte too many, and what is left
        admin.submitted({"Consumables": f"mc={amount}"})
        started.append(len(admin.claim(pilot, 2)))
    assert started == [1, 0, 1]


def test_load_values_are_known_after_a_restart_and_memory_is_in_bytes(admin):
    at_host(admin, "n1", cores_total=2, memory_total_mb=3)
    live = WriterState(admin._writer, rng=random.Random(1), now=admin.now)
    assert live.hosts.of("n1") == admin.core.live.hosts.of("n1") == {"num_proc": 2, "mem_total": 3 << 20}
    assert live.hosts.of("n2") == {}


# --- who uses a limit, who waits behind it, since when ------------------------------------------------------


def rows(house):
    return {one["rule"]: one for one in house.get("/v1/quotas/use")["uses"]}


def named(some):
    """Those of one VO."""
    assert {one["vo"] for one in some} <= {"lab"}
    return [tuple(value for name, value in one.items() if name != "vo") for one in some]


def test_a_bucket_names_who_uses_it_who_waits_behind_it_and_since_when(admin):
    pilot = admin.pilot()
    put(admin, ALL.replace("=2", "=3"))
    admin.now += 10
    admin.submitted({"JobGroup": "p"}, {})
    admin.submitted({}, token="bob")
    admin.claim(pilot)
    admin.now += 10
    admin.claim(pilot, 2)
    admin.submitted({"NumberOfProcessors": 2}, {}, {})
    admin.submitted({}, token="bob")
    row = rows(admin)["both/1"]
    assert (row["jobs"], row["task_queues"], row["need"]) == (4, 3, "1")
    assert named(row["owners"]) == [("ann", 3), ("bob", 1)]
    assert named(row["holders"]) == [("ann", "", "1", 1), ("ann", "p", "1", 1), ("bob", "", "1", 1)]
    # The first claim left room for one core, the others none.
    assert row["since"] == admin.now


def test_a_limit_that_is_lowered_is_full_since_it_was_set(admin):
    pilot = admin.pilot()
    admin.submitted(*[{}] * 3)
    admin.claim(pilot, 2)
    admin.now += 100
    put(admin, EACH)
    assert rows(admin)["each/1"]["since"] == admin.now
    admin.now += 100
    put(admin, ALL)
    assert rows(admin)["each/1"]["since"] == admin.now - 100


def test_a_limit_of_nothing_is_a_bucket_as_soon_as_jobs_wait_behind_it(admin):
    put(admin, EACH.replace("=1", "=0"))
    at = admin.now
    assert rows(admin) == {}
    admin.pilot()
    admin.now += 50
    admin.submitted({}, {})
    admin.claim(admin.pilot())
    row = rows(admin)["each/1"]
    assert (row["used"], row["jobs"], row["since"], row["holders"]) == ("0", 2, at, [])
    admin.control("kill", 1, 2)
    assert rows(admin) == {}


def test_buckets_of_many_rules_are_all_there_and_in_order(admin):
    """They are gone through in parts."""
    pilot = admin.pilot()
    admin.submitted({})
    admin.claim(pilot)
    names = [f"s{number:02}" for number in range(45)]
    put(admin, "".join(EACH.replace("each", name) for name in reversed(names)))
    assert [one["rule"] for one in admin.get("/v1/quotas/use")["uses"]] == [f"{name}/1" for name in names]


def test_only_the_largest_users_and_owners_are_named(admin):
    pilot = admin.pilot()
    put(admin, EACH + ALL.replace("=2", "=8"))
    for number in range(8):
        admin.user(f"u{number}", "physics")
        admin.submitted({}, {}, token=f"u{number}")
    admin.submitted({}, token="u7")
    assert len(admin.claim(pilot, 4) + admin.claim(admin.pilot(), 4)) == 8
    row = rows(admin)["both/1"]
    assert [one["owner"] for one in row["owners"]] == ["u7", "u0", "u1", "u2", "u3"]
    assert [one["owner"] for one in row["holders"]] == ["u0", "u1", "u2", "u3", "u4"]
    assert (row["more_owners"], row["more_holders"], row["jobs"]) == (3, 3, 9)


def test_users_see_the_numbers_of_all_and_the_names_of_their_own_vo(admin):
    admin.user("olaf", "guests", vo="other")
    pilots = [admin.pilot(), admin.pilot(vo="other")]
    put(admin, ALL)
    admin.submitted({}, {})
    admin.submitted({}, {}, {"CPUTime": 400}, token="olaf")
    assert [len(admin.claim(pilot)) for pilot in pilots] == [1, 1]
    (seen,) = admin.get("/v1/quotas/use", "eva")["uses"]
    assert [one["owner"] for one in seen["owners"]] == ["olaf", "ann"]
    assert [one["owner"] for one in seen["holders"]] == ["ann", "olaf"]
    (seen,) = admin.get("/v1/quotas/use", "ann")["uses"]
    assert (named(seen["owners"]), seen["more_owners"], seen["jobs"]) == ([("ann", 1)], 1, 3)
    assert (named(seen["holders"]), seen["more_holders"], seen["used"]) == ([("ann", "", "1", 1)], 1, "2")
    (full,) = limits_step(admin, 2, "ann")["full"]
    assert (named(full["holders"]), full["more_holders"]) == ([("ann", "", "1", 1)], 1)


def test_why_says_who_uses_the_limit_and_the_smallest_change(admin):
    pilot = admin.pilot()
    put(admin, ALL.replace("=2", "=3"))
    admin.submitted({"NumberOfProcessors": 2}, {"NumberOfProcessors": 1})
    admin.claim(pilot, 2)
    admin.submitted({"NumberOfProcessors": 2}, token="bob")
    step = limits_step(admin, 3, "bob")
    (full,) = step["full"]
    assert (full["ends"], full["enough"], full["since"]) == (1, "5", admin.now)
    assert (
        "used by ann (3 in 2); it fits when 1 of these jobs has ended, or with a limit of slots=5"
        in step["text"]
    )
    assert "full for" not in step["text"]
    admin.now += 40.0
    assert "full for at least 40 s" in limits_step(admin, 3, "bob")["text"]


def limits_step(house, number, who):
    return step_of(house.get(f"/v1/jobs/{number}/why", who), "limits")


def test_why_of_a_job_that_no_end_of_another_helps(admin):
    pilot = admin.pilot()
    put(admin, ALL.replace("=2", "=1"))
    admin.submitted({}, {"NumberOfProcessors": 2})
    admin.claim(pilot)
    step = limits_step(admin, 2, "ann")
    assert (step["full"][0]["ends"], step["full"][0]["enough"]) == (None, "3")
    words = "it does not fit when other jobs end, only with a limit of slots="
    assert f"{words}2 when all that use it have ended, or with a limit of slots=3 at once" in step["text"]
    put(admin, ALL.replace("=2", "=0"), "change")
    plan = admin.call("POST", "/v1/plan/job", {"jobs": [{"Executable": "x.sh"}]}, token="ann").json
    text = step_of(plan["cohorts"][0], "limits")["text"]
    assert f"{words}1 when all that use it have ended, or with a limit of slots=2 at once" in text


FULL_AND_TOO_SMALL = ALL.replace("=2", "=1") + "{\n name mem\n enabled true\n limit to virtual_free=0\n}\n"


@pytest.mark.parametrize(
    ("sets", "job", "who"),
    [
        (ALL.replace("=2", "=0"), {}, "the server administrator: lode quota change"),
        (
            ALL.replace("=2", "=1"), {"NumberOfProcessors": 2},
            "you, by asking for at most slots=1; or the server administrator: lode quota change",
        ),
        (FULL_AND_TOO_SMALL, {"Memory": 500}, "the server administrator: lode quota change"),
    ],
)  # fmt: skip
def test_a_job_that_no_end_of_a_job_helps_never_starts_by_waiting(admin, sets, job, who):
    put(admin, sets)
    pilot = admin.pilot()
    admin.submitted({}, job)
    admin.claim(pilot)
    why = admin.get("/v1/jobs/2/why")
    assert (why["verdict"], why["main_reason"], why["who"]) == ("never", "over-limit", who)
    assert "never starts by waiting: quota " in why["summary"]
    assert "it does not fit when other jobs end" in why["summary"].partition(";")[2]
    first, *others = step_of(why, "limits")["full"]
    assert (first["hopeless"], any(one["hopeless"] for one in others)) == (True, False)
    plan = admin.call(
        "POST", "/v1/plan/job", {"jobs": [{"Executable": "/bin/true", "CPUTime": 400, **job}]}, token="ann"
    ).json
    assert (plan["refusal"], plan["held"], plan["verdicts"]["never"]) == (None, 0, 1)


def test_amounts_are_numbers_for_programs_and_read_as_they_are_written_for_people(admin):
    put(admin, "{\n name mem\n enabled true\n limit to virtual_free=1.5G,h_cpu=1:0:0\n}\n")
    admin.submitted({"Memory": 2048, "CPUTime": 7200})
    assert admin.claim(admin.pilot()) == []
    step = limits_step(admin, 1, "ann")
    found = {one["resource"]: (one["limit"], one["used"], one["need"], one["unit"]) for one in step["full"]}
    assert found["virtual_free"] == ("1610612736", "0", "2147483648", "bytes")
    assert found["h_cpu"][0::3] == ("3600", "seconds")
    assert "allows virtual_free=1.5G, 0 is used, the job needs 2G" in step["text"]
    assert "with a limit of virtual_free=2G" in step["text"]


def test_limits_are_shown_of_one_user_and_of_one_class(admin):
    text = "".join(
        f"{{\n name {name}\n enabled true\n limit {limit} to slots=9\n}}\n"
        for name, limit in {
            "any": "", "each": "users {*}", "both": "users ann,bob", "ann": "users ann", "list": "users {@bobs}",
            "apps": "jcs {app.*}", "plain": "jcs !*",
        }.items()
    )  # fmt: skip
    lists = {"bobs": UserList(name="bobs", users=frozenset({"bob"}))}
    admin.core.policy = admin.side.policy = admin.policy(resources(), vocabulary=Vocabulary(user_lists=lists))
    assert admin.do(Change(use_limits, admin.core.quotas, admin.core.policy.vocabulary)) is True
    app = "jcname app\nvariant_list default,large\n"
    assert admin.call("POST", "/v1/job-classes", {"text": app}, token="ann").status == 200
    put(admin, text)
    admin.submitted({"JobClass": "app.large"})
    admin.submitted({}, token="bob")
    assert len(admin.claim(admin.pilot(), 2)) == 2

    def shown(query):
        return {
            " ".join([one["rule"].partition("/")[0], *one["of"]])
            for one in admin.get(f"/v1/quotas/use?{query}")["uses"]
        }

    assert shown("") == {"any", "each ann", "each bob", "both", "ann", "list bob", "apps app", "plain"}
    assert shown("user=ann") == {"any", "each ann", "both", "ann", "apps app", "plain"}
    assert shown("user=bob") == {"any", "each bob", "both", "list bob", "apps app", "plain"}
    assert shown("job_class=app.large") == {
        "any",
        "each ann",
        "each bob",
        "both",
        "ann",
        "list bob",
        "apps app",
    }
    assert shown("user=bob&job_class=app") == {"any", "each bob", "both", "list bob", "apps app"}
    assert shown("user=eva") == {"any", "apps app", "plain"}


def test_names_that_nobody_has_are_noticed(admin):
    app = "jcname app\nvariant_list default,large\n"
    assert admin.call("POST", "/v1/job-classes", {"text": app}, token="ann").status == 200
    text = (
        "{\n name odd\n enabled true\n limit users ann,anne jcs app,app.large,ap,app.small,a*,!* "
        "queues short,shrt to slots=1\n"
        " limit jcs template to slots=1\n}\n"
    )
    for notices in (put(admin, text, trial=True)["notices"], plan(admin, text)["notices"]):
        assert {one["kind"] for one in notices} == {"unknown-name"}
        names = [one["message"].partition(" names ")[2].partition(", not")[0] for one in notices]
        assert names == ["anne", "ap, app.small", "shrt"]


# --- plans --------------------------------------------------------------------------------------------------


def plan(house, text):
    answer = house.call("POST", "/v1/plan/quotas", {"text": text}, token="eva")
    assert answer.status == 200, answer.json
    return answer.json


def limited(found):
    return found["limited_now"], found["limited_then"]


def test_a_plan_says_what_would_be_over_and_what_would_not_start(admin):
    pilot = admin.pilot()
    admin.submitted(*[{}] * 3)
    admin.claim(pilot, 2)
    admin.submitted({}, {}, token="bob")
    found = plan(admin, EACH)
    (row,) = found["over"]
    assert (row["rule"], row["of"], row["used"], row["limit"]) == ("each/1", ["ann"], "2", "1")
    assert row["holders"][0]["owner"] == "ann"
    (effect,) = found["stopped"]
    assert (effect["rule"], effect["task_queues"], effect["jobs"], effect["more_owners"]) == (
        "each/1",
        1,
        1,
        0,
    )
    assert named(effect["owners"]) == [("ann", 1)]
    assert (found["freed"], limited(found), found["names"]) == ([], (0, 1), ["each"])
    # Nothing was changed.
    assert admin.get("/v1/quotas")["sets"] == []
    assert len(admin.claim(pilot)) == 1


def test_a_plan_says_what_would_start(admin):
    put(admin, EACH.replace("=1", "=0"))
    put(admin, ALL)
    admin.submitted({}, {})
    found = plan(admin, EACH)
    assert [(one["rule"], one["jobs"]) for one in found["freed"]] == [("each/1", 2)]
    assert (found["stopped"], found["over"], limited(found)) == ([], [], (2, 0))
    # What other sets stop goes on waiting.
    found = plan(admin, ALL.replace("=2", "=0") + EACH)
    assert (found["freed"], limited(found)) == ([], (2, 2))


def test_a_plan_says_what_happens_when_the_sets_are_set(admin):
    """What it says before is what holds after."""
    pilot = admin.pilot(node={"cores": 4, "host": "n1"})
    admin.submitted(*[{}] * 4)
    admin.submitted({}, token="bob")
    admin.claim(pilot, 3)
    text = EACH + ALL + HOSTS.replace("$num_proc", "3")
    found = plan(admin, text)
    put(admin, text)
    over = {(one["rule"], tuple(one["of"])) for one in found["over"]}
    assert over == {
        (one["rule"], tuple(one["of"]))
        for one in admin.get("/v1/quotas/use")["uses"]
        if int(one["used"]) > int(one["limit"])
    }
    waiting = [one["id"] for one in admin.get("/v1/jobs?all=true&state=Waiting", "eva")["jobs"]]
    stopped = [one for one in waiting if admin.get(f"/v1/jobs/{one}/why", "eva")["main_reason"] == "limited"]
    assert limited(found) == (0, len(stopped)) == (0, 2)


def test_plans_are_for_administrators_and_say_all_faults(admin):
    assert admin.call("POST", "/v1/plan/quotas", {"text": EACH}, token="ann").status == 403
    bad = "{\n name bad\n enabled true\n limit usrs x to slots=1\n limit to nothing=1\n}\n"
    answer = admin.call("POST", "/v1/plan/quotas", {"text": bad}, token="eva")
    assert [one["data"]["line"] for one in answer.json["error"]["data"]["faults"]] == [4, 5]
