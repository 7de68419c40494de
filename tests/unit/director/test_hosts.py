"""Black holes: the two-sided evidence against a host, how long it is shut, and what clears it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.hosts import (
    FAILS_WITHIN_S,
    WINDOW_S,
    Failure,
    HostTrial,
    after_probe,
    failed_at_once,
    failing_sites,
    find_cleared_jobs,
    find_suspects,
    judge_hosts,
    may_probe,
    open_host,
    outlived_s,
    probe_holds,
    shut_by_fault,
    shut_host,
    shut_with_sites,
    still_holds,
    suspects_by_site,
)
from lodesman.wire.hosts import HostName, HostRecord

NOW = 1_000_000.0
HOLE, GOOD, THIRD = HostName("North", "wn1"), HostName("North", "wn2"), HostName("South", "wn1")
UNKNOWN = HostName("North", "")
A, B = 1, 2


def failures(*task_queues, host=HOLE, at=NOW - 10.0, jobs=100):
    return [Failure(at + n, host, tq_id, jobs + n, 1.0) for n, tq_id in enumerate(task_queues)]


def all_tried(found, *elsewhere):
    """What a table of attempts would say: those failures on their hosts, and more elsewhere."""
    return [HostTrial(one.tq_id, one.host, 1, 1) for one in found] + list(elsewhere)


def shut(found, tried, now=NOW, records=()):
    return dict(judge_hosts(dict(records), found, tried, now))


WELL = (HostTrial(A, GOOD, 4, 1), HostTrial(B, THIRD, 1, 0))
OTHER_HOLE = HostName("North", "wn3")
WELL_ON_TWO = (*WELL, HostTrial(B, GOOD, 1, 0), HostTrial(A, THIRD, 1, 0))


@pytest.mark.parametrize(
    ("queues", "tried", "is_shut"),
    [
        ((A, A, A, B, B), WELL, True),
        ((A, A, B, B), WELL, False),  # four are too few
        ((A, A, A, A, A, A), WELL, False),  # of one task queue
        ((A, A, A, B, B), (), False),  # there is no elsewhere
        (
            (A, A, A, B, B),
            (HostTrial(A, UNKNOWN, 9, 0), HostTrial(B, UNKNOWN, 9, 0)),
            False,
        ),  # may be the same host
        (
            (A, A, A, B, B),
            (HostTrial(A, GOOD, 4, 2), HostTrial(B, THIRD, 1, 0)),
            False,
        ),  # half of A fails elsewhere, too
        ((A, A, A, B, B), (HostTrial(A, GOOD, 5, 2), HostTrial(B, THIRD, 1, 0)), True),
        (
            (A, A, A, B, B),
            (HostTrial(A, GOOD, 900, 0), HostTrial(B, GOOD, 9, 9)),
            False,
        ),  # many good ones of A hide no B
        ((A, A, A, B, B), (*WELL, HostTrial(A, HOLE, 2, 0)), False),  # A often succeeds there
        ((A, A, A, B, B), (*WELL, HostTrial(A, HOLE, 1, 0)), True),
        # Another black hole has one vote, however much it fails; half of the hosts is not less than half.
        ((A, A, A, B, B), (*WELL_ON_TWO, HostTrial(A, OTHER_HOLE, 999, 999)), True),
        ((A, A, A, B, B), (*WELL, HostTrial(A, OTHER_HOLE, 1, 1)), False),
    ],
)
def test_the_evidence_has_two_sides(queues, tried, is_shut):
    found = failures(*queues)
    assert (HOLE in shut(found, all_tried(found, *tried))) == is_shut


@pytest.mark.parametrize(
    ("elsewhere", "is_failing"),
    [
        ((HostTrial(A, THIRD, 1, 0), HostTrial(B, THIRD, 1, 0)), True),
        (
            (HostTrial(A, GOOD, 1, 0), HostTrial(B, GOOD, 1, 0)),
            False,
        ),  # a host of the same site is no elsewhere
        ((HostTrial(A, THIRD, 1, 0), HostTrial(B, THIRD, 2, 1)), False),  # B fails at the other site, too
        (
            (HostTrial(A, THIRD, 1, 0), HostTrial(B, THIRD, 1, 0), HostTrial(A, GOOD, 2, 0)),
            False,
        ),  # A succeeds at this one
        ((HostTrial(A, THIRD, 1, 0), HostTrial(B, THIRD, 1, 0), HostTrial(B, UNKNOWN, 9, 0)), True),
    ],
)
def test_a_site_is_judged_by_all_its_hosts_together(elsewhere, is_failing):
    """One failure on each of five hosts: no single one of them is suspect."""
    found = [
        one._replace(host=HostName("North", f"hole{n}")) for n, one in enumerate(failures(A, A, A, B, B))
    ]
    assert find_suspects(found, NOW) == {}
    assert len(suspects_by_site(found, NOW)) == 5
    sites = failing_sites(found, all_tried(found, *elsewhere), NOW)
    assert list(sites) == ["North"] * is_failing
    if is_failing:
        assert (sites["North"].failures, sites["North"].hosts) == (5, 1)


def test_one_failure_shuts_a_host_where_its_whole_site_fails():
    found = [
        one._replace(host=HostName("North", f"hole{n}")) for n, one in enumerate(failures(A, A, A, B, B))
    ]
    elsewhere = (HostTrial(A, THIRD, 1, 0), HostTrial(B, THIRD, 1, 0))
    sites = failing_sites(found, all_tried(found, *elsewhere), NOW)
    other = failures(A, host=THIRD)
    records = dict(shut_with_sites(sites, {}, [*found, *other], NOW))
    assert records.keys() == {one.host for one in found}
    assert {record.retry_at for record in records.values()} == {NOW + 900.0}
    text = records[found[0].host].evidence.text
    assert text.startswith("at its whole site 5 of 5 attempts from 2 task queues failed")
    assert text.endswith("these fail at 0 of 1 other site")
    # One that is shut, and one whose probe was well since, stay as they are.
    known = {found[0].host: records[found[0].host], found[1].host: open_host(records[found[1].host], NOW)}
    assert dict(shut_with_sites(sites, known, found, NOW)).keys() == {one.host for one in found[2:]}
    # A job that went from host to host of this site is no proof that it fails everywhere.
    same = [one._replace(job_id=7) for one in found]
    assert shut(same, all_tried(same, *elsewhere), records=records) == {}
    assert dict(shut_with_sites({}, {}, found, NOW)) == {}


def test_a_job_that_fails_at_three_sites_makes_none_suspect():
    found = failures(A, A, A, B, B)
    others = [one._replace(host=HostName(site, "w")) for one in found for site in ("South", "East")]
    assert suspects_by_site([*found, *others], NOW) == []
    assert suspects_by_site([one._replace(host=UNKNOWN) for one in found], NOW) == []


def test_the_record_has_the_numbers_and_says_them():
    found = failures(A, A, A, B, B)
    (record,) = shut(found, all_tried(found, *WELL)).values()
    assert (record.shut, record.since, record.retry_at, record.trips) == (True, NOW, NOW + 900.0, 1)
    assert record.evidence.jobs == [100, 101, 102, 103, 104]
    assert record.evidence.text == (
        "5 of 5 attempts from 2 task queues failed within 60 s of their start in 30 min; "
        "these fail on 0 of 2 other hosts"
    )


def test_only_the_window_counts():
    old = failures(A, A, B, B, at=NOW - WINDOW_S - 10.0)
    found = [*old, *failures(A)]
    assert shut(found, all_tried(found, *WELL)) == {}
    assert find_suspects(failures(A, A, A, B, B, at=NOW - WINDOW_S + 1.0), NOW).keys() == {HOLE}


@pytest.mark.parametrize(
    ("state", "cause", "seconds", "counts"),
    [
        ("Failed", "exit", 60.0, True),
        ("Failed", "exit", 60.1, False),
        ("Failed", "not-started", 0.0, True),
        ("Released", "warden-lost", 1.0, True),
        ("Released", "input", 1.0, True),
        ("Done", "ok", 1.0, False),
        ("Released", "pilot-shutdown", 1.0, False),
        ("Released", "pilot-lost", 1.0, False),
        ("Failed", "killed", 1.0, False),
    ],
)
def test_what_counts_as_a_failure(state, cause, seconds, counts):
    assert failed_at_once(state, cause, seconds) == counts
    assert FAILS_WITHIN_S == 60.0


@pytest.mark.parametrize(
    ("seconds", "outlived"), [((1.0, 2.0), 9.0), ((0.0,), 5.0), ((1.0, 40.0), 60.0), ((), 60.0)]
)
def test_attempts_elsewhere_count_as_soon_as_they_have_outlived_the_failures(seconds, outlived):
    assert outlived_s([Failure(NOW, HOLE, A, 1, one) for one in seconds]) == outlived


@pytest.mark.parametrize(
    ("state", "cause", "seconds", "holds"),
    [
        ("Done", "ok", 1.0, True),
        ("Failed", "exit", 1.0, False),
        ("Failed", "exit", 61.0, True),
        ("Released", "warden-lost", 1.0, False),
        ("Failed", "killed", 1.0, None),
        ("Released", "pilot-shutdown", 61.0, None),
    ],
)
def test_what_a_probe_says_of_its_host(state, cause, seconds, holds):
    assert probe_holds(state, cause, seconds) is holds


def test_a_probe_opens_its_host_or_shuts_it_for_longer_or_says_nothing():
    record = HostRecord(shut=True, since=NOW - 900.0, retry_at=NOW, trips=1)
    well = after_probe(record, "Done", "ok", 1.0, NOW)
    assert well == HostRecord(shut=False, since=NOW, trips=1)
    failed = after_probe(record, "Failed", "exit", 1.0, NOW)
    assert (failed.shut, failed.since, failed.trips) == (True, NOW - 900.0, 2)
    assert failed.retry_at > NOW + 900.0
    assert after_probe(record, "Failed", "killed", 1.0, NOW) is None


@pytest.mark.parametrize(
    ("judged_since", "known", "holds"),
    [
        (NOW, None, True),
        (NOW, HostRecord(shut=False, since=NOW - 1.0), True),
        (NOW, HostRecord(shut=False, since=NOW + 1.0), False),  # opened meanwhile
        (NOW, HostRecord(shut=True, since=NOW - 1.0), False),  # shut already
        (None, None, False),
        (None, HostRecord(shut=True, since=NOW), True),
        (None, HostRecord(shut=True, since=NOW, by="root"), False),  # an administrator shut it
        (None, HostRecord(shut=False, since=NOW, by="root"), True),
    ],
)
def test_a_judgement_does_not_undo_what_was_done_meanwhile(judged_since, known, holds):
    judged = None if judged_since is None else HostRecord(shut=True, since=judged_since)
    assert still_holds(judged, known) is holds


def test_a_job_that_fails_on_three_hosts_clears_them():
    found = failures(A, A, A, B, B)
    same = [Failure(NOW - 5.0, host, B, 104, 1.0) for host in (GOOD, THIRD)]
    assert find_cleared_jobs([*found, same[0]]) == frozenset()
    assert find_cleared_jobs([*found, *same]) == {104}
    tried = all_tried(found, *WELL, HostTrial(B, THIRD, 9, 0))
    assert shut([*found, same[0]], tried).keys() == {HOLE}
    assert shut([*found, *same], tried) == {}
    # One that is shut already is opened, unless an administrator closed it.
    (record,) = shut(found, tried).values()
    assert shut([*found, *same], tried, records={HOLE: record}.items()) == {HOLE: None}
    ordered = HostRecord(shut=True, since=NOW, by="root", reason="disk", evidence=record.evidence)
    assert shut([*found, *same], tried, records={HOLE: ordered}.items()) == {}


def test_each_return_doubles_the_time_up_to_four_hours():
    record, waits = None, []
    for _ in range(7):
        record = shut_host(record, NOW)
        waits.append(record.retry_at - NOW)
    assert waits == [900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 14_400.0, 14_400.0]
    assert record.since == NOW
    # Open after a probe, it is not forgiven for a day.
    well = open_host(record, NOW)
    assert (well.shut, well.trips) == (False, 7)
    found = failures(A, A, A, B, B, at=NOW + 5.0)
    tried = all_tried(found, *WELL)
    again = shut(found, tried, NOW + 20.0, {HOLE: well}.items())[HOLE]
    assert (again.retry_at, again.trips) == (NOW + 20.0 + 14_400.0, 8)
    assert shut([], [], NOW + 86_399.0, {HOLE: well}.items()) == {}
    assert shut([], [], NOW + 86_400.0, {HOLE: well}.items()) == {HOLE: None}


def test_what_failed_before_a_host_was_opened_counts_no_more():
    found = failures(A, A, A, B, B)
    tried = all_tried(found, *WELL)
    assert shut(found, tried, records={HOLE: HostRecord(shut=False, since=NOW - 7.5)}.items()) == {}
    assert HOLE in shut(found, tried, records={HOLE: HostRecord(shut=False, since=NOW - 11.0)}.items())


def test_a_probe_comes_when_its_time_has_come_and_never_against_an_order():
    record = shut_host(None, NOW)
    assert not may_probe(record, NOW + 899.9)
    assert may_probe(record, NOW + 900.0)
    assert not may_probe(HostRecord(shut=True, since=NOW, by="root", reason="disk"), NOW + 1e9)


def test_what_a_pilot_finds_wrong_shuts_its_host_at_once():
    """And again for twice as long once it could have been tried; never against an order, nor before its time."""
    record = shut_by_fault(None, "No space left on device in /s", NOW)
    assert (record.retry_at, record.trips, record.fault) == (NOW + 900.0, 1, "No space left on device in /s")
    assert record.ground == "a pilot there found: No space left on device in /s"
    assert shut_by_fault(record, "other", NOW + 899.0) is None
    again = shut_by_fault(record, "other", NOW + 900.0)
    assert (again.since, again.retry_at, again.trips, again.fault) == (NOW, NOW + 900.0 + 1_800.0, 2, "other")
    assert shut_host(again, NOW + 3_000.0).fault == "other"  # its probe failed
    assert shut_by_fault(HostRecord(shut=True, since=NOW, by="root", reason="disk"), "x", NOW + 1e9) is None
    assert open_host(again, NOW).fault == ""
    by_evidence = shut(found := failures(A, A, A, B, B), all_tried(found, *WELL))[HOLE]
    after = shut_by_fault(by_evidence, "x", by_evidence.retry_at)
    assert (after.evidence, after.fault) == (None, "x")
    assert shut_host(open_host(after, NOW), NOW, by_evidence.evidence).ground == by_evidence.evidence.text


def test_a_shut_host_is_not_judged_again():
    found = failures(A, A, A, B, B)
    assert shut(found, all_tried(found, *WELL), records={HOLE: shut_host(None, NOW)}.items()) == {}


# --- properties ---------------------------------------------------------------------------------------------------------

hosts = st.sampled_from([HOLE, GOOD, THIRD, HostName("South", "wn9")])
attempts = st.lists(
    st.tuples(hosts, st.integers(1, 3), st.booleans(), st.integers(1, 60), st.floats(0.0, 2 * WINDOW_S)),
    max_size=80,
)


def world(rows):
    """(failures, tried) of (host, task queue, whether it failed, job, how long ago)."""
    found = [
        Failure(NOW - ago, host, tq_id, job, 1.0) for host, tq_id, is_failure, job, ago in rows if is_failure
    ]
    recent = [one for one in rows if one[4] < WINDOW_S]
    return found, [HostTrial(tq_id, host, 1, int(is_failure)) for host, tq_id, is_failure, *_ in recent]


@given(rows=attempts, seed=st.integers(0, 9))
def test_nothing_depends_on_the_order_of_arrival(rows, seed):
    mixed = random.Random(seed).sample(rows, len(rows))
    assert shut(*world(rows)) == shut(*world(mixed))


@given(rows=attempts)
def test_a_healthy_host_among_failing_jobs_is_never_shut(rows):
    """Whatever else happens: a host is shut only if two task queues fail on it, and not on most other hosts."""
    found, tried = world(rows)
    ends = {}
    for one in tried:
        ends.setdefault((one.tq_id, one.host), []).append(one.failed)
    for host in shut(found, tried):
        guilty = 0
        for tq_id in (1, 2, 3):
            here = ends.get((tq_id, host), [])
            others = [bad for (queue, other), bad in ends.items() if queue == tq_id and other != host]
            failing = [bad for bad in others if sum(bad) >= len(bad) / 2]
            guilty += bool(here and sum(here) >= len(here) * 0.75 and len(failing) < len(others) / 2)
        assert guilty >= 2


@given(rows=attempts, queues=st.lists(st.sampled_from([A, B]), min_size=5, max_size=12))
def test_a_host_where_all_fails_while_others_succeed_is_shut_at_the_fifth(rows, queues):
    """Other hosts run these task queues well, whatever happens with a third one."""
    queues = [A, B, *queues[2:]]
    found, tried = world([one for one in rows if one[0] != HOLE and one[1] == 3])
    ours = failures(*queues, jobs=1_000)
    for n in range(len(ours) + 1):
        here = ours[:n]
        given_out = [*tried, *all_tried(here), HostTrial(A, GOOD, 2, 0), HostTrial(B, GOOD, 2, 0)]
        assert (HOLE in shut([*found, *here], given_out)) == (n >= 5)


@given(rows=attempts)
def test_with_one_host_there_is_no_elsewhere(rows):
    one_host = [(HOLE, *rest) for _, *rest in rows]
    assert shut(*world(one_host)) == {}
