"""Bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import threading

import pytest
from examples.demo.progress import (
    STAGES,
    DemoSnapshot,
    Display,
    by_stage,
    progress_line,
    progress_view,
)
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lodesman.wire.vocabulary import JobState

START = DemoSnapshot(states={}, total=220, pilots={}, elapsed=0.0)
PREPARING = DemoSnapshot(states={}, total=220, pilots={}, elapsed=0.0, doing="preparing")
MIDDLE = DemoSnapshot(
    states={
        "Waiting": 100,
        "Matched": 2,
        "Running": 3,
        "Stalled": 1,
        "Completing": 1,
        "Done": 90,
        "Failed": 3,
        "Held": 4,
    },
    total=220,
    pilots={"LCG.South.local": {"Running": 2, "Waiting": 1}, "HPC.East.local": {"Running": 3, "Done": 0}},
    elapsed=21.4,
)


def console(*, terminal: bool, kind: str = "xterm") -> Console:
    """A console that sees nothing of the terminal in which the tests run."""
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=80, height=40, color_system=None,
        _environ={"TERM": kind},
    )  # fmt: skip


def written(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_every_state_of_a_job_is_on_display_once():
    shown = [state for states in STAGES.values() for state in states]
    assert sorted(shown) == sorted(state.value for state in JobState)


def test_states_are_gathered_in_stages():
    assert by_stage(MIDDLE.states) == {
        "waiting": 100,
        "matched": 2,
        "running": 5,
        "done": 90,
        "failed": 3,
        "held": 4,
    }


def test_a_state_of_a_newer_server_is_not_lost():
    assert by_stage({"Waiting": 1, "Dreaming": 3})["other"] == 3


@given(st.dictionaries(st.sampled_from([*JobState, "Other"]), st.integers(0, 10**9)))
def test_no_job_is_lost_or_doubled(states):
    assert sum(by_stage(states).values()) == sum(states.values())


def test_the_line():
    assert progress_line(MIDDLE) == (
        "21 s: jobs waiting 100, matched 2, running 5, done 90, failed 3, held 4 (of 220); "
        "pilots HPC.East.local running 3; LCG.South.local running 2, waiting 1"
    )
    assert progress_line(START) == "0.00 s: jobs none yet (of 220); pilots none yet"
    assert progress_line(PREPARING) == "0.00 s: preparing; jobs none yet (of 220); pilots none yet"


def test_without_a_terminal_each_change_is_one_line_and_time_is_no_change():
    out = console(terminal=False)
    with Display(out) as display:
        display.show(PREPARING)
        display.show(START)
        display.show(DemoSnapshot(states={}, total=220, pilots={}, elapsed=5.0))
        display.show(MIDDLE)
        display.show(MIDDLE)
    assert written(out).splitlines() == [progress_line(one) for one in (PREPARING, START, MIDDLE)]


def test_plain_lines_have_no_escape_codes_and_are_not_wrapped():
    out = console(terminal=False)
    Display(out).show(MIDDLE)
    text = written(out)
    assert len(text) > 80
    assert text.count("\n") == 1
    assert text[:-1].isprintable()


def test_names_cannot_steer_the_terminal():
    snapshot = DemoSnapshot(states={}, total=1, pilots={"[red]S\x1b[2J": {"Run\nning": 1}}, elapsed=0.0)
    out = console(terminal=False)
    Display(out).show(snapshot)
    assert written(out) == "0.00 s: jobs none yet (of 1); pilots [red]S?[2J run ning 1\n"
    bars = console(terminal=False)
    bars.print(progress_view(snapshot))
    assert "[red]S?[2J" in written(bars)


def test_the_bars_show_every_stage_and_site():
    out = console(terminal=False)
    out.print(progress_view(MIDDLE))
    lines = written(out).splitlines()
    assert lines[0].strip() == "220 jobs, 21 s"
    out.print(progress_view(PREPARING))
    assert "220 jobs, 0.00 s: preparing" in written(out)
    for stage, count in by_stage(MIDDLE.states).items():
        assert any(line.startswith(stage) and line.rstrip().endswith(f" {count}") for line in lines)
    assert any("LCG.South.local" in line and "running 2, waiting 1" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_longer_bar_for_more_jobs():
    out = console(terminal=False)
    out.print(progress_view(MIDDLE))
    length = {line.split()[0]: line.count("━") for line in written(out).splitlines() if line.strip()}
    assert length["waiting"] > length["held"]


@pytest.mark.parametrize("snapshot", [START, DemoSnapshot(states={"Done": 5}, total=0, pilots={}, elapsed=0)])
def test_odd_totals_can_be_drawn(snapshot):
    out = console(terminal=False)
    out.print(progress_view(snapshot))
    assert "done" in written(out)


def test_the_live_display_draws_in_place_and_restores_the_cursor():
    out = console(terminal=True)
    others = set(threading.enumerate())
    with Display(out) as display:
        display.show(START)
        display.show(MIDDLE)
        assert set(threading.enumerate()) <= others
    text = written(out)
    assert "\x1b[?25l" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "LCG.South.local" in text


def test_a_terminal_that_cannot_draw_in_place_gets_lines_while_they_happen():
    out = console(terminal=True, kind="dumb")
    with Display(out) as display:
        display.show(MIDDLE)
        assert written(out) == progress_line(MIDDLE) + "\n"


def test_an_error_inside_leaves_the_terminal_as_it_was():
    out = console(terminal=True)
    display = Display(out)

    def interrupted() -> None:
        with display:
            display.show(MIDDLE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert written(out).rstrip().endswith("\x1b[?25h")
