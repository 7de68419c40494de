"""never, not now, now: what is unknown opens nothing, and the strongest fact gives the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.answers.vocabulary import MainReason, PilotVerdict, QueueReason
from lodesman.answers.why_jobs import JobPilots
from lodesman.why.turns import Turn
from lodesman.why.verdict import WHO, judge_job, judge_with_sites, verdict_of


def usable(idle=0, busy=0, coming=0):
    return JobPilots(
        live=idle + busy + coming, usable_idle=idle, usable_busy=busy, usable_waiting=coming, draining=0, silent=0,
        shut=0, limited=0, seen_seconds_ago=None, free_starts=idle, soon_starts=coming,
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
        ((3, 2, usable(coming=1)), {"failing": 3}, MainReason.PILOTS_FAIL),
        ((3, 2, usable()), {"failing": 3}, MainReason.PILOTS_FAIL),
        ((3, 0, usable()), {"failing": 3}, MainReason.PILOTS_FAIL),
        ((3, 0, usable()), {"failing": 1}, MainReason.NO_ROOM),
        ((3, 2, usable()), {"failing": 7, "sendable": 1}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": 3, "turn": Turn(ahead=9)}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": 1, "closed": 2}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": 1, "gated": 2}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": 2, "unsent": 1}, MainReason.PILOTS_FAIL),
        ((3, 2, usable(coming=1)), {"failing": 4, "unsent": 3}, MainReason.PILOT_COMING),
        # Pilots do start: there, or where none has failed.
        ((3, 2, usable(idle=1)), {"failing": 3}, MainReason.NEXT),
        ((3, 2, usable(busy=1)), {"failing": 3}, MainReason.PILOTS_BUSY),
        ((3, 2, usable(coming=1)), {"failing": 1}, MainReason.PILOT_COMING),
        ((1, 1, usable()), {"failing": 2, "sendable": 1}, MainReason.PILOT_EXPECTED),
        # Something else is in the way first.
        ((3, None, usable()), {"failing": 3}, MainReason.NOT_DECIDED),
        ((3, 2, usable()), {"failing": 3, "refused": True}, MainReason.NO_SUBMISSION_POOL),
        ((3, 3, usable()), {"failing": 3, "closed": 3}, MainReason.CLOSED),
        ((1, 1, usable()), {"failing": 1, "gated": 1}, MainReason.SITE_GATE),
        ((0, 3, usable()), {"failing": 3}, MainReason.IMPOSSIBLE),
    ],
)
def test_pilots_that_do_not_start_help_no_job(facts, more, reason):
    assert judge_with_sites(*facts, **{"gated": 0} | more) is reason


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


def test_every_reason_has_a_verdict_and_an_actor():
    assert set(WHO) >= {*MainReason, *QueueReason, *PilotVerdict}
    assert all(WHO.values())
    assert {verdict_of(one) for one in MainReason} == {"never", "not now", "now"}
