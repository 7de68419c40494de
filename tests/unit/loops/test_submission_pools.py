"""Pilots on their way out: stored first, submitted by threads, answers stored; nothing is guessed."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import apsw
import pytest
from msgspec import structs
from tests.kits.shell_pilots import PROGRAM
from tests.unit.loops.conftest import record

from lodesman.base.errors import BackendFault, Unavailable
from lodesman.decide.director.options import DirectorOptions, IdentityRule, read_options
from lodesman.decide.director.orders import PilotIdentity, PilotOrder, TypeReason
from lodesman.decide.director.placement import Placement
from lodesman.decide.matching import TaskQueueKey, key_from_json
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.server.engines.backend import Sizes, SubmitRefusal, SubmitResult, join_token_of
from lodesman.server.loops import launch, list_match
from lodesman.server.loops.launch import PilotSettings, SubmissionPools
from lodesman.wire import inner_calls
from lodesman.wire.service import PreparedCount
from lodesman.wire.task_queues import PoolsOfQueues, ServedQueue
from lodesman.wire.vocabulary import StartFault

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")
KEY = TaskQueueKey(
    owner="ann", group="physics", vo="lab", sites=("North",), platforms=("el9",), norm_cpu_seconds=900
)
HABITS = PilotSettings(
    servers=("http://127.0.0.1:7777",), program=PROGRAM, python="python3.12",
    idle_seconds=5.0, heartbeat_seconds=7.0, life_seconds=100, ca_file="/etc/ca.pem", jobstatus_directory="status",
)  # fmt: skip


class Batch:
    """A batch system; `answer` decides on each submission."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []
        self.go = threading.Event()
        self.go.set()
        self.sizes, self.backend, self.options = Sizes(), self, ("--qos=pilots",)
        self.answer = lambda stamps: SubmitResult(accepted={one: f"native-{one}" for one in stamps})

    def submit(self, spec):
        assert self.go.wait(60)
        self.submitted.append(spec)
        return self.answer(list(spec.stamps().values()))


class World:
    """Everything around the pools, with a diary of what happened in which order."""

    def __init__(self, policy) -> None:
        self.batch = Batch()
        self.diary: list[Any] = []
        self.told: list[Any] = []
        self.refuse: dict[str, Exception] = {}
        self.jobs = 1_000
        self.asked: list[Any] = []
        self.offers = {(vo, one.queue): one for vo in ("lab", "other") for one in policy.vo_config(vo).offers}
        self.pools = SubmissionPools(
            read_options({}), watches={"local": cast("Any", self.batch)}, post=self.post, settings=HABITS,
            note=lambda *words: self.told.append(words),
        )  # fmt: skip

    def post(self, call, body):
        name = call.path.rpartition("/")[2]
        if name in self.refuse:
            raise self.refuse[name]
        if call is inner_calls.POOLS_OF_QUEUES:
            self.asked.append(body.queues)
            rows = [ServedQueue(*queue, [f"req1:{queue[2]}", "req1:b"]) for queue in body.queues]
            return PoolsOfQueues(7, 50.0, rows)
        record(self.diary, call, body)
        if call is not inner_calls.PREPARE_PILOTS:
            return None
        stored = min(len(body), self.jobs) if body[0].bound else len(body)
        self.jobs -= stored
        return PreparedCount(stored)

    def configure(self, **settings):
        """The queue that pilots are sent to has these settings."""
        offer = self.offers["lab", SHORT]
        self.offers["lab", SHORT] = structs.replace(
            offer, settings=structs.replace(offer.settings, **settings)
        )

    def launch(self, count=2, *, private=True, queue=SHORT, pool="Local", vo="lab", account=""):
        identity = PilotIdentity(
            private=private, owner="ann", group="physics", serves_owner="ann" if private else "",
            serves_group="physics" if private else None, pilot_type="private" if private else "",
            reason=TypeReason.DRAWN, account=account,
        )  # fmt: skip
        placement = Placement(
            order=PilotOrder(tq_id=5, key=KEY, count=count, pool=pool, identity=identity),
            queue_id=queue, count=count, request=self.offers[vo, queue].request,
        )  # fmt: skip
        decision = SimpleNamespace(placement=SimpleNamespace(placements=(placement,)))
        self.pools.launch(decision, self.offers)  # type: ignore[arg-type]

    def end(self):
        """Wait until everything that was begun has ended."""
        self.batch.go.set()
        for pool in self.pools._pools.values():
            options, threads = pool._options, list(pool._threads)
            pool.configure(None)
            for thread in threads:
                thread.join()
            if options is not None:
                pool.configure(replace(options, min_threads=0))


