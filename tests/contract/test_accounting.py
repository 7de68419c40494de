"""What attempts used, by day, on a real database: each that ended is in it once, whatever happens in between."""

import random
from collections import Counter

import pytest
from msgspec import json

from lodesman.base.errors import Conflict
from lodesman.server.loops.accounting import UsageAdder, answer_usage
from lodesman.server.store.accounting import (
    CAUSES,
    add_usage,
    next_usage,
    usage_of_days,
    usage_state,
    wrong_usage,
)
from lodesman.server.store.journal import Change
from lodesman.server.store.statement import ANY
from lodesman.wire.call import encode
from lodesman.wire.usage import UsageDays, UsageIncrement, UsageSums
from lodesman.wire.vocabulary import PilotState

DAY = 86_400.0
ENDED = """SELECT a.id, a.ended_at, s.owner, s.grp, a.site, a.outcome, a.cause, a.number, a.started_at, a.cpu_seconds
FROM attempt a JOIN job j ON j.id = a.job_id JOIN submission s ON s.id = j.submission_id WHERE a.ended_at IS NOT NULL"""


def post(house, found):
    """As it travels."""
    return house.do(Change(add_usage, json.decode(encode(found), type=UsageIncrement)))


def adder(house, at_once=10_000):
    return UsageAdder(house.reader, lambda _, found: post(house, found), at_once)


def add_all(house):
    while True:
        found = next_usage(house.reader, 3)
        if found.last == found.done and not found.closed:
            return
        post(house, found)


def stored(house):
    rows = house.reader.execute("SELECT * FROM usage_day ORDER BY day, owner, site, cause")
    return {(row[0], row[1], row[4], row[5]): UsageSums(*row[8:]) for row in rows}


def used(house, by, vo="", days=(0, 99)):
    found = {}
    for one in usage_of_days(house.reader, by, UsageDays(*days), vo=vo, newest=100):
        name = one.job_group if by == "job-group" else one.owner or one.group or one.site or one.vo
        key = (name or one.job_class, one.cause)
        found[key] = UsageSums(*map(sum, zip(one.sums, found.get(key, (0,) * 6), strict=True)))
    return found


def run(house, pilot, state="Done", cause="ok", *, seconds=10.0, cpu=None, **key):
    house.submit(key=house.key(**key))
    (claimed,) = house.claim(pilot)
    started, house.clock = house.clock, house.clock + seconds
    house.report(
        pilot, claimed, state, cause=cause, started=started, ended=house.clock, wall_seconds=seconds,
        cpu_seconds=seconds if cpu is None else cpu,
    )  # fmt: skip
    return claimed


def test_an_attempt_is_in_the_sums_of_its_day_owner_site_and_cause(house):
    here, there = house.pilot("S1"), house.pilot("S2")
    house.clock = 3 * DAY + 100
    run(house, here, cores=4, cpu=20.0)
    run(house, here, "Failed", "exit", seconds=1.5)
    run(house, there, owner="bob", seconds=2.0)
    add_all(house)
    assert stored(house) == {
        (3, "ann", "S1", "ok"): (1, 1, 10_000, 40_000, 20_000, 40_000),
        (3, "ann", "S1", "exit"): (1, 1, 1_500, 1_500, 1_500, 1_500),
        (3, "bob", "S2", "ok"): (1, 1, 2_000, 2_000, 2_000, 2_000),
    }
    assert wrong_usage(house.reader) == []


def test_usage_by_class_and_what_was_added_up_before_classes_were_kept(house):
    pilot = house.pilot("S1")
    run(house, pilot, seconds=1.0)
    run(house, pilot, job_class="app", variant="large", seconds=2.0)
    for _ in range(2):
        found = {name: sums.core_ms for (name, _), sums in used(house, "class").items()}
        assert found == {"": 1_000, "app.large": 2_000}
        add_all(house)
    assert wrong_usage(house.reader) == []
    house.do(
        Change(
            lambda tx: tx.write("UPDATE usage_day SET job_class = 'unknown' WHERE job_class != ''", rows=ANY)
        )
    )
    run(house, pilot, job_class="app", variant="large", seconds=4.0)
    found = {name: sums.core_ms for (name, _), sums in used(house, "class").items()}
    assert found == {"": 1_000, "unknown": 2_000, "app.large": 4_000}
    add_all(house)
    assert wrong_usage(house.reader) == []
    house.do(Change(lambda tx: tx.write("UPDATE usage_day SET core_ms = core_ms - 1", rows=ANY)))
    assert wrong_usage(house.reader)


