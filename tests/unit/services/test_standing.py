"""Shares received against deserved, and whose failures are named."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.services.standing import standing

SHARES = {"physics": 3000, "open": 1000, "unknown": 1000}
INSERT_SUBMISSION = """INSERT INTO submission (id, base, count, owner, grp, vo, name, created_at, form, record)
VALUES (?1, ?1, 1, 'ann', ?2, 'lab', '', 0, 'json', '')"""
INSERT_JOB = """INSERT INTO job (id, submission_id, tq_id, template_id, state, attempt, since, last_attempt, reason)
VALUES (?1, ?1, 1, 1, ?2, 1, 0, ?1, ?3)"""
INSERT_ATTEMPT = """INSERT INTO attempt (id, job_id, tq_id, number, pilot_id, claim_token, site, eligible, claimed_at)
VALUES (?1, ?1, 1, 1, 1, 'token', 'North', ?2, 5)"""


def fill(base, claims):
    """One job per claim: (group, groups that were eligible or None)."""
    with base.writer:
        for table in ("submission", "job", "attempt"):
            base.writer.execute(f"DELETE FROM {table}")
        for number, (group, eligible) in enumerate(claims, 1):
            base.writer.execute(INSERT_SUBMISSION, (number, group))
            base.writer.execute(INSERT_JOB, (number, "Matched", ""))
            told = None if eligible is None else json.dumps(sorted(eligible))
            base.writer.execute(INSERT_ATTEMPT, (number, told))


claims = st.lists(
    st.sets(st.sampled_from(sorted(SHARES)), min_size=1).flatmap(
        lambda eligible: st.tuples(st.sampled_from(sorted(eligible)), st.just(eligible) | st.none())
    ),
    max_size=30,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(claims)
def test_deserved_is_the_sum_over_claims_of_the_share_among_the_eligible(base, policy, found):
    fill(base, found)
    wanted: Counter[str] = Counter()
    for _, eligible in found:
        for name in eligible or ():
            wanted[name] += Fraction(SHARES[name], sum(SHARES[one] for one in eligible))  # type: ignore[assignment]
    rows = {row["group"]: row for row in standing(base.db, policy, lambda *_: True)["groups"]}
    assert {name: row["claims"] for name, row in rows.items() if row["claims"]} == Counter(
        g for g, _ in found
    )
    for name, row in rows.items():
        assert row["deserved"] == pytest.approx(float(wanted[name]))
        assert row["share"] == SHARES[name]
    assert sum(row["deserved"] for row in rows.values()) == pytest.approx(
        sum(row["compared"] for row in rows.values())
    )


def test_only_failures_of_those_who_may_be_seen_are_named(base, policy):
    fill(base, [("physics", None), ("open", None)])
    with base.writer:
        base.writer.execute("UPDATE job SET state = 'Failed', reason = 'no luck ' || id")
    told = standing(base.db, policy, lambda owner, group, vo: (owner, group, vo) == ("ann", "open", "lab"))
    assert told["faulty"] == [{"id": 2, "count": 1, "state": "Failed", "reason": "no luck 2"}]


def test_an_attempt_number_that_was_given_twice_is_found(base, policy):
    fill(base, [("physics", None)] * 2)
    assert standing(base.db, policy, lambda *_: True)["attempts"] == {
        "all": 2, "jobs": 2, "same_number_twice": 0
    }  # fmt: skip
    with base.writer:
        base.writer.execute("UPDATE attempt SET job_id = 1")
    assert standing(base.db, policy, lambda *_: True)["attempts"]["same_number_twice"] == 1


def test_an_empty_house(base, policy):
    told = standing(base.db, policy, lambda *_: True)
    assert told["states"] == {}
    assert told["groups"] == told["sites"] == told["pilots"] == told["faulty"] == []
