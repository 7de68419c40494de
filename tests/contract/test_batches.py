"""A batch has the effect that its commands have one by one: a model of the store plays both, and compares all tables.

Some commands fail first, after they changed all that they change: nothing of that may be left, in the database or in memory.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import astuple
from tests.conftest import at_most
from tests.contract.conftest import OFFER, House

from lodesman.base.errors import Conflict, LodesmanError, ServerFault
from lodesman.languages.jobs.parents import ParentRange
from lodesman.server.store.journal import PARKED, Change
from lodesman.server.store.sandboxes import tidy_inputs
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.writer.accounts import add_account, disable_user, issue_token
from lodesman.server.writer.bound import claim_bound, unbind
from lodesman.server.writer.control import Control
from lodesman.server.writer.order import WaitRule, end_batch
from lodesman.server.writer.pilots import drain_pilots, end_pilot, hash_token, prepare_pilots
from lodesman.server.writer.report import give_back, note_heartbeat, note_silence, take_reports
from lodesman.server.writer.site_mask import close_site, open_site
from lodesman.server.writer.submit import register_input
from lodesman.server.writer.upkeep import forget_idle_queues, purge, reconcile
from lodesman.wire.nodes import Closing, NodePath
from lodesman.wire.service import NewPilot, PurgeOrder, Suspects, UnusedInputs
from lodesman.wire.vocabulary import PilotState

# They differ since batches do, and since secrets are drawn.
_OF_BATCHES = {"batch", "epoch", "incarnation", "home"}
_SECRET = {"hash", "parent"}
_KINDS: tuple[Any, ...] = (
    ("Running", "", {}), ("Done", "ok", {"exit_code": 0, "output_sha256": "f" * 64, "output": b"x"}),
    ("Failed", "exit", {"exit_code": 3}), ("Released", "returned", {}), ("Released", "pilot-shutdown", {}),
)  # fmt: skip
NUMBER = st.integers(0, 11)


def content(house):
    """All rows of all tables, without what may differ."""
    found = {}
    with closing(house.database.reader()) as db:
        for table in sorted(db.tables()):
            if table.startswith("sqlite_") or table == "migration":
                continue
            rows = db.execute(f"SELECT * FROM {table}")
            names = [one[0] for one in columns(db, table)]
            kept = [n for n, name in enumerate(names) if name not in _OF_BATCHES | _SECRET]
            found[table] = sorted(repr([row[n] for n in kept]) for row in rows)
    return found


def columns(db, table):
    """The names of the columns of a table."""
    if db.dialect == "postgresql":
        sql = """SELECT column_name FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"""
        return list(db.execute(sql, (table,)))
    return list(db.execute("SELECT name FROM pragma_table_info(?)", (table,)))


class Together:
    """Commands of one transaction, each followed by the end of a batch; answers what each answered, refusals too."""

    def __init__(self, live, commands):
        self.live = live
        self.commands = commands

    def apply(self, tx):
        found = []
        for command in self.commands:
            try:
                found.append(command.apply(tx))
            except LodesmanError as refused:
                found.append(refused)
            end_batch(self.live, tx)
            tx.ended.clear()
        return found


class Failing:
    """A command that fails after it changed all that it changes: `late` as a refusal, or as a bug would."""

    def __init__(self, command, late):
        self.command = command
        self.late = late

    def apply(self, tx):
        self.command.apply(tx)
        if self.late:
            tx.changed += 1
            raise Conflict("too late")
        raise RuntimeError("a bug")


def memory(house):
    """What the writer keeps in memory."""
    queues, pilots = house.live.queues, house.live.pilots
    return {
        "waiting": sorted((tq_id, waiting) for tq_id, _, waiting in queues.index.queues() if waiting),
        "open": sorted((tq_id, queues.index.is_open(tq_id)) for tq_id, _, waiting in queues.index.queues() if waiting),
        "loads": [queues.index.load(owner).waiting for owner in ("ann", "bob")],
        "queues held": sorted(queues.held.items()),
        "cursors": sorted(queues.claims._cursors.items()),
        "parked": sorted(queues.parked._claims),
        "held": sorted((pilot, name, *one[:2]) for pilot, held in pilots.held.items() for name, one in held.items()),
        "running": sorted(pilots.running), "silent": sorted(pilots.silent), "bound": sorted(pilots.bound.items()),
        "orders": sorted((pilot, sorted(orders.items())) for pilot, orders in pilots.stop_orders.items() if orders),
        "last claims": sorted(
            (pilot, token, sorted(map(astuple, claimed))) for pilot, (token, claimed) in pilots.last_claims.items()
        ),
        "dependents": (len(house.live.order), len(house.live.order.settling)), "ahead": len(house.live.ahead),
    }  # fmt: skip


class Batches(RuleBasedStateMachine):
    """Two houses in which the same commands are given: in one of them one by one, in the other all in one transaction."""

    make_houses = None

    @initialize(seed=NUMBER)
    def begin(self, seed):
        self.houses = self.make_houses()
        self.given = []
        self.serial = itertools.count(1)
        self.waiting = [{}, {}]
        for house in self.houses:
            house.live.rng = random.Random(seed)
            house.user()
        self.both(lambda house: [house.pilot() for _ in range(3)])

    def teardown(self):
        if getattr(self, "houses", None):
            try:
                self.play()
                for house in self.houses:
                    assert not any(house.reconcile().values())
            finally:
                for house in self.houses:
                    house.close()

    def both(self, work):
        """Something done in all houses that has the same result in each."""
        first, *others = map(work, self.houses)
        assert all(other == first for other in others)

    def give(self, make):
        """One command more in the batch; `make` makes it for a house."""
        self.given.append(make)

    # --- commands ---------------------------------------------------------------------------------------------

    def jobs(self):
        """How many jobs there are before the batch."""
        return self.houses[0].live.ids.next_job - 1

    def live_attempts(self):
        found = self.houses[0].reader.execute(
            "SELECT pilot_id, job_id, number FROM attempt WHERE ended_at IS NULL ORDER BY id"
        )
        return list(found)

    def pilot_number(self, n):
        pilots = sorted(self.houses[0].sessions)
        return pilots[n % len(pilots)]

    @rule(count=st.sampled_from([1, 1, 1, 2, 5]), rows=st.booleans(), owner=st.sampled_from(["ann", "bob"]),
          at_most=st.sampled_from([0, 0, 0, 2]), held=st.sampled_from(["", "", "", "no queue"]), named=st.booleans(),
          attempts=st.integers(1, 3))  # fmt: skip
    def submit(self, count, rows, owner, at_most, held, named, attempts):
        request = f"r{next(self.serial)}" if named else None
        self.give(
            lambda house: captured(house, lambda: house.submit(
                count, rows=rows, key=house.key(owner=owner, at_most=at_most), held=held, request_id=request,
                max_attempts=attempts,
            ))
        )  # fmt: skip

    @precondition(lambda self: self.jobs())
    @rule(n=NUMBER, count=st.integers(1, 3), ok=st.booleans(), cancel=st.booleans(), by_index=st.booleans(),
          rows=st.booleans())  # fmt: skip
    def submit_after(self, n, count, ok, cancel, by_index, rows):
        first = n % self.jobs() + 1
        last = min(first + count - 1, self.jobs())
        ranges = [ParentRange(first, last, by_index)]
        waits = WaitRule(0, last - first + 1, [] if ok else ranges, ranges if ok else [], cancel)
        self.give(
            lambda house: captured(house, lambda: house.submit(last - first + 1, rows=rows, waits=[waits]))
        )

    @rule(n=NUMBER, count=st.integers(1, 3), wait=st.booleans(), ahead=st.sampled_from([0, 0, 2]))
    def claim(self, n, count, wait, ahead):
        pilot, token = self.pilot_number(n), f"token-{next(self.serial)}"
        self.give(
            lambda house: house.claim_command(
                pilot, count, token=token, wait=wait, ahead=ahead, answer=lambda _: None, subtracts=True
            )
        )

    @rule(some=st.lists(st.tuples(NUMBER, st.booleans()), min_size=4, max_size=12))
    def come_and_go(self, some):
        """Jobs come one by one while pilots wait: nothing is read between them."""
        for n, is_job in some:
            if is_job:
                self.submit(count=1, rows=True, owner="ann", at_most=0, held="", named=False, attempts=3)
            else:
                self.claim(n, count=1, wait=True, ahead=0)

    @precondition(lambda self: self.live_attempts())
    @rule(some=st.lists(st.tuples(NUMBER, st.sampled_from(_KINDS)), min_size=1, max_size=3))
    def report(self, some):
        live = self.live_attempts()
        pilot = live[some[0][0] % len(live)][0]
        own = [(job, number) for owner, job, number in live if owner == pilot]
        reports = []
        for n, (state, cause, more) in some:
            job, number = own[n % len(own)]
            times = (
                {"started": self.houses[0].clock, "ended": self.houses[0].clock} if state == "Done" else {}
            )
            reports.append(AttemptReport(id=job, attempt=number, state=state, cause=cause, **times, **more))
        self.give(lambda house: Change(take_reports, house.live, pilot, reports, cores=8))

    @precondition(lambda self: self.jobs())
    @rule(
        action=st.sampled_from(["hold", "release", "kill", "reschedule", "delete"]),
        n=NUMBER,
        count=st.integers(1, 3),
    )
    def control(self, action, n, count):
        first = n % self.jobs() + 1
        ids = range(first, first + count)
        self.give(lambda house: Control(house.live, action, (ids,), "because", lambda *_: True))

    @rule(n=NUMBER, state=st.sampled_from([PilotState.LOST, PilotState.DONE]))
    def end_pilot(self, n, state):
        pilot = self.pilot_number(n)
        self.give(lambda house: Change(end_pilot, house.live, pilot, state, "gone"))

    @rule(n=NUMBER, what=st.sampled_from(["silence", "heartbeat", "give back", "drain"]))
    def hear(self, n, what):
        pilot = self.pilot_number(n)
        own = [(job, number) for owner, job, number in self.live_attempts() if owner == pilot]
        change = {
            "silence": lambda house: Change(note_silence, house.live, {pilot: 5.0}),
            "heartbeat": lambda house: Change(
                note_heartbeat, house.live, pilot, dict.fromkeys(own, n % 2 == 0)
            ),
            "give back": lambda house: Change(give_back, house.live, pilot, own[:1]),
            "drain": lambda house: Change(drain_pilots, house.live, [pilot], "leaves"),
        }
        self.give(change[what])

    @rule(n=NUMBER)
    def push(self, n):
        queues = [tq_id for tq_id, _, _ in self.houses[0].live.queues.index.queues()]
        stamp = f"push-{next(self.serial)}"
        new = NewPilot(
            stamp=stamp, vo="vo", site="S1", ce="ce", queue="q", request={**OFFER, "vo": "vo"}, bound=True,
            join_hash=hash_token(stamp), tq_id=queues[n % len(queues)] if queues else None,
        )  # fmt: skip
        self.give(lambda house: Change(prepare_pilots, house.live, [new]))

    @rule(n=NUMBER, what=st.sampled_from(["unbind", "claim"]))
    def use_bound(self, n, what):
        bound = sorted(self.houses[0].live.pilots.bound)
        if bound and what == "unbind":
            self.give(lambda house: Change(unbind, house.live, [bound[n % len(bound)]], "why not"))
        elif bound:
            token = f"token-{next(self.serial)}"
            self.give(lambda house: Change(claim_bound, house.live, bound[n % len(bound)], token))

    @rule(n=NUMBER, what=st.sampled_from(["user", "token", "disable", "input", "close", "open", "idle"]))
    def administer(self, n, what):
        name, owner = f"user{n % 3}", "ann" if n % 2 else "bob"
        node = Closing(site="S1" if n % 2 else "S2", ce="", queue="", reason="power", closed_by="root", since=0.0,
                       until=None, keep_pilots=n % 3 == 0)  # fmt: skip
        change = {
            "user": lambda _: Change(add_account, name, "vo", ("g",)),
            "token": lambda _: Change(lambda tx: issue_token(tx, name) and None),
            "disable": lambda _: Change(disable_user, name, disabled=n % 2 == 0, by="root"),
            "input": lambda _: Change(
                register_input, owner, f"{n:064}", 5_000 * n, quota=60_000, most_files=4
            ),
            "close": lambda house: Change(close_site, house.live, node),
            "open": lambda house: Change(open_site, house.live, NodePath(node.site, "", ""), "root"),
            "idle": lambda house: Change(forget_idle_queues, house.live),
        }
        self.give(change[what])

    @rule(n=NUMBER, what=st.sampled_from(["purge", "tidy", "reconcile"]))
    def keep_up(self, n, what):
        house, before = self.houses[0], self.houses[0].clock - 1.0
        jobs = [row[0] for row in house.reader.execute("SELECT id FROM job ORDER BY id")]
        pilots = [row[0] for row in house.reader.execute("SELECT id FROM pilot ORDER BY id")]
        old = PurgeOrder(before=before, jobs=jobs[n:], pilots=pilots)
        unused = UnusedInputs(before=before + 2, mark=[("ann", f"{n:064}")], remove=[("bob", f"{n:064}")])
        change = {
            "purge": lambda house: Change(purge, house.live, old),
            "tidy": lambda _: Change(tidy_inputs, unused),
            "reconcile": lambda house: Change(reconcile, house.live, Suspects(jobs=jobs)),
        }
        self.give(change[what])

    # --- playing them -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.given)
    @rule()
    def play(self):
        given, self.given = self.given, []
        alone, together = self.houses
        answers = []
        for make in given:
            answers.append(alone.do_or_park(make(alone)))
            assert not isinstance(answers[-1], ServerFault), "refused too late, or the wrong number of rows"
        others = together.do(Together(together.live, [make(together) for make in given]))
        assert not differences(map(shown, answers), map(shown, others)), "other answers"
        theirs = content(together)
        assert not [
            (name, *differences(rows, theirs[name]))
            for name, rows in content(alone).items()
            if rows != theirs[name]
        ]
        for house in self.houses:
            house.clock += 10.0

    @rule()
    def pilot(self):
        self.play()
        self.both(lambda house: house.pilot())

    @rule()
    def restart(self):
        self.play()
        for house in self.houses:
            rng = house.live.rng
            house.restart()
            house.live.rng = rng


class FailingBatches(Batches):
    """One house, in which each command is given twice: first it fails, and leaves nothing."""

    @precondition(lambda self: self.given)
    @rule()
    def play(self):
        given, self.given = self.given, []
        (house,) = self.houses
        for make in given:
            for how in ("late", "by a bug", "at the end of the batch"):
                before, stored = memory(house), content(house)
                assert isinstance(house.fail(make(house), how), LodesmanError)
                assert memory(house) == before
                assert content(house) == stored
            answer = house.do_or_park(make(house))
            assert not isinstance(answer, ServerFault), "refused too late, or the wrong number of rows"
        house.clock += 10.0


def differences(alone, together):
    """What the one has and the other has not."""
    return [pair for pair in itertools.zip_longest(alone, together) if pair[0] != pair[1]]


def shown(answer):
    """An answer, without the time that it took."""
    return "parked" if answer is PARKED else re.sub(r"seconds=[0-9.e-]+", "", str(answer))


class _Captured(Exception):
    pass


def captured(house, work):
    """The command that a method of the house gives."""
    found = []

    def capture(command):
        found.append(command)
        raise _Captured

    house.do = capture
    try:
        work()
    except _Captured:
        pass
    finally:
        del house.do
    return found[0]


class BatchHouse(House):
    """A house in which a claim may wait, and a command fail."""

    def fail(self, command, how):
        """The answer to a command that is made to fail."""
        at_end = self.journal._at_end
        if how == "at the end of the batch":

            def fails(tx):
                at_end(tx)
                raise RuntimeError("a bug")

            self.journal._at_end = fails
        answer = self.do_or_park(command if how.startswith("at") else Failing(command, how == "late"))
        self.journal._at_end = at_end
        return answer

    def do_or_park(self, command):
        """The answer to a command, which may be a refusal; PARKED if it waits."""
        found = []
        self.journal.post(command, found.append)
        with contextlib.suppress(ServerFault):  # the end of that batch fails, too
            self.do(Change(lambda _: None))
        return found[0] if found else PARKED


EXAMPLES = pytest.mark.parametrize(
    "examples",
    [
        pytest.param(5, marks=pytest.mark.postgresql),
        pytest.param(50, marks=pytest.mark.slow),
        pytest.param(250, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)


@pytest.fixture
def play(maker, new_database, tmp_path):
    """Plays a machine with this number of houses."""
    numbers, last = itertools.count(), []

    def make_houses(count):
        while last:
            maker.drop(last.pop())
        for _ in range(count):
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            last.append(new_database(folder))
        return [BatchHouse(database) for database in last]

    def play(machine, count, examples):
        own = type(machine.__name__, (machine,), {"make_houses": staticmethod(partial(make_houses, count))})
        # To look for the shortest example takes minutes: add Phase.shrink for that.
        phases = Phase.reuse, Phase.generate
        run_state_machine_as_test(
            own, settings=settings(at_most(examples), stateful_step_count=40, phases=phases)
        )

    return play


@EXAMPLES
def test_a_batch_does_what_its_commands_do_one_by_one(play, examples):
    play(Batches, 2, examples)


@EXAMPLES
def test_a_command_that_fails_leaves_nothing(play, examples):
    play(FailingBatches, 1, max(2, examples // 5))
