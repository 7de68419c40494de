"""Lists of jobs: whatever was done to arrays and single jobs, a list agrees with each job."""

import json
import random

import pytest
from msgspec.structs import replace

from lodesman.server.reads.descriptions import MemberNames
from lodesman.server.store.read import job_lists
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.jobs import attempts_of_job
from lodesman.server.store.read.pilots import list_pilots
from lodesman.server.store.read.submissions import Sight
from lodesman.server.store.read.usage import count_jobs
from lodesman.server.store.read.why import waiting_by_reason
from lodesman.server.store.task_queues import list_task_queues
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit

EVERY_ID = range(1, 200)


def ask(house, **changes):
    return list_jobs(house.reader, JobQuery(**{"first": 1, "last": 1 << 53, "limit": 10_000, **changes}))


def ids(rows):
    return [row.id for row in rows]


def one_by_one(house):
    return [job for job in map(house.job, EVERY_ID) if job is not None]


@pytest.fixture
def lively(house):
    """Arrays and single jobs of two owners, to which much has happened."""
    rng = random.Random(11)
    house.submit(30)
    house.submit()
    house.submit(5, rows=True, key=house.key(owner="bob", group="h"))
    house.submit(40, key=house.key(norm_cpu_seconds=200))
    house.submit(6, held="nothing fits")
    house.submit(key=house.key(owner="bob"))
    pilot = house.pilot()
    for _ in range(40):
        action = rng.choice(["kill", "hold", "release", "reschedule", "delete", "claim"])
        first = rng.randint(1, 83)
        house.clock += 1.0
        if action == "claim":
            for claimed in house.claim(pilot, rng.randint(1, 3)):
                house.report(pilot, claimed, rng.choice(["Done", "Failed", "Running"]), cause="exit")
        else:
            house.control(action, first, min(83, first + rng.randint(0, 12)))
    return house


def test_a_list_shows_each_job_as_it_is_shown_alone(lively):
    expected = one_by_one(lively)
    assert len(expected) == 83
    assert len({job.state for job in expected}) >= 5
    assert ask(lively) == expected
    assert ask(lively, newest=True) == expected[::-1]


def test_a_limit_takes_the_first(lively):
    whole = ids(one_by_one(lively))
    for limit in range(1, 90):
        assert ids(ask(lively, limit=limit)) == whole[:limit]
        assert ids(ask(lively, limit=limit, newest=True)) == whole[::-1][:limit]


@pytest.mark.parametrize("newest", [False, True])
def test_filters_agree_with_each_job(lively, newest):
    jobs = one_by_one(lively)[:: -1 if newest else 1]
    for state in sorted({job.state for job in jobs}):
        assert ids(ask(lively, states=(state,), newest=newest)) == ids(j for j in jobs if j.state == state)
    two = ("Waiting", "Killed")
    assert ids(ask(lively, states=two, newest=newest, limit=9)) == ids(j for j in jobs if j.state in two)[:9]
    assert ids(ask(lively, owner="bob", newest=newest)) == ids(j for j in jobs if j.owner == "bob")
    assert ids(ask(lively, group="h", newest=newest)) == ids(j for j in jobs if j.group == "h")
    within = ids(j for j in jobs if 17 <= j.id <= 44)
    assert ids(ask(lively, first=17, last=44, newest=newest)) == within


def test_names_times_sites_and_causes_agree_with_each_job(lively):
    jobs = one_by_one(lively)
    assert ids(ask(lively, name="n*")) == ids(ask(lively, name="?")) == ids(jobs)
    assert ask(lively, name="m*") == ask(lively, name="N") == ask(lively, name="n?") == []
    assert ids(ask(lively, site="S1")) == ids(j for j in jobs if j.site == "S1") != []
    assert ask(lively, site="S2") == []
    ended = ids(j for j in jobs if j.cause == "exit" and j.outcome == "Failed")
    assert ids(ask(lively, cause="exit")) == ended != []
    assert ids(ask(lively, cause="exit", newest=True, limit=2)) == ended[::-1][:2]
    assert ids(ask(lively, submission=4)) == list(range(37, 77))


