"""What became of pilots: the batch system's word, and its silence, which is no word."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.conftest import query_plan
from tests.unit.loops.conftest import record

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import BatchLoad, CancelOutcome, NativeState, NativeStatus
from lodesman.server.engines.credentials import Credential
from lodesman.server.loops import cancelling
from lodesman.server.loops.cancelling import GIVEN_UP_SECONDS, UNKNOWN_TIMES, LostPilots, cancel, end_all
from lodesman.server.loops.census import _LOST_AFTER_SECONDS, _SETTLE_SECONDS, BackendWatch
from lodesman.server.store.hosts import put_records
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import NativePilot, lost_pilots
from lodesman.server.store.write.pilots import count_job
from lodesman.server.writer.pilots import (
    drain_pilots,
    end_pilot,
    hash_token,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.wire.hosts import HostName, HostRecord, HostState
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState, StartFault

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")  # local, and Slurm's


class Batch:
    """Answers from given maps: native id -> state, stamp -> native id."""

    def __init__(self) -> None:
        self.states: dict[str, NativeStatus] = {}
        self.known: dict[str, str] = {}
        self.asked: list[str] = []
        self.loads_of: dict[QueueId, BatchLoad] = {}
        self.is_deaf = False
        self.outputs: dict[str, bytes | BackendFault] = {}
        self.read: list[str] = []
        self.cancelled: list[str] = []
        self.outcomes: dict[str, CancelOutcome] = {}

    def cancel(self, pilots):
        self._hear()
        there = {stamp: native for stamp, native in pilots.items() if self.known.get(stamp) == native}
        self.cancelled += there.values()
        ordered = {one: self.outcomes.get(native, CancelOutcome.ORDERED) for one, native in there.items()}
        return dict.fromkeys(pilots, CancelOutcome.UNKNOWN) | ordered

    def _hear(self):
        if self.is_deaf:
            raise BackendFault("no answer", transient=True)

    def says(self, native_id, state, **more):
        self.states[native_id] = NativeStatus(state=state, observed_at=0.0, **more)

    def status(self, pilots):
        self._hear()
        self.asked += pilots.values()
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=0.0)
        return {stamp: self.states.get(native, unknown) for stamp, native in pilots.items()}

    def output(self, stamp, _native):
        self.read.append(stamp)
        found = self.outputs.get(stamp)
        if isinstance(found, BackendFault):
            raise found
        return found

    def census(self):
        self._hear()
        return self.known

    def loads(self, queues):
        self._hear()
        return {queue: self.loads_of[queue] for queue in queues}


class World:
    """The watches of a local batch system and of another one."""

    def __init__(self, base) -> None:
        self.base, self.batch, self.slurm = base, Batch(), Batch()
        self.posted: list[Any] = []
        self.told: list[Any] = []
        self.watches = {
            name: BackendWatch(
                name, cast("Any", batch), db=base.db, post=partial(record, self.posted),
                note=lambda *words: self.told.append(words),
            )
            for name, batch in (("local", self.batch), ("slurm", self.slurm))
        }  # fmt: skip

    def pilot(self, stamp, *, submitted=True, joined=False, queue=SHORT, native=None):
        base = self.base
        (number,) = base.do(Change(prepare_pilots, base.live, [NewPilot(
            stamp=stamp, vo="lab", site=queue.site, ce=queue.ce, queue=queue.queue, request={},
            backend="slurm" if queue == LONG else "local", join_hash=hash_token(f"join-{stamp}"),
        )]))  # fmt: skip
        if submitted:
            base.do(Change(pilots_submitted, base.live, {stamp: (native or f"native-{stamp}", "")}))
        if joined:
            base.do(Change(join_pilot, base.live, f"join-{stamp}", "nonce", {}))
        return number

    def tick(self, after=0.0):
        """All are asked, also if one of them does not answer."""
        self.posted.clear()
        ended = 0
        for watch in self.watches.values():
            with suppress(BackendFault):
                ended += watch.tick(self.base.clock + after)
        self.seen = [body for name, body in self.posted if name == "seen"]
        self.posted[:] = [one for one in self.posted if one[0] != "seen"]
        return ended


@pytest.fixture
def world(base):
    return World(base)


def test_pilots_that_wait_and_run_are_left_alone(world):
    world.pilot("a")
    world.pilot("b", joined=True)
    world.batch.says("native-a", NativeState.WAITING)
    world.batch.says("native-b", NativeState.RUNNING)
    assert world.tick() == 0
    assert world.posted == []


def test_a_pilot_that_the_batch_system_does_not_list_is_not_gone(world):
    world.pilot("a", joined=True)
    assert world.tick(after=1e6) == 0
    assert world.posted == []


def test_an_ended_pilot_is_reported_once_as_lost_if_it_had_joined(world):
    number = world.pilot("a", joined=True)
    world.batch.says("native-a", NativeState.ENDED, exit_code=137, detail="killed by a signal")
    assert world.tick() == 1
    assert world.posted == [("ended", {"pilot": number, "state": "Lost", "reason": "killed by a signal"})]
    assert world.told == [(SHORT, None, "")]  # it had joined: the queue works


def test_a_pilot_that_joined_speaks_for_its_queue_once(world):
    world.pilot("a", joined=True)
    world.pilot("b")
    for _ in range(3):
        world.tick()
    assert world.told == [(SHORT, None, "")]
    world.pilot("c", joined=True)
    world.tick()
    assert world.told == [(SHORT, None, "")] * 2


def test_a_pilot_that_joined_on_a_host_without_jobs_speaks_against_its_queue(world):
    """Those after it would start there, too. One that joined before this process began was heard by the one before it."""
    base = world.base
    shut = [HostState(HostName(site, "wn1"), HostRecord(shut=True, since=0.0)) for site in ("North", "South")]
    base.do(Change(lambda tx: put_records(tx, shut)))
    for stamp, host, queue in (("a", "wn1", LONG), ("b", "wn2", LONG), ("c", "wn1", SHORT)):
        world.pilot(stamp, queue=queue)
        base.do(Change(join_pilot, base.live, f"join-{stamp}", "nonce", {"host": host}))
    world.tick()
    bad = (LONG, StartFault.BAD_HOST, "its pilots start on a host that gets no jobs")
    assert world.told == [(SHORT, None, ""), bad, (LONG, None, "")], "no local queue has another host"
    later = World(base)
    later.watches["slurm"]._started = base.clock + 1.0
    later.tick()
    assert later.told == [(SHORT, None, ""), (LONG, None, "")]


def test_a_pilot_that_left_a_bad_node_speaks_against_its_queue_once(world):
    """Also if it came and went between two polls. One that had run jobs there does not, nor one of before."""
    full = "node-fault: No space left on device in /s"

    def leaves(number, reason=full):
        world.base.do(Change(end_pilot, world.base.live, number, PilotState.ABORTED, reason))

    leaves(world.pilot("before", joined=True))
    seen = world.pilot("seen")
    world.tick()
    assert world.told == []
    leaves(seen)
    leaves(world.pilot("unseen", joined=True))
    leaves(world.pilot("other", joined=True), "error: exit code 1")
    worked = world.pilot("worked", joined=True)
    world.base.do(Change(count_job, worked))
    leaves(worked)
    elsewhere = world.pilot("elsewhere", joined=True, queue=LONG)
    world.base.writer.execute("UPDATE pilot SET host = 'wn3' WHERE id = ?", (elsewhere,))
    leaves(elsewhere)
    for _ in range(2):
        world.tick()
    assert sorted(world.told) == sorted(
        [(SHORT, StartFault.NODE_FAULT, full)] * 2 + [(LONG, StartFault.NODE_FAULT, f"{full} (on wn3)")]
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"exit_code": 2, "word": "FAILED"}, "ended with exit code 2"),
        ({"word": "CANCELLED by 0"}, "its batch system ended it: CANCELLED by 0"),
        ({}, "its batch system ended it"),
        ({"word": "FAILED", "detail": "its node went down"}, "its node went down"),
    ],
)
def test_the_reason_of_an_end_is_the_most_that_is_known(world, more, reason):
    world.pilot("a")
    world.batch.says("native-a", NativeState.ENDED, **more)
    world.tick()
    assert world.posted[0][1]["reason"] == reason


def test_an_ended_pilot_that_never_joined_speaks_against_its_queue(world):
    number = world.pilot("a")
    world.batch.says("native-a", NativeState.ENDED, exit_code=2)
    world.tick()
    assert world.posted == [
        ("ended", {"pilot": number, "state": "Aborted", "reason": "ended with exit code 2"})
    ]
    assert world.told == [(SHORT, StartFault.ENDED, "ended with exit code 2")]


def test_one_that_was_drained_before_it_joined_does_not_speak_against_its_queue(world):
    """As by a closing of its site that was announced: the site was blamed for what the closing cancelled."""
    number = world.pilot("a")
    world.base.do(Change(drain_pilots, world.base.live, [number], "site LCG.CERN.ch is closed"))
    world.batch.says("native-a", NativeState.ENDED, exit_code=143)
    world.tick()
    reason = "site LCG.CERN.ch is closed (ended with exit code 143)"
    assert world.posted == [("ended", {"pilot": number, "state": "Aborted", "reason": reason})]
    assert world.told == []


def test_a_pilot_that_never_joined_ends_with_its_last_words(world):
    """Its breaker and `lode why` say the same; an output that cannot be read changes nothing."""
    words = b"cannot start '/usr/bin/python9': No such file or directory\n"
    world.batch.outputs = {"a": words, "b": BackendFault("it is gone", transient=True)}
    for stamp in ("a", "b"):
        world.pilot(stamp)
        world.batch.says(f"native-{stamp}", NativeState.ENDED, exit_code=127)
    world.tick()
    said = "cannot start '/usr/bin/python9': No such file or directory (ended with exit code 127)"
    assert [reason for *_, reason in world.told] == [said, "ended with exit code 127"]
    assert [end["reason"] for _, end in world.posted] == [said, "ended with exit code 127"]


def test_of_many_pilots_that_end_at_once_the_outputs_of_a_few_are_read(world):
    for n in range(20):
        world.pilot(f"p{n}")
        world.batch.says(f"native-p{n}", NativeState.ENDED, exit_code=1)
    assert world.tick() == 20
    assert len(world.batch.read) == 5


@pytest.mark.parametrize("joins", [True, False])
def test_a_pilot_that_joined_or_left_while_its_batch_system_was_asked_did_so(world, joins):
    """It is judged as it is then, not as it was before: one that joined was no failure of its queue."""
    number = world.pilot("a", joined=not joins)
    base, ask = world.base, world.batch.status

    def slow(pilots):
        if joins:
            base.do(Change(join_pilot, base.live, "join-a", "nonce", {}))
        else:
            base.do(Change(end_pilot, base.live, number, PilotState.DONE, "idle"))
        return ask(pilots)

    world.batch.status = slow
    world.batch.says("native-a", NativeState.ENDED, exit_code=1)
    assert world.tick() == int(joins)
    ended = [("ended", {"pilot": number, "state": "Lost", "reason": "ended with exit code 1"})]
    assert world.posted == (ended if joins else [])
    assert all(fault is None for _, fault, _ in world.told)


def test_pilots_whose_end_is_known_are_asked_no_more(world):
    world.pilot("a", joined=True)
    world.base.do(Change(pilots_submitted, world.base.live, {"a": (None, "refused")}))
    world.tick()
    world.batch.asked.clear()
    world.base.writer.execute("UPDATE pilot SET ended_at = 1 WHERE stamp = 'a'")
    world.tick()
    assert world.batch.asked == []


def test_a_reference_that_was_lost_is_found_by_its_stamp(world):
    world.pilot("a", submitted=False)
    world.batch.known["a"] = "native-a"
    assert world.tick(after=_LOST_AFTER_SECONDS - 1) == 0
    assert world.posted == []  # its submission may be under way
    world.tick(after=_LOST_AFTER_SECONDS + 1)
    assert world.posted == [("submitted", {"a": ("native-a", "")})]


def test_a_pilot_that_is_not_found_is_given_up_after_its_maximum_age(world):
    world.pilot("a", submitted=False)
    for _ in range(UNKNOWN_TIMES):
        world.tick(after=_LOST_AFTER_SECONDS + 1)
        assert world.posted == []
    world.tick(after=GIVEN_UP_SECONDS + 1)
    ((name, outcome),) = world.posted
    assert (name, outcome["a"][0]) == ("submitted", None)
    assert outcome["a"][1]


def test_a_census_that_leaves_a_pilot_out_now_and_then_gives_none_up(world):
    """As the first lists of a batch system that has just started may."""
    world.pilot("a", submitted=False)
    world.pilot("b", submitted=False)
    world.watches["local"]._started = world.base.clock + 1
    late = GIVEN_UP_SECONDS + 1
    for there in (False, False, True, False, False, None, True, False, False):
        world.batch.is_deaf = there is None  # which says nothing
        world.batch.known = {"a": "native-a"} if there else {}
        world.tick(after=late)
        assert not [
            one for _, outcome in world.posted for one in outcome.items() if one[0] == "a" and not one[1][0]
        ]
    found = [outcome for _, outcome in world.posted]
    assert found == [{"b": (None, "its submission was never confirmed")}]


def test_a_submission_that_died_with_its_process_is_given_up_soon(world):
    """Else a pilot that is never submitted would count in the queue's limits for an hour."""
    world.pilot("a", submitted=False)
    world.pilot("b", submitted=False)
    world.batch.known["b"] = "native-b"
    world.watches["local"]._started = world.base.clock + 1
    world.tick(after=_SETTLE_SECONDS)
    assert world.posted == []  # the process before may still be ending
    for _ in range(UNKNOWN_TIMES):
        world.tick(after=_SETTLE_SECONDS + 2)
    ((name, outcome),) = world.posted
    assert (name, outcome["b"]) == ("submitted", ("native-b", ""))
    assert outcome["a"][0] is None


