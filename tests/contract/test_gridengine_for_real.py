"""What only a real Grid Engine can show: who reads a secret, how a pilot is ordered to end, why a job is in error."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import time
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kits.gridengine_kit import ACCOUNT, QUEUE, SERVICE, gridengine_kit, the_gridengine

from lodesman.base.errors import BackendFault
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.run import CommandResult
from lodesman.server.engines.run.here import Here

pytestmark = [pytest.mark.e2e, pytest.mark.engines]


@pytest.fixture
def kit(tmp_path):
    yield from gridengine_kit(tmp_path)


class Counting:
    """A runner that remembers the commands it ran."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._here = Here(account=the_gridengine()[ACCOUNT])

    def run(self, words, **more) -> CommandResult:
        self.words.append(" ".join(words))
        return self._here.run(words, **more)

    def count(self, command: str) -> int:
        return sum(command in words for words in self.words)


# Its script is the name of a file.
LISTENS = """import json, signal, sys
log = open(json.load(open("pilot.json"))["script"], "w")
def end(*_):
    print("SIGTERM", file=log, flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print("ready", file=log, flush=True)
while True:
    signal.pause()
"""


def program_of(source: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), source)
    return target.getvalue()


def the_only(found):
    (value,) = found.values()
    return value


def test_no_other_account_can_read_the_secret(kit):
    spec = replace(kit.spec(""), pilot_file=b'{"script": "sleep 60", "secret": "hush"}')
    kit.running(kit.backend.submit(spec).accepted, 1)
    spool = Path(the_gridengine()["SGE_ROOT"]).parent / "spool"
    scripts = [path for path in spool.glob("**/job_scripts/*") if path.stat().st_mode & 0o004]
    assert scripts, "all accounts can read the script itself"
    packed = (path.read_bytes().partition(b"\nEND-OF-PILOT\n")[0].rpartition(b"\n\n")[2] for path in scripts)
    assert {zlib.decompress(base64.b64decode(text)) for text in packed} == {b""}
    folder = Path(f"~{the_gridengine()[ACCOUNT]}").expanduser() / ".lodesman" / "output"
    assert (folder.stat().st_mode & 0o777, (folder / spec.submission).stat().st_mode & 0o777) == (
        0o700,
        0o700,
    )
    file = folder / spec.submission / "pilot.json"
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (spec.pilot_file, 0o600)


def test_a_cancelled_pilot_is_ordered_to_end_before_it_is_killed(kit):
    log = kit.place / "log"
    pilots = kit.backend.submit(replace(kit.spec(str(log)), program=program_of(LISTENS))).accepted
    while not log.exists():
        kit.wait_for(pilots, NativeState.WAITING, NativeState.RUNNING)
    assert the_only(kit.backend.cancel(pilots)) is CancelOutcome.ORDERED
    status = the_only(kit.wait_for(pilots, NativeState.ENDED))
    assert (log.read_text(), status.exit_code) == ("ready\nSIGTERM\n", 5)


def test_no_exit_code_starts_a_pilot_again(kit):
    log = kit.place / "log"
    pilots = kit.submit(f"echo ran >> {log}; exit 99") | kit.submit("exit 100")
    seen = kit.wait_for(pilots, NativeState.ENDED)
    assert {status.exit_code for status in seen.values()} == {1}
    assert log.read_text() == "ran\n"


def test_a_pilot_that_cannot_write_its_output_is_held_with_the_reason(kit):
    kit.backend.folder = ".lodesman/other"
    spec = kit.spec("true")
    Here(account=the_gridengine()[ACCOUNT]).run(
        ["sh", "-c", 'mkdir -p "$HOME/.lodesman/other"; chmod 700 "$HOME/.lodesman/other"']
    )
    result = replace(spec, options=("-h",))
    pilots = kit.backend.submit(result).accepted
    ((_, native_id),) = pilots.items()
    home = Path(f"~{the_gridengine()[ACCOUNT]}").expanduser()
    (home / ".lodesman" / "other" / spec.submission).rename(home / ".lodesman" / "gone")
    assert the_only(kit.backend.status(pilots)).word == "hqw: it has a hold"
    variables = [f"{name}={value}" for name, value in the_gridengine().items()]
    Here(account=the_gridengine()[ACCOUNT]).run(["env", *variables, "qrls", native_id.partition(".")[0]])
    deadline = time.monotonic() + kit.patience
    while "can't open output file" not in (status := the_only(kit.backend.status(pilots))).detail:
        kit.advance()
        assert time.monotonic() < deadline, status
    assert status.state is NativeState.HELD
    assert the_only(kit.backend.cancel(pilots)) is CancelOutcome.REMOVED


