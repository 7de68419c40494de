"""GET /v1/jobs/{job}/why: never, not now or now, held against what a submission and a claim do."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.conftest import at_most

from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.orders import PoolState
from lodesman.decide.explain.facts import DirectorState
from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.reasons import MainReasons
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import BreakerState


def why(house, job, token="ann"):
    return house.get(f"/v1/jobs/{job}/why", token)


def queue_pilots(house):
    """A pilot in each queue of the VO, as the director would send it."""
    requests = [asdict(offer.request) for offer in house.side.policy.vo_config("lab").offers]
    return [house.pilot(request.pop("site"), **request) for request in requests]


EVERYTHING = {"cores": 64, "memory_mb": 10**6, "norm_cpu_seconds": 10**8}

jobs = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_000, 1_001, 100_000, 100_001])},
    optional={
        "Memory": st.sampled_from([0, 2_000, 2_001, 8_000, 8_001]),
        "NumberOfProcessors": st.sampled_from([1, 2, 4, 5]),
        "Platform": st.lists(st.sampled_from(["el8", "el9", "vax"]), min_size=1, max_size=2),
        "Site": st.sampled_from(["North", "South", "ANY"]),
        "BannedSite": st.sampled_from(["North", "South"]),
        "GridCE": st.sampled_from(["ce.north", "ce.south", "ce.moon"]),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "Requirements": st.fixed_dictionaries(
            {},
            optional={
                "Software": st.sampled_from(["root", "fluka"]),
                "Slots": st.sampled_from([1, 2, 3]),
                "Nonsense": st.just("x"),
            },
        ),
    },
)


@pytest.mark.slow
@at_most(120)
@given(job=jobs)
def test_one_predicate_serves_submission_why_and_claim(house, job):
    """never <=> no eligible queue <=> refused at submission <=> no pilot of any queue is given the job."""
    if not house.pilots:
        house.everywhere = queue_pilots(house)
    dry = house.submit(job, dry_run=True)
    if dry.status == 400:  # a site that is wanted and banned
        return
    possible = dry.status == 200
    assert possible or dry.code == "impossible"
    answer = house.submit(job, hold_if_impossible=True).json
    told = why(house, answer["first"])
    assert (told["verdict"] == "never") == (told["queues"]["eligible"] == 0) == (not possible)
    assert answer["held"] == (0 if possible else 1)
    taken = [one for pilot in house.everywhere for one in take(house, pilot)]
    assert [one["id"] for one in taken] == ([answer["first"]] if possible else [])
    if not possible:
        assert told["queues"]["ruled_out_by"]
        assert told["queues"]["nearest"]
        house.control("kill", answer["first"])


def take(house, pilot):
    found = house.claim(pilot, 10, resource=EVERYTHING)
    for one in found:
        house.report(pilot, one)
    return found


def test_never_names_what_excludes_the_queues_and_the_smallest_change(house):
    house.submit({"Memory": 9_000, "Platform": "el8"}, hold_if_impossible=True)
    told = why(house, 1)
    assert told["verdict"] == "never"
    counts = {row["criterion"]: row["queues"] for row in told["queues"]["ruled_out_by"]}
    assert told["queues"]["total"] == 2
    assert sorted(counts.values()) == [1, 2]
    nearest = told["queues"]["nearest"][0]
    assert nearest["queues"] == 1
    assert nearest["example"]["site"] == "South"
    assert "9000" in " ".join(nearest["example"]["reasons"])
    assert nearest["text"] == "Memory 9000 -> 8000"
    step = nearest["steps"][0]
    assert (step["criterion"], step["asked"]) == ("Memory", 9_000)
    assert step["options"] == [{"value": 8_000, "queues": 1}]
    assert told["summary"].endswith("; suggestion: Memory 9000 -> 8000 (1 of 2 queues).")
    assert told["main_reason"] == "impossible"
    assert [step["step"] for step in told["chain"] if step["holds"] is False] == ["size", "limits", "pilots"]


def test_requirements_are_explained_one_by_one(house):
    house.submit({"Requirements": {"Software": "fluka", "Slots": 99}}, hold_if_impossible=True)
    names = {row["criterion"] for row in why(house, 1)["queues"]["ruled_out_by"]}
    assert {"Requirements.Software", "Requirements.Slots"} <= names


def test_a_vo_without_queues(house):
    house.user("lone", "alone", vo="nowhere")
    house.submit({}, token="lone", hold_if_impossible=True)
    told = why(house, 1, "lone")
    assert (told["verdict"], told["queues"]["total"]) == ("never", 0)
    assert told["summary"] == "No queue is configured for VO nowhere."


def test_now_by_a_pilot_that_is_there_idle_busy_or_on_its_way(house, backend):
    house.director(backend).tick(house.now)  # from now on it is known that slots are free
    house.submitted()
    house.prepare_pilot()
    told = why(house, 1)
    assert told["verdict"] == "now"
    assert (told["pilots"]["usable_waiting"], told["pilots"]["live"]) == (1, 1)
    pilot = house.pilot()
    assert why(house, 1)["pilots"]["usable_idle"] == 1
    house.claim(pilot)
    house.submitted({"NumberOfProcessors": 2})
    told = why(house, 2)
    assert (told["pilots"]["usable_busy"], told["pilots"]["usable_idle"]) == (1, 0)


def test_a_pilot_that_drains_or_does_not_fit_is_no_help(house):
    house.submitted({"CPUTime": 50_000})
    house.pilot()  # its queue is too short
    house.call("POST", "/v1/pilots/drain", {"pilots": [1]}, token="admin")
    house.pilot()
    told = why(house, 1)["pilots"]
    assert (told["live"], told["draining"]) == (2, 1)
    assert told["usable_idle"] == told["usable_busy"] == told["usable_waiting"] == 0


def test_not_now_when_no_pilot_may_be_sent(house, backend):
    director = house.director(backend)
    assert director.tick(house.now) == 0
    house.submitted({"Parameters": 100})
    assert why(house, 1)["director"]["room"] > 0
    backend.waiting = backend.running = 10_000  # the batch system is full of others' work
    assert director.tick(house.now) == 0
    told = why(house, 50)
    assert (told["verdict"], told["director"]["room"]) == ("not now", 0)
    assert told["director"]["lines"]
    assert "none may be sent now: MaxWaitingJobs 10 - 10000 waiting (2 queues)" in told["summary"]
    gates = told["chain"][-1]
    assert (gates["step"], gates["holds"]) == ("gates", False)
    assert gates["closed"][0]["gate"] == "max-waiting"


def test_how_old_the_load_is_that_closes_a_gate(house, backend):
    house.submitted({"Parameters": 100})
    backend.waiting = 10_000
    house.now += 12.0  # it was observed at the beginning
    house.director(backend).tick(house.now)
    house.now += 30.0
    told = why(house, 1)
    gates = step(told, "gates")
    (closed,) = gates["closed"]
    assert (closed["load_seconds_ago"], closed["load_source"]) == (42.0, "local")
    assert (told["ages"]["load"], told["ages"]["director"], gates["age_seconds"]) == (42.0, 30.0, 30.0)
    assert gates["text"].endswith("MaxWaitingJobs 10 - 10000 waiting; load reported by local 42 s ago")
    backend.waiting = 0
    house.director(backend).tick(house.now)
    told = why(house, 1)
    (closed,) = step(told, "gates")["closed"]
    assert (told["ages"]["load"], closed["gate"], closed["load_seconds_ago"]) == (42.0, "filled", 42.0)


def test_the_oldest_load_counts(house, backend):
    house.submitted({}, {"Site": "North"})
    seen = {"North": house.now - 3.0, "South": house.now - 5.0, "Far": house.now - 9.0}
    backend.load = lambda queue: BatchLoad(waiting=99, running=0, observed_at=seen[queue[0]])
    house.director(backend).tick(house.now)
    told = why(house, 1)
    assert told["ages"]["load"] == step(told, "gates")["closed"][0]["load_seconds_ago"] == 5.0
    assert why(house, 2)["ages"]["load"] == 3.0, "only queues that can run it"


@pytest.mark.parametrize("old", [False, True], ids=["not-told", "older-release"])
def test_a_load_that_is_not_known_has_no_age(house, backend, old):
    house.submitted({"Parameters": 9})
    backend.waiting = 10_000 if old else None
    house.director(backend).tick(house.now)
    if old:
        house.edit_record(lambda plan: plan.pop("load_fields"))
    told = why(house, 1)
    (closed,) = step(told, "gates")["closed"]
    assert (closed["load_seconds_ago"], closed["load_source"], told["ages"]["load"]) == (None, None, None)
    assert "load reported by" not in step(told, "gates")["text"]


def test_no_decision_has_no_load(house):
    house.submitted()
    assert why(house, 1)["ages"]["load"] is None


def test_what_is_not_known_of_a_queue_opens_no_gate(house, backend):
    house.submitted()
    backend.waiting = backend.running = None
    assert house.director(backend).tick(house.now) == 0
    assert why(house, 1)["verdict"] == "not now"


def test_not_now_when_it_is_held_by_its_owner(house):
    house.submitted()
    house.control("hold", 1, reason="wait for the data")
    told = why(house, 1)
    assert (told["verdict"], told["state"]) == ("not now", "Held")
    assert "wait for the data" in told["summary"]


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_a_job_that_does_not_wait(house, array):
    house.submitted({"Parameters": 2} if array else {})
    house.control("kill", 1, reason="enough")
    told = why(house, 1)
    assert told["verdict"] is None
    assert told["summary"] == "It has ended and does not wait: enough."


def test_how_many_wait_before_it(house):
    house.submitted(*[{}] * 5)
    told = why(house, 4)["task_queue"]
    assert (told["waiting"], told["ahead"], told["more_ahead"]) == (5, 3, False)
    for number, words in (
        (1, "no job of its task queue is before it, of 5 that wait"),
        (2, "1 job of"),
        (4, "3 jobs"),
    ):
        assert step(why(house, number), "share")["text"].startswith(words)
    house.submitted({"CPUTime": 77})
    assert step(why(house, 6), "share")["text"].startswith("no job of its task queue is before it; group")


def step(told, name):
    (found,) = [one for one in told["chain"] if one["step"] == name]
    return found


# --- what opens nothing -----------------------------------------------------------------------------------


def test_a_decision_of_last_night_opens_no_gate(house, backend):
    house.submitted()
    assert house.director(backend).tick(house.now) > 0
    assert why(house, 1)["main_reason"] == "pilot-expected"
    house.now += house.side.keeper.fresh_seconds - 1.0
    assert why(house, 1)["main_reason"] == "pilot-expected"
    house.now += 2.0
    told = why(house, 1)
    assert (told["verdict"], told["main_reason"]) == ("not now", "director-has-not-decided")
    assert told["summary"].endswith("the director has not decided anything for 6 min.")
    assert (step(told, "gates")["holds"], step(told, "gates")["age_seconds"]) == (None, 361.0)
    assert told["ages"]["director"] == told["director"]["decided_seconds_ago"] == 361.0
    assert told["director"]["room"] is None


def test_a_busy_pilot_is_no_promise(house):
    house.submitted()
    pilot = house.pilot()
    (taken,) = house.claim(pilot)
    house.submitted({"NumberOfProcessors": 4})
    told = why(house, 2)
    assert (told["verdict"], told["main_reason"]) == ("not now", "pilots-busy")
    assert "no pilot is free; a running pilot may take it when its job ends" in told["summary"]
    assert told["who"] == "time, as the jobs of running pilots end"
    house.report(pilot, taken)
    assert why(house, 2)["main_reason"] == "next"


def decide_without(house, backend, pools):
    director = house.director(backend)
    director.pools = lambda: pools
    while not house.side.db.execute("SELECT 1 FROM director_iteration").fetchall():
        house.now += 1.0
        director.tick(house.now)
    return director


@pytest.mark.parametrize(
    ("wanted", "pools", "said", "who"),
    [
        ({"SubmitPool": "Nowhere"}, {}, "Nowhere is unknown", "you, by naming other submission pools"),
        ({}, {"Local": PoolState(name="Local", queued=10**6)}, "is full", "time, as submissions end"),
    ],
)
def test_no_submission_pool_takes_its_pilots(house, backend, wanted, pools, said, who):
    house.submitted({**wanted, "Parameters": 100})
    director = decide_without(
        house, backend, {name: structs.replace(one, name=name) for name, one in pools.items()}
    )
    director.options = replace(director.options, default_submission_pools=("Local",))
    house.now += 1.0
    director.tick(house.now)
    told = why(house, 1)
    assert (told["verdict"], told["main_reason"]) == ("not now", "no-submission-pool")
    assert said in told["summary"]
    assert said in step(told, "gates")["text"]
    assert step(told, "gates")["holds"] is False
    assert told["who"].startswith(who)
    # A pool that is not full any more refuses nobody, whatever the last iteration met with.
    house.side.keeper.ask_director = lambda: DirectorState(None, {"Local": False})
    assert why(house, 1)["main_reason"] == ("no-submission-pool" if wanted else "pilot-expected")


def test_a_submission_pool_that_is_not_configured_has_a_sentence(house):
    policy = replace(house.side.policy, submission_pools=dict.fromkeys(("Local",), PoolScope()))
    house.core.policy = house.side.policy = policy
    house.submitted({"SubmitPool": "Nowhere"}, hold_if_impossible=True)
    told = house.get("/v1/jobs/1/why?queue=North/ce.north/short")["queue"]
    assert (told["ruled_out_by"], told["reasons"]) == (
        ["SubmitPool"],
        ["there is no submission pool Nowhere"],
    )


def test_the_room_of_a_queue_is_what_the_director_left(house, backend):
    """The very moment when it has sent its last pilot there, job and queue agree that it is full."""
    house.submitted({"Site": "North", "Parameters": 100})
    backend.waiting = 9
    house.now += 5.0
    director = house.side.director = house.director(backend)

    def launch(decision, _):
        for one in decision.placement.placements:
            [house.prepare_pilot(one.queue_id.site, norm_cpu_seconds=1) for _ in range(one.count)]

    director.launch = launch
    assert director.tick(house.now) == 1
    told, queue = why(house, 1), house.get("/v1/queues/why?path=North/ce.north/short")
    assert (told["verdict"], queue["verdict"]) == ("not now", "not now")
    assert (told["director"]["room"], queue["gate"]["room"]) == (0, 0)
    assert step(told, "gates")["closed"][0]["gate"] == "filled"


def test_the_actor_who_opens_depends_on_the_limit(house, backend):
    house.submitted({"Parameters": 100})
    director = house.director(backend)
    south = QueueId("South", "ce.south", "long")
    director.breakers = {
        south: Breaker(state=BreakerState.OPEN, failures=3, retry_at=house.now + 900.0, reason="refused"),
        QueueId("North", "ce.north", "short"): Breaker(
            state=BreakerState.OPEN, failures=3, retry_at=house.now + 900.0
        ),
    }
    director.tick(house.now)
    told = why(house, 1)
    assert told["main_reason"] == "no-room-for-pilots"
    assert told["who"].startswith("the server administrator, on whose machine these pilots start")
    director.breakers = {}
    backend.waiting = backend.running = None
    director.tick(house.now)
    assert why(house, 1)["who"] == "the administrator of the batch system, by making it report its load"


@pytest.mark.parametrize(
    ("words", "who"),
    [
        ("python9: cannot execute binary file (ended with exit code 126)",
         "the server administrator: python of [pilots], now /opt/python9 (read when the server starts)"),
        ("Disk quota exceeded", "the server administrator, on whose machine these pilots start, by mending"),
    ],
)  # fmt: skip
def test_pilots_that_fail_are_named_before_their_breaker_opens(house, backend, words, who):
    """With their last words, and whose setting these tell of; a job, its task queue and the CE queue say the same."""
    house.submitted({"Site": "South", "Parameters": 100})
    south = QueueId("South", "ce.south", "long")
    house.prepare_pilot("South")
    director = house.side.director = house.director(backend)
    director.settings = {"python9": "python of [pilots], now /opt/python9"}
    house.side.keeper.ask_director = director.now
    director.tick(house.now)
    assert why(house, 1)["main_reason"] == "pilot-on-its-way"
    for _ in range(2):
        director.note_outcome(south, accepted=False, reason=words, now=house.now)
    house.now += 5.0
    director.tick(house.now)
    told = why(house, 1)
    assert (told["verdict"], told["main_reason"]) == ("not now", "pilots-do-not-start")
    said = f"the last 2 pilots sent to South/ce.south/long did not start: {words}"
    assert told["summary"] == f"1 of 2 queues can run it, but pilots do not start there: {said}."
    assert told["who"].startswith(who)
    judged = MainReasons(house.side.db, house.side.fresh()).judge(house.side.policy, house.now)
    assert {one.reason.value for one in judged.values()} == {"pilots-do-not-start"}
    queue = house.get("/v1/queues/why?path=South/ce.south/long")
    assert queue["summary"].endswith(f"; but the last 2 pilots did not start: {words}.")
    assert queue["who"] == told["who"]
    # Its breaker opens: the reason stays, and the order that ends it at once is named.
    opened = Breaker(state=BreakerState.OPEN, failures=3, retry_at=house.now + 900.0, reason=words)
    director.breakers, before = {south: opened}, dict(director.breakers)
    house.now += 5.0
    director.tick(house.now)
    told = why(house, 1)
    assert (told["main_reason"], told["director"]["room"]) == ("pilots-do-not-start", 0)
    assert "; then: lode queue breaker SITE/CE/QUEUE auto" in told["who"]
    director.breakers = before
    house.now += 5.0
    director.tick(house.now)
    # A job that another queue can run, too, only learns of it.
    house.submitted()
    told = why(house, 101)
    assert told["main_reason"] != "pilots-do-not-start"
    assert step(told, "gates")["text"].endswith(said)
    # Once one has joined, it is over.
    director.note_outcome(south, accepted=True, reason="", now=house.now)
    house.now += 5.0
    director.tick(house.now)
    assert why(house, 1)["main_reason"] == "pilot-on-its-way"


# --- answers agree with the facts -------------------------------------------------------------------------


def test_what_is_configured_is_as_old_as_the_configuration(house):
    house.submitted({"Requirements": {"Software": "root"}})
    told = why(house, 1)
    assert told["ages"]["configuration"] is None
    house.side.policy.loaded_at = house.now - 30.0
    told = why(house, 1)
    steps = ("access", "requirements", "site", "platform", "size", "sending")
    assert {step(told, name)["age_seconds"] for name in steps} == {told["ages"]["configuration"]} == {30.0}


def test_the_class_of_a_job(house):
    house.submitted()
    assert step(why(house, 1), "class")["text"] == "it has no job class"
    house.call("POST", "/v1/job-classes", {"text": "jcname app1\nvariant_list default,big\n"}, token="ann")
    house.submitted({"JobClass": "app1.big"})
    assert step(why(house, 2), "class")["text"] == "it was made of job class app1.big"


def test_what_holds_a_job_and_since_when(house):
    house.submitted()
    assert step(why(house, 1), "limits") == {
        "step": "limits", "holds": True, "text": "nothing holds it, and no limit is in its way", "limits": [], "full": [],
    }  # fmt: skip
    house.control("hold", 1, reason="wait for the data")
    house.now += 40.0
    told = why(house, 1)
    found = step(told, "limits")
    assert (found["holds"], found["text"]) == (False, "Held for 40 s: ann holds it")
    assert found["limits"] == [
        {
            "limit": "held", "by": "user", "name": "ann", "reason": "wait for the data",
            "seconds": found["age_seconds"],
        }
    ]  # fmt: skip
    assert told["who"] == "you, or another user who may control the job: lode release 1"
    house.submit({"Memory": 9_000}, hold_if_impossible=True)
    assert step(why(house, 2), "limits")["text"] == "Held: no queue could run it"


def test_an_impossible_job_is_released_by_the_next_refresh_not_by_its_owner(house):
    house.submit({"Memory": 9_000}, hold_if_impossible=True)
    text = '[site.New]\nVO = ["lab"]\n[site.New.ce.c.queue.q]\nMemory = 9000\nCPUTime = 1000\n'
    house.side.policy = house.policy(load_resources([("new.toml", text)]))
    told = why(house, 1)
    assert (told["verdict"], told["main_reason"]) == ("not now", "held")
    assert told["who"] == "no action needed: the next refresh releases it"


def test_only_groups_that_compete_where_it_can_run_have_a_part(house):
    house.submitted({"Site": "North"})
    house.submitted({"Site": "South"}, token="bob")
    share = why(house, 1)["share"]
    assert (share["part"], share["groups_waiting"], share["in_its_queues"]) == (0.75, 2, False)
    assert MainReasons(house.side.db, house.side.fresh()).judge(house.side.policy, house.now) is not None
    told = why(house, 1)
    share = told["share"]
    assert (share["part"], share["of"], share["groups_waiting"]) == (1.0, 3_000.0, 1)
    assert share["in_its_queues"] is True
    assert (
        "group physics has 100% of the starts, since no other group competes" in step(told, "share")["text"]
    )
    house.submitted({}, token="bob")
    MainReasons(house.side.db, house.side.fresh()).judge(house.side.policy, house.now)
    assert why(house, 1)["share"]["part"] == 0.75


def test_a_pool_that_is_gone_is_not_taken_for_none(house):
    house.submitted({"Requirements": {"Software": "fluka"}}, hold_if_impossible=True)
    house._writer.execute("DELETE FROM submit_pool_bits")
    told = why(house, 1)
    assert (told["verdict"], told["queues"]["eligible"]) == ("never", 0)
    assert told["queues"]["ruled_out_by"] == [{"criterion": "Requirements.Software", "queues": 2}]
    assert not step(told, "submit_pool")["holds"]


# --- one queue --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "criteria", "words"),
    [
        ("North/ce.north/short", ["Memory"], "4000"),
        ("South/ce.south/long", [], ""),
        ("Far/ce.far/q", ["VO"], "VO lab may not use it"),
        ("Moon/ce.moon/q", ["Queue"], "there is no such queue"),
    ],
)
def test_what_one_queue_has_against_a_job(house, backend, queue, criteria, words):
    house.submitted({"Memory": 4_000})
    told = house.get(f"/v1/jobs/1/why?queue={queue}", "admin")["queue"]
    assert "/".join(told[part] for part in ("site", "ce", "queue")) == queue
    assert (told["ruled_out_by"], told["eligible"]) == (criteria, not criteria)
    assert len(told["reasons"]) == len(criteria)
    assert words in "".join(told["reasons"])
    assert (told["room"], told["gate"]) == (None, "")
    backend.waiting = 10
    house.director(backend).tick(house.now)
    told = house.get(f"/v1/jobs/1/why?queue={queue}", "admin")["queue"]
    full = not queue.startswith(("Far", "Moon"))
    assert told["room"] == (0 if full else None)
    assert "queue" not in why(house, 1)


@pytest.mark.parametrize(("queue", "status"), [("North", 400), ("North/ce.north", 400)])
def test_what_is_no_queue_is_refused(house, queue, status):
    house.submitted()
    answer = house.call("GET", f"/v1/jobs/1/why?queue={queue}", token="ann")
    assert (answer.status, answer.json["error"]["data"]["parameter"]) == (status, "queue")


def test_a_stored_requirement_that_is_no_longer_readable_is_named(house):
    house.submitted({"Requirements": {"Memory": 9_999_999, "Nonsense": 1}}, hold_if_impossible=True)
    stored = '{"Memory": ["string", "==", "", ["perhaps"]], "Nonsense": ["deduced", "any", "", [1]]}'
    house._writer.execute("UPDATE task_queue SET requirements = ?", (stored,))
    told = house.get("/v1/jobs/1/why?queue=North/ce.north/short")
    queues = told["queues"]["total"]
    assert told["queues"]["ruled_out_by"] == [
        {"criterion": "Requirements.Memory", "queues": queues},
        {"criterion": "Requirements.Nonsense", "queues": queues},
    ]
    assert [one["change"] for one in told["queues"]["nearest"]] == [
        ["Requirements.Nonsense", "Requirements.Memory"]
    ]
    assert told["queue"]["ruled_out_by"] == ["Requirements.Nonsense", "Requirements.Memory"]
    assert told["queue"]["reasons"] == [
        "Nonsense is not declared (wanted 1)",
        "Requirement 'Memory': a number is expected: 'perhaps' is not a number",
    ]


def test_what_the_server_fails_to_do_for_a_job_or_a_queue_is_said(house):
    house.submitted()
    assert "The server fails" not in why(house, 1)["summary"]
    with house.side.keeper.left_out.step("the SubmitPools") as left:
        left.leave_out("task queue 1", StopIteration("x"))
        left.leave_out("CE queue North/ce.north/short", KeyError("y"))
    house.now += 60.0
    job, queue = why(house, 1), house.get("/v1/queues/why?path=North/ce.north/short")
    assert job["summary"].endswith(
        " The server fails: task queue 1 is left out of the SubmitPools (StopIteration: x). Its log has more; its "
        "administrator can mend it."
    )
    for told, text in ((job, "task queue 1"), (queue, "CE queue North/ce.north/short")):
        (step,) = [one for one in told["chain"] if one["step"] == "server"]
        assert (step["holds"], step["text"].partition(" is ")[0]) == (False, text)
    assert "server" not in {
        one["step"] for one in house.get("/v1/queues/why?path=South/ce.south/long")["chain"]
    }