def test_a_submission_of_this_process_is_not_given_up_soon(world):
    world.watches["local"]._started = world.base.clock - 1
    world.pilot("a", submitted=False)
    world.tick(after=_SETTLE_SECONDS * 3)
    assert world.posted == []


def test_a_pilot_that_joined_before_its_reference_was_stored_is_never_given_up(world):
    world.pilot("a", submitted=False, joined=True)
    world.tick(after=GIVEN_UP_SECONDS * 10)
    assert world.posted == []


def test_the_reference_of_a_pilot_that_ran_and_ended_meanwhile_is_found(world):
    """Else its output could not be read, and would never be removed there."""
    base, number = world.base, world.pilot("a", submitted=False, joined=True, queue=LONG)
    base.do(Change(end_pilot, base.live, number, PilotState.DONE, "idle"))
    world.pilot("refused", submitted=False, queue=LONG)
    base.do(Change(pilots_submitted, base.live, {"refused": (None, "no such queue")}))
    world.tick()
    assert world.posted == []
    world.slurm.known = {"a": "native-a", "refused": "native-r"}
    world.tick()
    assert world.posted == [("submitted", {"a": ("native-a", "")})]
    base.do(Change(pilots_submitted, base.live, world.posted[0][1]))
    row = base.db.execute(
        "SELECT state, native_id, submitted_at <= joined_at FROM pilot WHERE stamp = 'a'"
    ).fetchone()
    assert row == ("Done", "native-a", True)
    world.tick()
    assert world.posted == []


