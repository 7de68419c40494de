"""The journal: group commit, refusals, faults, undo, fencing, durability."""

import pickle
import re
import signal
import subprocess
import sys
import threading
import zlib
from contextlib import closing

import msgspec
import pytest

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store.journal import PARKED, Journal
from lodesman.server.store.statement import ANY, Statement
from lodesman.server.store.transaction import Transaction

INSERT = Statement(sql="INSERT INTO note VALUES (?)", key=(0,))


class Note:
    """Writes one row; misbehaves as its parameters say."""

    def __init__(self, text, *, refuse=False, fault=None, undo=None, gate=None):
        self.text = text
        self.refuse = refuse
        self.fault = fault
        self.undo = undo
        self.gate = gate

    def apply(self, tx):
        if self.gate is not None:
            assert self.gate.wait(60)
        if self.refuse:
            raise Conflict(f"no {self.text}")
        if self.undo is not None:
            self.undo.append(self.text)
            tx.undo.append(lambda: self.undo.remove(self.text))
        tx.later(INSERT, (self.text,))
        if self.fault is not None:
            raise self.fault
        return self.text


@pytest.fixture
def writer(database):
    db = database.writer()
    db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE)")
    yield db
    db.close()


@pytest.fixture
def journal(writer):
    journal = Journal(writer, clock=lambda: 100.0)
    journal.start()
    yield journal
    journal.close()


def notes(database):
    with closing(database.reader()) as db:
        return sorted(text for (text,) in db.execute("SELECT text FROM note"))


def post_all(journal, commands):
    """Post commands that wait behind a gate, so that they share a batch; their results in order."""
    gate, results, done = threading.Event(), {}, threading.Event()
    journal.post(Note("gate", gate=gate), lambda _: None)
    for number, command in enumerate(commands):

        def answer(result, number=number):
            results[number] = result
            if len(results) == len(commands):
                done.set()

        journal.post(command, answer)
    gate.set()
    assert done.wait(60)
    return [results[number] for number in range(len(commands))]


def test_a_command_is_durable_when_it_is_answered(journal, database):
    assert journal.call(Note("one")) == "one"
    assert notes(database) == ["one"]


def test_commands_that_wait_share_one_commit(journal, database):
    before = journal.commits
    results = post_all(journal, [Note(f"n{i}") for i in range(100)])
    assert results == [f"n{i}" for i in range(100)]
    assert journal.commits - before <= 2
    assert len(notes(database)) == 101


class Brief(Note):
    """A command for which answers may wait."""

    brief = True


def deliveries(writer, commands):
    """How answers left in relation to what was applied: "applied X" and "answered X", in order."""
    gate, story, done = threading.Event(), [], threading.Event()

    def deliver(answers):
        story.extend(f"answered {result}" for _, result in answers)
        if "answered last" in story:
            done.set()

    class Told:
        def __init__(self, command):
            self.command = command
            self.brief = getattr(command, "brief", False)

        def apply(self, tx):
            result = self.command.apply(tx)
            story.append(f"applied {result}")
            return result

    journal = Journal(writer, deliver=deliver)
    journal.post(Told(Note("first", gate=gate)), lambda _: None)
    journal.start()
    for command in commands:
        journal.post(Told(command), lambda _: None)
    gate.set()
    assert done.wait(60)
    journal.close()
    return story


def test_answers_wait_for_brief_commands_that_wait_already(writer, monkeypatch):
    monkeypatch.setattr("lodesman.server.store.journal.MAX_BATCH", 1)
    story = deliveries(writer, [Brief("second"), Brief("last")])
    assert story.index("answered first") > story.index("applied second")
    assert [line for line in story if line.startswith("answered")] == [
        "answered first", "answered second", "answered last",
    ]  # fmt: skip


def test_answers_do_not_wait_for_anything_that_may_take_long(writer, monkeypatch):
    monkeypatch.setattr("lodesman.server.store.journal.MAX_BATCH", 1)
    story = deliveries(writer, [Note("second"), Brief("last")])
    assert story.index("answered first") < story.index("applied second")


def test_answers_of_a_good_batch_do_not_get_lost_with_a_bad_one(writer, monkeypatch, database):
    monkeypatch.setattr("lodesman.server.store.journal.MAX_BATCH", 1)
    story = deliveries(writer, [Brief("bad", fault=ValueError("x")), Brief("last")])
    assert "answered first" in story
    assert notes(database) == ["first", "last"]


