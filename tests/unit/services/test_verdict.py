"""never, not now, now: what is unknown opens nothing, and the strongest fact gives the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.vocabulary import MainReason
from lodesman.services.why.pilot_book import Usable
from lodesman.services.why.verdict import NEVER, NOT_NOW, NOW, VERDICTS, WHO, Facts, judge


def usable(idle=0, busy=0, coming=0):
    return Usable(live=idle + busy + coming, idle=idle, busy=busy, coming=coming, draining=0, heard_at=None)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(eligible=0, open=3, usable=usable(idle=2)), MainReason.IMPOSSIBLE),
        (Facts(eligible=3, open=None, usable=usable()), MainReason.NOT_DECIDED),
        (Facts(eligible=1, open=2, usable=usable()), MainReason.NO_ROOM),
        (Facts(eligible=3, open=2, usable=usable()), MainReason.PILOT_EXPECTED),
        (Facts(eligible=1, open=0, usable=usable(coming=1)), MainReason.PILOT_COMING),
        (Facts(eligible=1, open=None, usable=usable(busy=1, coming=1)), MainReason.PILOT_COMING),
        (Facts(eligible=1, open=0, usable=usable(idle=1, busy=1)), MainReason.NEXT),
        (Facts(eligible=1, open=0, usable=usable(busy=1)), MainReason.PILOTS_BUSY),
        (Facts(eligible=1, open=None, usable=usable(busy=1)), MainReason.PILOTS_BUSY),
        (Facts(eligible=1, open=1, usable=usable(busy=1)), MainReason.PILOT_EXPECTED),
        (Facts(eligible=1, open=1, usable=usable(), refused=True), MainReason.NO_SUBMISSION_POOL),
        (Facts(eligible=1, open=1, usable=usable(busy=1), refused=True), MainReason.PILOTS_BUSY),
        (Facts(eligible=1, open=1, usable=usable(idle=1), refused=True), MainReason.NEXT),
        (Facts(eligible=1, open=1, usable=usable(), sends=False), MainReason.DIRECTOR_OFF),
        (Facts(eligible=1, open=None, usable=usable(), sends=False), MainReason.NOT_DECIDED),
        (Facts(eligible=1, open=1, usable=usable(coming=1), sends=False), MainReason.PILOT_COMING),
        (Facts(eligible=3, open=3, usable=usable(), closed=3), MainReason.CLOSED),
        (Facts(eligible=3, open=None, usable=usable(), closed=7), MainReason.CLOSED),
        (Facts(eligible=3, open=3, usable=usable(), closed=3, sends=False), MainReason.CLOSED),
        (Facts(eligible=3, open=3, usable=usable(), closed=1), MainReason.PILOT_EXPECTED),
        (Facts(eligible=3, open=1, usable=usable(), closed=1), MainReason.NO_ROOM),
        (Facts(eligible=3, open=None, usable=usable(), closed=1), MainReason.NOT_DECIDED),
        (Facts(eligible=1, open=1, usable=usable(idle=1), closed=1), MainReason.NEXT),
        (Facts(eligible=1, open=1, usable=usable(busy=1), closed=1), MainReason.PILOTS_BUSY),
        (Facts(eligible=0, open=1, usable=usable(), closed=1), MainReason.IMPOSSIBLE),
    ],
)
def test_the_reason_is_what_stands_farthest_from_running(facts, reason):
    assert judge(facts) is reason


masks = st.integers(0, 15)
counts = st.integers(0, 2)


@given(masks, st.none() | masks, masks, st.tuples(counts, counts, counts), st.booleans(), st.booleans())
def test_now_if_and_only_if_a_free_pilot_or_room_for_one_are_there(
    eligible, room, closed, pilots, refused, sends
):
    facts = Facts(
        eligible=eligible, open=room, usable=usable(*pilots), refused=refused, sends=sends, closed=closed
    )
    verdict = VERDICTS[judge(facts)]
    idle, _, coming = pilots
    room_for_one = bool(room and eligible & room & ~closed and sends and not refused)
    assert (verdict == NEVER) == (not eligible)
    assert (verdict == NOW) == bool(eligible and (idle or coming or room_for_one))
    assert verdict in (NEVER, NOT_NOW, NOW)


def test_every_reason_has_a_verdict_and_somebody_who_can_change_it():
    assert set(VERDICTS) == set(WHO) == set(MainReason)
    assert all(WHO.values())
