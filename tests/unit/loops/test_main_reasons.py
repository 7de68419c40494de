"""One reason for each task queue: judged as `why` judges, written when it changes, counted for lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lodesman.base.errors import Unavailable
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.decide.submission import find_exclusions
from lodesman.server.loops.fit import ServedQueues
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store.journal import Change
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.jobs import job_by_id
from lodesman.server.store.read.why import waiting_by_reason
from lodesman.server.store.statement import ANY
from lodesman.server.store.task_queues import store_reasons
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import WaitReason
from lodesman.wire.vocabulary import MainReason

NORTH, SOUTH = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")
PLAN = {"row_fields": ["tq_id", "asked", "cap"], "rows": [], "asks": [], "no_pool": [], "plan": {}}


RESOURCES = """
[site.North]
Platform = "el9"
VO = ["lab"]
[site.North.ce.cn.queue.short]
NumberOfProcessors = 4
CPUTime = 1000
Memory = 2000

[site.South]
VO = ["lab"]
[site.South.ce.cs.queue.long]
Memory = 2000
CPUTime = 200000
"""
SHUT = """
[site.West]
VO = ["lab"]
[site.West.ce.cw.queue.shut]
MaxTotalJobs = 0
CPUTime = 1000
"""


@pytest.fixture
def policy():
    return Policy(load_resources([("sites.toml", RESOURCES)]))


@pytest.fixture
def submit(base, make_key):
    def put(count=1, pools=(), **changes):
        key = make_key(**changes)
        cohort = PreparedCohort(key=key, template="{}", expand=False, max_attempts=1, runs=((0, count),))
        base.do(Submit(base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None, count=count,
            cohorts=(cohort,), pools=pools,
        )))  # fmt: skip
        return base.live.queues.index.find(key)

    return put


@pytest.fixture
def decide(base):
    """The director's last iteration: rooms by queue, as (room, clamps)."""

    def put(rooms, at=None, **more):
        record = (
            PLAN
            | more
            | {
                "rooms": {
                    str(q): {"wanted": 1, "room": room, "clamps": bites, "slots": 9, "others": 0}
                    for q, (room, bites) in rooms.items()
                }
            }
        )
        with base.writer:
            base.writer.execute(
                "INSERT INTO director_iteration (at, plan) VALUES (?, ?)",
                (base.clock if at is None else at, msgspec.json.encode(record).decode()),
            )

    return put


class Judge:
    """A snapshot and the reasons made of it."""

    def __init__(self, base, policy):
        self.base, self.policy = base, policy
        self.keeper = SnapshotKeeper(base.db, fresh_seconds=1_500.0)
        self.reasons = MainReasons(base.db, self.keeper)
        self.now = 1_000.0

    def changes(self):
        self.now += 1_000.0
        self.base.clock = self.now
        self.keeper.refresh(self.now)
        return self.reasons.judge(self.policy, self.now)

    def store(self):
        """The reasons and details that changed."""
        changed = self.changes()
        self.base.do(Change(store_reasons, changed, self.reasons.facts_at()))
        return {tq_id: one and one[:2] for tq_id, one in changed.items()}

    def stored(self):
        return dict(self.base.db.execute("SELECT tq_id, reason FROM task_queue_reason"))


@pytest.fixture
def judge(base, policy):
    return Judge(base, policy)


def test_nothing_waits(judge):
    assert judge.store() == {}
    assert waiting_by_reason(judge.base.db).reasons == []


def test_pending_reasons_agree_with_why(judge, submit, decide):
    fine, huge = submit(5), submit(2, norm_cpu_seconds=10**9, platforms=("vax",))
    assert judge.store() == {
        fine: (MainReason.NOT_DECIDED, ""),
        huge: (MainReason.IMPOSSIBLE, "CPUTime"),
    }
    decide({NORTH: (0, [["breaker", 5, 0, 0, "it failed 3 times"]]), SOUTH: (0, [])})
    narrow = submit(1, sites=("North",))
    assert judge.store()[narrow] == (MainReason.NO_ROOM, "breaker")
    decide({NORTH: (2, []), SOUTH: (0, [])})
    changed = judge.store()
    assert changed == {fine: (MainReason.PILOT_EXPECTED, ""), narrow: (MainReason.PILOT_EXPECTED, "")}
    assert judge.stored()[huge] == "impossible"


def test_a_queue_that_the_director_did_not_consider_has_no_free_capacity(judge, submit, decide):
    only = submit(1, sites=("South",))
    decide({NORTH: (2, [])})
    assert judge.store() == {only: (MainReason.NO_ROOM, "unknown")}


