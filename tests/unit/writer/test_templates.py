"""Payloads for pilots, filled from stored templates; the cache of templates is bounded."""

from __future__ import annotations

import json
from collections import OrderedDict
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.languages.jobs import JobSpec, ParametricMembers, spec_to_json
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.writer import templates as module
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.server.writer.templates import OVERHEAD, Templates, ValueCache, make_payload

# --- what is kept -------------------------------------------------------------------------------------------


def kept(most, sizes=None):
    """A Kept of numbers, and the list of those that were made. A number weighs itself."""
    made = []

    def make(number):
        made.append(number)
        return str(number), (sizes or {}).get(number, number)

    return ValueCache(make, most_bytes=most), made


def test_a_value_is_made_once():
    values, made = kept(10_000)
    assert [values.get(n) for n in (1, 2, 1, 2, 1)] == ["1", "2", "1", "2", "1"]
    assert made == [1, 2]


def test_what_was_used_longest_ago_goes_first():
    room = 3 * (OVERHEAD + 10)
    values, made = kept(room, dict.fromkeys(range(9), 10))
    for number in (1, 2, 3, 1, 4, 1, 3):
        values.get(number)
    assert made == [1, 2, 3, 4]
    values.get(2)
    assert made == [1, 2, 3, 4, 2]
    assert values.bytes == room


def test_one_that_is_too_large_is_kept_alone():
    values, made = kept(1_000, {1: 5_000, 2: 10})
    values.get(2)
    for _ in range(3):
        values.get(1)
    assert made == [2, 1]
    assert values.bytes == 5_000 + OVERHEAD
    values.get(2)
    values.get(1)
    assert made == [2, 1, 2, 1]


def test_a_value_that_grows_pushes_others_out():
    values, made = kept(2 * OVERHEAD + 100, {1: 10, 2: 10})
    values.get(1)
    values.get(2)
    values.grew(2, 80)
    assert values.bytes == 2 * OVERHEAD + 100
    values.grew(2, 1)
    assert values.bytes == OVERHEAD + 91
    values.get(2)
    assert made == [1, 2]
    values.get(1)
    assert made == [1, 2, 1]


@given(
    st.integers(0, 6_000),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 700), st.booleans()), max_size=40),
    st.lists(st.integers(0, 2_000), min_size=9, max_size=9),
)
def test_it_is_what_a_plain_list_would_be(most, steps, sizes):
    values, made = kept(most, dict(enumerate(sizes)))
    model: OrderedDict[int, int] = OrderedDict()
    wanted = []
    for number, more, grows in steps:
        values.get(number)
        if number not in model:
            wanted.append(number)
            model[number] = sizes[number] + OVERHEAD
        model.move_to_end(number)
        trim(model, most)
        if grows:
            values.grew(number, more)
            model[number] += more
            trim(model, most)
        assert values.bytes == sum(model.values())
    assert made == wanted


def trim(model, most):
    while sum(model.values()) > most and len(model) > 1:
        model.popitem(last=False)


# --- what pilots get -----------------------------------------------------------------------------------------


