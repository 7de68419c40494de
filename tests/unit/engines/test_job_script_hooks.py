"""What a batch system can have its job script do: take the pilot's file from the account's home, and pass on notices."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import PilotSpec
from lodesman.server.engines.job_script import job_script

QUEUE = QueueId("site", "ce", "queue")
# Says how it is started, and what it gets.
PILOT = """import os, signal, sys
def end(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.write(1, b"order to end\\n")
    os._exit(8 if signal.sigtimedwait([signal.SIGTERM], 0.5) else 7)
signal.signal(signal.SIGTERM, end)
print(os.path.basename(sys.argv[0]), sys.argv[1:], open(sys.argv[2]).read(), os.stat(sys.argv[2]).st_mode & 0o777)
print([signal.getsignal(one) is signal.SIG_IGN for one in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)], flush=True)
while True:
    signal.pause()
"""


def program(source: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("__main__.py", source)
    return target.getvalue()


@contextmanager
def started(
    tmp_path: Path, text: str, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), **(more or {})}
    with subprocess.Popen(
        ["/bin/sh", "-c", text],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_nothing_of_the_account_is_read_before_the_pilot(tmp_path):
    """Modules that earlier jobs left in the home, and what the account's profile names."""
    hostile = "open({!r}, 'w').close(); raise SystemExit(3)".format(str(tmp_path / "ran"))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own, named = tmp_path / ".local/lib" / version / "site-packages", tmp_path / "modules"
    for folder in (own, named):
        folder.mkdir(parents=True)
        for name in ("usercustomize", "sitecustomize", "enum", "argparse", "zlib"):
            (folder / f"{name}.py").write_text(hostile)
    (own / "path.pth").write_text(f"import os; {hostile}")
    more = {"PYTHONPATH": str(named), "PYTHONHOME": "/opt/none", "PYTHONSTARTUP": str(named / "enum.py")}
    with started(tmp_path, a_script(pilot="import argparse, enum; raise SystemExit(7)"), more) as process:
        assert process.wait(30) == 7
    assert not (tmp_path / "ran").exists()


def a_script(*, pilot: str = PILOT, **more) -> str:
    spec = PilotSpec(queue=QUEUE, submission="abc", count=1, program=program(pilot), pilot_file=b"hush")
    return job_script(spec, copy="3", **more)


@pytest.mark.parametrize("forwards", [True, False])
def test_a_forwarded_pilot_is_not_told_where_it_runs(forwards):
    spec = PilotSpec(
        queue=QUEUE, submission="abc", count=1, program=program(PILOT), pilot_file=b"", forwards=forwards,
        environment={"HERE": "1"},
    )  # fmt: skip
    text = job_script(spec, copy="1")
    assert ("LODESMAN_SITE" in text, "export HERE=1" in text) == (not forwards, True)


@pytest.mark.slow
def test_a_notice_becomes_one_order_to_end(tmp_path):
    with started(tmp_path, a_script(notices=True)) as process:
        first = process.stdout.readline()
        assert first == "pilot.pyz ['--file', 'pilot.json', '--copy', '3', '--remove'] hush 384\n"
        assert process.stdout.readline() == "[True, True, False]\n"
        for _ in range(3):
            os.killpg(process.pid, signal.SIGUSR1)
            os.killpg(process.pid, signal.SIGUSR2)
        assert process.communicate(timeout=30)[0] == "order to end\n"
        assert process.returncode == 7


@pytest.mark.slow
def test_a_pilot_learns_what_a_notice_to_it_alone_means(tmp_path):
    with started(tmp_path, a_script(notice_s=120)) as process:
        first = process.stdout.readline()
        assert (
            first
            == "pilot.pyz ['--file', 'pilot.json', '--copy', '3', '--remove', '--notice', '120'] hush 384\n"
        )
        assert process.stdout.readline() == "[False, False, False]\n"
        process.terminate()
        assert process.wait(30) == 7


@pytest.mark.slow
@pytest.mark.parametrize(("code", "seen"), [(0, 0), (42, 42), (140, 140), (99, 1), (100, 1)])
def test_the_exit_code_comes_through_if_it_is_no_command_for_the_engine(tmp_path, code, seen):
    with started(tmp_path, a_script(notices=True, pilot=f"raise SystemExit({code})")) as process:
        assert process.wait(30) == seen


@pytest.mark.slow
def test_an_end_by_a_signal_comes_through(tmp_path):
    with started(tmp_path, a_script(notices=True, pilot="import os; os.kill(os.getpid(), 9)")) as process:
        assert process.wait(30) == 137


def test_without_notices_python_gets_the_zipapp():
    assert 'exec "$python" -I pilot.pyz --file' in a_script()


@pytest.mark.slow
def test_a_pilots_file_can_stay_out_of_the_script(tmp_path):
    (tmp_path / "it").write_text("hush")
    (tmp_path / "it").chmod(0o600)
    text = a_script(file_at='"$HOME/it"')
    packed = text.partition("\nEND-OF-PILOT\n")[0].rpartition("\n\n")[2]
    assert zlib.decompress(base64.b64decode(packed)) == b""
    with started(tmp_path, text) as process:
        assert process.stdout.readline().endswith(" hush 384\n")
        process.terminate()
        assert process.wait(30) == 7


@pytest.mark.slow
def test_no_pilot_starts_without_its_file(tmp_path):
    with started(tmp_path, a_script(file_at='"$HOME/none"')) as process:
        assert process.communicate(timeout=30)[0] == ""
        assert process.returncode == 73
