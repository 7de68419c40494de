"""What live attempts take of limits: after any deed, fault or restart it is what the live attempts say."""

from __future__ import annotations

import json
import random
from itertools import count

import pytest

from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.decide.resources import FilePosition, PlaceLimit
from lodesman.decide.resources.draft import DELAY
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, read_complexes
from lodesman.languages.gridengine.vocabulary import HostGroup, Vocabulary
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.server.store.audit import audit_entries
from lodesman.server.store.journal import Change
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.read.pilots import live_attempts
from lodesman.server.store.task_queues import keys_by_id
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.writer import bookings, sessions
from lodesman.server.writer.quotas import (
    QuotaRules,
    check_limits,
    go_on,
    open_delays,
    remove_quotas,
    set_quotas,
    use_limits,
)
from lodesman.server.writer.sessions import FreeResources
from lodesman.wire.accounts import AuditNote
from lodesman.wire.nodes import NodePath

VOCABULARY = Vocabulary(host_groups={"@two": HostGroup(name="@two", members=("n2",))})
NOTE = AuditNote("quota-changed", "a", "eva")
TEXTS = (
    "{\nname a\nenabled true\nlimit users {*} to slots=2\n}\n",
    "{\nname a\nenabled true\nlimit users {*} to slots=0\n}\n",
    "{\nname b\nenabled true\nlimit queues q to slots=5\n}\n",
    "{\nname b\nenabled true\nlimit users ann to slots=1\nlimit users {*} hosts {*} to slots=3\n}\n",
    "{\nname c\nenabled false\nlimit to slots=0\n}\n",
)


class Limited:
    """A house with quota sets."""

    def __init__(self, house) -> None:
        self.house = house
        self.vocabulary = VOCABULARY
        self.open()

    def open(self) -> None:
        self.rules = QuotaRules(self.house.live, quota_sets(self.house.reader), self.vocabulary)

    def restart(self) -> None:
        self.house.restart()
        self.open()

    def sets(self, text):
        found = read_quota_sets(text, STOCK_COMPLEXES, faults=[])
        new = not {one.name for one in found} & self.rules.sets.keys()
        return Change(set_quotas, self.rules, found, new=new, note=NOTE)

    def put(self, text) -> None:
        done = self.house.do(self.sets(text))
        while not done:
            done = self.house.do(Change(go_on, self.rules))

    @property
    def limits(self) -> RunLimits:
        return self.house.live.queues.index.limits

    def used(self):
        return {(one.rule, *one.of_key, *one.of_place): one.used for one, _ in self.limits.uses()}

    def anew(self) -> RunLimits:
        """The limits as they follow from what is stored."""
        index, reader = self.house.live.queues.index, self.house.reader
        sets = [
            one
            for row in quota_sets(reader)
            for one in read_quota_sets(row.text, self.vocabulary.complexes, faults=[])
        ]
        limits = RunLimits(QuotaBook(sets, self.vocabulary))
        for tq_id, _, _ in index.queues():
            index.prepare(limits, tq_id)
        live = live_attempts(reader)
        keys = keys_by_id(reader, {one.tq_id for one in live})
        for one in live:
            limits.take(keys[one.tq_id], RunPlace(*one.place))
        return limits

    def check(self) -> None:
        wanted, found = self.anew(), self.limits
        assert {str(use) for use, _ in found.uses()} == {str(use) for use, _ in wanted.uses()}
        for place in (RunPlace("S1", "ce", "q"), RunPlace("S2", "ce", "q"), RunPlace("S1", "ce", "q", "n2")):
            numbers = range(self.house.live.queues.index.group_numbers())
            assert [*map(found.shut_slots(place).__getitem__, numbers)] == [
                *map(wanted.shut_slots(place).__getitem__, numbers)
            ]


@pytest.fixture
def limited(house):
    return Limited(house)


class Faulty:
    """Commands that are applied, and then the batch fails."""

    def __init__(self, *commands):
        self.commands = commands

    def apply(self, tx):
        for one in self.commands:
            one.apply(tx)
        raise ZeroDivisionError


def fails(house, *commands):
    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Faulty(*commands))


def test_uses_are_the_same_after_a_restart(limited):
    house = limited.house
    limited.put(TEXTS[3])
    house.submit(4)
    house.submit(4, key=house.key(owner="bob"))
    for site in ("S1", "S2"):
        house.claim(house.pilot(site), 3)
    before = limited.used()
    assert sum(before.values()) > 2
    limited.restart()
    assert limited.used() == before
    limited.check()