@pytest.fixture
def array(base, make_key):
    """Submit an array of `/bin/echo VALUE`, in `cohorts` cohorts, or, without `expand`, of equal jobs."""

    def put(values, *, cohorts=1, expand=True, **members):
        count, key = len(values), make_key()
        spec = JobSpec(executable="/bin/echo", arguments=("%s",), norm_cpu_seconds=60)
        stored = (
            {"spec": spec_to_json(spec), "uploads": {}}
            if expand
            else msgspec.to_builtins(make_payload(spec, {}))
        )
        made = tuple(
            PreparedCohort(
                key=key, template=json.dumps({**stored, "n": at}), expand=expand, max_attempts=1, numbered=True,
                runs=((at * count // cohorts, (at + 1) * count // cohorts),),
            )
            for at in range(cohorts)
        )  # fmt: skip
        given = members or {"values": tuple(values)}
        members = msgspec.json.encode(ParametricMembers(count=count, **given))
        return base.do(Submit(base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="",
            members=members.decode(), count=count, cohorts=made,
        )))  # fmt: skip

    return put


@pytest.fixture
def read(base, monkeypatch):
    """Templates over the database, and what they read from it: (statement, number)."""
    done = []

    def noting(what, read_it):
        def read(db, number):
            done.append((what, number))
            return read_it(db, number)

        return read

    monkeypatch.setattr(module, "stored_template", noting("body", module.stored_template))
    monkeypatch.setattr(module, "stored_members", noting("members", module.stored_members))
    return Templates(base.db), done


def told(templates, *claimed, drain=False):
    return json.loads(templates.render(list(claimed), drain=drain))


def arguments(templates, *claimed):
    return [job["spec"]["arguments"] for job in told(templates, *claimed)["jobs"]]


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize(
    ("values", "members", "indexes"),
    [
        ([10, 15, 20], {"start": 10, "step": 5}, [10, 15, 20]),
        ([7, -3], {}, [7, -3]),
        # What is no number cannot be an index.
        (["a", "b"], {}, [0, 1]),
        ([1, 2.5], {}, [0, 1]),
        ([1, 2], {"unnamed": False}, [0, 1]),
    ],
)
def test_each_member_knows_its_index(array, read, expand, values, members, indexes):
    array(values, expand=expand, **members)
    jobs = told(read[0], *(ClaimedAttempt(1 + at, 1, 1, 1) for at in range(len(values))))["jobs"]
    assert [job["index"] for job in jobs] == indexes


def test_a_job_by_itself_has_no_index_and_costs_no_look_at_members(base, read, make_key):
    spec = msgspec.to_builtins(make_payload(JobSpec(executable="/bin/true"), {}))
    one = PreparedCohort(
        key=make_key(), template=json.dumps(spec), expand=False, max_attempts=1, runs=((0, 1),)
    )
    base.do(Submit(base.live, PreparedSubmission(
        owner=one.key.owner, group=one.key.group, vo=one.key.vo, name="", form="json", record="", members=None, count=1,
        cohorts=(one,),
    )))  # fmt: skip
    templates, done = read
    assert "index" not in told(templates, ClaimedAttempt(1, 1, 1, 1))["jobs"][0]
    assert done == [("body", 1)]


def test_each_member_gets_its_own_value(array, read):
    templates, done = read
    first = array(["a", "b", "c"]).first
    claims = [ClaimedAttempt(first + n, n + 1, 1, 1) for n in (2, 0, 1)]
    assert arguments(templates, *claims) == [["c"], ["a"], ["b"]]
    assert [(job["id"], job["attempt"]) for job in told(templates, *claims)["jobs"]] == [
        (3, 3),
        (1, 1),
        (2, 2),
    ]
    assert done == [("body", 1), ("members", 1)]


def test_claims_of_equal_jobs_share_the_stored_body(array, read):
    templates, done = read
    array(["a", "b"], expand=False)
    assert arguments(templates, ClaimedAttempt(1, 1, 1, 1), ClaimedAttempt(2, 1, 1, 1)) == [["%s"], ["%s"]]
    assert done == [("body", 1), ("members", 1)]


def test_nothing_to_run(read):
    templates, _ = read
    assert told(templates) == {"jobs": [], "drain": False}
    assert told(templates, drain=True) == {"jobs": [], "drain": True}


def test_the_cohorts_of_an_array_share_its_members(array, read):
    templates, done = read
    array(["a", "b", "c", "d"], cohorts=2)
    assert arguments(
        templates, ClaimedAttempt(1, 1, 1, 1), ClaimedAttempt(4, 1, 2, 1), ClaimedAttempt(3, 1, 2, 1)
    ) == [
        ["a"],
        ["d"],
        ["c"],
    ]
    assert [what for what, _ in done].count("members") == 1


def test_arrays_are_kept_by_their_size_and_not_by_their_number(array, read, monkeypatch):
    monkeypatch.setattr(module, "ARRAY_BYTES", 200_000)
    templates, done = Templates(read[0]._db), read[1]
    small = [array([f"{n}"]) for n in range(30)]
    large = [array(["x" * 60_000, "y" * 60_000]) for _ in range(3)]
    for one in small:
        arguments(templates, ClaimedAttempt(one.first, 1, one.submission, one.submission))
    assert templates._arrays.bytes < 200_000
    done.clear()
    assert arguments(
        templates, *(ClaimedAttempt(one.first, 1, one.submission, one.submission) for one in small)
    ) == [[f"{n}"] for n in range(30)]
    assert done == []
    for one in large:
        told(templates, ClaimedAttempt(one.first, 1, one.submission, one.submission))
        assert templates._arrays.bytes <= 200_000
    done.clear()
    # The last one is there, the one before it is read again.
    told(templates, ClaimedAttempt(large[2].first + 1, 1, large[2].submission, large[2].submission))
    assert done == []
    told(templates, ClaimedAttempt(large[1].first + 1, 1, large[1].submission, large[1].submission))
    assert done == [("members", large[1].submission)]


def test_templates_that_are_filled_count_with_their_array(array, read):
    templates, _ = read
    array(["a", "b", "c", "d"], cohorts=4)
    sizes = []
    for n in range(4):
        told(templates, ClaimedAttempt(n + 1, 1, n + 1, 1))
        sizes.append(templates._arrays.bytes)
    steps = [b - a for a, b in pairwise(sizes)]
    assert min(steps) > OVERHEAD
    told(templates, ClaimedAttempt(1, 1, 1, 1))
    assert templates._arrays.bytes == sizes[-1]