def test_the_time_of_submission(house):
    for at in (1_000.0, 50_000.0, 49_000.0, 90_000.0):
        house.clock = at
        house.submit(2)
    assert ids(ask(house, since=49_500)) == [3, 4, 7, 8]
    assert ids(ask(house, since=49_000, until=50_000)) == [3, 4, 5, 6]
    assert ids(ask(house, until=999)) == ids(ask(house, since=90_001)) == []
    assert ids(ask(house, until=49_000, newest=True)) == [6, 5, 2, 1]


def test_jobs_of_a_batch_have_names_of_their_own(house):
    house.batch([f'{{"spec": {{"name": "fit_{number}"}}}}' for number in range(3)])
    house.submit()
    assert ids(ask(house, name="fit_?")) == [1, 2, 3]
    assert ids(ask(house, name="f*_2")) == [3]
    assert ask(house, name="f%") == []


def test_where_a_job_ran(house):
    house.submit(2)
    pilot = house.pilot("S1")
    house.claim(pilot)
    first, second = ask(house)
    assert (first.ce, first.queue, first.host) == ("ce", "q", None)
    assert (second.ce, second.queue, second.host) == (None, None, None)
    with house.writer:
        house.writer.change("UPDATE pilot SET host = 'a', node_host = ''")
    assert house.job(1).host == "a"
    with house.writer:
        house.writer.change("UPDATE pilot SET node_host = 'b'")
    (attempt,) = attempts_of_job(house.reader, house.job(1))
    assert (attempt.ce, attempt.queue, attempt.host) == ("ce", "q", "b")


@pytest.mark.parametrize(("portion", "large"), [(1, 2), (2, 7), (3, 100)])
def test_a_list_of_ones_own_is_the_same_in_parts(lively, monkeypatch, portion, large):
    jobs = [job for job in one_by_one(lively) if job.owner == "ann"]
    monkeypatch.setattr(job_lists, "_PORTION", portion)
    monkeypatch.setattr(job_lists, "_LARGE", large)
    for first, last, limit in ((1, 99, 99), (5, 80, 7), (31, 77, 60), (77, 77, 1), (84, 99, 5)):
        wanted = [job for job in jobs if first <= job.id <= last]
        asked = {"owner": "ann", "first": first, "last": last, "limit": limit}
        assert ask(lively, **asked) == wanted[:limit]
        assert ask(lively, **asked, newest=True) == wanted[::-1][:limit]


def test_jobs_of_a_group_that_shares_are_seen(lively):
    jobs = one_by_one(lively)
    seen = ids(ask(lively, sight=Sight("ann", ("h",), "vo")))
    assert seen == ids(j for j in jobs if j.owner == "ann" or j.group == "h")
    assert len(seen) > len(ask(lively, sight=Sight("ann", ("h",), "other")))


def test_pages_join_without_gap_or_overlap(lively):
    found, last = [], 1 << 53
    while page := ids(ask(lively, last=last, limit=10, newest=True)):
        found += page
        last = page[-1] - 1
    assert found == ids(one_by_one(lively))[::-1]


def test_nothing_there_is_an_empty_list(house):
    assert ask(house) == []
    house.submit(3)
    assert ask(house, first=4) == []
    assert ask(house, limit=0) == []
    assert ask(house, owner="nobody") == []


@pytest.mark.sqlite
def test_an_array_of_a_million_is_not_walked_through(house):
    house.submit(1_000_000)
    house.control("kill", 500_000)
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    house.reader.connection.set_progress_handler(count, 1_000)
    assert ids(ask(house, newest=True, limit=3)) == [1_000_000, 999_999, 999_998]
    assert ids(ask(house, states=("Killed",))) == [500_000]
    house.reader.connection.set_progress_handler(None)
    assert steps < 10


def work(house, look):
    """SQLite's work for a read, in hundreds of instructions."""
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        return False

    house.reader.connection.set_progress_handler(count, 100)
    look()
    house.reader.connection.set_progress_handler(None)
    return steps