# --- pilots that were lost ---------------------------------------------------------------------------------


DAY = 86_400.0


def lose(world, stamp, **more):
    """A pilot that joined and whose lease ended."""
    number = world.pilot(stamp, joined=True, **more)
    world.batch.known[stamp] = f"native-{stamp}"
    world.base.do(Change(end_pilot, world.base.live, number, PilotState.LOST, "its lease ended"))
    return number


def orders(world, *after):
    """The number of cancel calls to the local batch system, tick by tick."""
    found = []
    for seconds in after:
        world.batch.cancelled.clear()
        world.tick(seconds)
        found.append(len(world.batch.cancelled))
    return found


def test_a_lost_pilot_is_cancelled_again_and_again_ever_more_rarely(world):
    lose(world, "a")
    assert orders(world, 0, 1, 50, 60, 170, 180, 400, 420) == [1, 0, 0, 1, 0, 1, 0, 1]
    assert world.batch.cancelled == ["native-a"]
    late = [orders(world, hours * 3_600.0 + 900)[0] for hours in range(1, 8 * 24)]
    assert late[:10] == [1] * 10  # at most an hour apart
    assert late[-1] == 0  # and not for ever
    assert sum(late) <= 7 * 24


@pytest.mark.parametrize("outcome", [CancelOutcome.ENDED, CancelOutcome.REMOVED])
def test_a_lost_pilot_that_is_gone_is_cancelled_no_more(world, outcome):
    lose(world, "a")
    world.tick()
    world.batch.outcomes["native-a"] = outcome
    assert orders(world, 60, 600, DAY) == [1, 0, 0]


