"""A run of the demo: progress from its first second, the true first result, and what an interrupt leaves to say."""

from __future__ import annotations

import contextlib
import io
import time
from collections import Counter

import pytest
from examples.demo import run
from examples.demo.progress import Display
from examples.demo.run import Demo
from examples.demo.summary import summary_text
from examples.demo.workload import EXAMPLES, load_workload
from rich.console import Console

from lodesman.wire.server import AttemptCounts, Spread, Usage

NOTHING = Spread(0, None, None, None, None, None)


class FakeGrid:
    """Takes jobs, and has done as many of them as it is asked about them; an interrupt comes at `interrupted_at`."""

    def __init__(self, home, *, interrupted_at=10**9):
        self.home, self.interrupted_at = home, interrupted_at
        self.submitted = self.asked = 0
        self.done_at = 0.0

    def add_user(self, name, *_):
        return self.home / name

    def lode(self, _token, word, *_words, **_more):
        if word == "status":
            return {"jobs": [{"since": self.done_at + 9.0}, {"since": self.done_at}]}
        self.submitted += 1
        return {"submissions": [{"first": self.submitted * 100, "count": 10}]}

    def call(self, _call):
        self.asked += 1
        if self.asked >= self.interrupted_at:
            raise KeyboardInterrupt
        states = {"Waiting": 10 * self.submitted} if self.submitted else {}
        if self.submitted >= 2:
            states["Done"] = 3
        return Usage(
            states=states, sites=[], groups=[], claims=[], waiting_seconds=NOTHING, running_seconds=NOTHING,
            faulty=[], attempts=AttemptCounts(3, 3, 0), pilots=[],
        )  # fmt: skip

    def read_pilots(self):
        self.read_at = time.monotonic()

    def payloads_started(self):
        return Counter({"1.1": 1})


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "running", lambda *_: contextlib.nullcontext())

    def play(engines=None, **options):
        grid = FakeGrid(tmp_path, **options)
        out = Console(file=io.StringIO(), force_terminal=False, width=200, _environ={})
        demo = Demo(grid, load_workload(EXAMPLES / "workload" / "workload.toml"), tmp_path)
        grid.done_at = demo.began_at + 0.25
        code, report = run._play(demo, out, None, "sqlite", engines or {})
        return code, report, out.file.getvalue()

    return play


def test_progress_is_shown_from_the_first_second_and_an_interrupt_sums_up_what_there_is(play):
    code, report, said = play(interrupted_at=6)
    lines = said.splitlines()
    assert lines[0].startswith("0.00 s: preparing; jobs none yet (of 220)")
    steps = [line.split("; ")[0].split(": ")[1] for line in lines[1:-1]]
    assert steps[0] == "submitting 0 of 220"
    assert len(set(steps)) == 5, "one step for each submission"
    assert lines[-1] == "Interrupted; everything is stopped."
    assert code == 130
    assert report.interrupted
    assert report.states == {"Waiting": 40, "Done": 3}
    assert "43 jobs interrupted after" in summary_text(report)
    assert "0 ran twice, 0 lost" in summary_text(report)


def test_the_first_result_is_when_a_job_was_done_and_not_when_that_was_seen(play):
    _, report, _ = play(interrupted_at=6)
    assert report.first_result_seconds == pytest.approx(0.25)


def test_an_interrupt_before_anything_was_known(play):
    code, report, _ = play(interrupted_at=1)
    assert (code, report.states) == (130, None)


def test_the_time_of_a_run_ends_with_its_results(tmp_path):
    """What ends after them, pilots and batch systems, is not counted."""
    grid = FakeGrid(tmp_path)
    demo = Demo(grid, load_workload(EXAMPLES / "workload" / "workload.toml"), tmp_path)
    demo.fetch(Display(Console(file=io.StringIO())))
    assert 0.0 < demo.elapsed <= grid.read_at - demo.started
    assert demo.elapsed == demo.elapsed


def test_what_is_started_is_shown_first(play, monkeypatch):
    monkeypatch.setattr(run, "engines_run", lambda *_: contextlib.nullcontext([]))
    _, _, said = play(interrupted_at=1, engines={"arc": "", "slurm": "long"})
    assert said.startswith("0.00 s: starting arc; ")