def test_only_changes_are_written_and_their_start_is_kept(judge, submit, base, decide):
    one = submit()
    judge.store()
    assert judge.store() == {}
    (since,) = base.db.execute("SELECT since FROM task_queue_reason WHERE tq_id = ?", (one,)).fetchone()
    assert since == 2_000.0
    decide({NORTH: (0, [["max-waiting", 5, 0, 0, "full"]]), SOUTH: (0, [["max-waiting", 5, 0, 0, "full"]])})
    judge.store()
    decide({NORTH: (0, [["breaker", 5, 0, 0, "open"]]), SOUTH: (0, [["breaker", 5, 0, 0, "open"]])})
    assert judge.store() == {one: (MainReason.NO_ROOM, "breaker")}
    reason = base.db.execute("SELECT reason, detail, since FROM task_queue_reason").fetchone()
    assert reason == ("no-room-for-pilots", "breaker", 4_000.0)  # the reason is older than its detail


def test_a_task_queue_whose_jobs_are_gone_has_no_reason(judge, submit, base):
    one = submit()
    judge.store()
    with base.writer:
        base.writer.execute("UPDATE task_queue_count SET waiting = 0 WHERE tq_id = ?", (one,))
    assert judge.store() == {one: None}
    assert judge.stored() == {}


def test_changes_that_were_not_stored_are_sent_again(judge, submit):
    one = submit()
    judge.keeper.refresh(judge.now)

    def post(_name, body):
        posted.append(dict(body.changed))
        raise Unavailable("The server is ending.")

    posted: list[Any] = []
    for now in (2_000.0, 3_000.0):
        with pytest.raises(Unavailable):
            judge.reasons.tick(judge.policy, now, post)
    assert posted == [{one: WaitReason(MainReason.NOT_DECIDED)}] * 2


def test_a_start_goes_on_from_what_is_stored(judge, submit, base, policy):
    submit()
    judge.store()
    again = Judge(base, policy)
    assert again.changes() == {}


def test_a_judgement_is_not_repeated_at_once(judge, submit):
    submit()
    judge.changes()
    assert judge.reasons.judge(judge.policy, judge.now + 1.0) is None


def test_a_changed_configuration_is_judged_anew(judge, submit, policy):
    one = submit(1, platforms=("el9",))
    judge.store()
    assert judge.stored() == {one: "director-has-not-decided"}
    judge.policy = type(policy)(type(policy.config)(
        **{name: getattr(policy.config, name) for name in policy.config.__struct_fields__ if name != "tree"},
        tree=type(policy.config.tree)(),
    ))  # fmt: skip
    judge.store()
    assert judge.stored() == {one: "impossible"}


def test_as_many_jobs_as_pilots_take_are_next_and_the_others_queued_behind(judge, submit, base, decide):
    """In lists and counts, too: the first two of an array, and no member 900,000."""
    one = submit(1_000_000, norm_cpu_seconds=100_000)
    decide({SOUTH: (2, [])})
    judge.store()
    assert dict(judge.reasons._stored) == {
        one: WaitReason(MainReason.QUEUED, "", MainReason.PILOT_EXPECTED, 2, 3)
    }
    found = [(row.reason, row.verdict, row.jobs) for row in waiting_by_reason(base.db).reasons]
    assert found == [("queued-behind", "not now", 999_998), ("pilot-expected", "now", 2)]
    first, last = (list_jobs(base.db, JobQuery(owner="ann", first=begin, limit=3)) for begin in (1, 899_999))
    assert [one.main_reason for one in first] == ["pilot-expected", "pilot-expected", "queued-behind"]
    assert {one.main_reason for one in last} == {"queued-behind"}
    only = list_jobs(base.db, JobQuery(owner="ann", reason="pilot-expected", limit=9))
    assert [one.id for one in only] == [1, 2]
    assert [job_by_id(base.db, n).main_reason for n in (2, 3)] == ["pilot-expected", "queued-behind"]
    decide({SOUTH: (2, [])})
    assert judge.store() == {}


@pytest.mark.parametrize(
    ("most", "rest"), [(1, MainReason.AT_MOST), (2, MainReason.AT_MOST), (3, MainReason.QUEUED), (9, MainReason.QUEUED)]
)  # fmt: skip
def test_at_most_is_named_where_pilots_would_take_more(judge, submit, decide, most, rest):
    """Where two find room, three that may run at once are not what the others wait for."""
    one = submit(1_000, norm_cpu_seconds=100_000, at_most=most, submission=1)
    decide({SOUTH: (2, [])})
    judge.store()
    next_ones = min(most, 2)
    assert judge.reasons._stored[one] == WaitReason(
        rest, "", MainReason.PILOT_EXPECTED, next_ones, next_ones + 1
    )