def test_a_claim_and_an_end_of_a_batch_that_failed_are_none(limited):
    house = limited.house
    limited.put(TEXTS[0])
    house.submit(4)
    pilot = house.pilot()
    fails(house, house.claim_command(pilot, 2))
    assert limited.used() == {}
    first, second = house.claim(pilot, 3)
    limited.check()
    assert house.claim(pilot) == []

    class Ends:
        def apply(self, tx):
            for one in (first, second):
                house.live.bookings.ended(tx, pilot, (one.job_id, one.attempt))

    fails(house, Ends(), house.claim_command(pilot, 2))
    assert limited.used() == {("a/1", "ann", "", "", "", "", ""): 2}
    limited.check()
    house.report(pilot, first)
    assert len(house.claim(pilot, 3)) == 1


def test_a_change_of_rules_of_a_batch_that_failed_is_none(limited):
    house = limited.house
    limited.put(TEXTS[0])
    house.submit(6)
    house.submit(6, key=house.key(owner="bob"))
    pilots = house.pilot("S1"), house.pilot("S2")
    house.claim(pilots[0], 2)
    fails(
        house,
        house.claim_command(pilots[1], 1),
        limited.sets(TEXTS[1]),
        limited.sets(TEXTS[2]),
        house.claim_command(pilots[0], 2),
    )
    assert list(limited.rules.sets) == ["a"]
    limited.check()
    fails(house, Change(remove_quotas, limited.rules, ["a"], NOTE), house.claim_command(pilots[0], 8))
    limited.check()
    assert len(house.claim(pilots[1], 8)) == 2


def test_two_commands_of_one_batch_add_a_set_once(limited):
    class Twice:
        def apply(self, tx):
            limited.sets(TEXTS[0]).apply(tx)
            limited.sets(TEXTS[1]).apply(tx)

    new = Change(
        set_quotas, limited.rules, read_quota_sets(TEXTS[1], STOCK_COMPLEXES, faults=[]), new=True, note=NOTE
    )

    first, second = limited.house.together(limited.sets(TEXTS[0]), new)
    assert first is not None
    assert "There is a quota set a already" in str(second)
    limited.house.do(Twice())
    limited.check()


def test_surplus_that_a_claim_returns_is_not_used(limited):
    """A claim chooses by cores what it cannot hold, and gives it back."""
    house = limited.house
    limited.put("{\nname a\nenabled true\nlimit users {*} to slots=100\n}\n")
    house.submit(6, key=house.key(cores=4))
    pilot = house.pilot()
    claim = house.claim_command(pilot, 6, free=FreeResources(8, 16_000, 100_000))
    claim.subtracts = True
    assert len(house.do(claim)) == 3  # two that it holds, and one that it prefetches
    assert limited.used() == {("a/1", "ann", "", "", "", "", ""): 12}
    limited.check()


def test_a_job_that_is_not_there_is_not_used(limited):
    house = limited.house
    limited.put(TEXTS[0])
    house.submit(1)
    [(tq_id, _, _)] = house.live.queues.index.queues()
    house.live.queues.index.add_waiting(tq_id, 3, now=0.0)
    assert len(house.claim(house.pilot(), 4)) == 1
    limited.check()


def test_a_changed_vocabulary_is_judged_by_at_once(limited):
    house = limited.house
    limited.put("{\nname a\nenabled true\nlimit hosts @two to slots=0\n}\n")
    house.submit(1)
    at = RunPlace("S1", "ce", "q", "n3")
    assert limited.limits.shut_slots(at)[0] == 0
    limited.vocabulary = Vocabulary(host_groups={"@two": HostGroup(name="@two", members=("N3",))})
    assert house.do(Change(use_limits, limited.rules, limited.vocabulary)) is True
    assert limited.limits.shut_slots(at)[0] != 0
    limited.check()
    assert house.do(Change(use_limits, limited.rules, limited.vocabulary)) is True  # nothing changed


def test_a_limit_on_a_resource_that_is_gone_limits_nothing(limited):
    house = limited.house
    limited.put("{\nname a\nenabled true\nlimit users {*} to h_vmem=0\n}\n")
    house.submit(1, key=house.key(memory_mb=5))
    limited.vocabulary = Vocabulary(complexes=read_complexes("slots s INT <= YES YES 1 0\n", faults=[]))
    house.do(Change(use_limits, limited.rules, limited.vocabulary))
    assert len(house.claim(house.pilot())) == 1
    limited.restart()
    limited.check()


