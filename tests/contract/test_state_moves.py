"""The table of states, walked: every state is entered, every move is made, and what is in no table does not happen.

What happened is read from the events of the jobs, not from what the test did.
"""

from itertools import pairwise

import pytest

from lodesman.base.errors import ServerFault
from lodesman.languages.jobs.spec import _MOVES, ACTIVE
from lodesman.server.store.journal import Change
from lodesman.server.store.read.jobs import events_of_job, job_by_id
from lodesman.server.store.write import jobs, pilots
from lodesman.wire.vocabulary import JobState, PilotState

S = JobState
STATES = list(JobState)
# The shortest way into each state, from the submission.
WAYS = {
    S.WAITING: (),
    S.HELD: (S.HELD,),
    S.MATCHED: (S.MATCHED,),
    S.RUNNING: (S.MATCHED, S.RUNNING),
    S.STALLED: (S.MATCHED, S.RUNNING, S.STALLED),
    S.COMPLETING: (S.MATCHED, S.RUNNING, S.COMPLETING),
    S.DONE: (S.MATCHED, S.RUNNING, S.DONE),
    S.FAILED: (S.MATCHED, S.RUNNING, S.FAILED),
    S.KILLED: (S.KILLED,),
    S.DELETED: (S.DELETED,),
}


class Walker:
    """One job with a site and a pilot of its own: what leads from state to state is done to it."""

    def __init__(self, house, *, rows):
        self.house = house
        house.sites = site = getattr(house, "sites", 0) + 1
        self.job = house.submit(2, key=house.key(sites=(f"S{site}",)), rows=rows).first
        self.pilot, self.claimed = house.pilot(f"S{site}"), None

    @property
    def state(self):
        return S(self.house.state(self.job))

    def go(self, new):
        """Do what leads to a state, whether or not it is allowed now."""
        doers = {
            S.HELD: lambda: self.control("hold"),
            S.WAITING: self.send_back,
            S.MATCHED: self.claim,
            S.RUNNING: self.run,
            S.STALLED: lambda: self.house.silence(self.pilot),
            S.COMPLETING: lambda: self.hear(completing=True),
            S.DONE: lambda: self.report("Done", "ok"),
            S.FAILED: lambda: self.report("Failed", "exit"),
            S.KILLED: lambda: self.control("kill"),
            S.DELETED: lambda: self.control("delete"),
        }
        doers[new]()

    def control(self, action):
        self.house.control(action, self.job)

    def send_back(self):
        """By the lease of its pilot if one has it: the timer of all these states."""
        if self.state in ACTIVE:
            self.house.end_pilot(self.pilot, cause="lease-expired")
        else:
            self.control("release")
            self.control("reschedule")

    def claim(self):
        found = [one for one in self.house.claim(self.pilot, 1) if one.job_id == self.job]
        self.claimed = found[0] if found else self.claimed

    def run(self):
        if self.state is S.STALLED:
            self.hear(completing=False)
        else:
            self.report("Running", "")

    def hear(self, *, completing):
        had = [self.claimed] if self.claimed else []
        self.house.hear(self.pilot, *([] if completing else had), completing=had if completing else ())

    def report(self, state, cause):
        if self.claimed:
            self.house.report(self.pilot, self.claimed, state, cause=cause)

    def trace(self):
        """The states in its events."""
        job = job_by_id(self.house.reader, self.job)
        told = [event.event for event in events_of_job(self.house.reader, job)]
        return [S("Waiting" if kind == "Submitted" else kind) for kind in told]


def walked(house, old, *, rows):
    walker = Walker(house, rows=rows)
    for state in WAYS[old]:
        walker.go(state)
    assert walker.state is old
    return walker


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "array"])
def test_every_state_is_entered_and_every_move_is_made(house, rows):
    entered, made = set(), set()
    for old, allowed in _MOVES.items():
        for new in sorted(allowed):
            walker = walked(house, old, rows=rows)
            walker.go(new)
            assert walker.state is new, (old, new)
            trace = walker.trace()
            entered |= set(trace)
            made |= set(pairwise(trace))
    assert entered == set(JobState)
    assert made == {(old, new) for old, allowed in _MOVES.items() for new in allowed}
    assert not any(house.reconcile().values())


def test_a_submission_leads_to_the_first_states(house):
    house.submit(key=house.key(project="a"))
    house.submit(key=house.key(project="b"), held="no queue")
    assert {S(state) for state in house.counts()} == {S.WAITING, S.HELD}


@pytest.mark.parametrize("old", STATES)
def test_what_is_in_no_table_does_not_happen(house, old):
    for new in set(JobState) - _MOVES[old] - {old}:
        walker = walked(house, old, rows=True)
        walker.go(new)
        assert walker.state is old, (old, new)
        assert new not in walker.trace() or new in {*WAYS[old], S.WAITING}


def test_after_a_restart_every_state_is_what_it_was(house):
    walkers = {state: walked(house, state, rows=True) for state in STATES}
    house.restart()
    assert {state: walker.state for state, walker in walkers.items()} == {state: state for state in STATES}
    assert house.live.pilots.silent == {walkers[S.STALLED].pilot}


@pytest.mark.parametrize("old", sorted(ACTIVE))
def test_whatever_a_pilot_has_goes_back_when_its_lease_ends(house, old):
    """The timer of these states: who owns them may be gone for ever."""
    walker = walked(house, old, rows=True)
    house.end_pilot(walker.pilot, cause="lease-expired")
    assert (walker.state, house.job(walker.job).reason) == (S.WAITING, "its pilot fell silent")


def test_a_row_that_moved_since_it_was_read_is_not_moved_by_what_was_read(house):
    walker = walked(house, S.HELD, rows=True)
    job = house.do(Change(jobs.need_row, walker.job))
    pilot = house.do(Change(pilots.need_pilot, pilot_id=walker.pilot))
    walker.go(S.WAITING)
    house.end_pilot(walker.pilot)
    with pytest.raises(ServerFault):
        house.do(Change(jobs.move, house.live.ids, job, S.KILLED))
    with pytest.raises(ServerFault):
        house.do(Change(pilots.set_state, pilot, PilotState.DONE))
    assert walker.state is S.WAITING
    assert house.do(Change(pilots.need_pilot, pilot_id=walker.pilot)).state is PilotState.LOST