def test_an_unknown_lost_pilot_is_searched_a_few_times(world):
    lose(world, "a")
    del world.batch.known["a"]
    assert orders(world, 0, 60) == [0, 0]
    world.batch.known["a"] = "native-a"  # a batch system that had just started knows it again
    assert orders(world, 120) == [1]
    del world.batch.known["a"]
    assert orders(world, 600, 1_200, 1_800) == [0, 0, 0]
    world.batch.known["a"] = "native-a"
    assert orders(world, DAY) == [0]


def test_a_batch_system_that_does_not_answer_says_nothing_about_lost_pilots(world):
    lose(world, "a")
    world.batch.is_deaf = True
    assert orders(world, *(60.0 * n for n in range(10))) == [0] * 10
    world.batch.is_deaf = False
    assert orders(world, DAY) == [1]


def test_an_order_that_did_not_get_through_is_given_again_soon(world):
    lose(world, "a")
    world.batch.outcomes["native-a"] = CancelOutcome.FAILED
    assert orders(world, 0, 60, 120, 180) == [1, 1, 1, 1]


def test_only_pilots_that_were_lost_are_cancelled(world):
    ids = {state: world.pilot(state.value, joined=True) for state in (PilotState.DONE, PilotState.ABORTED)}
    world.pilot("waits")
    world.pilot("runs", joined=True)
    world.batch.known |= {name: f"native-{name}" for name in ("Done", "Aborted", "waits", "runs")}
    for state, number in ids.items():
        world.base.do(Change(end_pilot, world.base.live, number, state, ""))
    world.tick()
    assert world.batch.cancelled == []


