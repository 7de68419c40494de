"""The batch systems of the demo: which it takes, how a private one ends, and what becomes of its pilots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.demo import engines
from examples.demo.engines import (
    KINDS,
    engines_run,
    find_engines,
    forget_pilots,
    read_pilots,
    section_of,
)
from examples.demo.interrupts import Interrupts

from lodesman.base.errors import Unavailable
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState, NativeStatus
from lodesman.server.store.read.pilots import NativePilot

# A service that notes what is asked of it. FOLDER.slow: its start takes long; FOLDER.bad: it fails.
SERVICE = """#!/bin/sh
[ -z "${2:-}" ] || echo "$1" >>"$2.calls"
case $1 in
    start) [ ! -e "$2.slow" ] || sleep 600; [ ! -e "$2.bad" ] || { echo no room >&2; exit 1; } ;;
    env) echo "export SLURM_CONF='$2/slurm.conf'" ;;
    there) [ ! -e "${0%/*}/away" ] || { echo "apt-get install it" >&2; exit 2; } ;;
esac
"""


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with services, and with no batch system that answers; its folder of commands."""
    commands, services = tmp_path / "bin", tmp_path / "services"
    for folder in (commands, services):
        folder.mkdir()
    for kind in KINDS:
        program(services / kind, SERVICE)
    monkeypatch.setattr(engines, "SERVICES", services)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    for kind in KINDS:
        monkeypatch.delenv(engines._NAMED[kind], raising=False)
    monkeypatch.setitem(engines._QUEUES, "slurm", ("our-sinfo",))
    monkeypatch.setitem(engines._QUEUES, "gridengine", ("our-qconf",))
    monkeypatch.setitem(engines._QUEUES, "htcondor", ("our-condor",))
    return commands


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def calls(home: Path, kind: str = "slurm") -> list[str]:
    file = home / f"{kind}.calls"
    return file.read_text().split() if file.exists() else []


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


# --- which ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "command", "said", "queue"),
    [
        ("slurm", "our-sinfo", "debug\nlong*\nshort", "long"),
        ("slurm", "our-sinfo", "debug\nshort", "debug"),
        ("gridengine", "our-qconf", "a.q\nall.q", "all.q"),
        ("gridengine", "our-qconf", "a.q\nb.q", "a.q"),
        ("htcondor", "our-condor", "0 jobs", "default"),
    ],
)
def test_a_batch_system_that_answers_is_used_with_its_usual_queue(bare, kind, command, said, queue):
    program(bare / command, f"#!/bin/sh\necho '{said}'\n")
    assert find_engines(kind, print) == {kind: queue}


@pytest.mark.parametrize("kind", KINDS)
def test_without_one_it_is_started(bare, kind):
    assert find_engines(kind, print) == {kind: ""}


def test_a_command_that_fails_is_no_batch_system(bare):
    program(bare / "our-sinfo", "#!/bin/sh\necho a; exit 1\n")
    assert find_engines("slurm", print) == {"slurm": ""}


def test_one_that_is_named_and_silent_is_not_replaced(bare, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    with pytest.raises(Unavailable, match="slurm that SLURM_CONF names does not answer") as refused:
        find_engines("slurm", print)
    assert "Unset SLURM_CONF" in refused.value.hint


def test_arc_is_named_by_its_address(bare, monkeypatch):
    monkeypatch.setenv("LODE_TEST_ARC", "https://ce/arex")
    assert find_engines("arc", print) == {"arc": "pilots"}


def test_all_takes_what_is_there_and_says_what_is_not(bare, monkeypatch):
    program(engines.SERVICES / "arc", "#!/bin/sh\necho apt-get install arc >&2\nexit 2\n")
    program(bare / "our-sinfo", "#!/bin/sh\necho 'p*'\n")
    notes: list[str] = []
    assert find_engines("all", notes.append) == {"gridengine": "", "htcondor": "", "slurm": "p"}
    assert notes == ["Left out: arc. apt-get install arc"]


@pytest.mark.parametrize(("backend", "missing"), [("all", KINDS), ("slurm", ["slurm"])])
def test_without_any_it_says_how_to_get_one(bare, backend, missing):
    (engines.SERVICES / "away").touch()
    with pytest.raises(Unavailable) as refused:
        find_engines(backend, print)
    assert refused.value.message == f"There is no batch system for the demo here: {', '.join(missing)}."
    assert refused.value.hint.splitlines() == ["apt-get install it" for _ in missing]


def test_the_section_has_what_names_it_and_nothing_else():
    rest = {"SECRET": "x", "HOME": "/root"}
    slurm = section_of("slurm", {**rest, "SLURM_CONF": "/s"})
    assert slurm == {"type": "slurm", "poll_seconds": 1, "environment": {"SLURM_CONF": "/s"}}
    sge = section_of("gridengine", {**rest, "SGE_ROOT": "/r", "SGE_CELL": "c", "LODE_TEST_GRIDENGINE": "ann"})
    assert (sge["environment"], sge["account"]) == ({"SGE_ROOT": "/r", "SGE_CELL": "c"}, "ann")
    assert "account" not in section_of("gridengine", rest)
    assert section_of("htcondor", {**rest, "PATH": "/p"})["environment"] == {"PATH": "/p"}
    private = {**rest, "PATH": "/p", "LODE_TEST_HTCONDOR": "/c"}
    assert section_of("htcondor", private)["environment"] == {"PATH": "/c/bin:/p"}
    assert "PATH" not in section_of("gridengine", private)["environment"]
    files = {"LODE_TEST_ARC": "https://a", "LODE_TEST_ARC_CA": "/ca", "LODE_TEST_ARC_CERTIFICATE": "/both"}
    arc = section_of("arc", {**rest, **files})
    assert (arc["url"], arc["ca"], arc["certificate"]) == ("https://a", "/ca", "/both")


# --- a private one --------------------------------------------------------------------------------


def test_a_private_one_ends_with_the_demo(bare, home):
    program(bare / "our-sinfo", '#!/bin/sh\necho "p* $SLURM_CONF"\n')
    with engines_run({"slurm": ""}, home, Interrupts()) as (engine,):
        assert calls(home) == ["start", "env"]
        assert (engine.kind, engine.queue, engine.is_ours) == ("slurm", "p", True)
        assert engine.section["environment"] == {"SLURM_CONF": f"{home}/slurm/slurm.conf"}
        assert engine.section["folder"] == f"{home}/output"
        assert (home / "slurm.env").stat().st_mode & 0o777 == 0o600
    assert calls(home) == ["start", "env", "purge"]


def test_the_root_that_all_htcondors_share_stays(bare, home):
    program(bare / "our-condor", "#!/bin/sh\n")
    with engines_run({"htcondor": ""}, home, Interrupts()):
        pass
    assert calls(home, "htcondor")[-1] == "stop"


def test_one_that_is_there_is_left_alone(bare, home):
    with engines_run({"slurm": "long"}, home, Interrupts()) as (engine,):
        assert (engine.queue, engine.is_ours, engine.section.get("folder")) == ("long", False, None)
    assert calls(home) == []


def test_without_any_the_folder_stays_closed(home):
    home.chmod(0o700)
    with engines_run({}, home, Interrupts()) as none:
        assert none == []
    assert home.stat().st_mode & 0o777 == 0o700


def test_one_that_does_not_start_is_removed_and_says_why(bare, home):
    (home / "slurm.bad").touch()
    with (
        pytest.raises(Unavailable, match="slurm did not start: no room"),
        engines_run({"slurm": ""}, home, Interrupts()),
    ):
        pass
    assert calls(home) == ["start", "purge"]


def test_an_interrupt_ends_a_start_that_takes_long(bare, home, monkeypatch):
    monkeypatch.setattr(engines, "ORDERLY_SECONDS", 0.1)
    (home / "slurm.slow").touch()

    def started(*_):
        wait_for(lambda: calls(home) == ["start"])
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "_started", started)
    with pytest.raises(KeyboardInterrupt), engines_run({"slurm": ""}, home, Interrupts()):
        pass
    assert calls(home) == ["start", "purge"]