def test_a_refusal_concerns_one_command_only(journal, database):
    results = post_all(journal, [Note("a"), Note("b", refuse=True), Note("c")])
    assert results[0] == "a"
    assert isinstance(results[1], Conflict)
    assert results[2] == "c"
    assert notes(database) == ["a", "c", "gate"]


def test_call_raises_the_refusal(journal):
    with pytest.raises(Conflict, match="no x"):
        journal.call(Note("x", refuse=True))


def test_a_failing_statement_is_found_by_halving(journal, database):
    journal.call(Note("twice"))
    memory = []
    commands = [Note(f"n{i}", undo=memory) for i in range(20)] + [Note("twice", undo=memory)]
    results = post_all(journal, commands)
    assert isinstance(results[-1], Unavailable)
    assert results[:-1] == [f"n{i}" for i in range(20)]
    assert "twice" in notes(database)
    assert sorted(memory) == sorted(f"n{i}" for i in range(20))


class Surprise(Exception):
    """An exception of an unlisted class."""


BUGS = [
    KeyError("x"), TypeError("x"), ZeroDivisionError(), OSError(5, "x"), ModuleNotFoundError("x"), NameError("x"),
    UnboundLocalError("x"), StopIteration(), EOFError(), SyntaxError("x"), msgspec.EncodeError("x"), zlib.error("x"),
    re.error("x"), Surprise(),
]  # fmt: skip


@pytest.mark.parametrize("fault", BUGS, ids=lambda fault: type(fault).__name__)
def test_a_bug_in_a_command_does_not_end_the_writer(journal, database, fault):
    memory = []
    results = post_all(journal, [Note("a", undo=memory), Note("bug", fault=fault, undo=memory), Note("b")])
    assert isinstance(results[1], Unavailable)
    assert (results[0], results[2]) == ("a", "b")
    assert memory == ["a"]
    assert notes(database) == ["a", "b", "gate"]


@pytest.mark.parametrize("fault", BUGS, ids=lambda fault: type(fault).__name__)
def test_a_bug_after_a_commit_undoes_nothing(journal, database, fault):
    class Late(Note):
        def apply(self, tx):
            def step():
                raise fault

            tx.afterwards.append(step)
            return super().apply(tx)

    assert journal.call(Late("late")) == "late"
    assert journal.call(Note("next")) == "next"
    assert notes(database) == ["late", "next"]


def test_a_writer_that_dies_answers_all_and_says_so(writer, database, caplog):
    """An exception that no bug raises ends the thread; no client may wait for ever."""
    died = threading.Event()
    journal = Journal(writer, died=died.set)
    journal.start()
    with caplog.at_level("CRITICAL"):
        results = post_all(journal, [Note("a"), Note("b", fault=SystemExit(3)), Note("c")])
        assert died.wait(60)
    assert [type(result) for result in results] == [Unavailable] * 3
    assert not journal.is_open
    with pytest.raises(Unavailable):
        journal.post(Note("d"), lambda _: None)
    journal.close()
    assert notes(database) == []
    assert "the writer ended" in caplog.text


def test_a_writer_that_cannot_roll_back_dies(writer):
    """A transaction that stays open would take in the next batch, too."""
    died = threading.Event()
    journal = Journal(writer, died=died.set)
    journal.start()

    def broken():
        raise Surprise

    class Broken(Note):
        def apply(self, tx):
            tx.undo.append(broken)
            raise ValueError

    with pytest.raises(Unavailable):
        journal.call(Broken("x"))
    assert died.wait(60)


def test_the_inverses_run_newest_first(writer):
    tx = Transaction(writer, 1.0)
    order = []
    for number in range(3):
        tx.undo.append(lambda number=number: order.append(number))
    tx.roll_back_memory()
    assert order == [2, 1, 0]
    assert tx.undo == []


def test_reading_sees_what_was_collected(writer):
    tx = Transaction(writer, 1.0)
    tx.later(INSERT, ("x",))
    tx.later_many(INSERT, [("y",), ("z",)])
    assert sorted(tx.read("SELECT text FROM note")) == [("x",), ("y",), ("z",)]


def test_only_the_last_value_of_a_counter_is_written(writer):
    tx = Transaction(writer, 1.0)
    newest = Statement(sql="INSERT INTO note VALUES (?)", newest=True)
    for n in range(10):
        tx.later(newest, (f"n{n}",))
    assert tx.read("SELECT text FROM note") == [("n9",)]


