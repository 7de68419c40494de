"""32 pilots claim at once while limits change and the server is killed: no limit is exceeded at any commit.

What was claimed and when it ended stands in the attempts, which limits held in the audit trail; both have the time of their
transaction. The rules are evaluated by the quota language alone, which shares no code of buckets and masks with claims.
The server is killed whenever pilots have claimed and limits have changed for a while, and all commits since then are
checked. LODESMAN_LIMIT_SECONDS makes it longer.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import secrets
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast

import pytest
from tests.e2e.conftest import PATIENCE

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.quota.evaluation import QuotaHit, evaluate
from lodesman.languages.quota.matching import QuotaJob, QuotaPlace
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import QuotaSet
from lodesman.server.store.task_queues import keys_by_id

SECONDS = float(os.environ.get("LODESMAN_LIMIT_SECONDS", "0"))
# Before each kill.
CLAIMS, CHANGES = 60, 3
PILOTS, HOSTS = 32, 4
USERS = ("ann", "bob", "cid", "dan")
SETTINGS = {"pilots.stop_at_exit": False, "pilots.lease_seconds": 600}
GONE = (OSError, http.client.HTTPException)


def set_of(name: str, *limits: str) -> str:
    lines = "".join(f" limit {one}\n" for one in limits)
    return f"{{\n name {name}\n enabled true\n{lines}}}\n"


def some_sets(rng: random.Random) -> str:
    """One set with other limits than before."""
    return rng.choice([
        set_of("users", f"users ann,bob to slots={rng.randint(2, 8)}", f"users {{*}} to slots={rng.randint(1, 6)}"),
        set_of("hosts", f"hosts {{*}} to slots={rng.randint(1, 8)}"),
        set_of("total", f"projects p to slots={rng.randint(0, 6)}", f"to slots={rng.randint(4, 24)}"),
    ])  # fmt: skip


Attempt = tuple[float, "float | None", QuotaJob, QuotaPlace]


class Client(threading.Thread):
    """A pilot that claims, holds for a moment, and reports; it repeats what got no answer."""

    def __init__(self, server, host: str, seed: int, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self.rng, self.end = random.Random(seed), end
        self.pilot = server.fake_pilot(host)
        self.claimed = 0
        self.fault: Exception | None = None

    def run(self) -> None:
        while not self.end.is_set():
            token, count = secrets.token_urlsafe(9), self.rng.randint(1, 3)
            wait = self.rng.choice([0.0, 0.5])
            jobs = self._until_answered(lambda: self.pilot.claim(count, wait=wait, claim_token=token))  # noqa: B023
            threading.Event().wait(self.rng.uniform(0.0, 0.05))
            for job in jobs:
                self.claimed += 1
                self._until_answered(lambda: self.pilot.report(job))  # noqa: B023

    def _until_answered(self, ask):
        while True:
            try:
                return ask()
            except (*GONE, AssertionError, KeyError, ValueError) as fault:
                self.fault = fault
            threading.Event().wait(0.05)


@dataclass
class Rules:
    """The sets that held before and after a time."""

    at: float
    sets: dict[str, QuotaSet]


@dataclass
class Checker:
    """Goes through all commits after `since` in order."""

    attempts: list[Attempt]
    rules: list[Rules]
    since: float = 0.0
    starts: int = 0
    full: int = 0
    live: dict[int, tuple[QuotaJob, QuotaPlace]] = field(default_factory=dict)

    def run(self) -> None:
        begun, ended = defaultdict(list), defaultdict(list)
        for number, (start, end, _, _) in enumerate(self.attempts):
            begun[start].append(number)
            if end is not None:
                ended[end].append(number)
        for at in sorted({*begun, *ended}):
            for number in begun[at]:
                self.live[number] = self.attempts[number][2:]
            for number in ended[at]:
                del self.live[number]
            started = [number for number in begun[at] if number in self.live]
            if started and at > self.since:
                self.check(at, started)

    def held(self, at: float) -> list[dict[str, QuotaSet]]:
        """The sets that held at some moment of the transaction of that time."""
        before = [one.sets for one in self.rules if one.at < at]
        return [before[-1] if before else {}, *(one.sets for one in self.rules if one.at == at)]

    def check(self, at: float, started: list[int]) -> None:
        self.starts += len(started)
        held = self.held(at)
        for name in {name for sets in held for name in sets}:
            versions = [sets.get(name) for sets in held]
            if None in versions:
                continue  # a moment without this set: it may not have held
            for number in started:
                assert any(self.has_room(one, number) for one in versions if one), (at, name, self.live)

    def has_room(self, one: QuotaSet, number: int) -> bool:
        found = hits(one, self.live[number])
        used = sum(
            cast("int", charge.amount)
            for other in self.live.values()
            for hit in hits(one, other)
            if found and hit.bucket == found[0].bucket
            for charge in hit.charges
        )
        limits = [cast("int", charge.limit) for hit in found for charge in hit.charges]
        self.full += limits == [used]
        return all(used <= limit for limit in limits)


def hits(one: QuotaSet, job_and_place) -> tuple[QuotaHit, ...]:
    job, place = job_and_place
    return evaluate([one], job, place, STOCK_COMPLEXES)


def read_rules(db) -> list[Rules]:
    """The rules after each change, from the audit trail."""
    found: list[Rules] = []
    rows = db.execute("SELECT at, action, subject, detail FROM audit WHERE action LIKE 'quota-%' ORDER BY id")
    for at, action, subject, detail in rows:
        sets = dict(found[-1].sets) if found else {}
        if action == "quota-changed":
            sets |= {one.name: one for one in read_quota_sets(detail, STOCK_COMPLEXES, faults=[])}
        else:
            for name in subject.split(", "):
                sets.pop(name)
        found.append(Rules(at, sets))
    return found


def read_attempts(db, since: float) -> list[Attempt]:
    """Those that lived then or later."""
    rows = list(
        db.execute(
            """SELECT a.claimed_at, a.ended_at, a.tq_id, p.queue, p.node_host
        FROM attempt a JOIN pilot p ON p.id = a.pilot_id
        WHERE a.ended_at IS NULL OR a.ended_at >= ?""",
            (since,),
        )
    )
    keys = keys_by_id(db, {tq_id for _, _, tq_id, _, _ in rows})
    jobs = {
        number: QuotaJob(user=key.owner, project=key.project, slots=key.cores) for number, key in keys.items()
    }
    return [
        (start, end, jobs[tq_id], QuotaPlace(queue=queue, host=host))
        for start, end, tq_id, queue, host in rows
    ]


def check_on(server, before: Checker) -> Checker:
    """Hold all commits since the last check against the limits."""
    since = max([one for attempt in before.attempts for one in attempt[:2] if one], default=0.0)
    with contextlib.closing(server.database.reader()) as db:
        found = Checker(read_attempts(db, since), read_rules(db), since, before.starts, before.full)
    found.run()
    return found


def change(server, text: str, how: str = "change") -> bool:
    """Whether it is known to be done."""
    try:
        answer = server.ask("POST", "/v1/quotas", {"text": text, "how": how}, token="admin")
    except GONE:
        return False
    assert answer.status in (200, 503), answer.body
    return bool(answer.status == 200)


def change_until_claimed(server, rng: random.Random, clients: list[Client]) -> int:
    """Change limits until pilots have claimed enough under them; how often."""
    changed, before = 0, sum(one.claimed for one in clients)
    while changed < CHANGES or sum(one.claimed for one in clients) < before + CLAIMS:
        changed += change(server, some_sets(rng))
        threading.Event().wait(rng.uniform(0.02, 0.3))
    return changed


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(1, 5), pytest.param(2, 20, marks=pytest.mark.thorough)])
def test_no_limit_is_exceeded_at_any_commit(make_server, seed, kills):
    rng = random.Random(seed)
    server = make_server(**SETTINGS).start()
    for name in USERS:
        server.user(name, "physics")
        for cores, group in ((1, ""), (2, ""), (1, "p")):
            job = {
                "Site": "Bench",
                "NumberOfProcessors": cores,
                "Parameters": 20_000,
                **({"JobGroup": group} if group else {}),
            }
            server.submit(job, token=name)
    assert change(server, set_of("users", "users {*} to slots=4") + set_of("total", "to slots=20") +
                  set_of("hosts", "hosts {*} to slots=9"), "add")  # fmt: skip
    end = threading.Event()
    clients = [Client(server, f"n{n % HOSTS}", seed * 1_000 + n, end) for n in range(PILOTS)]
    for one in clients:
        one.start()
    changed = killed = 0
    checker = Checker([], [])
    begun = time.monotonic()
    while killed < kills or time.monotonic() < begun + SECONDS:
        changed += change_until_claimed(server, rng, clients)
        server.process.kill()
        server.process.wait()
        checker = check_on(server, checker)
        server.start()
        killed += 1
    changed += change_until_claimed(server, rng, clients)
    end.set()
    for one in clients:
        one.join(PATIENCE)
        assert not one.is_alive(), repr(one.fault)
    # Of limits of 0 there are buckets as long as jobs wait behind them.
    assert {one["used"] for one in server.get("/v1/quotas/use")["uses"]} <= {"0"}
    checker = check_on(server, checker)
    assert checker.live == {}
    assert changed > killed * CHANGES
    # The limits were reached, so there was something to exceed.
    assert checker.starts > killed * CLAIMS
    assert checker.full > 50
    assert set(server.reconcile().values()) == {0}
    server.stop()
