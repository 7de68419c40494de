"""Forgetting on a real database: what ended long ago goes with all that only it needed, and nothing else changes."""

import random
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from lodesman.base.errors import NotFound, Unavailable
from lodesman.languages.jobs.spec import TERMINAL
from lodesman.server.loops import retention
from lodesman.server.loops.retention import DAY, _weighed_portions
from lodesman.server.store.journal import Change
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.jobs import attempts_of_job, events_of_job, job_by_id
from lodesman.server.writer import upkeep as purging
from lodesman.server.writer.upkeep import forget_idle_queues, purge
from lodesman.wire.jobs import NotChanged
from lodesman.wire.pilots import ReportResult
from lodesman.wire.service import PurgeOrder, RepairCounts

KEEP = 10.0
CLEAN = asdict(RepairCounts())
TABLES = (
    "job", "event", "attempt", "template", "submission", "cohort", "hole", "sandbox_use", "small_output", "task_queue",
    "pilot",
)  # fmt: skip
# Every reference that a row has must lead to a row: (table, column, where to).
REFERENCES = (
    ("job", "submission_id", "submission"), ("job", "template_id", "template"), ("job", "tq_id", "task_queue"),
    ("job", "last_event", "event"), ("job", "last_attempt", "attempt"), ("event", "previous", "event"),
    ("event WHERE last_job IS NULL", "job_id", "job"), ("attempt", "previous", "attempt"), ("attempt", "job_id", "job"),
    ("attempt", "pilot_id", "pilot"), ("cohort", "submission_id", "submission"), ("cohort", "template_id", "template"),
    ("cohort", "tq_id", "task_queue"), ("hole", "cohort_id", "cohort"), ("task_queue_count", "tq_id", "task_queue"),
    ("task_queue_hold", "tq_id", "task_queue"), ("task_queue_event", "tq_id", "task_queue"),
    ("task_queue_reason", "tq_id", "task_queue"), ("sandbox_use", "submission_id", "submission"),
    ("token", "pilot_id", "pilot"), ("small_output", "attempt_id", "attempt"),
    ("submission_reader", "submission_id", "submission"),
)  # fmt: skip


def forget_all(house, *, reconciled=True, keep=KEEP):
    """One complete run now; returns its report. A server reconciles every few minutes."""
    if reconciled:
        assert house.reconcile() == CLEAN
        house.do(Change(forget_idle_queues, house.live))
    found = house.retention(keep)
    for _ in found.run(house.clock):
        pass
    return found.done


def sizes(house, *tables):
    return {t: house.reader.only(f"SELECT count(*) FROM {t}")[0] for t in tables or TABLES}


def dangling(house):
    """References that lead nowhere."""
    found = {}
    for table, column, target in REFERENCES:
        there = {row[0] for row in house.reader.execute(f"SELECT id FROM {target}")}
        named = {row[0] for row in house.reader.execute(f"SELECT {column} FROM {table}")} - {None}
        if named - there:
            found[table, column] = named - there
    return found


def run_one(house, pilot, *, state="Done", cause="ok", **more):
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, state, cause=cause, **more)
    return claimed.job_id


def later(house, days):
    """Some days later; the server reconciles every few minutes."""
    house.reconcile()
    house.clock += days * DAY


# --- single jobs -----------------------------------------------------------------------------------------


def test_a_job_is_purged_with_all_its_rows(house):
    pilot = house.pilot()
    house.submit()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Running", cause="")
    house.report(pilot, claimed, "Failed", cause="input", tail="x" * 1_000, output=b"1")  # another attempt
    run_one(house, pilot, output=b"2")
    house.end_pilot(pilot)
    assert sizes(house, "attempt", "small_output") == {"attempt": 2, "small_output": 2}
    later(house, KEEP - 1)
    assert forget_all(house) == {}
    assert house.state(1) == "Done"
    later(house, 2)
    assert forget_all(house) == {"jobs": 1, "submissions": 1, "pilots": 1, "task_queues": 1}
    assert set(sizes(house).values()) == {0}
    assert sizes(house, "task_queue_count", "token") == {"task_queue_count": 0, "token": 0}
    assert house.job(1) is None