def small_portions(monkeypatch, number):
    """A portion is so many places, task queues and attempts: each of them takes a second."""
    monkeypatch.setattr(bookings, "perf_counter", count().__next__)
    monkeypatch.setattr(bookings.Bookings.go_on, "__defaults__", (number,))


def test_rules_are_prepared_in_portions_and_hold_when_they_are_complete(limited, monkeypatch):
    small_portions(monkeypatch, 3)
    house = limited.house
    for n in range(10):
        house.submit(2, key=house.key(norm_cpu_seconds=100 + n))
    pilot = house.pilot()
    claimed = house.claim(pilot, 4)
    assert house.do(limited.sets(TEXTS[1])) is False
    assert len(house.claim(pilot, 1)) == 1  # the new rules do not hold yet
    house.report(pilot, claimed[0])
    turns = 1
    while not house.do(Change(go_on, limited.rules)):
        turns += 1
    # A place, 10 task queues, 4 attempts and the one that came: 3 at a time, the first with the change, the last in the end.
    assert turns == 5
    assert house.claim(pilot, 1) == []
    assert limited.used() == {("a/1", "ann", "", "", "", "", ""): 4}
    limited.check()


def test_rules_are_stored_with_the_commit_from_which_they_hold(limited, monkeypatch):
    """At no commit is a limit stored against which a claim was made after it."""
    house = limited.house
    limited.put(TEXTS[0])
    house.submit(9)
    pilot = house.pilot()
    small_portions(monkeypatch, 1)

    def stored():
        noted = audit_entries(house.reader, before=1 << 40, since=0.0, action="", by="", limit=99)
        return [one.text for one in quota_sets(house.reader)], len(noted)

    before = stored()
    assert house.do(limited.sets(TEXTS[1])) is False
    assert house.do(limited.sets(TEXTS[2])) is False  # both come into use together
    assert house.do(Change(remove_quotas, limited.rules, ["b"], NOTE)) is False
    turns = 0
    while not house.do(Change(go_on, limited.rules)):
        turns += 1
        assert stored() == before
        assert limited.rules.in_use.keys() == {"a"}
    assert turns
    texts, notes = stored()
    assert notes == before[1] + 3
    assert len(texts) == 1
    assert "slots=0" in texts[0]
    assert house.claim(pilot, 1) == []
    limited.restart()
    assert limited.rules.sets.keys() == {"a"}
    limited.check()


# --- proofs ---------------------------------------------------------------------------------------------------


def prove(limited):
    """Compare what limits count with what lives; returns how many buckets were wrong."""
    before = limited.house.live.bookings.wrong
    done = limited.house.do(Change(check_limits, limited.rules))
    while not done:
        done = limited.house.do(Change(go_on, limited.rules))
    return limited.house.live.bookings.wrong - before


@pytest.fixture
def used_limits(limited):
    """Limits of which three jobs use something."""
    limited.put(TEXTS[3])
    limited.house.submit(3)
    limited.house.submit(2, key=limited.house.key(owner="bob"))
    limited.house.claim(limited.house.pilot(), 3)
    assert sum(limited.used().values()) > 1
    return limited


def forgotten(house):
    """Forget one live attempt; returns what it held."""
    held = next(filter(None, house.live.pilots.held.values()))
    return held.pop(next(iter(held)))


def test_a_proof_of_right_limits_changes_nothing(used_limits):
    limits = used_limits.limits
    assert prove(used_limits) == 0
    assert used_limits.limits is limits
    used_limits.check()


def test_a_limit_that_counts_too_much_is_reported_and_mended(used_limits, caplog):
    (bucket, used), *_ = used_limits.used().items()
    key = used_limits.house.key(owner=bucket[1] or "ann")
    used_limits.limits.take(key, RunPlace("S1", "ce", "q"))
    assert used_limits.used()[bucket] == used + 1
    assert prove(used_limits) == 1
    (said,) = [one for one in caplog.records if one.message == "the use of a limit was wrong"]
    assert (said.counted, said.live) == (used + 1, used)
    assert said.levelname == "ERROR"
    used_limits.check()
    assert prove(used_limits) == 0