def test_usage_by_job_group_and_what_was_added_up_before_these_were_kept(house):
    pilot = house.pilot("S1")
    run(house, pilot, seconds=1.0)
    run(house, pilot, project="prod7", seconds=2.0)
    run(house, pilot, project="prod7", owner="bob", seconds=4.0)
    for _ in range(2):
        found = {name: sums.core_ms for (name, _), sums in used(house, "job-group").items()}
        assert found == {"": 1_000, "prod7": 6_000}
        days = UsageDays(0, 99)
        sums = usage_of_days(house.reader, "job-group", days, vo="", newest=100)
        rows = answer_usage(sums, "job-group", days, lambda owner, _group, _vo: owner == "ann").rows
        assert [(one.name, one.others is True, one.core_seconds) for one in rows] == [
            ("", True, 4.0),
            ("prod7", False, 2.0),
            ("", False, 1.0),
        ]
        add_all(house)
    house.do(
        Change(
            lambda tx: tx.write(
                "UPDATE usage_day SET job_group = '(unknown)' WHERE job_group != ''", rows=ANY
            )
        )
    )
    run(house, pilot, project="prod7", seconds=8.0)
    add_all(house)
    found = {name: sums.core_ms for (name, _), sums in used(house, "job-group").items()}
    assert found == {"": 1_000, "(unknown)": 6_000, "prod7": 8_000}
    assert wrong_usage(house.reader) == []


def test_a_job_counts_once_and_each_of_its_attempts(house):
    house.submit()
    for _ in range(2):
        pilot = house.pilot()
        house.claim(pilot)
        house.end_pilot(pilot)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, started=house.clock)
    add_all(house)
    found = used(house, "group")
    assert (found["g", "pilot-lost"].jobs, found["g", "pilot-lost"].attempts) == (1, 2)
    assert (found["g", "ok"].jobs, found["g", "ok"].attempts) == (0, 1)


@pytest.mark.parametrize("ahead", [0.0, 3 * 3_600.0, -2 * DAY])
def test_the_time_of_a_payload_is_right_whatever_the_clock_of_its_node(house, ahead):
    """Its start and its end may come together: a short job's, or all that a pilot kept while the server was away."""
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.clock += 60
    times = {"started": house.clock + ahead - 5, "ended": house.clock + ahead - 2}
    house.report(pilot, claimed, "Running", cause="", started=times["started"])
    house.report(pilot, claimed, **times, wall_seconds=3.0)
    ((started, ended),) = house.reader.execute("SELECT started_at, ended_at FROM attempt")
    assert ended - started == pytest.approx(3.0)
    assert house.clock - 60 <= started
    assert ended <= house.clock
    add_all(house)
    assert used(house, "group")["g", "ok"].wall_ms == 3_000