def test_the_time_counts_from_the_end(house):
    pilot = house.pilot()
    house.submit()
    later(house, KEEP * 3)
    run_one(house, pilot)
    later(house, KEEP - 1)
    forget_all(house)
    assert house.state(1) == "Done"
    house.control("delete", 1)  # an end of its own
    later(house, 2)
    forget_all(house)
    assert house.state(1) == "Deleted"
    later(house, KEEP)
    forget_all(house)
    assert house.job(1) is None


def test_nothing_is_purged_if_jobs_are_kept_for_ever(house):
    house.submit()
    run_one(house, house.pilot())
    later(house, 10_000)
    assert forget_all(house, keep=0) == {}
    assert house.state(1) == "Done"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("end", ["wait", "hold", "match", "run", "impossible"])
def test_what_has_not_ended_stays_however_old_it_is(house, end, count):
    pilot = house.pilot()
    house.submit(count, held="no queue" if end == "impossible" else "")
    if end == "hold":
        house.control("hold", 1, count)
    if end in ("match", "run"):
        (claimed,) = house.claim(pilot)
    if end == "run":
        house.report(pilot, claimed, "Running", cause="")
    before = house.job(1), house.events(1)
    later(house, KEEP * 100)
    assert forget_all(house) == {}
    assert (house.job(1), house.events(1)) == before
    assert dangling(house) == {}


def test_a_job_that_was_killed_stays_until_its_attempt_has_ended(house):
    pilot = house.pilot()
    house.submit()
    (claimed,) = house.claim(pilot)
    house.control("kill", 1)
    later(house, KEEP + 1)
    forget_all(house)
    assert house.state(1) == "Killed"
    house.report(pilot, claimed, "Failed", cause="killed")
    forget_all(house)
    assert house.job(1) is None


def test_a_job_that_came_back_meanwhile_is_not_purged(house):
    house.submit()
    house.control("kill", 1)
    later(house, KEEP + 1)
    before = house.clock - KEEP * DAY
    house.control("reschedule", 1)
    assert house.do(Change(purge, house.live, PurgeOrder(before=before, jobs=[1]))).jobs == []
    assert house.state(1) == "Waiting"
    assert house.reconcile() == CLEAN


def test_the_writer_checks_again_what_a_reader_found(house):
    """What was named is not old, or its attempt still runs."""
    pilot = house.pilot()
    house.submit(3)
    (claimed,) = house.claim(pilot)
    house.control("kill", 1, 2)
    later(house, KEEP + 1)
    cohort = house.reader.only("SELECT id FROM cohort")[0]
    young = PurgeOrder(before=1_000.0, jobs=[1], holes=[(cohort, 1)])
    assert house.do(Change(purge, house.live, young)).jobs == []
    assert house.state(2) == "Killed"
    old = PurgeOrder(before=house.clock, jobs=[1, 2, 3, 99], holes=[(cohort, 1), (cohort, 2)])
    assert house.do(Change(purge, house.live, old)).jobs == []
    assert [house.state(1), house.job(2), house.state(3)] == ["Killed", None, "Waiting"]
    house.report(pilot, claimed, "Failed", cause="killed")
    assert house.do(Change(purge, house.live, young)).jobs == []
    assert house.do(Change(purge, house.live, old)).jobs == [(1, 1)]
    assert house.do(Change(purge, house.live, old)).jobs == []


def test_a_report_about_a_purged_job_changes_nothing(house):
    pilot = house.pilot()
    house.submit()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed)
    later(house, KEEP + 1)
    forget_all(house)
    assert house.report(pilot, claimed) == ReportResult(1, 1, accepted=False, reason="no such attempt")