def test_attempts_that_are_forgotten_are_read_again(used_limits, caplog):
    house = used_limits.house
    used_limits.limits.give(*forgotten(house)[2:])
    live = len(live_attempts(house.reader))
    assert prove(used_limits) == 1
    (said,) = [one for one in caplog.records if one.message == "limits counted other attempts than live"]
    assert (said.counted[0], said.stored[0]) == (live - 1, live)
    used_limits.check()


def test_places_of_pilots_that_run_nothing_are_prepared_before_they_claim(limited, monkeypatch):
    small_portions(monkeypatch, 1)
    house = limited.house
    for site in ("S1", "S2"):
        house.pilot(site)
    assert house.do(limited.sets("{\nname a\nenabled true\nlimit queues {*} to slots=2\n}\n")) is False
    while not house.do(Change(go_on, limited.rules)):
        pass
    assert {place.site for place in house.live.queues.index.limits._by_place} == {"S1", "S2"}
    limited.check()


def test_attempts_that_are_read_again_count_for_rules_that_are_prepared(used_limits, monkeypatch):
    small_portions(monkeypatch, 1)
    house = used_limits.house
    forgotten(house)
    assert house.do(used_limits.sets(TEXTS[0])) is False
    assert prove(used_limits) == 0
    used_limits.check()


def test_what_a_failed_batch_proved_is_proved_again(used_limits):
    limits = used_limits.limits
    fails(used_limits.house, Change(check_limits, used_limits.rules))
    assert used_limits.limits is limits
    assert prove(used_limits) == 0
    used_limits.check()


def test_claims_and_ends_go_on_while_limits_are_proved(used_limits, monkeypatch):
    small_portions(monkeypatch, 1)
    house, limits = used_limits.house, used_limits.limits
    house.submit(3, key=house.key(owner="bob"))
    pilot = house.pilot("S2")
    claimed = house.claim(pilot, 1)
    assert house.do(Change(check_limits, used_limits.rules)) is False
    house.report(pilot, claimed[0])
    assert len(house.claim(house.pilot("S2"), 1)) == 1
    while not house.do(Change(go_on, used_limits.rules)):
        pass
    assert used_limits.limits is limits
    assert house.live.bookings.wrong == 0
    used_limits.check()


def test_rules_that_change_while_they_are_proved_hold(used_limits, monkeypatch):
    small_portions(monkeypatch, 1)
    house = used_limits.house
    assert house.do(Change(check_limits, used_limits.rules)) is False
    used_limits.put(TEXTS[0])
    used_limits.check()
    # And a proof does not stop rules that are prepared.
    assert house.do(used_limits.sets(TEXTS[2])) is False
    assert house.do(Change(check_limits, used_limits.rules)) is False
    while not house.do(Change(go_on, used_limits.rules)):
        pass
    used_limits.check()


# --- load values ------------------------------------------------------------------------------------------------


class Joins:
    """A pilot reports the cores of its host."""

    def __init__(self, house, host, cores) -> None:
        self.hosts, self.report = house.live.hosts, json.dumps({"host": host, "cores_total": cores})
        self.changed: list[str] = []

    def apply(self, tx):
        self.hosts.joined(tx, self.report, self.changed.append)


