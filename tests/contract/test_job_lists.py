"""Lists of jobs: whatever was done to arrays and single jobs, a list is what looking at each job gives."""

import random

import pytest

from lodesman.services.names import MemberNames
from lodesman.services.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.store import views
from lodesman.store.job_lists import JobQuery, list_jobs

EVERY_ID = range(1, 200)


def ask(house, **changes):
    return list_jobs(house.reader, JobQuery(**{"first": 1, "last": 1 << 53, "limit": 10_000, **changes}))


def ids(rows):
    return [row["id"] for row in rows]


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
    assert len({job["state"] for job in expected}) >= 5
    assert ask(lively) == expected
    assert ask(lively, newest=True) == expected[::-1]


def test_a_limit_takes_the_first(lively):
    whole = ids(one_by_one(lively))
    for limit in range(1, 90):
        assert ids(ask(lively, limit=limit)) == whole[:limit]
        assert ids(ask(lively, limit=limit, newest=True)) == whole[::-1][:limit]


@pytest.mark.parametrize("newest", [False, True])
def test_filters_agree_with_looking_at_each_job(lively, newest):
    jobs = one_by_one(lively)[:: -1 if newest else 1]
    for state in sorted({job["state"] for job in jobs}):
        assert ids(ask(lively, states=(state,), newest=newest)) == ids(j for j in jobs if j["state"] == state)
    two = ("Waiting", "Killed")
    assert (
        ids(ask(lively, states=two, newest=newest, limit=9)) == ids(j for j in jobs if j["state"] in two)[:9]
    )
    assert ids(ask(lively, owner="bob", newest=newest)) == ids(j for j in jobs if j["owner"] == "bob")
    assert ids(ask(lively, group="h", newest=newest)) == ids(j for j in jobs if j["group"] == "h")
    within = ids(j for j in jobs if 17 <= j["id"] <= 44)
    assert ids(ask(lively, first=17, last=44, newest=newest)) == within


def test_jobs_of_a_group_that_shares_are_seen(lively):
    jobs = one_by_one(lively)
    seen = ids(ask(lively, owner="ann", shared=("h",), vo="vo"))
    assert seen == ids(j for j in jobs if j["owner"] == "ann" or j["group"] == "h")
    assert len(seen) > len(ask(lively, owner="ann", shared=("h",), vo="other"))


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


def test_an_array_of_a_million_is_not_walked_through(house):
    house.submit(1_000_000)
    house.control("kill", 500_000)
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    house.reader.set_progress_handler(count, 1_000)
    assert ids(ask(house, newest=True, limit=3)) == [1_000_000, 999_999, 999_998]
    assert ids(ask(house, states=("Killed",))) == [500_000]
    house.reader.set_progress_handler(None)
    assert steps < 10


def submit_named(house, name, members, count):
    cohort = PreparedCohort(
        key=house.key(), template="{}", expand=True, max_attempts=3, runs=((0, count),), held=""
    )
    house.do(Submit(house.live, PreparedSubmission(
        owner="ann", group="g", vo="vo", name=name, form="json", record="{}", members=members, count=count,
        cohorts=(cohort,), pools=(), request_id=None,
    )))  # fmt: skip


def names(house):
    return [row["name"] for row in MemberNames(house.reader).fill(ask(house))]


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
    row = {**dict.fromkeys(views.JOB_KEYS), "id": 1, "base": 1, "submission": 99, "name": "a_%n"}
    assert [one["name"] for one in MemberNames(house.reader).fill([row])] == ["a_%n"]
