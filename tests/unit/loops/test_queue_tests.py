"""The test of one queue, against a batch system that does as the test says, by a clock that only waiting moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.loops.test_node_report import REPORT

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import (
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotSpec,
    SubmitRefusal,
    SubmitResult,
)
from lodesman.server.loops import queue_tests
from lodesman.server.loops.queue_tests import QueueTest, judge_status

QUEUE = QueueId("North", "cn", "short")
GOOD = json.dumps(REPORT).encode()
W, R, E, H, U = (
    NativeState.WAITING, NativeState.RUNNING, NativeState.ENDED, NativeState.HELD, NativeState.UNKNOWN,
)  # fmt: skip


class FakeBatch:
    """Jobs wait 2 s, those that stay run until they are cancelled, others 2 s; `now` is moved by `wait`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.born: dict[str, float] = {}
        self.stays: set[str] = set()
        self.cancelled: set[str] = set()
        self.forgotten: list[str] = []
        self.asked: list[str] = []
        self.waits = self.runs = 2.0
        self.code: int | None = 0
        self.text: bytes | None = GOOD
        self.state: NativeState | None = None
        self.refusal: SubmitRefusal | None = None
        self.away: Callable[[str], bool] = lambda _: False
        self.loses_answers = self.keeps_cancelled = False
        self.stop_at = float("inf")

    def _hear(self, name: str) -> None:
        self.asked.append(name)
        if self.away(name):
            raise BackendFault(f"No answer to {name}.", transient=True)

    def submit(self, spec: PilotSpec) -> SubmitResult:
        self._hear("submit")
        (stamp,) = spec.stamps().values()
        if self.refusal is not None:
            return SubmitResult(refused={stamp: self.refusal})
        self.born[f"n-{stamp}"] = self.now
        if json.loads(spec.pilot_file)["stay"]:
            self.stays.add(f"n-{stamp}")
        if self.loses_answers:
            raise BackendFault("It is not known whether it was accepted.", transient=True)
        return SubmitResult(accepted={stamp: f"n-{stamp}"})

    def _state(self, native: str) -> NativeState:
        age = self.now - self.born[native]
        if native in self.cancelled and not self.keeps_cancelled:
            return E
        if self.state is not None:
            return self.state
        return W if age < self.waits else R if native in self.stays or age < self.waits + self.runs else E

    def status(self, pilots: dict[str, str]) -> dict[str, NativeStatus]:
        self._hear("status")
        return {
            stamp: NativeStatus(
                state=self._state(native),
                observed_at=self.now,
                exit_code=self.code if self._state(native) is E else None,
                word=str(self._state(native)),
            )
            for stamp, native in pilots.items()
        }

    def cancel(self, pilots: dict[str, str]) -> dict[str, CancelOutcome]:
        self._hear("cancel")
        before = {stamp: self._state(native) for stamp, native in pilots.items()}
        self.cancelled.update(pilots.values())
        words = {W: CancelOutcome.REMOVED, E: CancelOutcome.ENDED}
        if self.keeps_cancelled:
            return dict.fromkeys(pilots, CancelOutcome.ORDERED)
        return {stamp: words.get(state, CancelOutcome.ORDERED) for stamp, state in before.items()}

    def census(self) -> dict[str, str]:
        self._hear("census")
        return {native[2:]: native for native in self.born}

    def output(self, _stamp: str, _native: str) -> bytes | None:
        self._hear("output")
        return self.text

    def forget(self, pilots: dict[str, str]) -> None:
        self._hear("forget")
        self.forgotten += pilots.values()

    def wait(self, seconds: float, last: bool) -> bool:
        self.now += seconds
        return not last and self.now >= self.stop_at

    def left(self) -> set[str]:
        """Jobs that wait or run."""
        return {native for native in self.born if self._state(native) is not E}


@pytest.fixture
def batch():
    return FakeBatch()


