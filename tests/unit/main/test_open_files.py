"""The limit of open files: as high as it may be for the server, as it was for pilots. Each in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import textwrap

import pytest

from lodesman.server.engines.pilot_processes import limit_open_files
from lodesman.server.main.process import _FEW_FILES as FEW
from lodesman.server.main.process import _MOST_FILES as MOST

pytestmark = pytest.mark.slow

SCRIPT = """
import json, logging, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
os.environ.update({environ})
told = []
logging.getLogger().addHandler(type("H", (logging.Handler,), {{"emit": lambda self, r: told.append(r.getMessage())}})())
from lodesman.server.main.process import raise_open_files
before = raise_open_files()
print(json.dumps([before, *resource.getrlimit(resource.RLIMIT_NOFILE), told]))
"""


def run(soft, hard, **environ):
    script = textwrap.dedent(SCRIPT.format(soft=soft, hard=hard, environ=environ))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def hard_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MOST if hard == resource.RLIM_INFINITY else hard


HIGH = min(hard_limit(), 8_000)
LOW = HIGH // 8
TOLD = ["few files may be open at once"] if HIGH < FEW else []


def test_the_soft_limit_becomes_the_hard_one():
    assert run(LOW, HIGH) == [LOW, HIGH, HIGH, TOLD]


def test_a_low_limit_is_reported():
    assert run(256, 512) == [256, 512, 512, ["few files may be open at once"]]
    assert FEW > 512


def test_a_limit_that_cannot_be_raised_is_left():
    assert run(HIGH, HIGH) == [HIGH, HIGH, HIGH, TOLD]


def test_the_second_process_knows_what_the_limit_was_at_first():
    assert run(HIGH, HIGH, LODESMAN_OPEN_FILES="77")[0] == 77


def test_a_process_gets_the_limit_that_pilots_shall_have():
    child = [
        sys.executable,
        "-c",
        "import sys; sys.stdin.read(1); import resource; print(resource.getrlimit(7)[0])",
    ]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        limit_open_files(process.pid, 200)
        assert process.communicate(b"x", timeout=60)[0].split() == [b"200"]
    limit_open_files(process.pid, 200)  # it is gone: nothing happens


def test_no_limit_is_given_if_none_is_named():
    limit_open_files(0, 0)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert soft != 0


@pytest.mark.parametrize(("limit", "value", "words"), [
    *(("RLIMIT_NOFILE", count, f"Only {count} files may be open at once") for count in (20, 32, 40)),
    ("RLIMIT_FSIZE", 100_000, "A file may have only 100000 bytes"),
])  # fmt: skip
def test_a_limit_with_which_no_server_comes_far_is_the_cause_that_is_named(tmp_path, limit, value, words):
    script = f"import resource, sys; resource.setrlimit(resource.{limit}, ({value}, {value}))"
    script += "; from lodesman.user.cli import main; sys.exit(main())"
    words_of_it = ["server", "--data", tmp_path / "data", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words_of_it], capture_output=True, text=True, check=False, timeout=60
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert (done.returncode, len(said)) == (5, 1), done.stderr
    assert said[0].startswith(f"lode: {words}; a server needs ")
    assert not (tmp_path / "data" / "lode.db").exists()