def test_actions_on_purged_jobs_say_so(house):
    house.submit()
    house.submit(3)
    house.control("kill", 1, 3)
    later(house, KEEP + 1)
    forget_all(house)
    with pytest.raises(NotFound, match=r"Job 1 is no longer known\. .*keep_days"):
        house.control("reschedule", 1)
    assert house.control("delete", 2, 3).examples == [NotChanged(2, "it was purged")]
    assert house.control("delete", 2, 4).changed == 1
    with pytest.raises(NotFound, match="Job 5 was not found"):
        house.control("kill", 5)


# --- what must stay right --------------------------------------------------------------------------------


def test_ids_are_never_given_out_again(house):
    pilot = house.pilot()
    house.submit(rows=True, count=2)
    house.submit(3)
    for _ in range(5):
        run_one(house, pilot)
    house.end_pilot(pilot)
    newest = {table: house.reader.only(f"SELECT max(id) FROM {table}")[0] for table in TABLES
              if table not in ("hole", "sandbox_use", "small_output")}  # fmt: skip
    later(house, KEEP + 1)
    forget_all(house)
    assert set(sizes(house).values()) == {0}
    house.restart()
    house.sessions.clear()
    assert house.submit().first == 6
    house.submit(2)
    assert house.pilot() > newest["pilot"]
    house.claim(newest["pilot"] + 1, 2)
    house.control("hold", 7, 8)
    for table, most in newest.items():
        assert house.reader.only(f"SELECT min(id) FROM {table}")[0] > most, table


def test_attempts_that_are_still_to_be_replayed_are_written_down_first(house):
    """Counters and cursors follow from attempts: a purged one may not be missing after a crash."""
    pilot = house.pilot()
    house.submit(4)
    for _ in range(2):
        run_one(house, pilot)
    assert house.reader.only("SELECT cursor FROM cohort") == (0,)
    house.clock += (KEEP + 1) * DAY
    forget_all(house, reconciled=False)
    assert house.job(1) is None
    house.restart()
    assert [c.job_id for c in house.claim(pilot, 10)] == [3, 4]
    assert house.reconcile() == CLEAN


def test_the_replay_never_goes_back(house):
    """The newest attempt is purged; an older one lives: what was replayed once is not replayed again."""
    pilot = house.pilot()
    house.submit(3)
    (kept,) = house.claim(pilot)
    run_one(house, pilot)
    house.clock += (KEEP + 1) * DAY
    forget_all(house, reconciled=False)
    assert house.reader.only("SELECT claims_at FROM leadership") == (2,)
    for _ in range(2):
        house.restart()
        assert house.reader.only("SELECT claims_at FROM leadership") == (2,)
    assert house.report(pilot, kept).accepted
    assert [c.job_id for c in house.claim(pilot, 10)] == [3]
    assert house.reconcile() == CLEAN


def test_a_batch_that_fails_purges_nothing(house):
    house.submit()
    house.control("kill", 1)
    later(house, KEEP + 1)

    class Broken:
        def apply(self, tx):
            purge(tx, house.live, PurgeOrder(before=house.clock, jobs=[1]))
            purge(tx, house.live, PurgeOrder(before=house.clock, queues=[(1, 0.0)]))
            raise LookupError

    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Broken())
    assert house.state(1) == "Killed"
    assert house.reconcile() == CLEAN


# --- arrays and batches ----------------------------------------------------------------------------------


def test_members_go_one_by_one_and_the_array_with_the_last(house):
    pilot = house.pilot()
    house.submit(6)
    run_one(house, pilot)
    house.control("kill", 3, 4)
    house.control("hold", 6)
    later(house, KEEP + 1)
    run_one(house, pilot)
    assert forget_all(house) == {"jobs": 1, "runs": 1}
    assert [job_id for job_id in range(1, 7) if house.job(job_id) is None] == [1, 3, 4]
    assert house.counts() == {"Done": 1, "Waiting": 1, "Held": 1}
    listed = list_jobs(house.reader, JobQuery(first=1, last=10, limit=10))
    assert [(row.id, row.state) for row in listed] == [(2, "Done"), (5, "Waiting"), (6, "Held")]
    assert dangling(house) == {}
    house.control("release", 6)
    run_one(house, pilot)
    run_one(house, pilot)
    later(house, KEEP + 1)
    assert forget_all(house)["submissions"] == 1
    assert sizes(house) == dict.fromkeys(TABLES, 0) | {"pilot": 1}