def checked(batch: FakeBatch, seconds: float = 300.0) -> tuple[QueueTest, dict[str, tuple[str, str]]]:
    """The test of a queue, run to its end, and check -> (result, detail)."""
    numbers = iter(range(100))

    def spec(stay: int) -> PilotSpec:
        content = json.dumps({"stay": stay}).encode()
        return PilotSpec(
            queue=QUEUE, submission=f"test_{next(numbers)}", count=1, program=b"", pilot_file=content, python="python3"
        )  # fmt: skip

    backend: Any = batch
    test = QueueTest(QUEUE, backend, spec, seconds=seconds, wait=batch.wait, clock=lambda: batch.now)
    test.run()
    return test, {one.check: (one.result, one.detail) for one in test.checks}


def test_a_good_queue(batch):
    test, found = checked(batch)
    assert [one.check for one in test.checks] == [
        "submit", "status", "output", "python", "scratch", "server", "clock", "cancel", "forget",
    ]  # fmt: skip
    assert {result for result, _ in found.values()} == {"ok"}
    assert found["submit"][1] == "accepted as n-test_0-1"
    assert found["cancel"][1] == "a running job is gone"
    assert {(one.site, one.ce, one.queue) for one in test.checks} == {QUEUE}
    assert next(one.seconds for one in test.checks if one.check == "status") >= 4.0
    assert batch.forgotten == ["n-test_0-1", "n-test_1-1"]
    assert (batch.left(), test.doing) == (set(), "")


def test_a_refused_job(batch):
    batch.refusal = SubmitRefusal(reason="no such partition", transient=False)
    _, found = checked(batch)
    assert found == {"submit": ("failed", "refused: no such partition")}
    assert batch.asked == ["submit"]
    batch.refusal = SubmitRefusal(reason="down", transient=True)
    assert checked(batch)[1] == {"submit": ("failed", "refused, for now: down")}


def test_a_batch_system_that_does_not_answer(batch):
    batch.away = lambda _: True
    _, found = checked(batch)
    assert found["submit"] == ("failed", "No answer to submit.")
    assert found["forget"][0] == "failed"
    assert "not known whether test_0-1 left something" in found["forget"][1]
    assert set(found) == {"submit", "forget"}


def test_a_job_whose_answer_was_lost_is_found_and_removed(batch):
    batch.loses_answers = True
    _, found = checked(batch)
    assert (found["submit"][0], found["forget"][0]) == ("failed", "ok")
    assert batch.left() == set()
    assert batch.forgotten == ["n-test_0-1"]


@pytest.mark.parametrize(
    ("state", "result", "words"),
    [
        (W, "unknown", "still waits after 30 s"), (H, "failed", "is held"), (R, "failed", "still runs"),
        (U, "unknown", "does not list it"),
    ],
)  # fmt: skip
def test_a_job_that_does_not_end(batch, state, result, words):
    batch.state = state
    _, found = checked(batch, seconds=30.0)
    assert found["status"][0] == result
    assert words in found["status"][1]
    assert "output" not in found
    # The same job is the one that is cancelled.
    assert (list(batch.born), batch.left()) == (["n-test_0-1"], set())
    assert found["cancel"] == ("ok", f"a {state} job is gone")
    assert found["forget"][0] == "ok"


def test_an_engine_that_stops_in_between_and_comes_back_for_the_end(batch):
    batch.away = lambda name: name != "submit" and batch.now < 130.0
    batch.waits = 10_000.0
    _, found = checked(batch, seconds=20.0)
    assert found["status"] == ("failed", "the batch system does not answer: No answer to status.")
    assert (found["cancel"][0], found["forget"][0]) == ("ok", "ok")
    assert batch.left() == set()


def test_an_engine_that_stops_for_good(batch):
    batch.away = lambda name: name != "submit"
    _, found = checked(batch, seconds=20.0)
    assert [found[check][0] for check in ("status", "cancel", "forget")] == ["failed"] * 3
    assert "n-test_0-1 may still be there (No answer to cancel): cancel it there" in found["forget"][1]
    assert batch.now < 100.0 + 20.0 + 3 * queue_tests._END_SECONDS