def test_a_lost_pilot_without_a_reference_is_searched_by_stamp(world):
    number = world.pilot("a", submitted=False, joined=True)
    world.base.do(Change(end_pilot, world.base.live, number, PilotState.LOST, "its lease ended"))
    assert orders(world, 0) == [0]
    world.batch.known["a"] = "17"
    assert orders(world, 60) == [1]
    assert world.batch.cancelled == ["17"]


def test_after_a_restart_lost_pilots_are_asked_about_again(world):
    lose(world, "a")
    world.tick()
    again = LostPilots(world.base.db, "local", cast("Any", world.batch))
    assert again.tick(world.base.clock + 1) == 1
    assert world.batch.cancelled == ["native-a"] * 2
    assert again.tick(world.base.clock + 8 * DAY) == 0


@pytest.mark.sqlite  # its plan is read
def test_lost_pilots_are_found_without_reading_all_pilots(world):
    assert "pilot_lost" in str(query_plan(world.base.db, lambda: lost_pilots(world.base.db, "local", 0.0)))


# --- more than one batch system ------------------------------------------------------------------------------


def test_each_batch_system_is_asked_about_its_own_pilots(world):
    world.pilot("a")
    world.pilot("b", queue=LONG)
    world.tick()
    assert (world.batch.asked, world.slurm.asked) == (["native-a"], ["native-b"])


