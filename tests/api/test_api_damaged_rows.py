"""A damaged row of the database costs what it belongs to: each text of each table is damaged in turn."""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from itertools import cycle, repeat
from random import Random
from types import SimpleNamespace

import apsw
import pytest

from lodesman.base.errors import words_of
from lodesman.decide.director.limits import Breaker
from lodesman.server.loops.accounting import UsageAdder
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.reconciler import Reconciler
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store.director import put_breakers
from lodesman.server.store.journal import Change
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.job_classes import load_classes
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.quotas import QuotaRules
from lodesman.server.writer.reoffer import Offers, set_offers
from lodesman.server.writer.sessions import load_sessions
from lodesman.wire import inner_calls
from lodesman.wire.call import encode
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.service import PassNumber, RepairCounts, StoredBreaker

# No JSON, which each text becomes; and, each text one of them, JSON of other types, a huge number, a foreign state or name.
NO_JSON, DAMAGED = "{", ("", "null", "[]", "9" * 400, "nonsense")
READS = (
    ("/health", ""), ("/v1/sites", "admin"), ("/v1/sites", "bob"), ("/v1/queues", "bob"), ("/v1/jobs", "admin"),
    ("/v1/jobs", "bob"), ("/v1/pilots", "bob"),
)  # fmt: skip


def post(call, _body):
    """The hot process, which takes everything."""
    if call is inner_calls.POOL_PASS:
        return PassNumber(number=1, at=0.0)
    is_proof = call in {inner_calls.RECONCILE, inner_calls.CHECK_LIMITS}
    return RepairCounts() if is_proof else SimpleNamespace(removed=0)


class Rows:
    """A house with something in its tables, the first of each of ann's; `job`: one of bob's, who has nothing of hers."""

    def __init__(self, house, backend):
        self.house, self.backend, self.db = house, backend, house._writer
        house.made_up = True
        house.submitted(
            {"CPUTime": 500, "Site": "North", "Tags": ["SSD"]}, {"Software": "root", "Site": "North"}
        )
        house.claim(house.pilot(node={"cores": 4, "host": "n1"}))
        house.submitted({"Executable": "/bin/date", "Site": "North", "Tags": ["SSD"]})
        house.submitted({"CPUTime": 700, "Parameters": 3, "Software": "geant"})
        for prepare in (house.pilot, house.prepare_pilot):
            prepare("South")
        self.job = house.submitted({"CPUTime": 500, "Site": "South"}, {"Software": "geant"}, token="bob")
        broken = encode(Breaker(failures=1)).decode()
        house.do(Change(put_breakers, [StoredBreaker("North", "ce.north", "short", broken)]))
        order = {"path": "North/ce.north/short", "order": "close", "reason": "x"}
        assert house.call("POST", "/v1/queues/breaker", order, token="admin").status == 200
        assert (
            house.call("POST", "/v1/sites/close", {"path": "Far", "reason": "x"}, token="admin").status == 200
        )
        quotas = {"text": "{\n name each\n enabled true\n limit users {*} to slots=9\n}\n", "how": "add"}
        assert house.call("POST", "/v1/quotas", quotas, token="admin").status == 200
        ad = {"ad": 'Name = "North"\nUpdateSequenceNumber = 1\nMaxJobs = 10\nCurrentJobs = 0\n'}
        assert house.call("POST", "/v1/sites/ad", ad, token=house.site("North")).status == 200
        house.director(backend).tick(house.now)

    def fill(self):
        """Something in tables that are empty so far, all of it ann's."""
        house = self.house
        first = house.submitted({"Site": "South"})
        house.submitted({"Site": "South", "After": str(first)})
        array = house.submitted({"Site": "South", "Parameters": 4})
        assert house.control("kill", array + 1).status == 200
        content = {"sha256": hashlib.sha256(b"x").hexdigest(), "size": 1}
        assert house.upload(b"x").status == 200
        house.submitted({"InputSandbox": ["x"]}, sandboxes={"x": content})
        for path, body, token in (
            ("/v1/job-classes", {"text": "jcname app\n"}, "ann"),
            ("/v1/hosts/close", {"host": "n1", "reason": "power"}, "admin"),
        ):
            assert house.call("POST", path, body, token=token).status == 200
        (job,) = self.db.only("SELECT job_id FROM attempt")
        assert house.report("pilot1", {"id": job, "attempt": 1, "output": None})["accepted"]
        house.now += 90_000.0
        UsageAdder(house.side.db, house.post).tick(house.now)
        broken = encode(Breaker(failures=1)).decode()
        house.do(Change(put_breakers, [StoredBreaker("North", "ce.north", "short", broken)]))
        self.db.change("INSERT INTO task_queue_hold (tq_id, reason, since) VALUES (1, 'x', 1.0)")

    def columns(self, *kinds):
        """(table, column, its keys) of each that is not the key of its table."""
        for table in sorted(self.db.tables()):
            columns = list(self.db.execute(f"PRAGMA table_info({table})"))
            keys = [name for _, name, _, _, _, place in columns if place]
            for _, name, kind, *_ in columns:
                if kind in kinds and keys != [name]:
                    yield table, name, keys

    def damage(self, table, column, keys, value):
        """Damage the first row, ann's; returns what mends it, None if the database takes no such value."""
        hers = {"account": "name = 'ann'", "token": "account = 'ann'"}.get(table)
        names = ", ".join((*keys, column))
        row = self.db.execute(
            f"SELECT {names} FROM {table} WHERE {hers or 'true'} ORDER BY {names} LIMIT 1"
        ).fetchone()
        if row is None:
            return None
        *places, before = row
        change = (
            f"UPDATE {table} SET {column} = ? WHERE {' AND '.join(f'{key} = ?' for key in keys) or 'true'}"
        )
        if isinstance(value, bytes):
            change = change.replace("= ?", "= CAST(? AS TEXT)", 1)
        try:
            self.db.change(change, (value, *places))
        except apsw.SQLError:  # an index reads it
            return None
        after = [value if key == column else place for key, place in zip(keys, places, strict=True)]
        return lambda: self.db.change(change, (before, *after))

    def steps(self):
        """What the loops do and what is asked, by name, with nothing known before; and what they left out."""
        house, db = self.house, self.house.side.db
        keeper = house.side.keeper = SnapshotKeeper(db)
        director = house.side.director = house.director(self.backend)
        director.post, director.left_out, policy = post, keeper.left_out, house.side.policy
        pools = PoolKeeper(db, post, refresh_seconds=9.0, grace_seconds=9.0, left_out=keeper.left_out)
        asked = [*READS, (f"/v1/jobs/{self.job}", "bob"), (f"/v1/jobs/{self.job}/why", "bob")]
        return keeper, {
            "start": self.start,
            "director": lambda: director.tick(house.now),
            "snapshot": lambda: keeper.refresh(house.now),
            "refresh": lambda: pools.tick(policy, house.now),
            "reconciler": lambda: list(Reconciler(db, post, left_out=keeper.left_out)._run()),
            "reasons": lambda: MainReasons(db, keeper).judge(policy, house.now),
            **{f"{path} {token}": partial(house.get, path, token) for path, token in asked},
        }

    def start(self):
        """What a start reads, and new offers by another configuration."""
        live, words = (
            WriterState(self.db, rng=Random(5), now=0.0, ticks=lambda: 0.0),
            self.house.side.policy.vocabulary,
        )
        QuotaRules(live, quota_sets(self.db), words)
        load_classes(self.db, words, JobClassSection())
        sessions = load_sessions(self.db, now=0.0)
        with self.db:
            tx = Transaction(self.db, 0.0)
            set_offers(tx, live, sessions, Offers(self.house.side.policy))
            tx.flush()
        return live, sessions

    def lost(self):
        """What fails, and what it is that a step leaves out."""
        keeper, steps = self.steps()
        found = {}
        for name, step in steps.items():
            try:
                step()
            except Exception as fault:
                found[name] = words_of(fault)
        mine = {one for one in keeper.snapshot.waiting if one[1].owner == "bob"}
        if len(mine) != 2 or len(keeper.pilots.own) != 2:
            found["snapshot"] = f"{len(mine)} of bob's task queues, and pilots in {list(keeper.pilots.own)}"
        return found, set(keeper.left_out.named())