@pytest.mark.parametrize("states", [(), ("Held",), ("Waiting", "Running")])
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.sqlite
def test_the_jobs_of_others_are_not_walked_through(house, newest, states):
    house.submit(2, rows=True, key=house.key(owner="bob"))
    few = work(house, lambda: ask(house, owner="bob", newest=newest, states=states))
    house.submit(3_000, rows=True)
    house.submit(50)
    assert len(ask(house, owner="bob")) == 2
    assert work(house, lambda: ask(house, owner="bob", newest=newest, states=states)) <= few + 3


@pytest.mark.sqlite
def test_one_s_own_many_jobs_are_read_up_to_the_limit(house):
    for _ in range(40):
        house.submit(50, rows=True)
    assert work(house, lambda: ask(house, owner="ann", newest=True, limit=5)) < 30
    assert ids(ask(house, owner="ann", newest=True, limit=3)) == [2_000, 1_999, 1_998]


@pytest.mark.sqlite
def test_arrays_before_the_range_are_not_read(house):
    for _ in range(300):
        house.submit(2)
    house.submit(5)
    assert ids(ask(house, first=602)) == [602, 603, 604, 605]
    assert work(house, lambda: ask(house, first=602)) < 20


@pytest.mark.sqlite
def test_members_are_not_searched_where_they_cannot_be(house):
    for _ in range(300):
        house.submit(2)
    assert work(house, lambda: ask(house, states=("Running", "Done"))) < 5
    assert work(house, lambda: ask(house, states=("Running", "Killed"))) > 50