@pytest.fixture
def world(policy):
    found = World(policy)
    yield found
    found.end()


def test_a_pilot_is_stored_before_it_is_submitted_and_its_answer_after(world):
    world.batch.go.clear()
    world.launch()
    assert [name for name, _ in world.diary] == ["pilots"]
    assert world.batch.submitted == []
    world.end()
    assert [name for name, _ in world.diary] == ["pilots", "submitted"]
    stamps = [row["stamp"] for row in world.diary[0][1]]
    assert world.diary[1][1] == {stamp: (f"native-{stamp}", "") for stamp in stamps}
    assert world.told == []  # that it was taken proves little: a pilot that joins speaks for its queue


def test_what_is_stored_says_for_whom_and_why(world):
    world.launch(1)
    ((_, (row,)),) = world.diary[:1]
    assert {name: row[name] for name in ("vo", "site", "ce", "queue", "owner", "group", "pilot_type")} == {
        "vo": "lab", "site": "North", "ce": "cn", "queue": "short", "owner": "ann", "group": "physics",
        "pilot_type": "private",
    }  # fmt: skip
    assert (row["submission_pool"], row["tq_id"], row["request"]["cores"]) == ("Local", 5, 4)
    assert key_from_json(row["requirements"]) == KEY
    json.dumps(row)


def test_pilots_of_an_identity_are_submitted_and_stored_with_it(world):
    as_ann = Batch()
    rules = {
        "ann": IdentityRule(owner="ann", backends=frozenset({"local"})),
        "bob": IdentityRule(owner="bob"),
    }
    world.pools.configure(DirectorOptions(identities=rules))
    world.pools.watches = {**world.pools.watches, "local+ann": cast("Any", as_ann)}
    for account in ("ann", "bob", ""):
        world.launch(1, account=account)
    world.end()
    assert (len(as_ann.submitted), len(world.batch.submitted)) == (1, 2)
    stored = {row["stamp"]: row["backend"] for name, rows in world.diary if name == "pilots" for row in rows}
    (mine,) = as_ann.submitted[0].stamps().values()
    assert stored.pop(mine) == "local+ann"
    assert [*stored.values()] == ["local", "local"]


def test_the_submissions_of_a_server_begin_alike(world):
    world.pools._settings = replace(world.pools._settings, mark="abc123")
    world.launch(1)
    world.launch(1)
    world.end()
    names = {spec.submission for spec in world.batch.submitted}
    assert len(names) == 2
    assert all(name.startswith("abc123") and len(name) == 24 for name in names)


def test_a_join_token_lives_as_long_as_a_credential_must(world):
    world.launch(1)
    world.pools.configure(DirectorOptions(required_time_left=90_000.0))
    world.launch(1)
    assert [row["join_seconds"] for name, rows in world.diary if name == "pilots" for row in rows] == [
        432_000.0,
        90_000.0,
    ]


def test_which_pools_queues_serve_is_asked_once_for_a_bunch_of_pilots(world, monkeypatch):
    monkeypatch.setattr(launch, "_QUEUES_AT_ONCE", 2)
    world.launch(3)
    assert world.asked == [[("North", "cn", "short")]]
    queues = [QueueId("N", "c", f"q{number}") for number in range(5)]
    found = world.pools._served(queues)
    assert [len(asked) for asked in world.asked[1:]] == [2, 2, 1]
    assert [found[queue]["submit_pools"][0] for queue in queues] == [f"req1:q{number}" for number in range(5)]


def test_pilots_without_the_pools_of_their_queue_ask_for_them(world):
    world.refuse["pools-of-queues"] = Unavailable("Away.")
    world.launch(1)
    world.end()
    papers = json.loads(world.batch.submitted[0].pilot_file)
    assert not {"submit_pools", "pools_pass", "pools_at"} & set(papers)
    assert papers["queue"] == "short"