def test_single_jobs_of_a_task_queue_have_the_reason_of_their_place(judge, submit, base, decide):
    for _ in range(4):
        submit(norm_cpu_seconds=100_000)
    decide({SOUTH: (2, [])})
    judge.store()
    base.do(Change(_touch))
    found = [one.main_reason for one in list_jobs(base.db, JobQuery(owner="ann", limit=9))]
    assert found == ["pilot-expected", "pilot-expected", "queued-behind", "queued-behind"]
    assert job_by_id(base.db, 2).main_reason == "pilot-expected"


def _touch(tx):
    """As after a reschedule: the jobs have rows."""
    for number in range(1, 5):
        tx.write(
            """INSERT OR REPLACE INTO job (id, submission_id, tq_id, template_id, state, queued, since)
            SELECT ?, s.id, c.tq_id, c.template_id, 'Waiting', 1, 5 FROM submission s JOIN cohort c ON c.submission_id = s.id
            WHERE s.base = ?""", (number, number), rows=ANY,
        )  # fmt: skip
    tx.write("UPDATE cohort SET cursor = stop", rows=ANY)


def test_jobs_are_counted_by_reason_most_first(judge, submit, base):
    submit(5), submit(7, cores=2), submit(2, platforms=("vax",))
    judge.store()
    found = waiting_by_reason(base.db)
    rows = [(row.reason, row.verdict, row.detail, row.task_queues, row.jobs) for row in found.reasons]
    assert rows == [
        ("director-has-not-decided", "not now", "", 2, 12),
        ("impossible", "never", "Platform", 1, 2),
    ]
    assert (found.at, found.facts_at) == (2_000.0, None)


def test_a_pool_is_judged_by_its_requirements(judge, submit, decide):
    one = submit(1, pools=(pool_of("el9"),), submit_pool="p")
    decide({SOUTH: (5, [])})
    assert judge.store() == {one: (MainReason.NO_ROOM, "unknown")}


def pool_of(platform):
    wanted = spelled_requirements(compile_requirements({"Platform": platform}, load_resources([]).types))
    return NewPool(id="p", requirements=wanted, vo="lab", queues=0b1)


def test_a_pool_that_is_gone_opens_nothing(judge, submit, base, decide):
    """The Requirements are the task queue's own, as each refresh reads them; unknown ones exclude every queue."""
    one = submit(1, pools=(pool_of("el9"),), submit_pool="p")
    with base.writer:
        base.writer.execute("DELETE FROM submit_pool_bits")
    decide({SOUTH: (5, []), NORTH: (0, [])})
    assert judge.store() == {one: (MainReason.NO_ROOM, "no-demand")}
    two = submit(1, submit_pool="lost")
    assert judge.store()[two] == (MainReason.IMPOSSIBLE, "Requirements")


def test_requirements_are_not_remembered_for_pools_that_go(judge, submit, base):
    for number in range(3):
        submit(1, pools=(pool_of("el9"),), submit_pool="p", project=str(number))
    judge.store()
    with base.writer:
        base.writer.execute("UPDATE task_queue_count SET waiting = 0")
    judge.store()
    assert judge.reasons._found == {}


def test_the_last_iteration_of_a_director_that_stopped_says_nothing(judge, submit, decide):
    one = submit()
    decide({NORTH: (2, []), SOUTH: (2, [])})
    assert judge.store() == {one: (MainReason.PILOT_EXPECTED, "")}
    assert judge.store() == {one: (MainReason.NOT_DECIDED, "")}


def test_a_task_queue_for_which_no_submission_pool_takes_pilots(judge, submit, decide):
    one, two = submit(submission_pools=("Nowhere",)), submit()
    rooms = {NORTH: (2, []), SOUTH: (2, [])}
    refused = [{"tq_id": one, "asked": 3, "tries": [["Nowhere", "unknown"]]}]
    decide(rooms, rows=[[one, 3, 3], [two, 3, 3]], no_pool=refused)
    assert judge.store() == {one: (MainReason.NO_SUBMISSION_POOL, ""), two: (MainReason.PILOT_EXPECTED, "")}
    decide(rooms, rows=[[one, 0, 3], [two, 0, 3]])  # none asked for this time: nothing new is known
    assert judge.store() == {}
    decide(rooms, rows=[[one, 0, 3], [two, 0, 3]])
    assert judge.store() == {}
    decide(rooms, rows=[[one, 2, 3], [two, 0, 3]])
    assert judge.store() == {one: (MainReason.PILOT_EXPECTED, "")}


