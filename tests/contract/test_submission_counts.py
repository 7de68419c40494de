"""Submissions with their jobs counted: whatever was done, the counts agree with each job."""

import random
from collections import Counter
from functools import partial

import pytest

from lodesman.languages.jobs.selection import Pattern
from lodesman.server.reads import submission_counts
from lodesman.server.reads.submission_counts import SubmissionCounts
from lodesman.server.store.read.job_filter import JobFilter
from lodesman.server.store.read.submissions import Sight
from lodesman.server.writer.choice import Choice
from lodesman.server.writer.control import Control
from lodesman.wire.job_queries import SubmissionsQuery
from lodesman.wire.requests import MOST_ID


@pytest.fixture
def counts(house):
    return SubmissionCounts(lambda: house.clock)


def find(house, counts, *, states=(), before=MOST_ID, sight=None, **asked):
    query = SubmissionsQuery(**asked)
    return counts.find(house.reader, query, sight or Sight(), states=states, before=before)


def listed(house, counts, **asked):
    rows, following = find(house, counts, **asked)
    assert following is None
    return rows


def agrees(house, counts):
    """Each row says what each of its jobs says."""
    for row in listed(house, counts, limit=100):
        jobs = [house.job(number) for number in range(row.first, row.first + row.jobs)]
        found = [job for job in jobs if job is not None]
        assert row.states == Counter(job.state for job in found)
        assert row.sites == Counter(job.site for job in found if job.site)
        ended = [job.cause for job in found if job.cause and job.state != "Done"]
        assert row.causes == Counter(ended)


@pytest.mark.slow
@pytest.mark.stores
@pytest.mark.parametrize("seed", range(3))
def test_counts_agree_with_each_job_whatever_is_done(house, counts, monkeypatch, seed):
    monkeypatch.setattr(submission_counts, "BLOCK", 16)
    monkeypatch.setattr("lodesman.server.store.read.submissions.BLOCK", 16)
    monkeypatch.setattr("lodesman.server.store.read.submissions._CHANGED", _changed(16))
    rng = random.Random(seed)
    for size in (30, 1, 40):
        house.submit(size)
    house.submit(5, rows=True)
    house.submit(6, held="nothing fits", key=house.key(norm_cpu_seconds=200))
    pilots = [house.pilot("S1"), house.pilot("S2")]
    for _ in range(30):
        action = rng.choice(["kill", "hold", "release", "reschedule", "delete", "claim", "claim"])
        first = rng.randint(1, 82)
        house.clock += 1.0
        if action == "claim":
            pilot = rng.choice(pilots)
            for claimed in house.claim(pilot, rng.randint(1, 3)):
                house.report(pilot, claimed, rng.choice(["Done", "Failed", "Running"]), cause="exit")
        else:
            house.control(action, first, min(82, first + rng.randint(0, 12)))
        agrees(house, counts)


def _changed(block):
    return f"""SELECT DISTINCT job_id / {block}, coalesce(last_job, job_id) / {block} FROM event
WHERE id > ? AND id <= ?"""


def test_a_submission_whose_jobs_are_all_deleted_is_shown_only_when_asked_for(house, counts):
    house.submit(3)
    house.control("delete", 1, 3)
    assert listed(house, counts) == []
    (row,) = listed(house, counts, states=("Deleted",))
    assert row.states == {"Deleted": 3}


def test_jobs_that_were_purged_are_missing(house, counts):
    house.submit(4, rows=True)
    pilot = house.pilot()
    for claimed in house.claim(pilot, 2):
        house.report(pilot, claimed)
    assert listed(house, counts)[0].states == {"Done": 2, "Waiting": 2}
    house.clock += 5 * 86_400
    for _ in house.retention(1).run(house.clock):
        pass
    assert listed(house, counts)[0].states == {"Waiting": 2}


def test_filters(house, counts):
    house.submit(10)
    pilot = house.pilot()
    (first, *_) = house.claim(pilot, 2)
    house.report(pilot, first, "Failed", cause="exit")
    house.submit(2, key=house.key(owner="bob"))
    house.submit(5, held="nothing fits", key=house.key(norm_cpu_seconds=200))

    def firsts(**asked):
        return [row.first for row in listed(house, counts, **asked)]

    assert firsts() == [13, 11, 1]
    assert firsts(states=("Held",)) == firsts(reason="impossible") == [13]
    assert firsts(states=("Failed", "Held")) == [13, 1]
    assert firsts(owner="bob") == [11]
    assert firsts(cause="exit") == firsts(site="S1") == [1]
    assert firsts(name="n") == [13, 11, 1]
    assert firsts(name="x*") == firsts(group="x") == firsts(site="S2") == []
    assert firsts(submission=2) == [11]
    assert firsts(sight=Sight("bob")) == [11]
    assert firsts(sight=Sight("eve", ("g",), "vo")) == [13, 11, 1]
    assert firsts(sight=Sight("eve", (), "vo", whole_vo=True)) == [13, 11, 1]
    assert firsts(sight=Sight("eve", ("g",), "other", whole_vo=True)) == []
    assert firsts(since=house.clock + 1) == []


