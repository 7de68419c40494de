"""On a terminal: colours, tables that fit, progress bars, watching until Ctrl-C."""

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tests.unit.cli.test_cli_jobs import WHY

from lodesman.user.cli import root
from lodesman.user.cli.progress import progress

SOURCE = str(Path(root.__file__).parents[3])
LODE = "import sys; from lodesman.user.cli import main; sys.exit(main())"
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 60.0


class Screen:
    """A program at a terminal."""

    def __init__(self, *words, url, columns=60, **environ):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.terminal = ours
        self.process = subprocess.Popen(
            [sys.executable, "-c", LODE, "--server", url, *words], stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "TERM": "xterm", "LODE_TOKEN": "x", **environ},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def read(self, until=""):
        """Read on to a text, or to the end."""
        end = time.monotonic() + PATIENCE
        while not (until and until in self.text):
            assert time.monotonic() < end, self.text
            try:
                data = os.read(self.terminal, 4_096)
            except OSError:  # the other side was closed
                break
            if not data:
                break
            self.text += data.decode()
        return self.text

    def lines(self):
        return [line.rstrip() for line in STYLES.sub("", self.text).replace("\r", "").splitlines()]


@pytest.fixture
def screen(server):
    screens = []

    def show(*words, **environ):
        screens.append(Screen(*words, url=server.url, **environ))
        return screens[-1]

    yield show
    for one in screens:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait(PATIENCE)
        os.close(one.terminal)


@pytest.mark.slow
def test_a_table_has_colours_and_fits(screen, server, row):
    server.on(
        "GET", "/v1/jobs", {"jobs": [row(1, state="Failed", name="n" * 100, reason="\x1b]0;x\x07" * 5)]}
    )
    shown = screen("status", "1")
    shown.read()
    assert shown.process.wait(PATIENCE) == 0
    assert "\x1b[31mFailed" in shown.text
    assert "\x1b]0" not in shown.text
    assert max(map(len, shown.lines())) <= 60
    assert shown.text.count("n") >= 100


@pytest.mark.slow
def test_no_colour_means_none(screen, server, row):
    server.on("GET", "/v1/jobs", {"jobs": [row(1, state="Failed")]})
    shown = screen("status", "1", NO_COLOR="1")
    assert "31m" not in shown.read()


@pytest.mark.slow
def test_the_verdict_is_coloured(screen, server):
    server.on("GET", "/v1/jobs/1/why", {"id": 1, "state": "Waiting", "verdict": "now", "summary": "It can."})
    shown = screen("why", "1")
    shown.read()
    assert "NOW" in shown.text
    assert "\x1b[32m" in shown.text


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_why_has_at_most_twelve_lines_however_much_is_in_the_way(screen, server, columns):
    steps = [{"step": "gates", "holds": False, "text": "in the way " * 9} for _ in range(13)]
    near = [
        {
            "text": f"Memory {one} -> 2",
            "queues": 2,
            "steps": [],
            "example": {"site": "N", "ce": "c", "queue": "q"},
        }
        for one in range(5)
    ]
    answer = {
        "summary": "No queue can run it. " * 6,
        "chain": steps,
        "queues": {**WHY["queues"], "nearest": near},
    }
    server.on("GET", "/v1/jobs/9/why", WHY | answer)
    shown = screen("why", "9", columns=columns)
    shown.read()
    heights = [max(1, -(-len(line) // columns)) for line in shown.lines()]
    assert 8 <= sum(heights) <= 12, shown.text
    assert shown.lines()[-1] == "Who can change that: you, by changing the job."
    assert shown.lines()[-2].startswith("Job 9: NEVER. ")


@pytest.mark.slow
def test_watching_goes_on_until_interrupted(screen, server, row):
    server.on("GET", "/v1/jobs", {"jobs": [row(1, state="Running")]})
    shown = screen("status", "1", "--watch")
    shown.read("Running")
    os.killpg(shown.process.pid, signal.SIGINT)
    shown.read()
    assert shown.process.wait(PATIENCE) == 130
    assert "Traceback" not in shown.text
    assert shown.lines()[-1] == "lode: interrupted"


@pytest.mark.slow
def test_watching_ends_with_the_last_job(screen, server, row):
    server.on("GET", "/v1/jobs", {"jobs": [row(1, state="Done")]})
    shown = screen("status", "1", "--watch")
    assert "Done" in shown.read()
    assert shown.process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_a_person_is_asked_and_can_say_no(screen, server):
    server.on("POST", "/v1/jobs/control", {"changed": 101, "refused": 0, "examples": []})
    shown = screen("kill", "1-101")
    shown.read("[y/N]")
    os.write(shown.terminal, b"n\n")
    shown.read()
    assert shown.process.wait(PATIENCE) == 130
    assert server.asked == []
    shown = screen("kill", "1-101", "--yes")
    assert "101 jobs killed." in shown.read()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("of_bytes", [True, False])
def test_bars_are_drawn_on_standard_error_and_taken_away(of_bytes, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress("fetching [bold]", 3, shown=True, of_bytes=of_bytes) as advance:
        advance(1)
        advance(2)
    assert "fetching [bold]" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")
    assert capsys.readouterr().out == ""
