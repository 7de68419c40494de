"""Database, launch, census and director against batch systems that lie: what is decided is held against the truth.

Everything but the batch systems and the clock is the program's own: the journal with its commands, the submission pools with
their threads, the watches, the director. A batch system that leaves jobs out of its lists does so `UNKNOWN_TIMES` - 1 times
in a row at most: what is said more often is believed.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import json
from tests.contract.conftest import House
from tests.kits.faulty_batch import Cancels, FaultyBackend, Job, Lists, Takes

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.decide.director.options import read_options
from lodesman.decide.director.queues import RAMP_START
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.server.engines.backend import NativeState
from lodesman.server.loops.cancelling import Canceller
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.direct import Director
from lodesman.server.loops.launch import PilotSettings, SubmissionPools
from lodesman.server.store.audit import append_entries
from lodesman.server.store.director import insert_iteration, put_breakers
from lodesman.server.store.journal import Change
from lodesman.server.store.write.pilots import PILOT_ENDED, set_last_seen, set_seen_there
from lodesman.server.writer.pilots import (
    drain_pilots,
    end_pilot,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.server.writer.sessions import PilotSession
from lodesman.server.writer.submit_pools import number_queues
from lodesman.wire import inner_calls
from lodesman.wire.call import encode
from lodesman.wire.task_queues import PoolsOfQueues, ServedQueue
from lodesman.wire.vocabulary import PilotState, StartFault

RESOURCES: Final = """
[site.North]
VO = ["vo"]
NumberOfProcessors = 8
[site.North.ce.cn]
Backend = "slurm"
[site.North.ce.cn.queue.short]
MaxWaitingJobs = 3
MaxTotalJobs = 7
[site.North.ce.cn.queue.long]
MaxWaitingJobs = 2
MaxHeldJobs = 1
[site.South]
VO = ["vo"]
[site.South.ce.cs.queue.q]
Backend = "htcondor"
MaxWaitingJobs = 4
MaxTotalJobs = 5
"""
SHORT, LONG, SOUTH = (
    QueueId("North", "cn", "short"),
    QueueId("North", "cn", "long"),
    QueueId("South", "cs", "q"),
)
QUEUES: Final = {"slurm": (SHORT, LONG), "htcondor": (SOUTH,)}
MOST_WAITING: Final = {SHORT: 3, LONG: 2, SOUTH: 4}
MOST_TOTAL: Final = {SHORT: 7, SOUTH: 5}
OPTIONS: Final = {
    "maxThreadsInPool": "1", "maxPilotWaitingHours": "0.5", "PrivatePilotFraction": "0.3", "pilotsPerMinute": "1000",
}  # fmt: skip
LEASE_SECONDS: Final = 1_800.0
# Longer than all times after which something is given up.
SETTLING_SECONDS: Final = 1_900.0
SETTLING_STEPS: Final = 12

NAMES = st.sampled_from(list(QUEUES))
PHASES: Final = (Phase.explicit, Phase.reuse, Phase.generate)
ANY = st.integers(0, 1_000)
LISTS, TAKES, CANCELS = (st.sampled_from(list(one)) for one in (Lists, Takes, Cancels))


class Pilots(RuleBasedStateMachine):
    """Two batch systems whose numbers are the same, three queues, and a server that is killed now and then."""

    def __init__(
        self, folder: Path, new_database: Callable[[Path], Any], drop: Callable[[Any], None]
    ) -> None:
        super().__init__()
        self.folder, self.drop = folder, drop
        folder.mkdir()
        self.house = House(new_database(folder))
        self.house.clock = 1_000_000.0
        self.ticks = 0.0
        self.dead = False
        self.heard: dict[int, float] = {}
        self.supply: list[int] = []
        self.policy = Policy(load_resources([("sites.toml", RESOURCES)]), backends=frozenset(QUEUES))
        bits = self.house.do(
            Change(number_queues, self.house.live, list(self.policy.config.tree.queue_ids()))
        )
        self.policy.bits = bits

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.rng = random.Random(seed)
        self.backends = {
            name: FaultyBackend(clock=lambda: self.house.clock, rng=self.rng, killed=self._kill)
            for name in QUEUES
        }
        self._start()
        self.jobs_arrive(40, "ann", ())

    def teardown(self):
        try:
            if sys.exc_info()[0] is None and hasattr(self, "backends"):
                self._settle()
        finally:
            if hasattr(self, "pools"):
                self.pools.close()
            self.house.close()
            self.drop(self.house.database)
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the process ------------------------------------------------------------------------------

    def _start(self) -> None:
        """Another background process on the same database."""
        self.dead = False
        options = read_options(OPTIONS)
        watch = lambda name: BackendWatch(  # noqa: E731
            name, self.backends[name], db=self.house.reader, post=self._post, note=self._note, queues=QUEUES[name],
            started=self.house.clock,
        )  # fmt: skip
        self.watches = {name: watch(name) for name in QUEUES}
        self.pools = SubmissionPools(
            options, watches=self.watches, post=self._post, settings=PilotSettings(servers=(), program=b""),
            note=self._note,
        )  # fmt: skip
        self.cancelling = Canceller(self.house.reader, self._post, self._note, self.watches)
        self.director = Director(
            db=self.house.reader, policy=self.policy, options=options, watches=self.watches, post=self._post,
            pools=self.pools.states, launch=self.pools.launch, cancel=self.cancelling.order,
            rng=random.Random(self.rng.getrandbits(32)),
        )  # fmt: skip

    def _kill(self) -> None:
        """From now on nothing that the process says is heard."""
        self.dead = True

    def _note(self, queue: QueueId, fault: StartFault | None, reason: str) -> None:
        self.director.note_outcome(queue, accepted=fault is None, reason=reason, now=self.house.clock)

    def _post(self, call, body):
        """A call of the hot process, as it would travel."""
        if self.dead:
            raise Unavailable("The process was killed.")
        house, raw = self.house, encode(body)
        if call is inner_calls.POOLS_OF_QUEUES:
            return PoolsOfQueues(0, 0.0, [ServedQueue(*queue, []) for queue in body.queues])
        if call is inner_calls.ITERATION:
            self._count(json.decode(body.plan))
        told = json.decode(raw, type=call.body)
        command = {
            inner_calls.PREPARE_PILOTS: lambda: Change(prepare_pilots, house.live, told),
            inner_calls.PILOTS_SUBMITTED: lambda: Change(pilots_submitted, house.live, told),
            inner_calls.PILOTS_SEEN: lambda: Change(set_seen_there, told),
            inner_calls.PILOTS_ORDERED: lambda: Change(drain_pilots, house.live, told.pilots, told.reason),
            inner_calls.PILOT_ENDED: lambda: Change(
                end_pilot, house.live, told.pilot, told.state, told.reason
            ),
            inner_calls.ITERATION: lambda: Change(insert_iteration, bytes(told.plan).decode()),
            inner_calls.BREAKERS: lambda: Change(put_breakers, told),
            inner_calls.NOTE: lambda: Change(append_entries, told),
        }[call]
        return house.do(command())

    def _count(self, record) -> None:
        """The pilots that an iteration counted, somewhere."""
        usable = record["row_fields"].index("usable_waiting")
        counted = sum(row[usable] for row in record["rows"])
        self.supply.append(counted + record["spare"] + sum(record["aside"].values()))

    def _iterate(self) -> None:
        """One iteration, and everything that it hands to the threads of its submission pools."""
        running = Counter(queue for _, queue, state, *_ in self._rows() if state == "Running")
        before = {stamp for one in self.backends.values() for stamp in one.ids}
        live = sum(state not in PILOT_ENDED for _, _, state, *_ in self._rows())
        for backend in self.backends.values():
            backend.begin("director")
        self.supply.clear()
        try:
            with suppress(LodesmanError):
                self.director.tick(self.house.clock)
                self.cancelling.tick()
        finally:
            for pool in self.pools._pools.values():
                options, threads = pool._options, list(pool._threads)
                pool.configure(None)
                for thread in threads:
                    thread.join()
                pool.configure(options)
        assert self.supply in ([], [live]), "each pilot is counted once"
        new = {stamp for one in self.backends.values() for stamp in one.ids} - before
        for queue in {job.queue for job in self._live() if job.stamp in new}:
            total = sum(job.queue == queue for job in self._live())
            assert total <= 2 * running[queue] + RAMP_START
        if self.dead:
            self._start()

    def _poll(self, name: str) -> None:
        self.backends[name].begin("watch")
        with suppress(LodesmanError):
            self.watches[name].tick(self.house.clock)

    def _pass(self, seconds: float) -> None:
        """Pilots that run are heard; the leases of others end."""
        self.ticks += seconds
        self.house.clock += seconds
        ids = {stamp: number for number, _, state, stamp, *_ in self._rows() if state == "Running"}
        running = {ids[job.stamp] for job in self._live() if job.stamp in ids}
        self.heard |= dict.fromkeys(running, self.ticks)
        if running:
            self.house.do(Change(set_last_seen, dict.fromkeys(running, self.house.clock)))
        for number in ids.values():
            if self.ticks - self.heard.setdefault(number, self.ticks) > LEASE_SECONDS:
                self.house.do(Change(end_pilot, self.house.live, number, PilotState.LOST, "its lease ended"))

    # --- what is there ----------------------------------------------------------------------------

    def _live(self) -> list[Job]:
        return [job for backend in self.backends.values() for job in backend.jobs if job.is_live]

    def _rows(self) -> list[tuple[int, QueueId, PilotState, str, str | None]]:
        sql = "SELECT id, site, ce, queue, state, stamp, native_id FROM pilot ORDER BY id"
        return [
            (number, QueueId(*place), PilotState(state), stamp, native_id)
            for number, *place, state, stamp, native_id in self.house.reader.execute(sql)
        ]

    # --- what happens -----------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 30),
        owner=st.sampled_from(["ann", "bob"]),
        sites=st.sampled_from([(), ("South",)]),
    )
    def jobs_arrive(self, count, owner, sites):
        self.house.submit(count, key=self.house.key(owner=owner, sites=sites))

    @rule()
    def jobs_are_killed(self):
        (last,) = self.house.reader.only("SELECT coalesce(max(id), 0) FROM job")
        if last:
            self.house.control("kill", 1, last)

    @rule(minutes=st.integers(1, 5), starting=st.sampled_from([0.0, 0.3, 1.0]))
    def minutes_pass(self, minutes, starting):
        """All goes its way; this part of the waiting pilots starts each minute."""
        for _ in range(minutes):
            self._pass(60.0)
            for name in QUEUES:
                self._poll(name)
            self._iterate()
            self.caps_hold()
            self.no_pilot_is_lost()
            for job in self._live():
                if job.state is NativeState.WAITING and self.rng.random() < starting:
                    self._start_pilot(job)

    @rule()
    def director_iterates(self):
        self._pass(1.0)
        self._iterate()

    @rule(name=NAMES)
    def batch_system_is_polled(self, name):
        self._poll(name)

    @rule(seconds=st.sampled_from([-5_000.0, -400.0, -1.0, 30.0, 700.0, 2_000.0, 4_000.0]))
    def time_passes(self, seconds):
        """Or the clock goes back."""
        if seconds < 0:
            self.house.clock += seconds
        else:
            self._pass(seconds)

    @rule(name=NAMES, lists=LISTS, takes=TAKES, cancels=CANCELS)
    def batch_system_changes(self, name, lists, takes, cancels):
        one = self.backends[name]
        one.lists, one.takes, one.cancels = lists, takes, cancels

    @rule(
        which=ANY,
        does=st.sampled_from(["starts", "joins", "works", "leaves", "dies", "is held", "is removed there"]),
    )
    def pilot(self, which, does):
        """One that joins again has lost the answer; one that is held is released."""
        running = does in ("joins", "works", "leaves", "dies")
        states = (NativeState.RUNNING,) if running else (NativeState.WAITING, NativeState.HELD)
        jobs = [job for job in self._live() if job.state in states]
        if not jobs:
            return
        job = jobs[which % len(jobs)]
        if does == "starts":
            job.state = NativeState.RUNNING
        elif does == "joins":
            self._join(job)
        elif does == "works":
            self._work(job)
        elif does == "is held":
            held = job.state is NativeState.HELD
            job.state = NativeState.WAITING if held else NativeState.HELD
        else:
            job.state = NativeState.ENDED
            if does == "leaves":
                self._joined(job, lambda number: self.house.end_pilot(number, PilotState.DONE))

    def _start_pilot(self, job: Job) -> None:
        job.state = NativeState.RUNNING
        self._join(job)

    def _join(self, job: Job) -> None:
        """As the pilot does: what it is refused ends it."""
        try:
            joined = self.house.do(Change(join_pilot, self.house.live, job.token, job.stamp, {"cores": 8}))
        except LodesmanError:
            job.state = NativeState.ENDED
            return
        self.heard[joined.row.id] = self.ticks
        self.house.sessions[joined.row.id] = PilotSession(joined.row, now=self.house.clock)

    def _work(self, job: Job) -> None:
        self._joined(job, lambda number: [self.house.report(number, one) for one in self.house.claim(number)])

    def _joined(self, job: Job, do: Callable[[int], object]) -> None:
        """Do something with the number of a pilot that has joined."""
        for number, _, state, stamp, _ in self._rows():
            if stamp == job.stamp and state is PilotState.RUNNING:
                do(number)

    @rule(name=NAMES, anew=st.booleans())
    def batch_system_forgets(self, name, anew):
        """Ended jobs, and maybe which numbers it gave out."""
        self.backends[name].forget_ended(first_number=1 if anew else None)

    @rule(which=ANY)
    def pilots_are_drained(self, which):
        numbers = [number for number, _, state, *_ in self._rows() if state not in PILOT_ENDED]
        self.house.do(Change(drain_pilots, self.house.live, numbers[which % 5 :]))

    @rule(whole=st.booleans())
    def server_restarts(self, whole):
        """The background process, or both."""
        self.pools.close()
        if whole:
            self.house.restart()
        self._start()

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def caps_hold(self):
        if hasattr(self, "backends"):
            live = self._live()
            waiting = Counter(job.queue for job in live if job.state is not NativeState.RUNNING)
            total = Counter(job.queue for job in live)
            assert all(waiting[queue] <= most for queue, most in MOST_WAITING.items()), waiting
            assert all(total[queue] <= most for queue, most in MOST_TOTAL.items()), total

    @invariant()
    def no_pilot_is_lost(self):
        """What really waits or runs has a row that has not ended; a row has the number that its own job was given."""
        if hasattr(self, "backends"):
            rows = {stamp: (queue, state, native_id) for _, queue, state, stamp, native_id in self._rows()}
            for job in self._live():
                queue, state, _ = rows[job.stamp]
                assert (queue, state in PILOT_ENDED) == (job.queue, False), job
            known = {stamp: number for one in self.backends.values() for stamp, number in one.ids.items()}
            for stamp, (_, _, native_id) in rows.items():
                assert native_id in (None, known.get(stamp)), stamp

    # --- and in the end ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """When nothing lies any more, what is stored becomes what is true."""
        for backend in self.backends.values():
            backend.lists, backend.takes, backend.cancels = Lists.TRUE, Takes.ALL, Cancels.ALL
        for _ in range(SETTLING_STEPS):
            for name in QUEUES:
                self._poll(name)
            if self._agree():
                return
            self._pass(SETTLING_SECONDS)
            self._iterate()
            self.caps_hold()
            self.no_pilot_is_lost()
        assert False, (self._rows(), self._live())  # noqa: B011, PT015

    def _agree(self) -> bool:
        rows = {
            stamp: native_id for _, _, state, stamp, native_id in self._rows() if state not in PILOT_ENDED
        }
        return rows == {job.stamp: job.native_id for job in self._live()}


@pytest.fixture
def machine(tmp_path, new_database, maker):
    """Makes machines, each on a database of its own; what they log is not kept."""
    made = count()
    logging.disable(logging.CRITICAL)
    yield lambda: Pilots(tmp_path / f"machine{next(made)}", new_database, maker.drop)
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_caps_hold_and_no_pilot_is_lost_whatever_a_batch_system_says(machine):
    some = settings(
        max_examples=settings().max_examples // 2, stateful_step_count=40, deadline=None, phases=PHASES
    )
    run_state_machine_as_test(machine, settings=some)


@pytest.mark.slow
def test_the_same_in_a_few_steps(machine):
    run_state_machine_as_test(
        machine, settings=settings(max_examples=5, stateful_step_count=12, deadline=None, phases=PHASES)
    )