def test_a_waiting_pilot_that_is_deleted_by_hand_has_ended(kit):
    now = [time.time()]
    kit.backend.clock = lambda: now[0]
    pilots = kit.backend.submit(replace(kit.spec("true", count=2), options=("-h",))).accepted
    native_id = pilots.popitem()[1]
    variables = [f"{name}={value}" for name, value in the_gridengine().items()]
    assert Here().run(["env", *variables, "qdel", native_id.partition(".")[0]]).code == 0
    assert the_only(kit.backend.status(pilots)).state is NativeState.UNKNOWN
    now[0] += 600
    status = the_only(kit.backend.status(pilots))
    assert (status.state, status.detail) == (NativeState.ENDED, "it was deleted before it began")


def test_a_queue_that_does_not_exist_is_a_refusal_and_a_check_says_so(kit):
    spec = replace(kit.spec("true"), queue=QUEUE._replace(queue="nosuch.q"))
    refusal = the_only(kit.backend.submit(spec).refused)
    assert (refusal.transient, 'unknown queue "nosuch.q"' in refusal.reason) == (False, True)
    assert kit.backend.check(spec).possible is False
    big = kit.backend.check(replace(kit.spec("true"), cores=40))
    assert (big.possible, "no suitable queues" in big.detail) == (False, True)
    assert kit.backend.check(replace(kit.spec("true"), cores=2, wall_seconds=3600)).possible is True
    accepted = kit.backend.submit(replace(spec, queue=QUEUE)).accepted
    assert accepted, "what was refused can be submitted elsewhere"


def test_a_thousand_pilots_take_one_command(kit):
    runner = Counting()
    kit.backend.runner = runner
    spec = kit.spec(f"read line < {kit.gate()}", count=1000)
    pilots = kit.backend.submit(spec).accepted
    assert (len(pilots), runner.count("qsub")) == (1000, 1)
    kit.running(pilots, 2)
    del runner.words[:]
    states = [status.state for status in kit.backend.status(pilots).values()]
    assert (states.count(NativeState.WAITING), len(runner.words)) == (998, 1)
    del runner.words[:]
    outcomes = list(kit.backend.cancel(pilots).values())
    assert (outcomes.count(CancelOutcome.REMOVED), outcomes.count(CancelOutcome.ORDERED)) == (998, 2)
    assert runner.count("qdel ") == 1
    kit.wait_for(pilots, NativeState.ENDED)
    kit.backend.forget(pilots)
    assert not pilots.keys() & kit.backend.census().keys()


def test_an_engine_that_stops_loses_no_pilot(kit):
    pilots = kit.submit(f"read line < {kit.gate()}", count=3)
    kit.running(pilots, 2)
    root = Path(the_gridengine()["SGE_ROOT"])
    master = int((root.parent / "spool" / "qmaster" / "qmaster.pid").read_text())
    os.kill(master, 15)
    try:
        deadline = time.monotonic() + kit.patience
        while Path(f"/proc/{master}").exists():
            assert time.monotonic() < deadline
            kit.advance()
        for call in (
            lambda: kit.backend.status(pilots),
            lambda: kit.backend.cancel(pilots),
            kit.backend.census,
        ):
            with pytest.raises(BackendFault):
                call()
        assert the_only(kit.backend.submit(kit.spec("true")).refused).transient
    finally:
        subprocess.run([SERVICE, "start", root.parent], check=True, timeout=900)
    kit.running(pilots, 2)
    assert pilots.items() <= kit.backend.census().items()