# What the damaged rows belong to, by their tables.
LEFT_OUT = {
    "breaker": "breaker North/ce.north/short", "director_iteration": "the director's last iteration", "pilot": "pilot 1",
    "task_queue": "task queue 1",
}  # fmt: skip


# Tables whose one row all depends on, and a number that an ended pilot alone has.
OF_ALL = {"leadership", "site_mask_state", "submit_pool_state", "ended_at"}
# What may be left out since its own number is damaged.
BY_NUMBER = {
    "attempt": "starts of late", "cohort": "task queue 3", "site_mask": "CE queue Far/ce.far/q",
    "task_queue_count": "task queue 1",
}  # fmt: skip


def lost_by(rows, columns, values, left_out):
    """What else fails while each of these columns has one of the values, and how many were tried."""
    wrong, tried = [], 0
    logging.disable()  # a line of the log would keep the cursor that failed
    try:
        assert rows.lost() == ({}, set())
        for (table, column, keys), some in zip(columns, values, strict=False):
            for value in some if not {table, column} & OF_ALL else ():
                mend = rows.damage(table, column, keys, value)
                if mend is not None:
                    tried += 1
                    failed, named = rows.lost()
                    wrong += [(table, column, str(value)[:9], one) for one in failed.items()]
                    wrong += [
                        (table, column, str(value)[:9], one) for one in named - {left_out.get(table, "")}
                    ]
                    mend()
    finally:
        logging.disable(logging.NOTSET)
    return wrong, tried


@pytest.mark.slow
def test_a_damaged_text_costs_what_its_row_belongs_to(house, backend, database_kind):
    if database_kind != "sqlite":
        pytest.skip("its columns take no foreign values")
    rows = Rows(house, backend)
    values = ((NO_JSON, other) for other in cycle(DAMAGED))
    wrong, tried = lost_by(rows, rows.columns("TEXT"), values, LEFT_OUT)
    assert wrong == []
    assert tried > 120


@pytest.mark.slow
def test_a_damaged_number_costs_what_its_row_belongs_to(house, backend, database_kind):
    if database_kind != "sqlite":
        pytest.skip("its columns take no foreign values")
    rows = Rows(house, backend)
    wrong, tried = lost_by(
        rows, rows.columns("REAL", "INTEGER"), repeat((NO_JSON, 9e300)), LEFT_OUT | BY_NUMBER
    )
    assert wrong == []
    assert tried > 60


@pytest.mark.parametrize("column", ["request", "node"])
def test_a_server_starts_with_a_damaged_pilot_which_offers_what_its_queue_does(house, backend, column):
    rows = Rows(house, backend)
    house._writer.change(f"UPDATE pilot SET {column} = '{{' WHERE id = 1")
    assert load_sessions(house._writer, now=0.0)[1].offer.cores == 0
    live, sessions = rows.start()
    assert live.pilots.running == sessions.keys()
    assert {number: one.offer.cores for number, one in sessions.items()} == {1: 4, 2: 1}