def test_a_million_killed_members_are_one_step(house):
    house.submit(1_000_000)
    house.control("kill", 1, 1_000_000)
    later(house, KEEP + 1)
    assert forget_all(house) == {"runs": 1, "submissions": 1, "task_queues": 1}
    assert house.job(500_000) is None


def test_an_array_with_very_many_parts_goes_in_portions(house, monkeypatch):
    monkeypatch.setattr(purging, "_MOST_ROWS", 7)
    monkeypatch.setattr(retention, "_KEYS_AT_ONCE", 5)
    house.submit(200)
    for job_id in range(1, 200, 3):
        house.control("kill", job_id)
    house.control("kill", 1, 200)
    later(house, KEEP + 1)
    commands = house.journal.commands
    forget_all(house)
    assert house.journal.commands - commands > 30
    assert sizes(house) == dict.fromkeys(TABLES, 0)


def test_templates_of_a_batch_go_with_their_jobs(house):
    pilot = house.pilot()
    bodies = iter(f'{{"n":{n}}}' for n in range(4))
    house.batch(bodies)
    run_one(house, pilot)
    run_one(house, pilot)
    house.control("hold", 3, 4)
    later(house, KEEP + 1)
    forget_all(house)
    kept = [row[0] for row in house.reader.execute("SELECT body FROM template ORDER BY id")]
    assert kept == ['{"n":2}', '{"n":3}']
    assert dangling(house) == {}


# --- task queues and pilots ------------------------------------------------------------------------------


def test_a_task_queue_stays_as_long_as_a_job_names_it(house):
    house.submit()
    house.control("hold", 1)
    later(house, KEEP * 2)
    forget_all(house)
    house.restart()
    house.control("release", 1)
    assert run_one(house, house.pilot()) == 1


def test_a_task_queue_with_a_new_job_stays(house):
    def tried(emptied):
        return house.do(
            Change(purge, house.live, PurgeOrder(before=house.clock, queues=[(1, emptied)]))
        ).queues

    def emptied():
        return house.reader.only("SELECT emptied_at FROM task_queue_count")[0]

    house.submit(2)
    house.control("kill", 1, 2)
    first = emptied()
    later(house, KEEP + 1)
    assert tried(first) == 0  # the index has it
    house.do(Change(forget_idle_queues, house.live))
    house.submit(2)
    assert tried(first) == 0
    house.control("kill", 3, 4)
    house.clock += 1_000
    house.do(Change(forget_idle_queues, house.live))
    assert tried(first) == 0
    assert sizes(house, "task_queue") == {"task_queue": 1}
    assert tried(emptied()) == 1


def test_a_task_queue_that_was_emptied_before_a_restart_is_removed(house):
    """Its counter follows from the attempts then, and the time from them, too."""
    house.submit()
    pilot = house.pilot()
    house.clock += 60
    run_one(house, pilot)
    house.end_pilot(pilot)
    house.restart()
    assert house.reader.execute("SELECT waiting, emptied_at FROM task_queue_count").fetchall() == [
        (0, 1_060.0)
    ]
    later(house, KEEP + 1)
    assert forget_all(house)["task_queues"] == 1


def test_a_task_queue_that_is_made_again_is_a_new_one(house):
    house.submit(held="no queue")
    house.control("kill", 1)
    later(house, KEEP + 1)
    assert forget_all(house)["task_queues"] == 1
    assert house.live.queues.held == {}
    assert sizes(house, "task_queue_hold", "task_queue_event") == {
        "task_queue_hold": 0,
        "task_queue_event": 0,
    }
    house.submit()
    assert house.job(2).task_queue == 2
    assert run_one(house, house.pilot()) == 2


