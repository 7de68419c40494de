"""never, not now, now: what is unknown opens nothing, and the strongest fact gives the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.decide.explain.actors import OF_JOBS, OF_PILOTS, OF_QUEUES, who_ends_parents, who_makes_room
from lodesman.decide.explain.turns import Turn
from lodesman.decide.explain.verdict import LimitMasks, StoppedPilots, judge_job, judge_with_sites, verdict_of
from lodesman.wire.quotas import RUNNING_JOBS, FullBucket
from lodesman.wire.vocabulary import MainReason, PilotVerdict, QueueReason
from lodesman.wire.why_jobs import JobPilots


def usable(idle=0, busy=0, coming=0):
    return JobPilots(
        live=idle + busy + coming, usable_idle=idle, usable_busy=busy, usable_waiting=coming, draining=0, silent=0,
        shut=0, limited=0, seen_seconds_ago=None, free_starts=idle, soon_starts=coming, unreached=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "more", "reason"),
    [
        ((0, 3, usable(idle=2)), {}, MainReason.IMPOSSIBLE),
        ((3, None, usable()), {}, MainReason.NOT_DECIDED),
        ((1, 2, usable()), {}, MainReason.NO_ROOM),
        ((3, 2, usable()), {"sendable": 1}, MainReason.PILOT_EXPECTED),
        ((3, 2, usable()), {}, MainReason.NO_PILOT_SOON),
        ((1, 0, usable(coming=1)), {}, MainReason.PILOT_COMING),
        ((1, None, usable(busy=1, coming=1)), {}, MainReason.PILOT_COMING),
        ((1, 0, usable(idle=1, busy=1)), {}, MainReason.NEXT),
        ((1, 0, usable(busy=1)), {}, MainReason.PILOTS_BUSY),
        ((1, None, usable(busy=1)), {}, MainReason.PILOTS_BUSY),
        ((1, 1, usable(busy=1)), {"sendable": 1}, MainReason.PILOT_EXPECTED),
        ((1, 1, usable(busy=1)), {}, MainReason.PILOTS_BUSY),
        ((1, 1, usable()), {"refused": True}, MainReason.NO_SUBMISSION_POOL),
        ((1, 1, usable(busy=1)), {"refused": True}, MainReason.PILOTS_BUSY),
        ((1, 1, usable(idle=1)), {"refused": True}, MainReason.NEXT),
        ((1, 1, usable()), {"sends": False}, MainReason.DIRECTOR_OFF),
        ((1, None, usable()), {"sends": False}, MainReason.NOT_DECIDED),
        ((1, 1, usable(coming=1)), {"sends": False}, MainReason.PILOT_COMING),
        ((3, 3, usable()), {"closed": 3}, MainReason.CLOSED),
        ((3, None, usable()), {"closed": 7}, MainReason.CLOSED),
        ((3, 3, usable()), {"closed": 3, "sends": False}, MainReason.CLOSED),
        ((3, 3, usable()), {"closed": 1, "sendable": 1}, MainReason.PILOT_EXPECTED),
        ((3, 1, usable()), {"closed": 1}, MainReason.NO_ROOM),
        ((3, None, usable()), {"closed": 1}, MainReason.NOT_DECIDED),
        ((1, 1, usable(idle=1)), {"closed": 1}, MainReason.NEXT),
        ((1, 1, usable(busy=1)), {"closed": 1}, MainReason.PILOTS_BUSY),
        ((0, 1, usable()), {"closed": 1}, MainReason.IMPOSSIBLE),
        # Six cores are busy, six pilots wait behind them, 1,975 jobs are before it; or the pilots take only those before.
        ((1, 1, usable(busy=6)), {"turn": Turn(ahead=1_975)}, MainReason.QUEUED),
        ((1, 1, usable(idle=2, coming=1)), {"turn": Turn(ahead=3)}, MainReason.QUEUED),
        ((1, 1, usable(idle=2, coming=1)), {"turn": Turn(ahead=2)}, MainReason.PILOT_COMING),
        ((1, 1, usable(idle=2, coming=1)), {"turn": Turn(ahead=4), "sendable": 2}, MainReason.PILOT_EXPECTED),
        ((1, 0, usable()), {"turn": Turn(ahead=4)}, MainReason.NO_ROOM),
        ((1, 0, replace(usable(coming=6), soon_starts=0)), {}, MainReason.NO_PILOT_SOON),
    ],
)
def test_the_reason_is_what_stands_farthest_from_running(facts, more, reason):
    assert judge_job(*facts, **more) is reason


@pytest.mark.parametrize(
    ("facts", "more", "reason"),
    [
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(3)}, MainReason.PILOTS_FAIL),
        ((3, 2, usable()), {"failing": StoppedPilots(3)}, MainReason.PILOTS_FAIL),
        ((3, 0, usable()), {"failing": StoppedPilots(3)}, MainReason.PILOTS_FAIL),
        ((3, 0, usable()), {"failing": StoppedPilots(1)}, MainReason.NO_ROOM),
        ((3, 2, usable()), {"failing": StoppedPilots(7), "sendable": 1}, MainReason.PILOTS_FAIL),
        (
            (3, 2, usable(coming=1)),
            {"failing": StoppedPilots(3), "turn": Turn(ahead=9)},
            MainReason.PILOTS_FAIL,
        ),
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(1), "closed": 2}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(1), "gated": 2}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(2), "unsent": 1}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(4), "unsent": 3}, MainReason.PILOT_COMING),
        ((3, 2, usable()), {"failing": StoppedPilots(3, 3)}, MainReason.NODE_FAULT),
        ((3, 2, usable()), {"failing": StoppedPilots(3, 1)}, MainReason.PILOTS_FAIL),
        ((1, 1, usable()), {"failing": StoppedPilots(1, 3), "closed": 2}, MainReason.NODE_FAULT),
        ((3, 2, replace(usable(), unreached=1)), {"failing": StoppedPilots(3, 3)}, MainReason.UNREACHED),
        (
            (3, 2, replace(usable(), unreached=1)),
            {"failing": StoppedPilots(1), "sendable": 1},
            MainReason.PILOT_EXPECTED,
        ),
        # Pilots do start: there, or where none has failed.
        ((3, 2, usable(idle=1)), {"failing": StoppedPilots(3)}, MainReason.NEXT),
        ((3, 2, usable(busy=1)), {"failing": StoppedPilots(3)}, MainReason.PILOTS_BUSY),
        ((3, 2, usable(coming=1)), {"failing": StoppedPilots(1)}, MainReason.PILOT_COMING),
        ((1, 1, usable()), {"failing": StoppedPilots(2), "sendable": 1}, MainReason.PILOT_EXPECTED),
        # Something else is in the way first.
        ((3, None, usable()), {"failing": StoppedPilots(3)}, MainReason.NOT_DECIDED),
        ((3, 2, usable()), {"failing": StoppedPilots(3), "refused": True}, MainReason.NO_SUBMISSION_POOL),
        ((3, 3, usable()), {"failing": StoppedPilots(3), "closed": 3}, MainReason.CLOSED),
        ((1, 1, usable()), {"failing": StoppedPilots(1), "gated": 1}, MainReason.SITE_GATE),
        ((0, 3, usable()), {"failing": StoppedPilots(3)}, MainReason.IMPOSSIBLE),
    ],
)
def test_pilots_that_do_not_start_help_no_job(facts, more, reason):
    assert judge_with_sites(*facts, **{"gated": 0} | more) is reason


SLOT = StoppedPilots(kept=1)


@pytest.mark.parametrize(
    ("pilots", "more", "reason"),
    [
        (usable(busy=1), {"failing": SLOT}, MainReason.CLOSED),
        (usable(coming=1), {"failing": SLOT}, MainReason.PILOT_COMING),
        (replace(usable(coming=1), soon_starts=0), {"failing": SLOT}, MainReason.CLOSED),
        (usable(idle=1), {"failing": SLOT}, MainReason.NEXT),
        (usable(busy=1), {"failing": SLOT, "turn": Turn(ahead=1)}, MainReason.QUEUED),
        (usable(busy=1), {"failing": StoppedPilots(kept=2), "turn": Turn(ahead=1)}, MainReason.CLOSED),
        (usable(busy=1), {}, MainReason.PILOTS_BUSY),
        # A host that gets no jobs: the only one of queue 1, or that of all pilots where no more may be sent.
        (usable(), {"failing": StoppedPilots(shut=1)}, MainReason.HOST_SHUT),
        (usable(busy=1), {"failing": StoppedPilots(shut=1)}, MainReason.PILOTS_BUSY),
        (usable(), {"failing": StoppedPilots(1, shut=1)}, MainReason.HOST_SHUT),
        (usable(), {"failing": StoppedPilots(1, on_shut=1)}, MainReason.HOST_SHUT),
        (usable(coming=1), {"failing": StoppedPilots(shut=1), "turn": Turn(ahead=9)}, MainReason.QUEUED),
        (usable(), {"failing": StoppedPilots(shut=1), "closed": 1}, MainReason.CLOSED),
        (usable(), {"failing": StoppedPilots(shut=2)}, MainReason.NO_PILOT_SOON),
        (replace(usable(), shut=1), {}, MainReason.NO_PILOT_SOON),
        (replace(usable(), shut=1), {"open_queues": 0}, MainReason.HOST_SHUT),
        (usable(), {"open_queues": 0}, MainReason.NO_ROOM),
    ],
)
def test_what_keeps_pilots_from_free_slots_and_jobs_is_the_reason(pilots, more, reason):
    given = {"gated": 0, "turn": Turn(), "open_queues": 1} | more
    assert judge_with_sites(1, given.pop("open_queues"), pilots, **given) is reason


masks = st.integers(0, 15)
counts = st.integers(0, 2)


@given(
    masks, st.none() | masks, masks, st.tuples(counts, counts, counts), st.booleans(), st.booleans(), counts, counts
)  # fmt: skip
def test_now_if_and_only_if_pilots_in_time_take_it(
    eligible, room, closed, pilots, refused, sends, ahead, sendable
):
    reason = judge_job(
        eligible, room, usable(*pilots), refused=refused, sends=sends, closed=closed, turn=Turn(ahead=ahead),
        sendable=sendable,
    )  # fmt: skip
    verdict = verdict_of(reason)
    idle, _, coming = pilots
    may_be_sent = bool(room and eligible & room & ~closed and sends and not refused)
    assert (verdict == "never") == (not eligible)
    assert (verdict == "now") == bool(eligible and ahead < idle + coming + may_be_sent * sendable)
    assert verdict in ("never", "not now", "now")
    assert reason is not MainReason.QUEUED or ahead


def test_every_reason_has_a_verdict_and_an_actor_of_its_own_set():
    """Members of two sets that are equal as words are one key in a table of both."""
    for words, table in ((MainReason, OF_JOBS), (QueueReason, OF_QUEUES), (PilotVerdict, OF_PILOTS)):
        assert [one for one in table if type(one) is not words] == []
        assert (set(table), len(table)) == (set(words), len(words))
        assert all(table.values())
    assert {verdict_of(one) for one in MainReason} == {"never", "not now", "now"}


ALIKE = {
    "director-has-not-decided", "director-sends-none", "no-submission-pool", "no-room-for-pilots",
}  # fmt: skip
"""The words that jobs and CE queues share, since they mean the same."""
KEPT = {"limited", "at-most", "site-gate"}
"""Those that are said of a CE queue about all jobs that could be run there."""


def test_no_two_sets_share_a_word_by_accident():
    jobs, queues, pilots = ({one.value for one in words} for words in (MainReason, QueueReason, PilotVerdict))
    assert (jobs & queues, queues & pilots) == (ALIKE | KEPT, {"limited"})
    assert jobs & pilots == {"limited"}
    for word in ALIKE | KEPT:
        assert verdict_of(MainReason(word)) == verdict_of(QueueReason(word))
        assert word in KEPT or OF_JOBS[MainReason(word)] == OF_QUEUES[QueueReason(word)]


FULL = replace(usable(), limited=1)


@pytest.mark.parametrize(
    ("facts", "more", "reason"),
    [
        ((3, 0, usable()), {}, MainReason.NO_ROOM),
        ((3, 0, usable()), {"limits": LimitMasks(3)}, MainReason.LIMITED),
        ((3, 3, usable()), {"limits": LimitMasks(3), "sendable": 1}, MainReason.LIMITED),
        ((3, None, usable()), {"limits": LimitMasks(3)}, MainReason.LIMITED),
        ((3, 0, usable()), {"limits": LimitMasks(3, 1)}, MainReason.LIMITED),
        ((3, 0, usable()), {"limits": LimitMasks(3, 3)}, MainReason.OVER_LIMIT),
        ((3, 3, usable()), {"limits": LimitMasks(7, 7), "closed": 3}, MainReason.OVER_LIMIT),
        ((3, 0, usable()), {"limits": LimitMasks(3, 3), "gated": 3}, MainReason.OVER_LIMIT),
        ((3, 0, usable()), {"limits": LimitMasks(3, 1), "gated": 3}, MainReason.SITE_GATE),
        ((3, 1, usable()), {"limits": LimitMasks(1), "sendable": 1}, MainReason.LIMITED),
        ((3, 0, usable()), {"limits": LimitMasks(1)}, MainReason.NO_ROOM),
        ((3, 1, usable()), {"limits": LimitMasks(1, 1)}, MainReason.NO_ROOM),
        ((3, 1, usable()), {"limits": LimitMasks(1), "closed": 1}, MainReason.NO_ROOM),
        ((3, 0, FULL), {"limits": LimitMasks(1)}, MainReason.LIMITED),
        ((3, 0, FULL), {}, MainReason.LIMITED),
        ((3, 3, usable()), {"limits": LimitMasks(1), "sendable": 1}, MainReason.PILOT_EXPECTED),
        ((3, 3, FULL), {"limits": LimitMasks(3), "failing": StoppedPilots(3)}, MainReason.LIMITED),
        ((3, 3, FULL), {"limits": LimitMasks(1), "failing": StoppedPilots(3)}, MainReason.PILOTS_FAIL),
        # A pilot on a host where it is free.
        ((3, 0, usable(idle=1)), {"limits": LimitMasks(3, 3)}, MainReason.NEXT),
        ((3, 0, usable(busy=1)), {"limits": LimitMasks(3)}, MainReason.PILOTS_BUSY),
        ((0, 0, usable()), {"limits": LimitMasks(1, 1)}, MainReason.IMPOSSIBLE),
    ],
)
def test_what_limits_keep_from_starting_waits_for_them_or_in_vain(facts, more, reason):
    assert judge_with_sites(*facts, **{"gated": 0} | more) is reason


def bucket(resource="slots", limit="1", hopeless=False, rule="all/1", need="2"):
    return FullBucket(
        rule=rule, of=[], resource=resource, used="0", limit=limit, need=need, hopeless=hopeless
    )


QUOTA = "the server administrator: lode quota change"


@pytest.mark.parametrize(
    ("full", "who"),
    [
        ([], f"time, as jobs that use the limit end; or {QUOTA}"),
        ([bucket()], f"time, as jobs that use the limit end; or {QUOTA}"),
        ([bucket(limit="0", hopeless=True)], QUOTA),
        ([bucket(hopeless=True)], f"you, by asking for at most slots=1; or {QUOTA}"),
        ([bucket("arch", "lx-*", need="sol", hopeless=True)], f"you, by asking for arch=lx-*; or {QUOTA}"),
        ([bucket("matlab", "0", hopeless=True), bucket()], QUOTA),
        ([bucket(RUNNING_JOBS, "0", True, "RunningLimit/Owner/ann", "1")], "the site administrator: RunningLimit/Owner/ann"),
        (
            [bucket(RUNNING_JOBS, rule="RunningLimit/Owner/ann")],
            "time, as jobs that use the limit end; or the site administrator: RunningLimit/Owner/ann",
        ),
    ],
)  # fmt: skip
def test_time_makes_no_room_where_a_limit_is_too_small(full, who):
    assert who_makes_room(full, never=any(one.hopeless for one in full)) == who


def test_a_limit_that_is_too_small_in_some_queues_alone_leaves_time_in_the_others():
    full = [bucket(), bucket(limit="0", hopeless=True)]
    assert who_makes_room(full, never=False) == f"time, as jobs that use the limit end; or {QUOTA}"


@pytest.mark.parametrize(
    ("held", "who"),
    [
        ({}, "time, as the jobs that it waits for end"),
        ({"user": [3, 5]}, "you, or another user who may control the job: lode release 3 5"),
        ({"admin": [3]}, "an administrator: lode release 3"),
        ({"impossible": [3]}, "who can let job 3 run: lode why 3"),
    ],
)
def test_who_holds_a_parent_can_end_that_its_children_wait(held, who):
    assert who_ends_parents(held) == who
