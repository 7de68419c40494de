"""What an enclosed pilot of the server's own account can change: what the server reads at its next start, never."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from lodesman.server.engines import namespaces
from lodesman.server.engines.isolation import Isolation

PYTHON = "/usr/bin/python3"
ATTEMPTS = """
import os, sys
def attempt(do):
    try:
        return do() or "done"
    except OSError as fault:
        return type(fault).__name__
place = sys.argv[1]
print({
    "own": attempt(lambda: open("result", "w").close()),
    "beside the configuration": attempt(lambda: open(f"{place}/conf/more.toml", "w").close()),
    "the configuration": attempt(lambda: open(f"{place}/conf/lode.toml", "a").close()),
    "beside the data": attempt(lambda: open(f"{place}/conf/here/lode.toml", "w").close()),
    "elsewhere": attempt(lambda: open(f"{place}/free", "w").close()),
    "key": attempt(lambda: open(f"{place}/server.key").read()),
    "data": os.listdir(f"{place}/conf/here/data"),
})
"""


@pytest.fixture
def place():
    """A folder that an ordinary account owns: this one, or `nobody` where root runs the tests."""
    if not Path(PYTHON).exists():
        pytest.skip("there is no Python for all accounts")
    folder = Path(tempfile.mkdtemp(prefix="enclosed-"))
    work = folder / "conf" / "here" / "data" / "pilots" / "s1" / "work"
    work.mkdir(parents=True)
    for name in ("conf/lode.toml", "server.key", "conf/here/data/admin.token"):
        (folder / name).write_text("secret")
    if os.geteuid() == 0:
        for inner in (folder, *folder.rglob("*")):
            os.chown(inner, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_what_the_server_reads_stays_as_it_is(place):
    data = place / "conf" / "here" / "data"
    work = data / "pilots" / "s1" / "work"
    found = Isolation(
        namespaces=True,
        hidden=(str(data), str(place / "server.key")),
        read_only=(str(place / "conf"), str(place / "conf" / "lode.toml")),
    )
    command = [PYTHON, "-I", "-S", namespaces.__file__, found.plan(work), str(work), PYTHON, "-c", ATTEMPTS]
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run([*command, str(place)], capture_output=True, text=True, check=False, **user)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.replace("'", '"')) == {
        "own": "done",
        "beside the configuration": "OSError",
        "the configuration": "OSError",
        "beside the data": "OSError",
        "elsewhere": "done",
        "key": "done",  # nothing was read
        "data": ["pilots"],
    }
    assert (work / "result").exists()