def test_load_values_of_a_batch_that_failed_are_as_before(house):
    house.do(Joins(house, "n1", 2))
    join = Joins(house, "n1", 3)
    fails(house, join)
    assert house.live.hosts.of("n1") == {"num_proc": 2}
    # Limits are asked anew when the values are there, and again when they are as before.
    assert join.changed == ["n1"] * 2 * (len(join.changed) // 2)
    assert join.changed


def test_load_values_of_the_hosts_that_joined_first_are_forgotten(house, monkeypatch):
    monkeypatch.setattr(sessions, "_MOST_HOSTS", 2)
    for host in ("n1", "n2", "n1", "n3"):
        house.do(Joins(house, host, 2))
    assert [host for host in ("n1", "n2", "n3") if house.live.hosts.of(host)] == ["n2", "n3"]


# --- delays ---------------------------------------------------------------------------------------------------


@pytest.fixture
def delayed(house):
    """A house where one job starts at S1 in ten seconds; `ticks` is a list with the time."""
    rule = PlaceLimit(
        kind=DELAY, path=NodePath("S1"), attribute="Owner", value="ann", number=10, source=FilePosition()
    )
    house.ticks = [100.0]
    house.live.queues.index.delays.ticks = lambda: house.ticks[0]
    house.rules = QuotaRules(house.live, (), VOCABULARY, (rule,))
    house.ticks[0] += 10.0
    house.do(Change(open_delays, house.live))
    return house


def test_a_start_that_is_undone_begins_no_delay(delayed):
    pilot, delays = delayed.pilot(), delayed.live.queues.index.delays
    delayed.submit(2)
    fails(delayed, delayed.claim_command(pilot, 2))
    assert delays.shut_delays() == []
    assert len(delayed.claim(pilot, 2)) == 1
    assert [seconds for _, seconds in delays.shut_delays()] == [10.0]
    assert delayed.claim(pilot) == []


def test_a_delay_whose_opening_is_undone_opens_later(delayed):
    pilot, delays = delayed.pilot(), delayed.live.queues.index.delays
    delayed.submit(2)
    delayed.claim(pilot)
    delayed.ticks[0] += 11.0
    fails(delayed, Change(open_delays, delayed.live))
    assert [seconds for _, seconds in delays.shut_delays()] == [0.0]
    assert delayed.claim(pilot) == []
    delayed.do(Change(open_delays, delayed.live))
    assert len(delayed.claim(pilot)) == 1


def test_a_delay_that_runs_goes_on_while_other_rules_are_prepared(delayed):
    pilot = delayed.pilot()
    delayed.submit(2)
    delayed.claim(pilot)
    sets = read_quota_sets(TEXTS[2], STOCK_COMPLEXES, faults=[])
    assert delayed.do(Change(set_quotas, delayed.rules, sets, new=True, note=NOTE)) is True
    assert delayed.claim(pilot) == []
    delayed.ticks[0] += 10.0
    delayed.do(Change(open_delays, delayed.live))
    assert len(delayed.claim(pilot)) == 1


class Deeds:
    """Random deeds of users, pilots and administrators, and faults between them."""

    def __init__(self, limited, seed) -> None:
        self.limited, self.house, self.rng = limited, limited.house, random.Random(seed)
        self.pilots = [self.house.pilot(site) for site in ("S1", "S2", "S1")]
        self.running: list[tuple[int, ClaimedAttempt]] = []

    def submit(self) -> None:
        rng = self.rng
        key = {
            "owner": rng.choice(["ann", "bob"]),
            "cores": rng.choice([1, 2]),
            "norm_cpu_seconds": rng.randint(1, 9),
        }
        self.house.submit(rng.randint(1, 3), key=self.house.key(**key))

    def claim(self) -> None:
        pilot = self.rng.choice(self.pilots)
        self.running += [(pilot, one) for one in self.house.claim(pilot, self.rng.randint(1, 3))]

    def report(self) -> None:
        if self.running:
            self.house.report(*self.running.pop(self.rng.randrange(len(self.running))))

    def change(self) -> None:
        self.house.do(self.limited.sets(self.rng.choice(TEXTS)))

    def go_on(self) -> bool:
        return bool(self.house.do(Change(go_on, self.limited.rules)))

    def prove(self) -> None:
        self.house.do(Change(check_limits, self.limited.rules))

    def fail(self) -> None:
        rng, limited = self.rng, self.limited
        commands = [
            self.house.claim_command(rng.choice(self.pilots), 2),
            limited.sets(rng.choice(TEXTS)),
            Change(go_on, limited.rules),
            Change(check_limits, limited.rules),
            self.house.claim_command(rng.choice(self.pilots), 2),
        ]
        fails(self.house, *rng.sample(commands, rng.randint(1, 5)))

    def restart(self) -> None:
        self.limited.restart()


@pytest.mark.parametrize("seed", range(6))
def test_after_any_deeds_the_limits_are_what_the_attempts_say(limited, monkeypatch, seed):
    small_portions(monkeypatch, 4)
    deeds = Deeds(limited, seed)
    some = (
        [deeds.submit] * 5
        + [deeds.claim] * 6
        + [deeds.report] * 4
        + [deeds.change] * 2
        + [deeds.go_on, deeds.fail, deeds.prove, deeds.prove]
    )
    for _ in range(60):
        deeds.rng.choice([*some, *([deeds.restart] if deeds.rng.random() < 0.3 else [])])()
        if deeds.house.live.queues.index.next_limits is None:
            limited.check()
        # Only what is wrong is found wrong.
        assert deeds.house.live.bookings.wrong == 0
    while not deeds.go_on():
        pass
    limited.check()
    while deeds.running:
        deeds.report()
    assert limited.used() == {}
    limited.check()
