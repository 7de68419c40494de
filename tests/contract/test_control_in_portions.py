"""An action on many rows takes several commands, changes what one command would, and says truthfully what it did."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.server.writer import control
from lodesman.server.writer.control import Control, join_ranges
from lodesman.server.writer.control_outcome import ControlOutcome, RangeOutcome
from lodesman.server.writer.missing_jobs import name_missing
from lodesman.wire.jobs import RangeControlled

ACTIONS = ["kill", "hold", "release", "reschedule", "delete"]


def parts(house, action, *ranges, may=lambda *_: True):
    """Every command that an action takes: what each found."""
    ids = tuple(range(first, last + 1) for first, last in ranges)
    found = [house.do(Control(house.live, action, ids, "why", may))]
    while found[-1].rest:
        found.append(house.do(Control(house.live, action, found[-1].rest, "why", may)))
        assert len(found) < 200, "it does not end"
    return found


def finished(house, count, **more):
    """`count` jobs with rows, all Done."""
    house.submit(count, rows=True, **more)
    pilot = house.pilot()
    for claimed in house.claim(pilot, count):
        house.report(pilot, claimed)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(control, "MOST_ROWS", 3)


def test_rows_are_taken_in_portions_and_nothing_twice(house, few):
    finished(house, 10)
    found = parts(house, "delete", (1, 10))
    assert len(found) == 4
    assert all(0 < one.changed <= 3 for one in found)
    assert (sum(one.changed for one in found), sum(one.refused for one in found)) == (10, 0)
    assert found[0].rest == (range(4, 11),)
    assert house.counts() == {"Deleted": 10}
    assert house.events(7)[-2:] == ["Done", "Deleted"]


def test_members_without_rows_are_one_step_however_many(house, few):
    house.submit(1_000_000)
    (one,) = parts(house, "kill", (1, 1_000_000))
    assert (one.changed, one.rest) == (1_000_000, ())


def test_members_between_rows_and_after_them(house, few):
    house.submit(1_000)
    house.claim(house.pilot(), 6)
    house.control("kill", 500)
    found = parts(house, "hold", (1, 1_000))
    assert (sum(one.changed for one in found), sum(one.refused for one in found)) == (993, 7)
    assert house.counts() == {"Matched": 6, "Killed": 1, "Held": 993}
    assert len(found) <= 3


def test_many_submissions_of_one_job_are_many_rows_too(house, few):
    for _ in range(8):
        house.submit()
    found = parts(house, "kill", (1, 8))
    assert sum(one.changed for one in found) == 8
    assert max(one.changed for one in found) <= 3
    assert house.counts() == {"Killed": 8}


def test_several_ranges_go_on_where_they_were_left(house, few):
    finished(house, 12)
    found = parts(house, "delete", (1, 4), (6, 6), (9, 12))
    assert found[0].rest == (range(4, 5), range(6, 7), range(9, 13))
    assert sum(one.changed for one in found) == 9
    assert [house.state(n) for n in (4, 5, 6, 8, 9)] == ["Deleted", "Done", "Deleted", "Done", "Deleted"]


def test_jobs_of_others_in_between_are_passed_over(house, few):
    finished(house, 5)
    finished(house, 5, key=house.key(owner="bob"))
    finished(house, 5)
    found = parts(house, "delete", (1, 15), may=lambda owner, *_: owner == "ann")
    assert sum(one.changed for one in found) == 10
    assert {house.state(n) for n in range(6, 11)} == {"Done"}
    assert len(found) <= 5  # what others have costs nothing


def test_ranges_without_a_job_do_not_stop_the_others(house, few):
    finished(house, 8)
    house.submit(2)
    found = parts(house, "delete", (1, 8), (9, 9), (10, 10), (99, 99))
    whole = found[0]
    for more in found[1:]:
        whole.go_on(more)
    name_missing(house.reader, whole)
    assert house.counts() == {"Deleted": 10}
    assert [(one.first, one.last, one.changed, one.refused) for one in whole.ranges] == [
        (1, 8, 8, 0), (9, 9, 1, 0), (10, 10, 1, 0), (99, 99, 0, 0),
    ]  # fmt: skip
    assert whole.ranges[-1].reason == "Job 99 was not found, or you may not see it."


def test_ranges_that_have_ids_in_common_are_one():
    assert join_ranges([(5, 9), (1, 3), (4, 4), (9, 20), (1, 3), (20, 20)]) == (
        range(1, 4),
        range(4, 5),
        range(5, 21),
    )


def test_many_submissions_of_others_take_many_commands(house, monkeypatch):
    monkeypatch.setattr(control, "MOST_ROWS", 1)
    for _ in range(50):
        house.submit(key=house.key(owner="bob"))
    house.submit()
    found = parts(house, "kill", (1, 60), may=lambda owner, *_: owner == "ann")
    assert len(found) == 3
    assert house.control("kill", 1, 60, may=lambda owner, *_: owner == "ann").refused == 1


def test_the_rest_of_a_range_may_be_gone_when_it_is_reached(house, few):
    finished(house, 8)
    first = house.do(Control(house.live, "delete", (range(1, 9),), "", lambda *_: True))
    with house.writer:
        house.writer.execute("DELETE FROM submission")
    rest = house.do(Control(house.live, "delete", first.rest, "", lambda *_: True))
    assert (rest.changed, rest.refused, rest.rest) == (0, 0, ())


def test_a_pilot_may_claim_between_two_portions(house, few):
    house.submit(5, rows=True)
    first = house.do(Control(house.live, "kill", (range(1, 6),), "", lambda *_: True))
    (claimed,) = house.claim(house.pilot())
    assert claimed.job_id == 4
    rest = house.do(Control(house.live, "kill", first.rest, "", lambda *_: True))
    assert (first.changed, rest.changed) == (3, 2)
    assert house.live.pilots.stop_orders[1] == {(4, 1): "kill"}


def test_outcomes_add_up_and_name_only_the_first_few():
    whole = ControlOutcome(changed=2, ranges=[RangeOutcome(0, 29)])
    for begun in range(0, 30, 10):
        more = ControlOutcome(changed=1, ranges=[RangeOutcome(begun, 29)], rest=(range(begun, begun + 1),))
        for number in range(begun, begun + 10):
            more.refuse(number, "no")
        whole.go_on(more)
    assert (whole.changed, whole.refused, whole.rest) == (5, 30, (range(20, 21),))
    assert [one.id for one in whole.examples] == list(range(20))
    assert whole.each() == [RangeControlled(0, 29, refused=30, reason="no")]


steps = st.lists(
    st.tuples(st.sampled_from([*ACTIONS, "claim"]), st.integers(1, 14), st.integers(0, 13)), max_size=8
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.integers(1, 4))
def test_portions_change_what_one_step_changes(house_of, tmp_path_factory, found, most):
    def walk(room):
        house = house_of(tmp_path_factory.mktemp("walk"))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(control, "MOST_ROWS", room)
                house.submit(8)
                house.submit(6, rows=True)
                pilot = house.pilot()
                told = [one_step(house, pilot, *step) for step in found]
            assert set(house.reconcile().values()) == {0}
            return told, [house.state(n) for n in range(1, 15)]
        finally:
            house.close()

    assert walk(most) == walk(1_000)


def one_step(house, pilot, action, first, more):
    if action == "claim":
        return len(house.claim(pilot, more))
    out = house.control(action, first, min(14, first + more))
    return out.changed, out.refused, sorted(one.id for one in out.examples)