@pytest.mark.slow
def test_a_demo_that_is_killed_leaves_no_batch_system(bare, home):
    program(bare / "our-sinfo", "#!/bin/sh\necho 'p*'\n")
    code = f"""
import time
from pathlib import Path
from examples.demo import engines
from examples.demo.interrupts import Interrupts
engines.SERVICES = Path({str(engines.SERVICES)!r})
engines._QUEUES["slurm"] = ("our-sinfo",)
with engines.engines_run({{"slurm": ""}}, Path({str(home)!r}), Interrupts()):
    print("runs", flush=True)
    time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as demo:
        assert demo.stdout is not None
        try:
            assert demo.stdout.readline() == b"runs\n"
        finally:
            demo.send_signal(signal.SIGKILL)
    wait_for(lambda: calls(home) == ["start", "env", "purge"])


# --- its pilots -----------------------------------------------------------------------------------


class FakeBatch:
    """Knows pilots by native id; each is seen live as often as it says."""

    def __init__(self, **live: int) -> None:
        self.live = live
        self.forgotten: list[str] = []

    def census(self):
        return {"b-1": "2"}

    def status(self, pilots):
        found = {}
        for stamp, native_id in pilots.items():
            left = self.live.get(f"n{native_id}", 0)
            self.live[f"n{native_id}"] = left - 1
            state = NativeState.RUNNING if left > 0 else NativeState.ENDED
            found[stamp] = NativeStatus(state=state, observed_at=0.0)
        return found

    def output(self, stamp, native_id):
        return f"{stamp} {native_id}".encode() if native_id != "3" else None

    def forget(self, pilots):
        self.forgotten += pilots.values()


@pytest.fixture
def pilots(monkeypatch):
    """Of one batch system: one that runs, one whose answer never came, one that ended, one that was never submitted."""

    def native(stamp, native_id, backend="slurm"):
        return NativePilot(1, stamp, backend, native_id, QueueId("s", "c", "q"))

    live = [native("a-1", "1"), native("b-1", None), native("d-1", None), native("x-1", "9", "local")]
    monkeypatch.setattr(engines, "live_natives", lambda _db: live)
    monkeypatch.setattr(engines, "ended_natives", lambda _db, _name, **_: [native("c-1", "3")])
    monkeypatch.setattr(engines, "FORGET_POLL_SECONDS", 0.01)


def test_what_all_pilots_wrote_is_read(pilots):
    assert read_pilots(None, {"slurm": FakeBatch()}) == {"a-1": b"a-1 1", "b-1": b"b-1 2", "c-1": b""}


def test_pilots_are_forgotten_once_they_have_ended(pilots):
    batch = FakeBatch(n1=3)
    assert forget_pilots(None, {"slurm": batch}) == []
    assert batch.live["n1"] < 0
    assert batch.forgotten == ["1", "2", "3"]


def test_those_that_do_not_end_are_named(pilots, monkeypatch):
    monkeypatch.setattr(engines, "END_SECONDS", 0.05)
    batch = FakeBatch(n2=1_000)
    assert forget_pilots(None, {"slurm": batch}) == ["slurm 2"]
    assert batch.forgotten == ["1", "2", "3"]