def test_what_is_not_known_is_not_measured(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Running", cause="", started=house.clock)
    house.clock += 5
    house.end_pilot(pilot)
    add_all(house)
    assert used(house, "group")["g", "pilot-lost"] == (1, 1, 5_000, 5_000, 0, 0)


def test_a_cause_that_is_not_known_is_another_one(house):
    pilot = house.pilot()
    for cause in ("exit", "made-up", "ok", ""):
        run(house, pilot, "Failed", cause)
    add_all(house)
    assert {cause: sums.attempts for (_, cause), sums in used(house, "group").items()} == {
        "exit": 1,
        "other": 3,
    }


def test_an_answer_has_what_is_not_stored_yet(house):
    run(house, house.pilot())
    before = used(house, "user")
    assert before["ann", "ok"].attempts == 1
    assert stored(house) == {}
    add_all(house)
    assert used(house, "user") == before


def test_an_answer_is_of_one_vo_and_of_some_days(house):
    pilot = house.pilot()
    house.clock = 3 * DAY
    run(house, pilot)
    house.clock = 5 * DAY
    run(house, pilot)
    for add in (False, True):
        if add:
            add_all(house)
        assert used(house, "vo")["vo", "ok"].attempts == 2
        assert used(house, "vo", vo="other") == {}
        assert used(house, "site", days=(4, 5))["S1", "ok"].attempts == 1
        assert used(house, "site", days=(4, 4)) == {}


def test_one_that_runs_is_added_when_it_has_ended(house):
    house.submit(2)
    pilot = house.pilot()
    first, second = house.claim(pilot, 2)
    house.report(pilot, second, started=house.clock)
    add_all(house)
    assert usage_state(house.reader).done == 2
    assert used(house, "group")["g", "ok"].attempts == 1
    house.report(pilot, first, started=house.clock)
    add_all(house)
    assert used(house, "group")["g", "ok"].attempts == 2
    assert house.reader.only("SELECT count(*) FROM usage_open") == (0,)


@pytest.mark.parametrize("open_first", [False, True])
def test_nothing_is_added_twice_however_often_it_is_sent(house, open_first):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    if open_first:
        add_all(house)
    house.report(pilot, claimed, started=house.clock)
    found = next_usage(house.reader, 10)
    post(house, found)
    with pytest.raises(Conflict, match="in between"):
        post(house, found)
    assert used(house, "group")["g", "ok"].attempts == 1


def test_a_late_success_takes_the_place_of_the_loss(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.end_pilot(pilot)
    add_all(house)
    assert [cause for _, _, _, cause in stored(house)] == ["pilot-lost"]
    read_before = next_usage(house.reader, 10)
    assert house.report(pilot, claimed, started=house.clock).reason == "late"
    assert stored(house) == {}
    with pytest.raises(Conflict):
        post(house, read_before)
    add_all(house)
    assert [cause for _, _, _, cause in stored(house)] == ["ok"]


def test_what_was_read_before_a_late_report_is_refused(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.end_pilot(pilot)
    read_before = next_usage(house.reader, 10)
    house.report(pilot, claimed, started=house.clock)
    with pytest.raises(Conflict):
        post(house, read_before)
    add_all(house)
    assert [cause for _, _, _, cause in stored(house)] == ["ok"]


def test_the_sums_stay_when_the_jobs_go(house):
    run(house, house.pilot())
    house.submit(key=house.key(owner="bob"))
    pilot = house.pilot()
    house.claim(pilot)
    add_all(house)
    house.end_pilot(pilot)
    house.control("kill", 2)
    before = used(house, "user")
    assert len(before) == 2
    house.clock += 20 * DAY
    for _ in house.retention(10.0).run(house.clock):
        pass
    assert house.reader.only("SELECT count(*) FROM attempt") == (0,)
    assert used(house, "user") == before
    # One of them was added by the purge: it was open until then.
    assert house.reader.only("SELECT count(*) FROM usage_open") == (0,)
    add_all(house)
    assert used(house, "user") == before
    assert wrong_usage(house.reader) == []


def test_sums_that_are_wrong_are_found(house):
    pilot = house.pilot()
    run(house, pilot)
    house.clock += 3 * DAY
    run(house, pilot)
    add_all(house)
    house.writer.change("UPDATE usage_day SET core_ms = core_ms + 1 WHERE day = 3")
    (wrong,) = wrong_usage(house.reader)
    assert (wrong.day, wrong.owner, wrong.cause) == (3, "ann", "ok")
    house.writer.change("DELETE FROM usage_day WHERE day = 0")
    assert [one.day for one in wrong_usage(house.reader)] == [0, 3]


def test_the_adder_goes_on_at_once_after_a_full_portion_and_rests_otherwise(house):
    pilot = house.pilot()
    for _ in range(5):
        run(house, pilot)
    one, at = adder(house, 2), house.clock
    for done in (2, 4, 5):
        one.tick(at)
        assert usage_state(house.reader).done == done
    run(house, pilot)
    one.tick(at + 59)
    assert usage_state(house.reader).done == 5
    one.tick(at + 60)
    assert usage_state(house.reader).done == 6
    run(house, pilot)
    one.tick(at - 1_000)  # the clock was set back
    assert usage_state(house.reader).done == 7


def test_the_causes_are_those_that_are_recorded(house):
    """Of pilots and of the server, as they are named in the code."""
    from lodesman.pilot import protocol  # noqa: PLC0415
    from lodesman.server.writer import report  # noqa: PLC0415

    named = {getattr(protocol, name) for name in (
        "OK", "EXIT", "SIGNAL", "CPU_LIMIT", "WALL_LIMIT", "MEMORY_LIMIT", "OUTPUT_LIMIT", "NOT_STARTED", "NEVER_STARTED",
        "INPUT", "WARDEN_LOST", "KILLED", "PILOT_SHUTDOWN", "NODE_FAULT",
    )}  # fmt: skip
    named |= {report.LOST, report.UNNAMED, report.NOT_TAKEN, report.RETURNED, "lease-expired"}
    assert named | report.PAYLOAD_CAUSES == CAUSES


class _Walk:
    """Anything in any order; `ended` has the attempts as they ended last, also when they are gone."""

    def __init__(self, house, seed):
        self.house, self.rng = house, random.Random(seed)
        self.live, self.lost, self.ended = [], [], {}
        self.read = next_usage(house.reader, 2)

    def step(self):
        actions = (
            "submit",
            "claim",
            "finish",
            "finish",
            "lose",
            "speak",
            "look",
            "send",
            "send",
            "purge",
            "restart",
            "wait",
        )
        getattr(self, self.rng.choice(actions))()
        self.ended |= {row[0]: row[1:] for row in self.house.reader.execute(ENDED)}

    def submit(self):
        key = self.house.key(owner=self.rng.choice(("ann", "bob")))
        self.house.submit(self.rng.randint(1, 3), key=key)

    def claim(self):
        pilot = self.house.pilot(self.rng.choice(("S1", "S2")))
        self.live += [(pilot, one) for one in self.house.claim(pilot)]

    def finish(self):
        if self.live:
            pilot, one = self.live.pop(self.rng.randrange(len(self.live)))
            state, cause = self.rng.choice((("Done", "ok"), ("Failed", "exit"), ("Released", "input")))
            now, cpu = self.house.clock, self.rng.choice((0.25, 3.0))
            self.house.report(
                pilot, one, state, cause=cause, started=now - 1, ended=now, cpu_seconds=cpu, wall_seconds=1.0
            )

    def lose(self):
        if self.live:
            pilot, one = self.live.pop(self.rng.randrange(len(self.live)))
            self.house.end_pilot(pilot, PilotState.LOST)
            self.lost.append((pilot, one))

    def speak(self):
        if self.lost:
            pilot, one = self.rng.choice(self.lost)
            state, cause = self.rng.choice((("Done", "ok"), ("Failed", "exit")))
            self.house.report(
                pilot,
                one,
                state,
                cause=cause,
                started=self.house.clock - 1,
                cpu_seconds=1.0,
                wall_seconds=2.0,
            )

    def look(self):
        self.read = next_usage(self.house.reader, self.rng.randint(1, 4))

    def send(self):
        """What was read some time ago, or now; perhaps for the second time."""
        if self.rng.random() < 0.5:
            self.look()
        try:
            post(self.house, self.read)
        except Conflict:
            return

    def purge(self):
        for _ in self.house.retention(0.01).run(self.house.clock):
            pass

    def restart(self):
        self.house.restart()

    def wait(self):
        self.house.clock += self.rng.choice((10.0, 1_000.0, DAY))

    def expected(self):
        sums = Counter()
        for ended_at, owner, group, site, outcome, cause, number, started_at, cpu in self.ended.values():
            key = (int(ended_at // DAY), owner, group, site, "ok" if outcome == "Done" else cause)
            wall = 0 if started_at is None else round((ended_at - started_at) * 1_000)
            sums[(*key, "attempts")] += 1
            sums[(*key, "jobs")] += number == 1
            sums[(*key, "wall")] += wall
            sums[(*key, "cpu")] += round((cpu or 0.0) * 1_000)
        return +sums


def _found(house):
    sums = Counter()
    rows = house.reader.execute(
        "SELECT day, owner, grp, site, cause, attempts, jobs, wall_ms, cpu_ms FROM usage_day"
    )
    for *key, attempts, jobs, wall, cpu in rows:
        assert attempts > 0
        for name, amount in (("attempts", attempts), ("jobs", jobs), ("wall", wall), ("cpu", cpu)):
            sums[(*key, name)] += amount
    return +sums


@pytest.mark.parametrize("seed", range(6))
def test_each_attempt_is_added_once_whatever_happens(house, seed):
    walk = _Walk(house, seed)
    for _ in range(120):
        walk.step()
        if walk.rng.random() < 0.1:
            assert wrong_usage(house.reader) == []
    add_all(house)
    assert walk.ended
    assert _found(house) == walk.expected()
    assert wrong_usage(house.reader) == []


def test_what_a_pilot_gave_back_before_it_started_is_no_attempt(house):
    """Its job counts once all the same."""
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Released", cause="returned")
    add_all(house)
    assert list(stored(house).values()) == [UsageSums(0, 1, 0, 0, 0, 0)]
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed)
    add_all(house)
    assert list(used(house, "user")) == [("ann", "ok")]
    assert used(house, "user")["ann", "ok"][:2] == (1, 1)
    assert wrong_usage(house.reader) == []
