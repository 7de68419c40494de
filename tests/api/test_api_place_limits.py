"""Limits of sites and CEs: real claims, what `why` says of them, pilots, and delays that open by themselves."""

from __future__ import annotations

import random

import pytest
from tests.api.conftest import RESOURCES
from tests.api.test_api_quotas import ids, parked, used

from lodesman.decide.resources import load_resources
from lodesman.server.live.leases import open_due_delays
from lodesman.server.live.rules import use_policy
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.quotas import QuotaRules
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.service import LimitQuery

MERGE, USER = {"JobType": "Merge"}, {"JobType": "User"}


@pytest.fixture
def admin(house):
    house.user("eva", "physics", admin=True)
    return house


def configure(house, text):
    """The configuration with more in it, as a reload takes it in."""
    policy = house.policy(load_resources([("sites.toml", RESOURCES + text)]))
    house.core.policy = house.side.policy = policy
    house.run(use_policy(house.core, policy))


RUNNING = """
[site."North".running_limit]
JobType = { Merge = 1 }
"""
DELAY = """
[site."North".matching_delay]
JobType = { Merge = 10 }
"""


def test_a_limit_holds_for_its_value_at_its_site_from_the_reload_on(admin):
    north, south = admin.pilot(), admin.pilot("South")
    admin.submitted(*[MERGE] * 5, USER)
    configure(admin, RUNNING)
    first, other = admin.claim(north, 4)
    assert {first["id"], other["id"]} & {6}  # one Merge, and the job of another type
    merge = first if first["id"] != 6 else other
    assert len(admin.claim(south, 2)) == 2  # of the two jobs that it may prefetch
    assert used(admin) == {("RunningLimit/JobType/Merge", "North", "running jobs"): ("1", "1", True, 2)}
    assert admin.claim(north) == []
    admin.report(north, merge)
    assert len(admin.claim(north, 4)) == 1
    configure(admin, RUNNING.replace("1", "2"))
    assert len(admin.claim(north, 4)) == 1
    configure(admin, "")
    assert used(admin) == {}


def test_what_runs_counts_after_a_restart(admin):
    configure(admin, RUNNING)
    admin.submitted(MERGE, MERGE)
    assert len(admin.claim(admin.pilot(), 2)) == 1
    live = WriterState(admin._writer, rng=random.Random(1), now=admin.now)
    QuotaRules(live, (), admin.core.policy.vocabulary, admin.core.policy.config.limits)
    ((use, shut),) = live.queues.index.limits.uses()
    assert (use.used, use.limit, bool(shut)) == (1, 1, True)


def test_each_limit_blocks_on_its_own(admin):
    """DIRAC blocks only jobs that have both values, and counts the site for a limit of the CE."""
    configure(
        admin,
        RUNNING + 'OwnerGroup.bio = 1\n[site."North".ce."ce.north".running_limit]\nMaxRunningJobs = 3\n',
    )
    admin.user("bob", "bio")
    pilot = admin.pilot()
    admin.submitted(MERGE, MERGE, *[USER] * 3)
    admin.submitted(USER, USER, token="bob")
    found = sorted(ids(admin.claim(pilot, 4)))
    assert len(found) == 3
    assert len({*found} & {1, 2}) <= 1
    assert len({*found} & {6, 7}) <= 1
    rules = {rule[0]: row[:2] for rule, row in used(admin).items()}
    assert rules["RunningLimit/CEs/MaxRunningJobs"] == ("3", "3")


def test_a_claim_that_waits_starts_when_a_job_of_the_site_ends(admin):
    configure(admin, '\n[site."North".running_limit]\nMaxRunningJobs = 1\n')
    one, other = admin.pilot(), admin.pilot()
    admin.submitted({}, {})
    (job,) = admin.claim(one)
    waiting, connection = parked(admin, other)
    admin.report(one, job)
    admin.run(waiting)
    assert ids(connection.answer().json["jobs"]) == [2]


# --- what is said, and pilots ---------------------------------------------------------------------------------


def test_why_names_the_limit_of_the_site_that_a_job_is_bound_to(admin):
    configure(admin, RUNNING)
    admin.submitted(*[{**MERGE, "Site": "North"}] * 2, MERGE)
    assert ids(admin.claim(admin.pilot(), 1, wait_s=0.0)) != []
    bound = admin.get("/v1/jobs/2/why")
    assert (bound["main_reason"], bound["verdict"]) == ("limited", "not now")
    assert "1 of 1 job runs at North (RunningLimit/JobType/Merge)" in bound["summary"]
    (step,) = [one for one in bound["chain"] if one["step"] == "limits"]
    own_words = "; used by ann (1 in 1); it fits when 1 of these jobs has ended, or with a limit of 2"
    assert step["text"].endswith(own_words)
    admin.now += 40.0
    (step,) = [one for one in admin.get("/v1/jobs/2/why")["chain"] if one["step"] == "limits"]
    assert f"{own_words}; full" in step["text"]
    admin.now -= 40.0
    (full,) = step["full"]
    assert (full["ends"], full["enough"], full["since"]) == (1, "2", admin.now)
    admin.now += 50
    (row,) = admin.get("/v1/quotas/use")["uses"]
    assert (row["since"], [one["owner"] for one in row["holders"]]) == (admin.now - 50, ["ann"])
    assert ([one["owner"] for one in row["owners"]], row["jobs"]) == (["ann"], 2)
    assert admin.get("/v1/quotas/use?user=bob")["uses"] == [row]  # it is on jobs of a type


