"""A house without HTTP: a real database, the journal, and a pilot or two."""

import random
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pytest
from msgspec import json
from msgspec.structs import asdict
from tests.conftest import all_suspects, hasty

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.resources import QueueId
from lodesman.languages.jobs.parents import ParentRange
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.loops.retention import Retention
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.read.jobs import events_of_job, job_by_id
from lodesman.server.store.read.usage import count_jobs
from lodesman.server.store.sandboxes import tidy_inputs
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.writer.accounts import add_account, issue_token
from lodesman.server.writer.claim import Claim
from lodesman.server.writer.control import Control
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.missing_jobs import name_missing
from lodesman.server.writer.order import WaitRule, end_batch
from lodesman.server.writer.pilots import end_pilot, hash_token, join_pilot, pilots_submitted, prepare_pilots
from lodesman.server.writer.report import note_heartbeat, note_silence, register_output, take_reports
from lodesman.server.writer.sessions import FreeResources, PilotSession
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.server.writer.submit_pools import (
    clean_pools,
    judge_queues,
    number_at_start,
    number_queues,
    refresh_pools,
    rekey_pools,
)
from lodesman.server.writer.upkeep import purge, reconcile
from lodesman.wire import inner_calls
from lodesman.wire.call import encode
from lodesman.wire.service import NewPilot, PassNumber, RemovedCount, TidyResult, UploadedOutput
from lodesman.wire.vocabulary import PilotState

OFFER = {"platforms": ["linux"], "tags": [], "cores": 8, "memory_mb": 16_000, "norm_cpu_seconds": 100_000}


NOTHING = Change(lambda _: None)
"""A command that only lets another batch begin."""
QUEUES = [QueueId("S1", "ce", "q"), QueueId("S2", "ce", "q")]
"""The queues of most tests; their bits are 0 and 1."""


def deliver(answers):
    """Those who wait in `call` go on last: what a batch told others is there when the test looks."""
    for answer, result in sorted(
        answers, key=lambda told: isinstance(getattr(told[0], "__self__", None), Future)
    ):
        answer(result)