def test_a_pilot_that_an_attempt_names_stays(house):
    pilot, other = house.pilot(), house.pilot()
    house.submit()
    run_one(house, pilot, state="Released", cause="input")
    house.end_pilot(pilot)
    house.end_pilot(other)
    later(house, KEEP + 1)
    assert forget_all(house) == {"pilots": 1}
    assert [row[0] for row in house.reader.execute("SELECT id FROM pilot")] == [pilot]


# --- in small steps --------------------------------------------------------------------------------------


def test_work_is_done_in_small_steps_and_goes_on(house):
    for _ in range(3):
        house.submit(count=50, rows=True)
    house.control("kill", 1, 150)
    later(house, KEEP + 1)
    found = house.retention(KEEP)
    found.work_seconds = 0.0
    now = [0.0]
    found.ticker = lambda: now[0]
    found.tick(house.clock)
    assert sizes(house, "job") == {"job": 150}  # not at once after the start
    now[0] += 601.0
    found.tick(house.clock)
    assert sizes(house, "job") == {"job": 50}
    for _ in range(20):
        found.tick(house.clock)
    assert sizes(house) == dict.fromkeys(TABLES, 0) | {"task_queue": 1}
    house.submit()
    house.control("kill", 151)
    later(house, KEEP + 1)
    found.tick(house.clock)
    assert sizes(house, "job") == {"job": 1}  # the next run comes in an hour
    now[0] += 3_601.0
    found.tick(house.clock)
    assert sizes(house, "job") == {"job": 0}


def test_a_step_that_fails_is_done_by_the_next_run(house):
    house.submit()
    house.control("kill", 1)
    later(house, KEEP + 1)
    found = house.retention(KEEP)
    good, now = found.post, [0.0]
    found.ticker = lambda: now[0]

    def refuse(name, body):
        raise Unavailable("no server")

    found.tick(house.clock)
    now[0], found.post = 601.0, refuse
    with pytest.raises(Unavailable):
        found.tick(house.clock)
    found.post = good
    found.tick(house.clock)
    assert house.state(1) == "Killed"
    now[0] += 3_601.0
    found.tick(house.clock)
    assert house.job(1) is None


def test_a_portion_holds_few_jobs_with_much_output():
    items = [(1, 10), (2, 900), (3, 200), (4, 5_000), (5, 1), (6, 1), (7, 1)]
    assert list(_weighed_portions(items, most=3, weight=1_000)) == [[1, 2], [3], [4], [5, 6, 7]]
    assert list(_weighed_portions([(n, 0) for n in range(7)], most=3, weight=1)) == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert list(_weighed_portions([], most=3, weight=1)) == []


# --- against a model -------------------------------------------------------------------------------------