def test_a_generic_pilot_serves_no_one_in_particular(world):
    world.launch(1, private=False)
    row = world.diary[0][1][0]
    assert (row["owner"], row["group"], row["pilot_type"]) == ("", "", "")


def test_the_secret_is_in_the_pilot_s_own_file_and_only_its_hash_is_stored(world):
    world.launch(3)
    world.end()
    rows = {row["stamp"]: row for row in world.diary[0][1]}
    (spec,) = world.batch.submitted
    assert sorted(rows) == sorted(spec.stamps().values())
    assert (spec.count, spec.program, spec.python) == (3, PROGRAM, "python3.12")
    papers = json.loads(spec.pilot_file)
    assert papers["submission"] == spec.submission
    for number, stamp in spec.stamps().items():
        token = join_token_of(papers["secret"], number)
        assert base64.b64decode(rows[stamp]["join_hash"]) == hashlib.sha256(token.encode()).digest()
        assert token not in json.dumps(world.diary)
    for text in (json.dumps(world.diary), repr(spec), repr(HABITS)):
        assert papers["secret"] not in text


def test_the_pilot_s_file_has_its_queue_and_its_settings(world):
    world.launch(1)
    world.end()
    papers = json.loads(world.batch.submitted[0].pilot_file)
    assert (papers["servers"], papers["site"], papers["ce"], papers["queue"]) == (
        ["http://127.0.0.1:7777"], "North", "cn", "short",
    )  # fmt: skip
    assert papers["ca_file"] == "/etc/ca.pem"
    assert papers["submit_pools"] == ["req1:short", "req1:b"]
    assert (papers["pools_pass"], papers["pools_at"]) == (7, 50.0)
    options = papers["options"]
    assert (options["cores"], options["memory_mb"], options["platform"]) == (4, 2_000, "el9")
    assert (options["idle_s"], options["heartbeat_s"], options["life_seconds"]) == (5.0, 7.0, 100)
    assert (options["cpu_scaling_factor"], options["jobstatus_directory"]) == (1.0, "status")


@pytest.mark.parametrize(("jobs", "counts"), [(8, [3, 3, 2]), (4, [3, 1]), (3, [3]), (1, [1]), (0, [])])
def test_of_bound_pilots_only_those_that_got_a_job_are_submitted(world, jobs, counts):
    world.batch.sizes = Sizes(copies=3)
    world.configure(push=True)
    world.jobs = jobs
    world.launch(8)
    world.end()
    assert [spec.count for spec in world.batch.submitted] == counts
    stored = [row for name, rows in world.diary if name == "pilots" for row in rows]
    assert all(row["bound"] and row["tq_id"] == 5 for row in stored)
    submitted = {one for spec in world.batch.submitted for one in spec.stamps().values()}
    assert submitted <= {row["stamp"] for row in stored}
    assert len(submitted) == jobs
    answered = {one for name, outcome in world.diary if name == "submitted" for one in outcome}
    assert answered == submitted


@pytest.mark.parametrize("forwards", [True, False])
def test_a_pilot_that_is_forwarded_has_to_find_out_where_it_is(world, forwards):
    world.configure(forwards=forwards)
    world.launch(1)
    world.end()
    (spec,) = world.batch.submitted
    assert spec.forwards is forwards
    papers = json.loads(spec.pilot_file)
    assert {"site", "ce", "queue", "submit_pools"}.isdisjoint(papers) is forwards
    ((row,),) = [rows for name, rows in world.diary if name == "pilots"]
    assert (row["forwards"], row["bound"], row["site"]) == (forwards, False, "North")


@pytest.mark.parametrize(("wall", "life"), [(None, 100), (7_200, 100), (60, 60)])
def test_the_wall_time_of_a_queue_reaches_batch_system_and_pilot(world, wall, life):
    offer = world.offers["lab", SHORT]
    world.offers["lab", SHORT] = structs.replace(
        offer, settings=structs.replace(offer.settings, wall_seconds=wall)
    )
    world.launch(1)
    world.end()
    (spec,) = world.batch.submitted
    assert spec.wall_seconds == (wall or 0)
    assert json.loads(spec.pilot_file)["options"]["life_seconds"] == life