def statements(house, look):
    """The queries of a read."""
    found = []
    house.reader.connection.set_exec_trace(lambda _cursor, sql, values: found.append((sql, values)) or True)
    look()
    house.reader.connection.set_exec_trace(None)
    return [(sql, values) for sql, values in found if sql.lstrip().startswith("SELECT")]


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("owner", ["ann", None])
@pytest.mark.sqlite
def test_nothing_is_sorted_and_only_what_was_just_claimed_is_grouped(house, newest, owner):
    house.submit(4)
    for sql, values in statements(house, lambda: ask(house, owner=owner, newest=newest)):
        plan = [row[3] for row in house.reader.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert not any("ORDER BY" in step for step in plan if "FROM hole" not in sql), sql
        assert not any(step.startswith("SCAN") and step != "SCAN leadership" for step in plan), (sql, plan)


def test_a_claim_in_the_middle_of_a_list_shows_each_job_once(house):
    """The rows are read, then a member is claimed, then the members are read: as it was, and once."""
    house.submit(4)
    house.submit(rows=True)
    pilot = house.pilot()
    claims, execute = 0, house.reader.execute

    def claiming(sql, values=()):
        nonlocal claims
        if "FROM cohort" in sql and "hole" not in sql and not claims:
            claims += len(house.claim(pilot, 2))
        return execute(sql, values)

    house.reader.execute = claiming
    found = ask(house)
    house.reader.execute = execute
    assert claims == 2
    assert [(row.id, row.state) for row in found] == [(n, "Waiting") for n in range(1, 6)]
    assert [row.state for row in ask(house)] == ["Matched", "Matched", "Waiting", "Waiting", "Waiting"]


def judged(house, **reasons):
    with house.writer:
        house.writer.change_each(
            "INSERT INTO task_queue_reason (tq_id, reason, detail, since) VALUES (?, ?, '', 5)",
            [(int(name[2:]), reason) for name, reason in reasons.items()],
        )


def test_waiting_jobs_have_the_pending_reason_of_their_task_queue(lively):
    judged(lively, tq3="no-room-for-pilots", tq2="pilots-busy")
    jobs = one_by_one(lively)
    assert ask(lively) == jobs
    told = {(job.state, job.task_queue, job.main_reason) for job in jobs}
    assert ("Waiting", 3, "no-room-for-pilots") in told
    assert {reason for state, _, reason in told if state != "Waiting"} <= {None, "impossible"}
    assert {job.main_reason for job in jobs if job.held_by == "impossible"} == {"impossible"}


@pytest.mark.parametrize("owner", ["ann", None])
def test_jobs_can_be_asked_for_by_their_reason(lively, owner):
    judged(lively, tq3="no-room-for-pilots", tq2="pilots-busy")
    jobs = [job for job in one_by_one(lively) if owner in (None, job.owner)]
    assert {"no-room-for-pilots", "impossible"} <= {job.main_reason for job in jobs}
    for reason in ("no-room-for-pilots", "pilots-busy", "impossible", "next"):
        wanted = ids(job for job in jobs if job.main_reason == reason)
        assert ids(ask(lively, reason=reason, owner=owner)) == wanted
        assert ids(ask(lively, reason=reason, owner=owner, newest=True, limit=3)) == wanted[::-1][:3]


def test_one_s_own_are_counted_as_all_are(lively):
    everything = count_jobs(lively.reader)
    for owner in ("ann", "bob", "nobody"):
        assert count_jobs(lively.reader, owner=owner) == [row for row in everything if row.owner == owner]


@pytest.mark.sqlite
def test_counting_one_s_own_leaves_out_the_others(house):
    house.submit(2, rows=True, key=house.key(owner="bob"))
    few = work(house, lambda: count_jobs(house.reader, owner="bob"))
    house.submit(3_000, rows=True)
    assert work(house, lambda: count_jobs(house.reader, owner="bob")) <= few + 3


@pytest.mark.sqlite
def test_living_pilots_are_found_without_those_that_ended(house):
    for number in range(400):
        house.end_pilot(house.pilot()) if number % 100 else house.pilot()
    assert ids(list_pilots(house.reader, alive_only=True, limit=10)) == [301, 201, 101, 1]
    steps = work(house, lambda: list_pilots(house.reader, alive_only=True, limit=10))
    assert steps < 10
    assert len(list_pilots(house.reader, alive_only=False, limit=1_000)) == 400


def test_held_task_queues_are_listed_and_counted_as_impossible(lively):
    judged(lively, tq3="no-room-for-pilots")
    rows = {row.id: row for row in list_task_queues(lively.reader, limit=50)}
    held = [row for row in rows.values() if row.held]
    assert [(row.waiting, row.main_reason, row.detail) for row in held] == [(0, "impossible", "nothing fits")]
    assert sum(row.held for row in held) == sum(job.held_by == "impossible" for job in one_by_one(lively))
    assert list_task_queues(lively.reader, limit=50, reason="impossible") == held
    counted = {one.reason: one for one in waiting_by_reason(lively.reader).reasons}
    assert (counted["impossible"].jobs, counted["impossible"].task_queues) == (held[0].held, 1)
    assert counted["no-room-for-pilots"].jobs == rows[3].waiting
    assert counted["impossible"].since == held[0].since


def submit_named(house, name, members, count):
    cohort = PreparedCohort(
        key=house.key(),
        template=json.dumps({"spec": {"name": name}}),
        expand=True,
        max_attempts=3,
        runs=((0, count),),
        held="",
    )
    house.do(Submit(house.live, PreparedSubmission(
        owner="ann", group="g", vo="vo", name=name, form="json", record="{}", members=members, count=count,
        cohorts=(cohort,), pools=(), request_id=None,
    )))  # fmt: skip


def names(house):
    return [row.name for row in MemberNames(house.reader).fill(ask(house))]


def test_members_are_shown_by_their_own_names(house):
    submit_named(house, "pi_%n_%s", '{"count":3,"start":7,"step":2,"factor":1}', 3)
    submit_named(house, "job_%j", '{"count":2,"start":1,"step":1,"factor":1}', 2)
    assert names(house) == ["pi_0_7", "pi_1_9", "pi_2_11", "job_4", "job_5"]


def test_a_name_with_a_percent_sign_of_a_single_job_stays(house):
    submit_named(house, "100%n", None, 1)
    assert names(house) == ["100%n"]


def test_jobs_of_a_batch_have_the_names_of_their_templates(house):
    house.batch(['{"spec":{"name":"first"}}', '{"spec":{"name":"50%n"}}', '{"spec":{"name":""}}', "{}"])
    assert names(house) == ["first", "50%n", "", ""]
    house.claim(house.pilot(), 2)
    assert names(house) == ["first", "50%n", "", ""]


def test_names_of_a_gone_submission_stay_as_they_are(house):
    house.submit()
    job = replace(house.job(1), submission=99, name="a_%n")
    assert [one.name for one in MemberNames(house.reader).fill([job])] == ["a_%n"]
