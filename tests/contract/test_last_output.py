"""The last output of a job and single pilots, as readers find them."""

from __future__ import annotations

from lodesman.server.store.read.jobs import last_output
from lodesman.server.store.read.pilots import pilot_by_id
from lodesman.wire.vocabulary import PilotState


def test_of_a_job_before_while_and_after_it_runs(house):
    house.submit(1, rows=True)
    before = last_output(house.reader, 1)
    assert (before.state, before.owner, before.group, before.vo) == ("Waiting", "ann", "g", "vo")
    assert (before.pilot, before.tail, before.ended) == (None, None, False)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    while_it_runs = last_output(house.reader, 1)
    assert (while_it_runs.attempt, while_it_runs.pilot, while_it_runs.ended) == (1, pilot, False)
    house.report(pilot, claimed, tail="the end\n")
    after = last_output(house.reader, 1)
    assert (after.state, after.tail, after.ended) == ("Done", "the end\n", True)


def test_of_a_member_without_a_row_and_of_no_job(house):
    house.submit(5)
    assert last_output(house.reader, 3) is None
    assert last_output(house.reader, 99) is None


def test_a_pilot_by_its_number(house):
    number = house.pilot("S2")
    found = pilot_by_id(house.reader, number)
    assert (found.id, found.site, found.state) == (number, "S2", PilotState.RUNNING)
    assert pilot_by_id(house.reader, 99) is None