def test_a_number_that_two_batch_systems_have_is_two_pilots(world):
    world.pilot("a", native="17")
    other = world.pilot("b", queue=LONG, native="17")
    world.batch.says("17", NativeState.RUNNING)
    world.slurm.says("17", NativeState.ENDED, exit_code=1)
    assert world.tick() == 1
    assert [body["pilot"] for _, body in world.posted] == [other]


def test_another_batch_system_s_silence_gives_no_pilot_up(world):
    """Slurm knows nothing of a local pilot, and the local one nothing of Slurm's."""
    world.pilot("a", submitted=False)
    world.pilot("b", submitted=False, queue=LONG)
    world.batch.known["a"], world.slurm.known["b"] = "native-a", "native-b"
    world.tick(after=GIVEN_UP_SECONDS * 2)
    told = {stamp: found for _, outcome in world.posted for stamp, found in outcome.items()}
    assert told == {"a": ("native-a", ""), "b": ("native-b", "")}


def test_a_batch_system_that_does_not_answer_gives_none_of_its_pilots_up(world):
    world.pilot("a", submitted=False)
    ended = world.pilot("b", queue=LONG)
    world.batch.is_deaf = True
    world.slurm.says("native-b", NativeState.ENDED)
    assert world.tick(after=GIVEN_UP_SECONDS * 2) == 1
    assert [(name, body.get("pilot")) for name, body in world.posted] == [("ended", ended)]


def test_a_poll_looks_at_the_credential_first(world, tmp_path):
    watch, load = world.watches["slurm"], BatchLoad(observed_at=5.0, waiting=3, running=1)
    watch.queues, world.slurm.loads_of = [LONG], {LONG: load}
    renew = ("sh", "-c", f'printf %s "e30.e30.e30" > "{tmp_path}/token"')
    watch.credential = Credential(token_file=str(tmp_path / "token"), required_seconds=5.0)
    assert watch.load(LONG).credential == "when its credential ends is not known yet"
    world.slurm.is_deaf = True
    world.tick()
    assert "No such file or directory" in watch.load(LONG).credential
    world.slurm.is_deaf = False
    watch.credential = Credential(token_file=str(tmp_path / "token"), required_seconds=5.0, renew=renew)
    world.tick()
    assert watch.load(LONG) == load


def test_loads_are_those_of_the_last_poll_that_succeeded(world):
    watch, load = world.watches["slurm"], BatchLoad(observed_at=5.0, waiting=3, running=1)
    assert (watch.load(LONG).waiting, watch.polled.is_set()) == (None, False)
    watch.queues, world.slurm.loads_of = [LONG], {LONG: load}
    world.tick()
    assert (watch.load(LONG), watch.load(SHORT).waiting) == (load, None)
    world.slurm.is_deaf = True
    world.tick()
    assert watch.load(LONG) == replace(load, fault="no answer")
    world.slurm.is_deaf = False
    world.tick()
    assert watch.load(LONG) == load
    assert watch.polled.is_set()


def test_a_batch_system_that_hangs_up_at_first_has_been_polled(world):
    world.slurm.is_deaf = True
    world.watches["slurm"].queues = [LONG]
    world.tick()
    assert world.watches["slurm"].polled.is_set()


def test_where_a_pilot_runs_is_stored_once(world):
    number = world.pilot("a")
    world.batch.says("native-a", NativeState.RUNNING, host="node7")
    world.tick()
    assert world.seen == [{number: ("node7", None, 0.0)}]
    for later in (10, 700):  # since when it runs is not forgotten before it joins
        world.tick(after=later)
        assert world.seen == []


def test_a_pilot_that_waits_again_runs_on_no_host(world):
    number = world.pilot("a")
    world.batch.says("native-a", NativeState.RUNNING, host="node7")
    world.tick()
    world.batch.says("native-a", NativeState.WAITING, host="node7")
    world.tick(after=10)
    assert world.seen == [{number: ("", None, 0.0)}]