class House:
    """Commands in, states out; `clock` is set by the test."""

    def __init__(self, database):
        self.database = database
        self.clock = 1_000.0
        self.writer = hasty(database.writer())
        self.open()
        self.mask(QUEUES)

    def open(self):
        self.live = WriterState(self.writer, rng=random.Random(5), now=self.clock)
        self.journal = Journal(
            self.writer, clock=lambda: self.clock, at_end=partial(end_batch, self.live), deliver=deliver
        )
        self.live.go_on = lambda _: self.journal.post(NOTHING, lambda _: None)
        self.journal.start()
        self.reader = self.database.reader()
        self.reader.only("SELECT 1")  # its settings are made: tests count its statements, and replace them
        self.pilots = 0
        self.sessions = {}

    def restart(self, *configured):
        """End the writer and begin again from the database, with these queues if any are given."""
        self.close()
        self.writer = hasty(self.database.writer())
        if configured:
            with self.writer:
                tx = Transaction(self.writer, self.clock)
                number_at_start(tx, [QueueId(*queue) for queue in configured])
                tx.flush()
        known = self.sessions
        self.open()
        self.sessions = known
        self.pilots = len(known)

    def close(self):
        self.journal.close()
        self.reader.close()
        self.writer.close()

    def do(self, command):
        return self.journal.call(command)

    def together(self, *commands):
        """What commands of one batch were answered, refusals too."""
        gate, results, done = threading.Event(), {}, threading.Event()

        def keep(number, result):
            results[number] = result
            if len(results) == len(commands):
                done.set()

        self.journal.post(Change(lambda _: gate.wait(60)), lambda _: None)
        for number, command in enumerate(commands):
            self.journal.post(command, partial(keep, number))
        gate.set()
        assert done.wait(60)
        return [results[number] for number in range(len(commands))]

    def key(self, **changes):
        return TaskQueueKey(**{"owner": "ann", "group": "g", "vo": "vo", "norm_cpu_seconds": 100, **changes})

    def submit(
        self, count=1, *, key=None, held="", rows=False, max_attempts=3, request_id=None, pools=(), body="{}",
        inputs=(), waits=(),
    ):  # fmt: skip
        key = key or self.key(waits_for_jobs=bool(waits))
        runs = [((i, i + 1),) for i in range(count)] if rows else [((0, count),)]
        cohorts = tuple(
            PreparedCohort(
                key=key, template=body, expand=False, max_attempts=max_attempts, runs=run, held=held
            )
            for run in runs
        )
        return self.do(Submit(self.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="n", form="json", record="{}", members=None,
            count=count, cohorts=cohorts, pools=tuple(pools), request_id=request_id, inputs=tuple(inputs),
            waits=tuple(waits),
        )))  # fmt: skip

    def after(self, *parents, ok=True, count=1, rows=False, cancel=False, by_index=False):
        """Jobs that wait for jobs, given as ids or as (first, last); the id of the first."""
        ranges = [ParentRange(*(one if isinstance(one, tuple) else (one, one)), by_index) for one in parents]
        one = WaitRule(0, count, [] if ok else ranges, ranges if ok else [], cancel)
        return self.submit(count, rows=rows, waits=[one]).first

    def batch(self, bodies, *, inputs=()):
        """Jobs of their own, each with a template of its own."""
        key = self.key()
        cohorts = tuple(
            PreparedCohort(key=key, template=body, expand=False, max_attempts=3, runs=((n, n + 1),))
            for n, body in enumerate(bodies)
        )
        return self.do(Submit(self.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None,
            count=len(cohorts), cohorts=cohorts, inputs=tuple(inputs),
        )))  # fmt: skip

    def upload(self, pilot, claimed, sha256, size):
        """A pilot hands in the output of an attempt; what is on the shelf is another matter."""
        stored = UploadedOutput(pilot, claimed.job_id, claimed.attempt, sha256, size)
        self.do(Change(register_output, stored))

    def retention(self, keep_days, shelf=None):
        """The purging part of the background process; its commands travel as they do there."""
        commands = {
            inner_calls.PURGE: lambda body: self.do(Change(purge, self.live, body)),
            inner_calls.TIDY: lambda body: TidyResult(self.do(Change(tidy_inputs, body))),
        }

        def post(call, body):
            return call.read(encode(commands[call](json.decode(encode(body), type=call.body))))

        shelf = shelf or Shelf(self.database.beside("db").with_name("sandboxes"), limit_bytes=10_000)
        return Retention(self.reader, post, shelf, keep_days=keep_days)

    def pilot(self, site="S1", *, group="", **offer):
        """A pilot that has joined."""
        self.pilots += 1
        stamp = f"stamp{self.pilots}"
        self.do(Change(prepare_pilots, self.live, [NewPilot(
            stamp=stamp, vo="vo", site=site, ce="ce", queue="q", request={**OFFER, **offer},
            join_hash=hash_token(stamp + "-join"), group=group,
        )]))  # fmt: skip
        self.do(Change(pilots_submitted, self.live, {stamp: ("native" + stamp, "")}))
        joined = self.do(Change(join_pilot, self.live, stamp + "-join", "nonce", {"cores": 8}))
        self.sessions[joined.row.id] = PilotSession(joined.row, now=self.clock)
        return joined.row.id

    def claim_command(
        self, pilot, count=1, *, token=None, wait=False, answer=lambda _: None, free=None, quick=True, **more
    ):
        """`quick`: of a pilot that may have as much ahead as it asks for, since it has ended as many jobs just now."""
        if quick and more.get("ahead"):
            self.live.pilots._count_ended(pilot, self.clock, more["ahead"] + self.live.pilots.ahead_of(pilot))
        self.tokens = getattr(self, "tokens", 0) + 1
        return Claim(
            self.live, session=self.sessions[pilot], free=free or FreeResources(8, 16_000, 100_000), count=count,
            claim_token=token or f"claim-token-{self.tokens}", wait=wait, answer=answer, **more,
        )  # fmt: skip

    def claim(self, pilot, count=1, **more):
        return self.do(self.claim_command(pilot, count, **more))

    def report(self, pilot, claimed, state="Done", *, cause="ok", **more):
        one = AttemptReport(id=claimed.job_id, attempt=claimed.attempt, state=state, cause=cause, **more)
        return self.do(Change(take_reports, self.live, pilot, [one], cores=8))[0]

    def keeper(self, policy, *, refresh=900.0, grace=3_600.0):
        """What keeps SubmitPools true in the background process; the hot process has this policy, too."""
        make = {
            inner_calls.REKEY_POOLS: lambda body: Change(rekey_pools, self.live, body, policy.digest),
            inner_calls.POOL_PASS: lambda body: Change(refresh_pools, self.live, body, policy.digest),
            inner_calls.JUDGE_QUEUES: lambda body: Change(judge_queues, self.live, body),
            inner_calls.CLEAN_POOLS: lambda body: Change(clean_pools, self.live, body),
        }

        def post(call, body):
            done = self.do(make[call](json.decode(encode(body), type=call.body)))
            if call is inner_calls.POOL_PASS:
                return PassNumber(done.id, done.at)
            return RemovedCount(done) if call is inner_calls.CLEAN_POOLS else done

        return Keeper(self, post, refresh_seconds=refresh, grace_seconds=grace)

    def named(self, policy):
        """The policy as a process has it: all queues have the bits that are stored."""
        return replace(
            policy, bits=self.do(Change(number_queues, self.live, list(policy.config.tree.queue_ids())))
        )

    def reconcile(self):
        """A complete run of the reconciler: the number of repairs of each kind."""
        return asdict(self.do(Change(reconcile, self.live, all_suspects(self.reader))))

    def refresh(self, policy):
        """One refresh with this configuration."""
        return self.keeper(policy).tick(policy, self.clock)

    def control(self, action, first, last=None, *, may=lambda *_: True, reason="because"):
        """An action on a range, as the hot process does it: in as many commands as it takes."""
        ids = range(first, (first if last is None else last) + 1)
        out = self.do(Control(self.live, action, (ids,), reason, may))
        while out.rest:
            out.go_on(self.do(Control(self.live, action, out.rest, reason, may)))
        name_missing(self.reader, out)
        return out

    def end_pilot(self, pilot, state=PilotState.LOST, cause="pilot-lost"):
        return self.do(Change(end_pilot, self.live, pilot, state, "gone", cause=cause))

    def silence(self, *pilots, since=700.0):
        """These pilots have said nothing for long."""
        return self.do(Change(note_silence, self.live, dict.fromkeys(pilots, since)))

    def hear(self, pilot, *running, completing=()):
        """A heartbeat of a pilot that has these attempts, as far as it changes jobs."""
        told = [(one, False) for one in running] + [(one, True) for one in completing]
        attempts = {(one.job_id, one.attempt): hands_in for one, hands_in in told}
        return self.do(Change(note_heartbeat, self.live, pilot, attempts))

    def job(self, job_id):
        return job_by_id(self.reader, job_id)

    def state(self, job_id):
        return self.job(job_id).state

    def events(self, job_id):
        return [event.event for event in events_of_job(self.reader, self.job(job_id))]

    def counts(self):
        out = {}
        for one in count_jobs(self.reader):
            out[one.state] = out.get(one.state, 0) + one.jobs
        return out

    def user(self, name="ann", groups=("g",), **more):
        self.do(Change(add_account, name, "vo", groups, **more))
        return self.do(Change(issue_token, name))

    def mask(self, queues):
        """The queues as a mask; they get their bits now."""
        bits = self.do(Change(number_queues, self.live, list(queues)))
        return sum(1 << bits[queue] for queue in queues)

    def pool(self, pool_id, queues):
        return NewPool(id=pool_id, requirements="{}", vo="vo", queues=self.mask(queues))


class Keeper(PoolKeeper):
    """Takes policies as the files give them."""

    def __init__(self, house, post, **given):
        super().__init__(house.reader, post, **given)
        self._named = house.named

    def tick(self, policy, now):
        return super().tick(self._named(policy), now)


@pytest.fixture
def house(database):
    house = House(database)
    yield house
    house.close()


@pytest.fixture(scope="session")
def house_of(new_database):
    """For tests with many houses: each for its own folder, closed by the test."""
    return lambda folder: House(new_database(folder))