def test_write_returns_the_number_of_changed_rows(writer):
    tx = Transaction(writer, 1.0)
    tx.later_many(INSERT, [("y",), ("z",)])
    assert tx.write("DELETE FROM note", rows=ANY) == 2


def test_a_parked_command_is_answered_later(journal):
    answers = []
    done = threading.Event()

    class Park:
        def apply(self, tx):
            return PARKED

    class Wake:
        def apply(self, tx):
            tx.answers.append((lambda r: (answers.append(r), done.set()), "woken"))
            return "ok"

    journal.post(Park(), answers.append)
    assert journal.call(Wake()) == "ok"
    assert done.wait(60)
    assert answers == ["woken"]


def test_the_end_of_each_batch_is_announced(writer):
    seen = []
    journal = Journal(writer, clock=lambda: 7.0, at_end=lambda tx: seen.append(tx.now))
    journal.start()
    journal.call(Note("a"))
    journal.close()
    assert seen == [7.0]


def test_nothing_is_taken_after_close(writer):
    journal = Journal(writer)
    journal.start()
    journal.close()
    with pytest.raises(Unavailable, match="shutting down"):
        journal.post(Note("late"), lambda _: None)


def test_what_was_posted_before_close_is_applied(writer, database):
    journal = Journal(writer)
    journal.start()
    for i in range(50):
        journal.post(Note(f"n{i:02}"), lambda _: None)
    journal.close()
    assert len(notes(database)) == 50


def test_a_new_epoch_fences_the_old_writer(journal, database, writer):
    with writer:
        writer.change("UPDATE leadership SET epoch = epoch + 1")
    with pytest.raises(Unavailable):
        journal.call(Note("stale"))
    assert notes(database) == []
    assert "took over" in journal.fault.message


def test_one_server_owns_a_database(database):
    with closing(database.writer()), pytest.raises(Conflict, match="Another server"):
        database.writer()
    database.writer().close()


KILLED = """
import pickle, sys
from lodesman.server.store.journal import Journal
from lodesman.server.store.statement import Statement
INSERT = Statement(sql="INSERT INTO note VALUES (?)", key=(0,))
class Note:
    def __init__(self, n): self.n = n
    def apply(self, tx): tx.later(INSERT, (str(self.n),)); return self.n
db = pickle.loads(bytes.fromhex(sys.argv[1])).writer()
db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE)")
journal = Journal(db)
journal.start()
def told(n):
    sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
n = 0
while True:
    n += 1
    journal.post(Note(n), told)
    if n % 50 == 0: journal.call(Note(-n))
"""


@pytest.mark.slow
@pytest.mark.stores
def test_what_was_answered_survives_kill_9(database):
    command = [sys.executable, "-c", KILLED, pickle.dumps(database).hex()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    acknowledged = [int(process.stdout.readline()) for _ in range(500)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().split("\n") if line.strip()]
    process.wait()
    process.stdout.close()
    stored = set(map(int, notes(database)))
    assert set(acknowledged) <= stored
    assert len(acknowledged) >= 500


class Follows(Note):
    """A command with a step after the commit that fails."""

    def apply(self, tx):
        tx.afterwards.append(self.fail)
        return super().apply(tx)

    def fail(self):
        raise KeyError(self.text)


def test_a_step_after_the_commit_that_fails_undoes_and_repeats_nothing(journal, database):
    """What is committed is committed: replayed, each job of the batch would be claimed or stored twice."""
    undone = []
    results = post_all(journal, [Note("a", undo=undone), Follows("b"), Note("c")])
    assert results == ["a", "b", "c"]
    assert notes(database) == ["a", "b", "c", "gate"]
    assert undone == ["a"]
    assert journal.call(Note("d")) == "d"


def test_answers_that_cannot_be_handed_over_do_not_end_the_writer(writer, database):
    """The event loop may close between the check and the call."""
    handed = []

    def deliver(answers):
        handed.extend(answers)
        if len(handed) == 1:
            raise RuntimeError("the loop is closed")
        for answer, result in answers:
            answer(result)

    journal = Journal(writer, clock=lambda: 100.0, deliver=deliver)
    journal.start()
    journal.post(Note("lost"), lambda _: None)
    assert journal.call(Note("next")) == "next"
    journal.close()
    assert notes(database) == ["lost", "next"]