def test_a_held_pilot_is_held_since_it_was_first_seen_so(world):
    number = world.pilot("a")
    world.batch.states["native-a"] = NativeStatus(state=NativeState.HELD, observed_at=50.0)
    world.tick()
    assert world.seen == [{number: ("", 50.0, 50.0)}]
    world.batch.states["native-a"] = NativeStatus(state=NativeState.HELD, observed_at=90.0)
    world.tick(after=1_000)
    assert world.seen == [{number: ("", 50.0, 90.0)}]
    world.batch.says("native-a", NativeState.WAITING)
    world.tick(after=1_010)
    assert world.seen == [{number: ("", None, 0.0)}]


def test_what_is_unknown_stores_nothing(world):
    world.pilot("a")
    world.tick()
    assert world.seen == []


# --- cancelling wherever they are ---------------------------------------------------------------------------


def native(number, stamp, backend="local", native_id="1"):
    return NativePilot(number, stamp, backend, native_id, SHORT)


def test_pilots_are_cancelled_where_they_were_submitted():
    here, there = Batch(), Batch()
    here.known, there.known = {"a": "1"}, {"b": "1"}
    pilots = [native(1, "a"), native(2, "b", "slurm"), native(3, "c", "slurm"), native(4, "d", "retired")]
    assert cancel({"local": here, "slurm": there}, pilots) == {
        "a": CancelOutcome.ORDERED,
        "b": CancelOutcome.ORDERED,
        "c": CancelOutcome.UNKNOWN,
        "d": CancelOutcome.FAILED,
    }
    assert (here.cancelled, there.cancelled) == (["1"], ["1"])


def test_a_batch_system_that_does_not_answer_cancels_nothing():
    deaf, other = Batch(), Batch()
    deaf.is_deaf, other.known = True, {"b": "1"}
    found = cancel({"local": deaf, "slurm": other}, [native(1, "a"), native(2, "b", "slurm")])
    assert found == {"a": CancelOutcome.FAILED, "b": CancelOutcome.ORDERED}


def test_all_pilots_elsewhere_are_ended_and_waited_for(world, monkeypatch):
    monkeypatch.setattr(cancelling, "_END_POLL_SECONDS", 0.0)
    for stamp in "ab":
        world.pilot(stamp, queue=LONG)
        world.slurm.known[stamp] = f"native-{stamp}"
    world.pilot("here")
    ends = iter([CancelOutcome.FAILED, CancelOutcome.ORDERED, CancelOutcome.ENDED])

    def cancel_slowly(pilots):
        outcome = next(ends)
        return dict.fromkeys(pilots, CancelOutcome.ENDED) | ({"b": outcome} if "b" in pilots else {})

    world.slurm.cancel = cancel_slowly
    assert end_all(world.base.db, {"slurm": world.slurm}, seconds=60.0) == []
    assert list(ends) == []
    assert world.batch.cancelled == []


def test_pilots_that_were_never_submitted_are_asked_about_a_few_times(world, monkeypatch):
    """Prepared for a submission that was dropped: no batch system ever knew them."""
    monkeypatch.setattr(cancelling, "_END_POLL_SECONDS", 0.0)
    world.pilot("a", queue=LONG, submitted=False)
    asked: list[str] = []
    world.slurm.census = lambda: asked.append("census") or {}
    assert end_all(world.base.db, {"slurm": world.slurm}, seconds=600.0) == ["a"]
    assert len(asked) == UNKNOWN_TIMES


def test_a_pilot_that_is_found_late_is_ended(world, monkeypatch):
    monkeypatch.setattr(cancelling, "_END_POLL_SECONDS", 0.0)
    world.pilot("a", queue=LONG, submitted=False)
    answers = iter([{}, {}, {"a": "7"}])
    world.slurm.census = lambda: next(answers)
    world.slurm.known, world.slurm.outcomes = {"a": "7"}, {"7": CancelOutcome.REMOVED}
    assert end_all(world.base.db, {"slurm": world.slurm}, seconds=600.0) == []
    assert world.slurm.cancelled == ["7"]


def test_pilots_that_do_not_end_are_named(world):
    world.pilot("a", queue=LONG)
    assert end_all(world.base.db, {"slurm": world.slurm}, seconds=0.0) == ["a"]