def test_refused_copies_are_reported_with_the_reason(world):
    world.batch.answer = lambda stamps: SubmitResult(
        accepted={stamps[0]: "native"},
        refused={one: SubmitRefusal(reason="the queue is closed", transient=True) for one in stamps[1:]},
    )
    world.launch(3)
    world.end()
    outcome = world.diary[1][1]
    assert sorted(native or "" for native, _ in outcome.values()) == ["", "", "native"]
    assert {reason for native, reason in outcome.values() if native is None} == {"the queue is closed"}
    assert world.told == []


def test_a_submission_that_is_refused_as_a_whole_speaks_against_the_queue(world):
    world.batch.answer = lambda stamps: SubmitResult(
        refused={one: SubmitRefusal(reason="no such queue", transient=False) for one in stamps}
    )
    world.launch(2)
    world.end()
    assert world.told == [(SHORT, StartFault.REFUSED, "no such queue")]


def test_unknown_pools_are_not_an_answer(world):
    """The batch system cannot be asked: whether the pilots exist, the census finds out later."""

    def broken(_stamps):
        raise BackendFault("cannot be reached", transient=True)

    world.batch.answer = broken
    world.launch(2)
    world.end()
    assert [name for name, _ in world.diary] == ["pilots"]
    assert world.told == [(SHORT, StartFault.UNANSWERED, "cannot be reached")]


def test_a_fault_without_words_costs_its_own_submission_alone(world):
    class Wordless(Exception):
        def __str__(self):
            raise ValueError

    def broken(_stamps):
        raise Wordless

    world.batch.answer = broken
    world.launch(2)
    world.end()
    assert world.told == [(SHORT, StartFault.UNANSWERED, "Wordless: it cannot be put into words")]


def test_a_pilot_that_cannot_be_stored_is_not_submitted(world):
    world.refuse["pilots"] = Unavailable("The server is shutting down.")
    with pytest.raises(Unavailable):
        world.launch(2)
    world.end()
    assert world.batch.submitted == []
    assert world.pools.states()["Local"].queued == 0


def test_how_full_a_pool_is(world):
    world.batch.go.clear()
    for _ in range(3):
        world.launch(1)
    state = world.pools.states()["Local"]
    assert state.running + state.queued == 3
    world.end()
    state = world.pools.states()["Local"]
    assert (state.running, state.queued) == (0, 0)


def test_closing_waits_for_what_runs_and_drops_the_rest(policy):
    world = World(policy)
    world.batch.go.clear()
    for _ in range(30):
        world.launch(1)
    threading.Timer(0.05, world.batch.go.set).start()
    world.pools.close()
    asked = sum(1 for name, _ in world.diary if name == "pilots")
    assert asked == 30
    assert len(world.batch.submitted) <= 30
    assert len(world.batch.submitted) == sum(1 for name, _ in world.diary if name == "submitted")


def test_many_pilots_are_stored_in_parts_each_before_it_is_submitted(world):
    world.batch.sizes = Sizes(copies=3)
    world.batch.go.clear()
    world.launch(8)
    assert [len(rows) for _, rows in world.diary] == [3, 3, 2]
    world.end()
    assert sorted(spec.count for spec in world.batch.submitted) == [2, 3, 3]
    stored = [row["stamp"] for name, rows in world.diary if name == "pilots" for row in rows]
    assert len(set(stored)) == 8
    assert sorted(one for spec in world.batch.submitted for one in spec.stamps().values()) == sorted(stored)


def test_rows_of_pilots_are_split_to_fit_into_a_request(world, monkeypatch):
    monkeypatch.setattr(launch, "_MOST_BYTES", 2_500)
    world.launch(20)
    world.end()
    parts = [rows for name, rows in world.diary if name == "pilots"]
    assert len(parts) > 1
    assert sum(map(len, parts)) == 20


def test_a_pilot_that_is_larger_than_a_request_goes_alone(world, monkeypatch):
    monkeypatch.setattr(launch, "_MOST_BYTES", 1)
    world.launch(2)
    world.end()
    assert [len(rows) for name, rows in world.diary if name == "pilots"] == [1, 1]


def threads_of(name):
    """The living threads of a submission pool."""
    return {one.name for one in threading.enumerate() if one.name.startswith(f"pool-{name}_")}