def test_pages_join(house, counts, monkeypatch):
    for _ in range(12):
        house.submit()
    found, before = [], MOST_ID
    while before is not None:
        rows, before = find(house, counts, limit=5, before=before)
        found += [row.first for row in rows]
    assert found == list(range(12, 0, -1))
    monkeypatch.setattr(submission_counts, "_MOST_LOOKED_AT", 4)
    rows, before = find(house, counts, limit=3, states=("Done",))
    assert (rows, before) == ([], 9)


@pytest.mark.sqlite
def test_an_array_of_a_million_that_runs_is_read_where_something_happened(house, counts):
    house.submit(1_000_000)
    pilot = house.pilot()
    assert listed(house, counts)[0].states == {"Waiting": 1_000_000}
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    house.claim(pilot, 5)
    house.reader.connection.set_progress_handler(count, 1_000)
    assert listed(house, counts)[0].states == {"Waiting": 999_995, "Matched": 5}
    assert steps < 10
    house.reader.connection.set_progress_handler(None)


# --- actions on what is chosen


def named(name, **more):
    return Choice("ann", job_filter=JobFilter(name=Pattern(name, "name")), **more)


def act(house, action, choice, *, may=lambda *_: True):
    act_on = partial(Control, house.live, action, reason="because", may=may, choice=choice)
    ranges, out = (range(1, house.live.ids.next_job),), None
    while ranges:
        choice.learn(house.reader, ranges)
        more = house.do(act_on(ranges=ranges))
        out = more if out is None else out
        if out is not more:
            out.go_on(more)
        ranges = out.rest
    return out.changed, out.refused


def test_an_action_takes_the_jobs_that_are_chosen(house, monkeypatch):
    for module in ("control", "choice"):
        monkeypatch.setattr(f"lodesman.server.writer.{module}.MOST_ROWS", 3)
    house.submit(10)
    pilot = house.pilot()
    for claimed in house.claim(pilot, 3):
        house.report(pilot, claimed, "Running")
    house.submit(2, key=house.key(owner="bob"))
    house.submit(4, rows=True)
    house.submit(5, held="nothing fits", key=house.key(norm_cpu_seconds=200))
    assert act(house, "hold", Choice("ann", states={"Waiting"})) == (11, 0)
    assert house.counts() == {"Running": 3, "Held": 16, "Waiting": 2}
    assert act(house, "release", Choice("ann", states={"Held"}, submissions={3})) == (4, 0)
    assert act(house, "kill", named("m*")) == (0, 0)
    assert act(house, "kill", named("n", states={"Held"})) == (12, 0)
    assert act(house, "kill", Choice("ann"), may=lambda *_: False) == (0, 0)
    assert act(house, "kill", Choice("bob")) == (2, 0)
    assert act(house, "release", Choice("bob")) == (0, 2)
    assert house.counts() == {"Running": 3, "Killed": 14, "Waiting": 4}
    assert house.reconcile() == dict.fromkeys(house.reconcile(), 0)


def test_names_of_a_batch_are_those_of_its_jobs(house):
    house.batch([f'{{"spec": {{"name": "fit_{number}"}}}}' for number in range(4)])
    assert act(house, "kill", named("fit_?", states={"Done"})) == (0, 0)
    assert act(house, "kill", named("fit_[1]")) == (0, 0)
    assert act(house, "kill", named("f*1")) == (1, 0)
    assert [house.state(number) for number in range(1, 5)] == ["Waiting", "Killed", "Waiting", "Waiting"]


def test_a_million_members_are_one_hole(house):
    house.submit(1_000_000)
    house.claim(house.pilot(), 5)
    assert act(house, "kill", Choice("ann", states={"Waiting"})) == (999_995, 0)
    assert house.counts() == {"Matched": 5, "Killed": 999_995}
    assert house.events(77)[-1] == "Killed"