def test_limits_of_sites_on_owners_are_shown_of_these(admin):
    configure(admin, RUNNING.replace("JobType = { Merge = 1 }", "Owner = { ann = 1 }\nMaxRunningJobs = 9"))
    admin.submitted(USER)
    assert admin.claim(admin.pilot()) != []
    for user, number in (("ann", 2), ("bob", 1)):
        assert len(admin.get(f"/v1/quotas/use?user={user}")["uses"]) == number


def test_a_job_that_may_run_elsewhere_is_not_limited(admin):
    configure(admin, RUNNING.replace("1", "0"))
    admin.submitted(MERGE)
    assert admin.claim(admin.pilot()) == []
    why = admin.get("/v1/jobs/1/why")
    assert why["main_reason"] != "limited"
    (step,) = [one for one in why["chain"] if one["step"] == "limits"]
    assert step["text"] == (
        "no job may run at North (RunningLimit/JobType/Merge); it does not fit when other jobs end, only with a limit of 1 "
        "(elsewhere, or on hosts that are not known yet, it is free)"
    )


def test_why_of_a_queue_counts_what_limits_keep_from_starting_there(admin):
    configure(admin, RUNNING.replace("1", "0"))
    admin.submitted(MERGE, USER)
    texts = {}
    for queue in ("North/ce.north/short", "South/ce.south/long"):
        why = admin.get(f"/v1/queues/why?path={queue}")
        (texts[queue[:5]],) = [one["text"] for one in why["chain"] if one["step"] == "work"]
    words = "limits keep 1 of them from starting there now"
    assert (words in texts["North"], words in texts["South"]) == (True, False)


def test_a_queue_gets_no_pilots_where_all_that_fits_is_limited(admin, backend):
    configure(admin, RUNNING.replace("1", "0"))
    director = admin.director(backend)
    director.limited = lambda queues: admin.post(inner_calls.LIMITED, LimitQuery(queues))
    admin.submitted({**MERGE, "CPUTime": 500})
    director.tick(admin.now)
    for queue, reason in (("North/ce.north/short", "limited"), ("South/ce.south/long", "pilots-expected")):
        why = admin.get(f"/v1/queues/why?path={queue}")
        assert why["main_reason"] == reason
        assert why["who"].startswith("who set these limits") is (reason == "limited")
        assert ("limits keep it from starting there now" in why["summary"]) is (reason == "limited")
    admin.submitted({**USER, "CPUTime": 500})
    director.tick(admin.now + 60.0)
    why = admin.get("/v1/queues/why?path=North/ce.north/short")
    assert (why["main_reason"], why["verdict"]) == ("pilots-expected", "now")


def test_sites_are_listed_with_their_limit_on_all_jobs(admin):
    configure(admin, '\n[site."North".running_limit]\nMaxRunningJobs = 5\nJobType.Merge = 1\n')
    found = {one["site"]: one.get("max_running_jobs") for one in admin.get("/v1/sites", "eva")["sites"]}
    assert (found["North"], found["South"]) == (5, None)


@pytest.mark.parametrize(
    ("job", "where"), [({**MERGE, "Site": "North"}, set()), (MERGE, {"South"}), (USER, {"North", "South"})]
)
def test_no_pilots_are_sent_where_a_limit_is_full(admin, backend, job, where):
    configure(admin, RUNNING.replace("1", "0"))
    sent = []
    director = admin.director(backend)
    director.limited = lambda queues: admin.post(inner_calls.LIMITED, LimitQuery(queues))
    director.launch = lambda decision, _: sent.extend(
        one.queue_id.site for one in decision.placement.placements
    )
    admin.submitted(*[job] * 20)
    for turn in range(4):
        director.tick(admin.now + 60.0 * turn)
    assert set(sent) == where


# --- delays -----------------------------------------------------------------------------------------------------


def open_delays(house):
    house.run(open_due_delays(house.core))


