"""Pilots that do not start: each kind is in the log at once, and many of them do not flood it."""

import json

import pytest

from lodesman.server.loops.failed_starts import FailedStarts, last_words
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import StartFault

SHORT, LONG = QueueId("North", "cn", "short"), QueueId("North", "cn", "long")


class Clock:
    """Ticks that a test sets."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def starts(clock):
    return FailedStarts(clock)


def lines(caplog):
    found = [
        (one.levelname, one.queue, one.cause, one.reason, getattr(one, "pilots", 1)) for one in caplog.records
    ]
    caplog.clear()
    return found


def test_the_first_of_each_kind_is_written_at_once(starts, caplog):
    starts.note(SHORT, StartFault.ENDED, "no python")
    starts.note(SHORT, StartFault.ENDED, "no python")
    starts.note(SHORT, StartFault.REFUSED, "queue is shut")
    starts.note(LONG, StartFault.ENDED, "no python")
    starts.note(LONG, None, "")
    assert lines(caplog) == [
        ("WARNING", "North/cn/short", "ended-before-it-joined", "no python", 1),
        ("WARNING", "North/cn/short", "refused", "queue is shut", 1),
        ("WARNING", "North/cn/long", "ended-before-it-joined", "no python", 1),
    ]
    assert starts.counts == {
        (SHORT, StartFault.ENDED): 2, (SHORT, StartFault.REFUSED): 1, (LONG, StartFault.ENDED): 1,
    }  # fmt: skip


def test_the_others_are_counted_once_a_minute(starts, clock, caplog):
    for n in range(1_000):
        starts.note(SHORT, StartFault.ENDED, f"fault {n}")
    starts.note(LONG, StartFault.ENDED, "alone")
    clock.now += 59.0
    assert starts.write_counted() == 0
    caplog.clear()
    clock.now += 1.0
    assert starts.write_counted() == 1
    assert lines(caplog) == [("WARNING", "North/cn/short", "ended-before-it-joined", "fault 999", 999)]
    # It goes on in the next minute; one that has ended is written at once when it begins again.
    starts.note(SHORT, StartFault.ENDED, "again")
    starts.note(LONG, StartFault.ENDED, "again")
    assert [(queue, pilots) for _, queue, *_, pilots in lines(caplog)] == [("North/cn/long", 1)]
    clock.now += 60.0
    starts.write_counted()
    assert [(queue, pilots) for _, queue, *_, pilots in lines(caplog)] == [("North/cn/short", 1)]
    clock.now += 60.0
    assert starts.write_counted() == 0
    starts.note(SHORT, StartFault.ENDED, "anew")
    assert len(lines(caplog)) == 1
    assert starts.counts[SHORT, StartFault.ENDED] == 1_002


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"cannot start 'python9': No such file\n\n", "cannot start 'python9': No such file"),
        (b"bash: python3: command not found\nexit 127\n", "exit 127"),
        (b'{"time": 1, "event": "unusable", "fault": "The pilot\'s file is not JSON."}\n{"event": "x"}\n',
         "The pilot's file is not JSON."),
        (b'hello\n{"time": 1, "event": "join", "attempt": 1}\n', "hello"),
        (b'{"fault": 7}\n[1]\n', "[1]"),
        (b"{" * 5_000, ""),
        (b"a\x1b[31mred\xff", "a [31mred\ufffd"),
        (b"x" * 1_000, "x" * 300 + "..."),
    ],
)  # fmt: skip
def test_the_last_words_of_a_pilot(output, words):
    assert last_words(output) == words


def test_the_fault_that_a_pilot_reports_goes_before_what_follows_it():
    """A batch system writes an epilogue of its own."""
    report = json.dumps({"event": "refused", "fault": "This join token has expired."}).encode()
    assert last_words(report + b"\nslurmstepd: job 17 ended\n") == "This join token has expired."
