"""Debian's own scripts, unmodified: they see of us what they see of a real qsub, and the user reads the same."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kits.gridengine_kit import ACCOUNT, the_gridengine
from tests.kits.jsv_kit import STOCK, public_folder, write_script
from tests.kits.shared_engines import empty_all
from tests.unit.cli.conftest import FakeServer, request_class

from lodesman.base.errors import InvalidConfig
from lodesman.decide.submission.jsv_texts import JsvTexts, view_of
from lodesman.decide.submission.native import record_of
from lodesman.decide.submission.resolution import JsvView
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.server.jsv import (
    JsvContext,
    JsvUrl,
    Parameters,
    ScriptSettings,
    client_order,
    parse_url,
    verify_at_client,
)

pytestmark = [pytest.mark.e2e, pytest.mark.engines]
thorough = partial(pytest.param, marks=pytest.mark.thorough)

# Writes down what it gets; it accepts.
RECORDER = """#!/usr/bin/python3
import sys
with open("{file}", "a") as file:
    for line in sys.stdin:
        file.write(line)
        file.flush()
        if line == "START\\n":
            print("{ask}STARTED", flush=True)
        elif line == "BEGIN\\n":
            print("RESULT STATE ACCEPT", flush=True)
"""

# Words of qsub, and what a script sees of them.
SUBMISSIONS: list[tuple[str, dict[str, str]]] = [
    ("", {}),
    ("-N name", {"N": "name"}),
    ("-l h_vmem=1G", {"l_hard": "h_vmem=1G"}),
    ("-l h_data=2G,h_rt=60", {"l_hard": "h_data=2G,h_rt=60"}),
    ("-soft -l h_rt=70", {"l_soft": "h_rt=70"}),
    ("-ac a=5,b=2", {"ac": "a=5,b=2"}),
    ("-ac b,x=1=2", {"ac": "b,x=1=2"}),
    ("-pe smp 3", {"pe_name": "smp", "pe_min": "3", "pe_max": "3"}),
    ("-pe smp 16-32", {"pe_name": "smp", "pe_min": "16", "pe_max": "32"}),
    ("-h -m be", {"h": "u", "m": "be"}),
    ("-p -7 -js 4", {"p": "-7", "js": "4"}),
    ("-t 2-10:2 -tc 3", {"t_min": "2", "t_max": "10", "t_step": "2", "tc": "3"}),
    ("-q all.q -masterq all.q -pe smp 16", {
        "q_hard": "all.q", "masterq": "all.q", "pe_name": "smp", "pe_min": "16", "pe_max": "16"}),
    ("-soft -q all.q", {"q_soft": "all.q"}),
    ("-j y -notify -R y -r y -shell n", {"j": "y", "notify": "y", "R": "y", "r": "y", "shell": "n"}),
    ("-o /dev/null -e /dev/null -i /dev/null", {"o": "/dev/null", "e": "/dev/null", "i": "/dev/null"}),
    ("-A acct -S /bin/sh", {"A": "acct", "S": "/bin/sh"}),
    ("-w w -hold_jid gone", {"w": "w", "hold_jid": "gone"}),
    ("-b y", {"b": "y"}),
    ("-binding linear:1", {"binding_strategy": "linear", "binding_type": "set", "binding_amount": "1"}),
]  # fmt: skip


class Bed:
    """One folder with recorders on both sides of a stock script, run by qsub and by our host."""

    def __init__(self, folder: Path, stock: str) -> None:
        self.service = the_gridengine()
        self.account = pwd.getpwnam(self.service[ACCOUNT])
        self.folder = folder
        self.stock = str(STOCK / stock)
        self.environment = {name: text for name, text in self.service.items() if name != ACCOUNT}
        self.job = folder / "run.sh"
        self.job.write_text("#!/bin/sh\nexit 0\n")
        self.scripts: list[str] = []

    def recorders(self, side: str, ask: str) -> dict[str, Path]:
        """New ones: fresh files, which the account may write."""
        files = {}
        for when in ("after", "before"):
            files[when] = self.folder / f"{side}-{when}"
            files[when].write_text("")
            files[when].chmod(0o666)
            text = RECORDER.format(file=files[when], ask=ask)
            write_script(self.folder / f"{side}-{when}.jsv", text)
        self.scripts = [f"{self.folder}/{side}-after.jsv", self.stock, f"{self.folder}/{side}-before.jsv"]
        return files

    def qsub(self, words: str, ask: str) -> tuple[int, str, dict[str, str]]:
        """Exit code, text, and what was recorded."""
        files = self.recorders("real", ask)
        command = [
            "setpriv", f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", "--init-groups",
            "qsub", "-v", "FOO=x y", *(word for path in self.scripts for word in ("-jsv", path)), *words.split(),
            "run.sh", "*", "two words",
        ]  # fmt: skip
        environment = {**self.environment, "HOME": self.account.pw_dir}
        done = subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return (
            done.returncode,
            done.stdout + done.stderr,
            {when: path.read_text() for when, path in files.items()},
        )

    def ours(self, parameters: Parameters, ask: str, sge_root: str | None = None):
        """The steps, and what was recorded."""
        files = self.recorders("ours", ask)
        urls = [parse_url(text, JsvContext.CLIENT) for text in client_order(self.scripts)]
        settings = ScriptSettings(sge_root=sge_root or self.service["SGE_ROOT"])
        steps = verify_at_client([url for url in urls if url], parameters, settings)
        return steps, {when: path.read_text() for when, path in files.items()}

    def parameters(self, values: dict[str, str], host: str) -> Parameters:
        group = subprocess.run(
            ["id", "-gn", self.account.pw_name], capture_output=True, text=True, check=True
        )
        return Parameters(
            context=JsvContext.CLIENT,
            user=self.account.pw_name,
            group=group.stdout.strip(),
            command="run.sh",
            arguments=("*", "two words"),
            values={"N": "run.sh", "M": f"{self.account.pw_name}@{host}", **values},
            environment={"FOO": "x y"},
        )


@pytest.fixture
def folder():
    with public_folder() as found:
        yield found
        empty_all()  # no job writes there any more


def host_of(recorded: str) -> str:
    """The name of this machine, as the engine resolves it."""
    (line,) = [line for line in recorded.splitlines() if line.startswith("PARAM M ")]
    return line.rpartition("@")[2]


@pytest.mark.parametrize("stock", [thorough("jsv.sh"), "jsv.pl", thorough("jsv_reject_all.sh")])
def test_stock_scripts_see_and_say_the_same(folder, stock):
    bed = Bed(folder, stock)
    for words, values in SUBMISSIONS:
        compare(bed, words, values)


def compare(bed: Bed, words: str, values: dict[str, str]) -> None:
    code, text, real = bed.qsub(words, "SEND ENV\\n")
    parameters = bed.parameters(values, host_of(real["before"]))
    steps, ours = bed.ours(parameters, "SEND ENV\\n")
    assert plain(ours["before"]) == plain(real["before"]), words
    last = steps[-1].outcome
    assert (0 if last.accepted else 1) == code, (words, text)
    for step in steps:
        assert all(line.text in text for line in step.outcome.log), (words, text)
    if not last.accepted and 'unknown command from JSV: "ERROR"' in text:
        # Here ours says more: the script's own words.
        assert last.message.startswith("JSV script "), last
    elif not last.accepted:
        assert f"Unable to run job: {last.message}" in text, (words, text)
    elif bed.stock.endswith(".pl"):
        # Lists come back in the random order of a hash.
        assert [scrambled(line) for line in plain(ours["after"])] == [
            scrambled(line) for line in plain(real["after"])
        ], words
    else:
        assert plain(ours["after"]) == plain(real["after"]), words


def scrambled(line: str) -> tuple[str, list[str]]:
    name, _, value = line.removeprefix("PARAM ").partition(" ")
    return name, sorted(value.split(","))


def plain(recorded: str) -> list[str]:
    """Without the variables that qsub itself adds to the environment."""
    return [line for line in recorded.splitlines() if not line.startswith("ENV ADD ") or "FOO" in line]


@pytest.mark.parametrize("stock", [thorough("jsv.sh"), thorough("jsv.pl"), "jsv_reject_all.sh"])
def test_stock_scripts_decide_the_same_with_our_libraries(folder, stock):
    bed = Bed(folder, stock)
    texts = []
    for words, values in SUBMISSIONS:
        code, text, real = bed.qsub(words + " -h", "")
        parameters = bed.parameters({**values, "h": "u"}, host_of(real["before"]))
        steps, _ = bed.ours(parameters, "", ScriptSettings().sge_root)
        if 'unknown command from JSV: "ERROR"' not in text:
            assert (0 if steps[-1].outcome.accepted else 1) == code, (words, text)
        texts.append(steps[-1].outcome.message)
    if stock == "jsv_reject_all.sh":
        assert {text.split()[0] for text in texts} == {"Grid"}


def test_a_missing_execute_bit_is_said_in_the_same_words(folder):
    bed = Bed(folder, "jsv.sh")
    bed.stock = str(folder / "not-executable")
    Path(bed.stock).write_text("#!/bin/sh\n")
    code, text, real = bed.qsub("", "")
    assert (code, real["before"]) == (3, "")
    with pytest.raises(InvalidConfig) as refused:
        bed.ours(bed.parameters({}, "h"), "")
    assert f"qsub: {refused.value.message.rstrip('.')}" in text
    assert (folder / "ours-before").read_text() == ""


def test_replaced_values_reach_the_next_script(folder):
    bed = Bed(folder, "jsv.sh")
    bed.stock = str(folder / "changer")
    lines = (
        "PARAM N new\\nPARAM CMDARGS 3\\nPARAM CMDARG1 other  text\\nPARAM jc x\\nPARAM j y\\n"
        "ENV ADD BAR a  b\\nRESULT STATE ACCEPT"
    )
    write_script(
        Path(bed.stock),
        '#!/bin/sh\nread -r line; echo STARTED\nwhile read -r line; do [ "$line" = BEGIN ] && break; done\n'
        f"printf '{lines}\\n'; read -r line\n",
    )
    code, text, real = bed.qsub("-h", "SEND ENV\\n")
    parameters = bed.parameters({"h": "u"}, host_of(real["before"]))
    steps, ours = bed.ours(replace(parameters), "SEND ENV\\n")
    assert code == 0, text
    # The class is ours: the real host ignores it.
    assert [line for line in ours["after"].splitlines() if line != "PARAM jc x"] == [
        line
        for line in real["after"].splitlines()
        if not line.startswith("ENV ADD ") or line.split()[2] in {"FOO", "BAR"}
    ]
    assert isinstance(steps[-1].url, JsvUrl)


@pytest.fixture
def server():
    """A server that takes every submission."""
    found = FakeServer()
    answer = {"submission": 1, "first": 1, "count": 1, "held": 0, "repeated": False, "notices": []}
    found.on("POST", "/v1/jobs", lambda _asked: answer)
    http = ThreadingHTTPServer(("127.0.0.1", 0), request_class(found))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{http.server_port}"
    yield found
    http.shutdown()
    http.server_close()


def description_of(parameters: Parameters) -> str:
    """What a user writes who wants that."""
    texts = JsvTexts(
        command=parameters.command,
        arguments=parameters.arguments,
        # Files of a job are in its own directory, and what it reads there is none that it writes.
        parameters={
            name: text.replace("/dev/", "no-" if name == "i" else "")
            for name, text in parameters.values.items()
        },
        environment=parameters.environment,
    )
    return json.dumps(record_of({}, view_of(JsvView(values={}), texts).values, STOCK_COMPLEXES)[0])


# The account that submits, and what has another text in a description: `-p -7` is Priority 0, of a range the smallest
# number counts, resources have an order, a context without a value is empty.
OTHERWISE = {"USER", "GROUP", "ac", "p", "pe_max", "l_hard", "o", "e", "i"}


def seen(recorded: str) -> list[str]:
    """Parameters in their order."""
    lines = (line.removeprefix("PARAM ") for line in recorded.splitlines() if line.startswith("PARAM "))
    return [line.split()[0] if line.split()[0] in OTHERWISE else line for line in lines]


@pytest.mark.thorough
@pytest.mark.parametrize("stock", ["jsv.sh", "jsv.pl", "jsv_reject_all.sh"])
def test_lode_submit_ends_as_qsub_does(folder, server, stock):
    """Parameters in the same order, same text, same exit code."""
    bed = Bed(folder, stock)
    for words, values in SUBMISSIONS:
        code, text, real = bed.qsub(words, "")
        parameters = bed.parameters(values, host_of(real["before"]))
        (folder / "job.json").write_text(description_of(parameters))
        files = bed.recorders("ours", "")
        asked = [word for path in bed.scripts for word in ("--jsv", path)]
        done = subprocess.run(
            [sys.executable, "-m", "lodesman.user.cli", "--server", server.url, "submit", *asked, "job.json"],
            env={**os.environ, "LODE_TOKEN": "token-of-ann", "LODE_REQUEST": "/nowhere"}, cwd=folder,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if 'unknown command from JSV: "ERROR"' not in text:
            assert done.returncode == code, (words, text, done.stderr)
        assert seen(files["before"].read_text()) == seen(real["before"]), words
        assert bool(server.of("POST", "/v1/jobs")) is (done.returncode == 0)
        server.asked.clear()