def test_one_job_of_a_value_starts_in_so_many_seconds(admin):
    configure(admin, DELAY)
    pilot, south = admin.pilot(), admin.pilot("South")
    admin.submitted(*[MERGE] * 5, USER)
    assert len(admin.claim(pilot, 4)) == 2  # one of each type
    assert admin.claim(pilot, 4) == []
    assert len(admin.claim(south)) == 1  # a delay of another site
    admin.ticks += 9.9
    open_delays(admin)
    assert admin.claim(pilot, 4) == []
    admin.ticks += 0.2
    open_delays(admin)
    assert len(admin.claim(pilot, 4)) == 1
    assert admin.claim(pilot, 4) == []


@pytest.mark.parametrize("jump", [-1_000_000.0, 1_000_000.0])
def test_a_clock_that_is_set_moves_no_delay(admin, jump):
    configure(admin, DELAY)
    pilot = admin.pilot()
    admin.submitted(MERGE, MERGE)
    admin.claim(pilot)
    admin.now += jump
    open_delays(admin)
    assert admin.claim(pilot) == []
    admin.ticks += 10.0
    open_delays(admin)
    assert len(admin.claim(pilot)) == 1


def test_the_end_of_a_job_opens_no_delay(admin):
    configure(admin, DELAY)
    pilot = admin.pilot()
    admin.submitted(MERGE, MERGE)
    (job,) = admin.claim(pilot)
    admin.report(pilot, job)
    assert admin.claim(pilot) == []


def test_a_claim_that_waits_is_answered_when_the_delay_opens(admin):
    configure(admin, DELAY)
    first, second = admin.pilot(), admin.pilot()
    admin.submitted(MERGE, MERGE, MERGE)
    admin.claim(first)
    waiting, connection = parked(admin, second)
    third, _ = parked(admin, first)
    admin.ticks += 10.0
    open_delays(admin)
    admin.run(waiting)
    assert len(connection.answer().json["jobs"]) == 1
    assert not third.done()  # one job in ten seconds


def test_why_says_when_a_delay_opens(admin):
    configure(admin, DELAY)
    admin.submitted(*[{**MERGE, "Site": "North"}] * 2)
    admin.claim(admin.pilot())
    admin.ticks += 3.0
    why = admin.get("/v1/jobs/2/why")
    assert why["main_reason"] == "limited"
    text = "North opens in 7 s, one start in 10 s (MatchingDelay/JobType/Merge)"
    assert text in why["summary"]
    assert used(admin) == {
        ("MatchingDelay/JobType/Merge", "North", "seconds between starts"): ("7", "10", True, 1)
    }
    admin.ticks += 7.0
    open_delays(admin)
    assert admin.get("/v1/jobs/2/why")["main_reason"] != "limited"
    assert used(admin) == {}


def test_delays_run_from_a_start_of_the_server_on(admin):
    """What started before is not known: no two jobs may start within one delay."""
    configure(admin, DELAY)
    ticks = [50.0]
    live = WriterState(admin._writer, rng=random.Random(1), now=admin.now, ticks=lambda: ticks[0])
    QuotaRules(live, (), admin.core.policy.vocabulary, admin.core.policy.config.limits)
    ((delay, seconds),) = live.queues.index.delays.shut_delays()
    assert (delay.name, seconds) == ("MatchingDelay/North/JobType/Merge", 10.0)
    assert live.queues.index.delays.next_at == 60.0


def test_the_reconciler_mends_what_limits_count(admin):
    configure(admin, RUNNING)
    pilot = admin.pilot()
    admin.submitted(MERGE, MERGE)
    admin.claim(pilot)
    live = admin.core.live
    ((held,),) = (one.values() for one in live.pilots.held.values() if one)
    _, _, key, place = held
    live.queues.index.limits.give(key, place)
    assert used(admin) == {}
    assert admin.post(inner_calls.CHECK_LIMITS, Nothing()).wrong_limits == 1
    assert used(admin) == {("RunningLimit/JobType/Merge", "North", "running jobs"): ("1", "1", True, 1)}
    assert admin.claim(pilot) == []
    assert admin.post(inner_calls.CHECK_LIMITS, Nothing()).wrong_limits == 0


def test_why_of_a_job_asks_the_hot_process_only_while_there_are_limits(admin):
    asked, ask, job = [], admin.side.ask_hot, admin.submitted(USER)

    async def noted(call, body):
        asked.append(call)
        return await ask(call, body)

    def asks():
        asked.clear()
        assert admin.get(f"/v1/jobs/{job}/why")["verdict"] == "not now"
        return asked == [inner_calls.LIMITED]

    admin.side.ask_hot = noted
    assert not asks()
    configure(admin, RUNNING)
    assert asks()
    configure(admin, "")
    assert not asks()
    text = "{\n name n\n enabled TRUE\n limit to slots=100\n}\n"
    assert admin.call("POST", "/v1/quotas", {"text": text}, token="admin").status == 200
    assert asks()
    assert admin.call("POST", "/v1/quotas/remove", {"names": ["n"]}, token="admin").status == 200
    assert not asks()
