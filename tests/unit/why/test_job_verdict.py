"""never, not now, now: what is unknown opens nothing, and the strongest fact gives the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.vocabulary import MainReason, PilotVerdict, QueueReason
from lodesman.answers.why_jobs import JobPilots
from lodesman.why.verdict import WHO, judge_job, verdict_of


def usable(idle=0, busy=0, coming=0):
    return JobPilots(
        live=idle + busy + coming, usable_idle=idle, usable_busy=busy, usable_waiting=coming, draining=0, silent=0,
        seen_seconds_ago=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "more", "reason"),
    [
        ((0, 3, usable(idle=2)), {}, MainReason.IMPOSSIBLE),
        ((3, None, usable()), {}, MainReason.NOT_DECIDED),
        ((1, 2, usable()), {}, MainReason.NO_ROOM),
        ((3, 2, usable()), {}, MainReason.PILOT_EXPECTED),
        ((1, 0, usable(coming=1)), {}, MainReason.PILOT_COMING),
        ((1, None, usable(busy=1, coming=1)), {}, MainReason.PILOT_COMING),
        ((1, 0, usable(idle=1, busy=1)), {}, MainReason.NEXT),
        ((1, 0, usable(busy=1)), {}, MainReason.PILOTS_BUSY),
        ((1, None, usable(busy=1)), {}, MainReason.PILOTS_BUSY),
        ((1, 1, usable(busy=1)), {}, MainReason.PILOT_EXPECTED),
        ((1, 1, usable()), {"refused": True}, MainReason.NO_SUBMISSION_POOL),
        ((1, 1, usable(busy=1)), {"refused": True}, MainReason.PILOTS_BUSY),
        ((1, 1, usable(idle=1)), {"refused": True}, MainReason.NEXT),
        ((1, 1, usable()), {"sends": False}, MainReason.DIRECTOR_OFF),
        ((1, None, usable()), {"sends": False}, MainReason.NOT_DECIDED),
        ((1, 1, usable(coming=1)), {"sends": False}, MainReason.PILOT_COMING),
        ((3, 3, usable()), {"closed": 3}, MainReason.CLOSED),
        ((3, None, usable()), {"closed": 7}, MainReason.CLOSED),
        ((3, 3, usable()), {"closed": 3, "sends": False}, MainReason.CLOSED),
        ((3, 3, usable()), {"closed": 1}, MainReason.PILOT_EXPECTED),
        ((3, 1, usable()), {"closed": 1}, MainReason.NO_ROOM),
        ((3, None, usable()), {"closed": 1}, MainReason.NOT_DECIDED),
        ((1, 1, usable(idle=1)), {"closed": 1}, MainReason.NEXT),
        ((1, 1, usable(busy=1)), {"closed": 1}, MainReason.PILOTS_BUSY),
        ((0, 1, usable()), {"closed": 1}, MainReason.IMPOSSIBLE),
    ],
)
def test_the_reason_is_what_stands_farthest_from_running(facts, more, reason):
    assert judge_job(*facts, **more) is reason


masks = st.integers(0, 15)
counts = st.integers(0, 2)


@given(masks, st.none() | masks, masks, st.tuples(counts, counts, counts), st.booleans(), st.booleans())
def test_now_if_and_only_if_a_free_pilot_or_room_for_one_are_there(
    eligible, room, closed, pilots, refused, sends
):
    reason = judge_job(eligible, room, usable(*pilots), refused=refused, sends=sends, closed=closed)
    verdict = verdict_of(reason)
    idle, _, coming = pilots
    room_for_one = bool(room and eligible & room & ~closed and sends and not refused)
    assert (verdict == "never") == (not eligible)
    assert (verdict == "now") == bool(eligible and (idle or coming or room_for_one))
    assert verdict in ("never", "not now", "now")


def test_every_reason_has_a_verdict_and_an_actor():
    assert set(WHO) >= {*MainReason, *QueueReason, *PilotVerdict}
    assert all(WHO.values())
    assert {verdict_of(one) for one in MainReason} == {"never", "not now", "now"}