def test_the_least_threads_are_there_from_the_start_and_after_a_change(policy):
    world = World(policy)
    try:
        assert threads_of("Few") == set()
        section = {"SubmitPools": "Local, Few", "Few": {"minThreadsInPool": 2, "maxThreadsInPool": 4}}
        world.pools.configure(read_options(section))
        assert len(threads_of("Few")) == 2
        section["Few"]["minThreadsInPool"] = 3
        world.pools.configure(read_options(section))
        more = len(threads_of("Few"))
        assert 3 <= more <= 4  # a thread that is not idle yet does not count
        world.pools.configure(read_options(section))
        assert len(threads_of("Few")) == more
    finally:
        world.end()


def test_the_first_threads_take_work(policy):
    world = World(policy)
    world.pools.configure(read_options({"minThreadsInPool": 2, "maxThreadsInPool": 2}))
    world.launch(1)
    world.end()
    assert len(world.batch.submitted) == 1


class Steps:
    """Submissions that all wait for `go`: when each came and went, and by which threads."""

    def __init__(self, world):
        self.world, self.threads = world, []
        self.came, self.went = threading.Semaphore(0), threading.Semaphore(0)
        world.batch.submit = self.submit
        world.batch.go.clear()

    def submit(self, spec):
        self.came.release()
        assert self.world.batch.go.wait(60)
        self.threads.append(threading.current_thread())
        self.went.release()
        return SubmitResult(accepted=dict.fromkeys(spec.stamps().values(), "native"))


def wait_for(semaphore, times):
    assert all(semaphore.acquire(timeout=60) for _ in range(times))


def test_a_live_change_of_the_threads_counts_what_runs_and_waits(world):
    steps = Steps(world)
    for _ in range(6):
        world.launch(1)
    wait_for(steps.came, 2)
    states = []
    for section in (
        {"maxThreadsInPool": 1},
        {"SubmitPools": "Other"},
        {"maxThreadsInPool": 1, "totalThreadsInPool": 5},
    ):
        world.pools.configure(read_options(section))
        states.append(world.pools.states().get("Local"))
    first, gone, last = states
    assert (first.running, first.queued, first.max, gone) == (2, 4, 1, None)
    assert (last.running, last.queued, last.room) == (2, 4, 1)
    world.batch.go.set()
    wait_for(steps.went, 6)
    # Of the two threads one ends after its submission.
    assert len(set(steps.threads[2:])) == 1


def test_more_threads_take_at_once_what_waits(world):
    steps = Steps(world)
    for _ in range(6):
        world.launch(1)
    world.pools.configure(read_options({"maxThreadsInPool": 5}))
    wait_for(steps.came, 5)
    assert (world.pools.states()["Local"].running, world.pools.states()["Local"].queued) == (5, 1)


def test_a_pool_that_a_change_took_away_gets_no_pilots_and_says_so(world):
    world.launch(2, pool="Gone")
    world.end()
    assert world.batch.submitted == []
    (_, rows), (name, outcome) = world.diary
    assert name == "submitted"
    reason = "there is no submission pool 'Gone' any more"
    assert outcome == {row["stamp"]: (None, reason) for row in rows}


@pytest.mark.parametrize(
    ("told", "name"), [("'el9'", "el9"), ("['el8', 'el9']", ""), ("'ANY'", ""), ("['ANY', 'el9']", "")]
)
def test_a_pilot_gets_its_platform_if_there_is_only_one(told, name):
    text = f"[site.North]\nVO = ['lab']\n[site.North.ce.cn.queue.short]\nPlatform = {told}\n"
    world = World(Policy(load_resources([("s.toml", text)])))
    world.launch(1)
    world.end()
    papers = json.loads(world.batch.submitted[0].pilot_file)
    assert papers["options"]["platform"] == name


