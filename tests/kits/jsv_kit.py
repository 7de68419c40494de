"""Scripts for the verifiers under test, and the submission that they see."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from lodesman.server.jsv import JsvContext, JsvUrl, Parameters, ScriptSettings
from lodesman.server.jsv.runner import ScriptWorker

ROOT = os.geteuid() == 0
# A server's script must not be root.
ACCOUNT = "nobody" if ROOT else ""
# One that other accounts can run, if there is one.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # noqa: PTH110
STOCK = Path("/usr/share/gridengine/util/resources/jsv")

JOB = Parameters(
    context=JsvContext.CLIENT,
    user="ann",
    group="users",
    command="/home/ann/run.sh",
    arguments=("*", "a  b"),
    values={"N": "job", "M": "ann@host", "cwd": "/home/ann", "l_hard": "h_vmem=1G,a=b=c"},
    environment={"FOO": "x y", "TEXT": "two\nlines\\n"},
)
SERVER_JOB = replace(JOB, context=JsvContext.SERVER, client="qmaster", job_id=7)

# The barest script: a loop in Python; `{verify}` runs at BEGIN with `params` and `say`.
BARE = """#!{python}
import os, signal, sys, time
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
params = {{}}
{start}
for line in sys.stdin:
    word, _, rest = line.rstrip("\\n").partition(" ")
    if word == "START":
        params.clear()
        say("STARTED")
    elif word == "PARAM":
        name, _, value = rest.partition(" ")
        params[name] = value
    elif word == "BEGIN":
        {verify}
    elif word == "QUIT":
        {end}
"""

SHELL = """#!{shell}
{start}
jsv_on_start() {{ jsv_send_env; }}
jsv_on_verify() {{ {verify}; }}
. "$SGE_ROOT/util/resources/jsv/jsv_include.sh"
jsv_main
"""


def python(verify: str, *, start: str = "", end: str = "sys.exit(0)") -> str:
    """A bare script."""
    lines = ("\n" + 8 * " ").join(verify.splitlines())
    return BARE.format(python=PYTHON, verify=lines, start=start, end=end)


def shell(verify: str, *, name: str = "dash", start: str = "") -> str:
    """A script for the sh library."""
    return SHELL.format(shell=shutil.which(name), verify=verify.strip(), start=start)


def write_script(path: Path, text: str) -> JsvUrl:
    """An executable file, complete from the moment it has its name."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)
    return JsvUrl(path=str(path))


@contextmanager
def public_folder() -> Iterator[Path]:
    """One that other accounts may enter."""
    with tempfile.TemporaryDirectory(prefix="lode-jsv-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def one(url: JsvUrl, job: Parameters = JOB, settings: ScriptSettings | None = None):
    """The outcome of one submission, from a process of its own."""
    worker = ScriptWorker(url, JsvContext.CLIENT, settings or ScriptSettings())
    try:
        return worker.verify(job)
    finally:
        worker.kill()


def table(name: str) -> list[list[str]]:
    """The rows of a copied table, without its heading."""
    text = (Path(__file__).parents[1] / "data" / "gridengine" / name).read_text()
    rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in text.splitlines()]
    return rows[2:]