def test_a_queue_to_which_no_pilot_is_ever_sent_counts_while_one_lives_there(judge, submit, decide):
    alive: set[ResourceRequest] = set()
    judge.policy = Policy(load_resources([("s.toml", SHUT)]), inhabited=lambda _: frozenset(alive))
    one = submit(norm_cpu_seconds=1)
    decide({})
    assert judge.store() == {one: (MainReason.IMPOSSIBLE, "MaxTotalJobs")}
    pilot = ResourceRequest(vo="lab", site="West", ce="cw", queue="shut", norm_cpu_seconds=10)
    alive.add(replace(pilot, owner="another"))
    decide({})
    assert judge.store() == {}
    alive.add(pilot)
    decide({})
    assert judge.store() == {one: (MainReason.NO_ROOM, "max-total")}
    alive.clear()
    decide({})
    assert judge.store() == {one: (MainReason.IMPOSSIBLE, "MaxTotalJobs")}


def test_a_limit_for_one_vo_is_not_reported_for_another(judge, submit, decide):
    text = """
[site.West]
VO = ["lab", "other"]
[site.West.ce.cw.queue.q]
{lines}
[site.West.ce.cw.queue.q.vo.lab]
Backend = "manual"
"""
    judge.policy = Policy(load_resources([("s.toml", text.format(lines=""))]))
    mine, theirs = submit(norm_cpu_seconds=1), submit(norm_cpu_seconds=1, vo="other")
    decide({QueueId("West", "cw", "q"): (0, [["breaker", 1, 0, 0, "it failed"]])}, at=2_500.0)
    assert judge.store() == {
        mine: (MainReason.NO_ROOM, "no-backend"),
        theirs: (MainReason.NO_ROOM, "breaker"),
    }
    judge.policy = Policy(load_resources([("s.toml", text.format(lines="Backend = 'manual'"))]))
    assert judge.store() == {theirs: (MainReason.NO_ROOM, "no-backend")}  # in the same iteration


def test_each_judgement_finds_where_task_queues_compete(judge, submit):
    north = submit(group="physics", sites=("North",))
    south, both = submit(3, group="physics", sites=("South",)), submit(5, group="bio", owner="other")
    judge.keeper.refresh(judge.now)
    new = find_exclusions(keys(judge)[north], {}, judge.policy.vo_config("lab"))
    assert judge.keeper.contest_for(new.config, new.eligible)[1] is False
    judge.store()

    def beside(tq_id):
        fit = judge.reasons._found[tq_id]
        contest, known = judge.keeper.contest_for(fit.config, fit.eligible)
        return known and contest.jobs["lab"]

    assert beside(north) == {"physics": 1, "bio": 5}
    assert beside(south) == {"physics": 3, "bio": 5}
    assert beside(both) == {"physics": 4, "bio": 5}
    judge.policy = Policy(load_resources([("s.toml", SHUT)]))
    other = find_exclusions(keys(judge)[both], {}, judge.policy.vo_config("lab"))
    assert judge.keeper.contest_for(other.config, other.eligible)[1] is False, "of another configuration"


def keys(judge):
    return {tq_id: key for tq_id, key, _ in judge.keeper.snapshot.waiting}


def test_pilots_are_searched_once_for_all_task_queues_with_the_same_queues(judge, submit, monkeypatch):
    """Not once a task queue: that is task queues x places with pilots."""
    for number in range(20):
        submit(1, pools=(pool_of("el9"),), submit_pool="p", project=str(number))
    asked = []
    contains = ServedQueues.__contains__
    monkeypatch.setattr(
        ServedQueues, "__contains__", lambda self, place: asked.append(place) or contains(self, place)
    )
    judge.keeper.refresh(judge.now)
    judge.keeper.pilots._by_place = {("North", "cn", str(number)): 0 for number in range(5)}
    assert judge.reasons.judge(judge.policy, judge.now) is not None
    assert len(asked) == 5


def test_before_the_first_snapshot_no_reason_is_set_or_cleared(judge, submit, base):
    """A process that has just started knows of no waiting job yet; stored reasons and their start stay."""
    submit()
    judge.store()
    stored = judge.stored()
    assert stored
    early = MainReasons(base.db, SnapshotKeeper(base.db))
    assert early.judge(judge.policy, judge.now + 5_000.0) is None
    assert judge.stored() == stored