@pytest.mark.parametrize(("vo", "cores", "memory"), [("lab", 8, 16_000), ("other", 1, 2_000)])
def test_a_pilot_is_submitted_with_the_settings_of_its_vo(vo, cores, memory):
    text = """
[site.North]
VO = ["lab", "other"]
[site.North.ce.cn.queue.short]
NumberOfProcessors = 1
Memory = 2000
[site.North.ce.cn.queue.short.vo.lab]
NumberOfProcessors = 8
Memory = 16000
"""
    world = World(Policy(load_resources([("s.toml", text)])))
    world.launch(1, vo=vo)
    world.end()
    (spec,) = world.batch.submitted
    assert (spec.cores, spec.memory_mb) == (cores, memory)
    asked = list_match._spec(world.offers[vo, SHORT].shape, world.batch.options)
    same = ("queue", "cores", "memory_mb", "wall_seconds", "options")
    assert [getattr(asked, name) for name in same] == [getattr(spec, name) for name in same]
    options = json.loads(spec.pilot_file)["options"]
    assert (options["cores"], options["memory_mb"]) == (cores, memory)


def test_a_queue_that_a_change_took_away_gets_no_pilots_and_stops_no_others(world, policy):
    del world.offers["lab", SHORT]
    world.pools.watches = dict.fromkeys(("local", "slurm"), world.batch)
    placements = []
    for vo, queue in (("lab", SHORT), ("other", LONG)):
        identity = PilotIdentity(
            private=False, owner="ann", group="physics", serves_owner="", serves_group=None, pilot_type="",
            reason=TypeReason.DRAWN,
        )  # fmt: skip
        request = replace(world.offers["other", LONG].request, vo=vo)
        placements.append(Placement(
            order=PilotOrder(tq_id=5, key=KEY, count=1, pool="Local", identity=identity),
            queue_id=queue, count=1, request=request,
        ))  # fmt: skip
    decision = SimpleNamespace(placement=SimpleNamespace(placements=placements))
    world.pools.launch(cast("Any", decision), world.offers)
    world.end()
    assert [row["queue"] for name, rows in world.diary if name == "pilots" for row in rows] == ["long"]


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("can't start new thread"),
        OSError(24, "Too many open files"),
        apsw.IOError(),
        NameError("bug"),
        ModuleNotFoundError("bug"),
        StopIteration("bug"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_every_failure_of_a_submission_is_reported_and_counts_against_the_queue(world, fault, caplog):
    """The threads of the pools go on."""

    def broken(_stamps):
        raise fault

    world.batch.answer = broken
    world.launch(2)
    world.end()
    assert world.told == [(SHORT, StartFault.UNANSWERED, f"{type(fault).__name__}: {fault}")]
    assert [name for name, _ in world.diary] == ["pilots"]  # the census finds out what became of them
    assert world.pools.states()["Local"].running == 0
    assert "Traceback" in caplog.text


def test_log_lines_name_the_submission_pool(world, caplog):
    """The seed's second proposed fix, for what is taken, refused and broken."""
    caplog.set_level("INFO")
    world.pools.configure(read_options({"SubmitPools": "Local, gLite"}))
    world.launch(2, pool="gLite")
    world.end()
    full = SubmitRefusal(reason="full", transient=True)
    world.batch.answer = lambda stamps: SubmitResult(refused=dict.fromkeys(stamps, full))
    world.launch(1, pool="Local")
    world.end()
    world.batch.answer = Mock(side_effect=BackendFault("The batch system is away."))
    world.launch(1, pool="gLite")
    world.end()
    found = [one for one in caplog.records if one.name.startswith("lodesman.pool.")]
    assert [(one.name, one.levelname, one.getMessage()) for one in found] == [
        ("lodesman.pool.gLite", "INFO", "a submission was answered"),
        ("lodesman.pool.Local", "INFO", "a submission was answered"),
        ("lodesman.pool.gLite", "WARNING", "a submission failed: The batch system is away."),
    ]
    numbers = [(vars(one)["accepted"], vars(one)["refused"], vars(one)["reason"]) for one in found[:2]]
    assert numbers == [(2, 0, ""), (0, 1, "full")]
    assert {vars(one)["queue"] for one in found} == {"North/cn/short"}


def test_a_submission_for_which_no_thread_can_be_started_is_done_by_the_next_that_can(
    world, monkeypatch, caplog
):
    def full(_self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        world.launch(1)
        world.launch(1)
    assert caplog.text.count("a submission waits for a thread") == 2
    assert {one.name for one in caplog.records} == {"lodesman.pool.Local"}
    assert world.pools.states()["Local"].queued == 2
    world.launch(1)
    world.end()
    assert len(world.batch.submitted) == 3
    assert world.pools.states()["Local"].queued == 0
