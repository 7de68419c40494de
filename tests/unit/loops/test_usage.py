"""Actual against target shares, and whose failures are named."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from lodesman.server.reads.usage import usage_for
from lodesman.server.store.read.usage import spread, usage_facts
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit

SHARES = {"physics": 3000, "open": 1000, "unknown": 1000}
INSERT_SUBMISSION = """INSERT INTO submission (id, base, count, owner, grp, vo, name, created_at, form, record)
VALUES (?1, ?1, 1, 'ann', ?2, 'lab', '', 0, 'json', '')"""
INSERT_JOB = """INSERT INTO job (id, submission_id, tq_id, template_id, state, attempt, since, last_attempt, reason)
VALUES (?1, ?1, 1, 1, ?2, 1, 0, ?1, ?3)"""
INSERT_ATTEMPT = """INSERT INTO attempt (id, job_id, tq_id, number, pilot_id, claim_token, site, shares, claimed_at)
VALUES (?1, ?1, 1, 1, 1, 'token', 'North', ?2, 5)"""


@pytest.fixture
def submit(base, make_key):
    """Jobs that are rows of their own; returns their task queue."""

    def put(count):
        key = make_key()
        cohorts = tuple(
            PreparedCohort(key=key, template="{}", expand=False, max_attempts=1, runs=((n, n + 1),))
            for n in range(count)
        )
        base.do(Submit(base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None, count=count,
            cohorts=cohorts,
        )))  # fmt: skip
        return base.live.queues.index.find(key)

    return put


def usage(db, policy, may):
    return to_builtins(usage_for(usage_facts(db), policy, may))


def fill(base, claims):
    """One job per claim: (group, the shares of the groups that competed or None)."""
    with base.writer:
        for table in ("submission", "job", "attempt"):
            base.writer.execute(f"DELETE FROM {table}")
        for number, (group, shares) in enumerate(claims, 1):
            base.writer.execute(INSERT_SUBMISSION, (number, group))
            base.writer.execute(INSERT_JOB, (number, "Matched", ""))
            base.writer.execute(INSERT_ATTEMPT, (number, None if shares is None else json.dumps(shares)))


claims = st.lists(
    st.dictionaries(st.sampled_from(sorted(SHARES)), st.integers(1, 5_000), min_size=1).flatmap(
        lambda shares: st.tuples(st.sampled_from(sorted(shares)), st.just(shares) | st.none() | st.just({}))
    ),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(claims)
def test_the_target_is_the_sum_over_claims_of_the_share_then_among_those_that_competed(base, policy, found):
    fill(base, found)
    wanted: Counter[str] = Counter()
    for _, shares in found:
        for name, share in (shares or {}).items():
            wanted[name] += Fraction(share, sum(shares.values()))  # type: ignore[assignment]
    rows = {row["group"]: row for row in usage(base.db, policy, lambda *_: True)["groups"]}
    for field, which in {
        "claims": [group for group, _ in found],
        "private": [group for group, shares in found if shares == {}],
        "compared": [group for group, shares in found if shares],
    }.items():
        assert {name: row[field] for name, row in rows.items() if row[field]} == Counter(which)
    for name, row in rows.items():
        assert row["target"] == pytest.approx(float(wanted[name]))
        assert row["share"] == SHARES[name]
    assert sum(row["target"] for row in rows.values()) == pytest.approx(
        sum(row["compared"] for row in rows.values())
    )


def test_only_failures_of_visible_owners_are_named(base, policy):
    fill(base, [("physics", None), ("open", None)])
    with base.writer:
        base.writer.execute("UPDATE job SET state = 'Failed', reason = 'no luck ' || id")
    told = usage(base.db, policy, lambda owner, group, vo: (owner, group, vo) == ("ann", "open", "lab"))
    assert told["faulty"] == [{"id": 2, "count": 1, "state": "Failed", "reason": "no luck 2"}]


def test_an_attempt_number_that_was_given_twice_is_found(base, policy):
    fill(base, [("physics", None)] * 2)
    assert usage(base.db, policy, lambda *_: True)["attempts"] == {
        "all": 2, "jobs": 2, "same_number_twice": 0
    }  # fmt: skip
    with base.writer:
        base.writer.execute("UPDATE attempt SET job_id = 1")
    assert usage(base.db, policy, lambda *_: True)["attempts"]["same_number_twice"] == 1


def test_an_empty_house(base, policy):
    told = usage(base.db, policy, lambda *_: True)
    assert told["states"] == {}
    assert told["groups"] == told["sites"] == told["pilots"] == told["faulty"] == []
    assert told["waiting_seconds"]["count"] == 0
    assert told["running_seconds"]["p50"] is None


def test_failures_of_one_reason_are_one_line_under_the_first_job(base, policy):
    fill(base, [("physics", None), ("open", None), ("physics", None), ("physics", None)])
    with base.writer:
        base.writer.execute("UPDATE job SET state = 'Failed', reason = 'exit code ' || (id = 4)")
    assert usage(base.db, policy, lambda *_: True)["faulty"] == [
        {"id": 1, "count": 2, "state": "Failed", "reason": "exit code 0"},
        {"id": 2, "count": 1, "state": "Failed", "reason": "exit code 0"},
        {"id": 4, "count": 1, "state": "Failed", "reason": "exit code 1"},
    ]


def test_one_user_s_many_reasons_do_not_hide_another_s(base, policy, monkeypatch):
    monkeypatch.setattr("lodesman.server.store.read.usage.REASONS_OF_ONE", 3)
    fill(base, [("physics", None)] * 8 + [("open", None)])
    with base.writer:
        base.writer.execute("UPDATE job SET state = 'Failed', reason = 'no luck ' || max(id, 2)")
    found = usage(base.db, policy, lambda *_: True)["faulty"]
    assert len(found) == 4
    assert (found[0]["count"], found[-1]["reason"]) == (2, "no luck 9")


def test_a_hold_without_a_reason_is_listed_once(base, policy, submit):
    submit(1)
    with base.writer:
        base.writer.execute("UPDATE job SET state = 'Held' WHERE id = 1")
    assert usage(base.db, policy, lambda *_: True)["faulty"] == [
        {"id": 1, "count": 1, "state": "Held", "reason": ""}
    ]


def test_a_held_task_queue_is_listed_once(base, policy, submit):
    tq_id = submit(3)
    with base.writer:
        base.writer.execute("INSERT INTO task_queue_hold VALUES (?, 'nothing can run it', 5)", (tq_id,))
    told = usage(base.db, policy, lambda *_: True)
    assert told["states"] == {"Held": 3}
    assert told["faulty"] == [{"id": 1, "count": 3, "state": "Held", "reason": "nothing can run it"}]


def test_times_are_percentiles_of_last_attempts(base, policy):
    fill(base, [("physics", None)] * 4)
    with base.writer:
        base.writer.execute(
            "UPDATE attempt SET started_at = 5, ended_at = 5 + id, outcome = 'Done' WHERE id < 4"
        )
    told = usage(base.db, policy, lambda *_: True)
    assert told["waiting_seconds"] == {
        "count": 3,
        "p50": 5.0,
        "p90": 5.0,
        "p95": 5.0,
        "p99": 5.0,
        "most": 5.0,
    }
    assert told["running_seconds"] == {
        "count": 3,
        "p50": 2.0,
        "p90": 3.0,
        "p95": 3.0,
        "p99": 3.0,
        "most": 3.0,
    }
    assert told["sites"] == [{"site": "North", "cpu_seconds": 0.0, "outcomes": {"Done": 3}}]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_a_percentile_is_the_nearest_rank(durations):
    found = to_builtins(spread(durations))
    real = [one for one in durations if one == one and abs(one) != float("inf")]  # noqa: PLR0124 - not a number
    assert found["count"] == len(real)
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("most", 1.0)):
        if not real:
            assert found[name] is None
        else:
            assert found[name] in real
            assert sum(one <= found[name] for one in real) >= part * len(real)
            assert sum(one < found[name] for one in real) < part * len(real)


def test_jobs_and_attempts_are_gone_through_once_each(base):
    statements = []
    base.db.connection.set_exec_trace(
        lambda _cursor, sql, values: statements.append((sql, values or ())) or True
    )
    usage_facts(base.db)
    base.db.connection.set_exec_trace(None)
    plans = [
        row[3] for sql, values in statements if sql.lstrip().startswith("SELECT")
        for row in base.writer.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    ]  # fmt: skip
    assert [plan for plan in plans if plan.startswith("SCAN j")] == ["SCAN j"]
    # The second and the third walk back from the newest, and stop.
    walks = sorted(plan for plan in plans if plan in ("SCAN a", "SCAN attempt"))
    assert walks == ["SCAN a", "SCAN a", "SCAN attempt"]
    assert not any("AUTOMATIC" in plan and "last_attempt" in plan for plan in plans)


def test_an_attempt_that_was_given_back_before_it_started_does_not_count(base):
    fill(base, [("physics", None)] * 3)
    with base.writer:
        base.writer.execute(
            "UPDATE attempt SET ended_at = 9, outcome = 'Released', cause = 'returned' WHERE id < 3"
        )
        base.writer.execute("UPDATE attempt SET started_at = 6 WHERE id = 2")
    found = usage_facts(base.db).attempts
    assert sorted((one.outcome or "", one.attempts) for one in found) == [("", 1), ("Released", 1)]