def test_an_output_that_comes_late(batch, monkeypatch):
    texts = iter([None, b"", b"{half", GOOD])
    monkeypatch.setattr(batch, "output", lambda *_: next(texts))
    _, found = checked(batch)
    assert (found["output"][0], found["python"][0]) == ("ok", "ok")


def test_an_output_that_never_comes(batch):
    batch.text = None
    _, found = checked(batch)
    assert found["output"][0] == "failed"
    assert "kept nothing" in found["output"][1]
    assert found["python"] == ("unknown", "nothing is known of the node")
    assert found["cancel"][0] == "ok"


def test_an_output_that_cannot_be_read(batch):
    batch.away = lambda name: name == "output"
    assert checked(batch)[1]["output"] == ("failed", "No answer to output.")


def test_a_node_without_python(batch):
    batch.code, batch.text = 69, b"lodesman: no Python 3.9 or newer was found on wn1\n"
    _, found = checked(batch)
    assert found["python"][0] == "failed"
    assert found["cancel"] == ("unknown", "not tested: test jobs end at once there")
    assert list(batch.born) == ["n-test_0-1"]
    assert batch.now < 110.0  # what has failed writes nothing more


def test_a_job_that_stays_after_its_cancel(batch):
    batch.keeps_cancelled = True
    _, found = checked(batch)
    assert found["cancel"][0] == "failed"
    assert "n-test_1-1 may still be there (the answer to the cancel was ordered)" in found["cancel"][1]
    assert found["forget"][0] == "failed"
    assert batch.forgotten == ["n-test_0-1"]


def test_what_cannot_be_removed(batch):
    batch.away = lambda name: name == "forget"
    assert checked(batch)[1]["forget"][0] == "failed"


@pytest.mark.parametrize("at", [100.5, 102.5, 104.5, 105.0, 107.0])
def test_a_test_that_is_stopped_leaves_nothing(batch, at):
    batch.stop_at = at
    test, found = checked(batch)
    assert batch.left() == set()
    assert sorted(batch.forgotten) == sorted(batch.born)
    assert found["forget"][0] == "ok"
    assert all(result == "ok" for result, _ in found.values())
    assert test.doing == ""


def test_one_unknown_is_not_gone(batch, monkeypatch):
    """While the batch system reloads, a cancelled job is unknown for a moment."""
    asked = []
    real = batch.status

    def status(pilots):
        asked.append(batch.now)
        seen = real(pilots)
        blink = bool(batch.cancelled) and len(asked) % 2
        return {
            stamp: NativeStatus(state=U, observed_at=0.0) if blink else one for stamp, one in seen.items()
        }

    batch.keeps_cancelled = True
    monkeypatch.setattr(batch, "status", status)
    assert checked(batch)[1]["cancel"][0] == "failed"


@pytest.mark.parametrize(
    ("status", "fault", "result", "words"),
    [
        (None, "", "failed", "it says nothing"),
        (NativeStatus(state=E, observed_at=0.0, exit_code=0, host="wn1", word="COMPLETED"), "", "ok",
         "it ended on wn1: COMPLETED, exit code 0"),
        (NativeStatus(state=E, observed_at=0.0), "", "ok", "it ended"),
        (NativeStatus(state=W, observed_at=0.0, word="PENDING (Priority)"), "", "unknown",
         "it still waits after 9 s: PENDING (Priority); if the queue is full, allow more time with --timeout"),
        (NativeStatus(state=R, observed_at=0.0, host="wn1"), "", "failed", "it still runs on wn1 after 9 s"),
        (NativeStatus(state=U, observed_at=0.0, detail="it is not listed"), "", "unknown", "it is not listed"),
        (NativeStatus(state=W, observed_at=0.0), "it is down", "failed", "does not answer: it is down"),
    ],
)  # fmt: skip
def test_the_judgement_of_a_state(status, fault, result, words):
    finding = judge_status(status, fault, 9.0)
    assert finding.result == result
    assert words in finding.detail