class Story:
    """A random life of a server, and what a reader sees of it."""

    def __init__(self, house, rng):
        self.house, self.rng = house, rng
        self.pilots = [house.pilot()]
        self.claimed = []
        self.jobs = 0

    def step(self):
        act = self.rng.choice([
            self.submit, self.submit, self.batch, self.claim, self.claim, self.report, self.report, self.control,
            self.control, self.wait, self.wait, self.lose, self.restart,
        ])  # fmt: skip
        act()

    def submit(self):
        rng = self.rng
        key = self.house.key(user_priority=rng.randint(1, 3))
        done = self.house.submit(
            rng.choice([1, 1, 2, 5, 9]), key=key, rows=rng.random() < 0.4, max_attempts=rng.randint(1, 3),
            held="no queue" if rng.random() < 0.1 else "",
        )  # fmt: skip
        self.jobs = done.first + done.count - 1

    def batch(self):
        done = self.house.batch([f'{{"n":{self.rng.random()}}}' for _ in range(3)])
        self.jobs = done.first + done.count - 1

    def claim(self):
        pilot = self.rng.choice(self.pilots)
        self.claimed += [(pilot, one) for one in self.house.claim(pilot, self.rng.randint(1, 5))]

    def report(self):
        if self.claimed:
            pilot, one = self.claimed.pop(self.rng.randrange(len(self.claimed)))
            state, cause = self.rng.choice(
                [("Done", "ok"), ("Failed", "exit"), ("Released", "pilot-shutdown"), ("Running", "")]
            )
            self.house.report(pilot, one, state, cause=cause, tail="words")
            if state == "Running":
                self.claimed.append((pilot, one))

    def control(self):
        if self.jobs:
            first = self.rng.randint(1, self.jobs)
            last = min(self.jobs, first + self.rng.choice([0, 0, 2, 6]))
            action = self.rng.choice(["kill", "kill", "hold", "release", "reschedule", "delete"])
            # Purged ones are refused: with an error if nothing else is named.
            with suppress(NotFound):
                self.house.control(action, first, last)

    def wait(self):
        self.house.clock += self.rng.choice([1, 3_600, DAY, 4 * DAY, 11 * DAY])

    def lose(self):
        pilot = self.rng.choice(self.pilots)
        self.house.end_pilot(pilot)
        self.claimed = [(p, one) for p, one in self.claimed if p != pilot]
        self.pilots = [p for p in self.pilots if p != pilot] + [self.house.pilot()]

    def restart(self):
        self.house.restart()

    def seen(self):
        """Of every job that ever was: what a reader sees, and whether it is old."""
        db, before = self.house.reader, self.house.clock - KEEP * DAY
        out = {}
        for job_id in range(1, self.jobs + 1):
            job = job_by_id(db, job_id)
            if job is not None:
                live = any(a.ended_at is None for a in attempts_of_job(db, job))
                old = job.state in TERMINAL and job.since < before and not live
                out[job_id] = old, job, events_of_job(db, job), attempts_of_job(db, job)
        return out

    def check(self):
        """Purge, and compare with what should have become of each job."""
        house = self.house
        before = self.seen()
        forget_all(house, reconciled=self.rng.random() < 0.5)
        after = self.seen()
        assert after.keys() == {job_id for job_id, (old, *_) in before.items() if not old}
        assert all(after[job_id] == before[job_id] for job_id in after)
        states = Counter(job.state for _, job, _, _ in after.values())
        assert house.counts() == dict(states)
        listed = list_jobs(house.reader, JobQuery(first=1, last=1 << 40, limit=10_000))
        assert [row.id for row in listed] == sorted(after)
        assert dangling(house) == {}
        assert house.reconcile() == CLEAN
        found = house.reader.execute("SELECT id, base, count FROM submission").fetchall()
        kept = {s for s, base, n in found if any(base <= job_id < base + n for job_id in after)}
        young = {s for s, *_ in found if self._is_young(s)}
        assert {s for s, *_ in found} <= kept | young

    def _is_young(self, submission):
        made = self.house.reader.only("SELECT created_at FROM submission WHERE id = ?", (submission,))[0]
        return made >= self.house.clock - KEEP * DAY

    def finish(self):
        """All waiting jobs are claimed once, after a last restart; all purged, nothing is left."""
        house = self.house
        house.restart()
        waiting = {job_id for job_id, (_, job, _, _) in self.seen().items() if job.state == "Waiting"}
        pilot = house.pilot()
        given = Counter(one.job_id for _ in range(60) for one in house.claim(pilot, 5))
        assert given == Counter(waiting)
        for number in [*self.pilots, pilot]:
            house.end_pilot(number)
        house.control("release", 1, self.jobs) if self.seen() else None
        house.control("kill", 1, self.jobs) if self.seen() else None
        later(house, KEEP + 1)
        forget_all(house)
        assert sizes(house) == dict.fromkeys(TABLES, 0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 40))
def test_purging_agrees_with_the_model(seed, steps, house_of):
    folder = Path(tempfile.mkdtemp())
    house = house_of(folder)
    try:
        story = Story(house, random.Random(seed))
        for number in range(steps):
            story.step()
            if number % 5 == 4:
                story.check()
        story.check()
        story.finish()
    finally:
        house.close()
        shutil.rmtree(folder)
