"""The manuals say what happens: every console block of the documents is run, and its output compared.

How a document is read (for readers: docs/how-to/README.md):

* `<!-- run: three-sites -->` gives the document a server with examples/three-sites.toml and a user's token,
  `<!-- run: alone -->` an empty directory; the line `$ lode server &` starts a server there.
* A block whose first line is, for instance, ```` ```jdl hello.jdl ```` is written to that file.
* In a block ```` ```console ```` each line that begins with `$ ` is run by a shell; the lines below it must be
  what it prints. `...` stands for any text, alone on a line for any lines; blanks may be more or fewer.
* `<!-- wait: 2-6 -->` waits until these jobs have ended, `<!-- wait: director -->` until it has decided something.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lodesman

ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(Path(lodesman.__file__).parents[1])
# Against hanging: no machine is so slow.
PATIENCE = 300.0
USUAL_PORT = "127.0.0.1:7777"
SERVER = "lode server &"
# Short times for the server of a manual; all else is as the manual says.
HASTE = {
    "pilots.idle_seconds": 2,
    "pilots.heartbeat_seconds": 1,
    "pilots.stop_at_exit": True,
    "director.PollingTime": 0.5,
}
PIECE = re.compile(
    r"^```(?P<kind>\w*)[ ]*(?P<name>[\w./-]*)\n(?P<text>.*?)^```$|^<!-- (?P<order>run|wait): (?P<value>\S+) -->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One fenced block or one order of a document; `line` is that of its first line."""

    kind: str
    name: str
    text: str
    line: int


def pieces(text: str) -> Iterator[Piece]:
    for found in PIECE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["order"]:
            yield Piece(kind=found["order"], name=found["value"], text="", line=line)
        else:
            yield Piece(kind=found["kind"], name=found["name"], text=found["text"], line=line)


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with a command, not with {parts[0]!r}"
    yield from zip(parts[1::2], parts[2::2], strict=True)


_SIGN_OF_LIFE = re.compile(
    r"^lode: (?:[\d,]+ of [\d,]+ ended[,:]|[a-z ]+: [\d,]+ of [\d,]+\.$).*\n", re.MULTILINE
)


def told(text: str) -> list[str]:
    """Lines without the width of their columns; empty ones do not count."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def expected(text: str) -> re.Pattern[str]:
    parts = []
    for line in told(text):
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(map(re.escape, line.split("..."))) + r"\n")
    return re.compile("".join(parts))


def without_signs_of_life(text: str) -> str:
    """Without the lines of a wait that takes long, as on a busy machine."""
    return _SIGN_OF_LIFE.sub("", text)


def matches(wanted: str, printed: str) -> bool:
    return expected(wanted).fullmatch("".join(f"{line}\n" for line in told(printed))) is not None


def test_lines_of_long_waits_are_not_compared():
    """Two documents had them on a busy machine."""
    lines = (
        "lode: 310 of 500 ended, about 7.7 s left: 161 Waiting, 23 Matched, 309 Done, 1 Failed.\n"
        "lode: 1,310 of 5,000 ended: 161 Waiting.\nlode: fetching outputs: 360 of 500.\n"
    )
    ends = "lode: All 500 jobs have ended: 498 Done.\nlode: After 1 s 3 of 4 jobs had not ended: 3 Held.\n"
    assert without_signs_of_life(lines + ends + lines) == ends


def test_loose_comparison():
    assert matches("a  b\n", "a b\n")
    assert matches("a\n...\nz\n", "a\nb\n\nc\nz\n")
    assert matches("a\n...\n", "a\n")
    assert matches("age ... s, done\n", "age 12.5 s, done\n")
    assert matches("", "\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a\n", "")
    assert not matches("age ... s\n", "age 3 min\n")
    assert not matches("a.c\n", "abc\n")


def test_a_document_is_read_in_order():
    text = (
        "<!-- run: alone -->\n```jdl a.jdl\n[ ]\n```\ntext\n```console\n$ one\n1\n$ two; three\n```\n"
        "<!-- wait: 2-6 -->\n```sh\nnot run\n```\n"
    )
    found = list(pieces(text))
    assert [(one.kind, one.name, one.line) for one in found] == [
        ("run", "alone", 1), ("jdl", "a.jdl", 2), ("console", "", 6), ("wait", "2-6", 11), ("sh", "", 12),
    ]  # fmt: skip
    assert list(steps(found[2].text)) == [("one", "1\n"), ("two; three", "")]


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def manuals() -> list[str]:
    """The documents with something to run."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in documents()
        if any(piece.kind == "console" for piece in pieces(path.read_text(encoding="utf-8")))
    ]


def test_there_are_manuals():
    assert {"docs/how-to/users.md", "docs/how-to/administrators.md", "docs/how-to/sites.md"} <= set(manuals())


@dataclass
class Terminal:
    """A person at a directory, with `lode` on the path."""

    folder: Path
    port: int
    environ: dict[str, str]
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, command: str) -> str:
        """What a command prints, on standard output and error, with the port that the manual names."""
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.stdout.decode(errors="replace").replace(f"127.0.0.1:{self.port}", USUAL_PORT)

    def start_server(self, *words: str) -> None:
        settings = [
            word for name, value in HASTE.items() for word in ("--set", f"{name}={json.dumps(value)}")
        ]
        settings += ["--set", f"pilots.python={json.dumps(sys.executable)}", "--port", str(self.port)]
        with (self.folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                ["lode", "server", *settings, *words], cwd=self.folder, env=self.environ,
                executable=str(self.folder.parent / "bin" / "lode"), stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.servers.append(server)
        self._wait_for(self._answers, "the server")

    def wait(self, what: str) -> None:
        """Until these jobs rest, or until the director has decided something."""
        if what == "director":
            self._wait_for(lambda: self.json("director show")["plan"], "the director")
        else:
            self.run(f"lode wait {what}")

    def json(self, command: str) -> Any:
        return json.loads(self.run(f"lode {command} --json 2>/dev/null"))

    def _answers(self) -> bool:
        """It says without a token that it needs one. Requests wait for the process that reads."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/me", timeout=PATIENCE).close()
        except urllib.error.HTTPError as told:
            with told:
                return told.code == 401
        except OSError:
            return False
        return True

    def _wait_for(self, look, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not look():
            log = self.folder / "server.log"
            ended = [server.returncode for server in self.servers if server.poll() is not None]
            waiting = time.monotonic() < end and not ended
            assert waiting, f"waited in vain for {what}\n{log.read_text() if log.exists() else ''}"
            threading.Event().wait(0.2)

    def close(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        codes = [server.wait(PATIENCE) for server in self.servers]
        assert codes == [0] * len(codes), (self.folder / "server.log").read_text()


@contextmanager
def terminal(home: Path, port: int) -> Iterator[Terminal]:
    """A terminal in HOME/here; the servers that were started there are ended as by Ctrl-C."""
    folder, programs = home / "here", home / "bin"
    for place in (folder, programs):
        place.mkdir(parents=True)
    lode = programs / "lode"
    lode.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lodesman.user.cli "$@"\n')
    lode.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LODE_")}
    path = f"{programs}:{Path(sys.executable).parent}:{environ.get('PATH', os.defpath)}"
    environ |= {"PATH": path, "PYTHONPATH": SOURCE, "HOME": str(home), "LC_ALL": "C.UTF-8"}
    environ |= {"LODE_SERVER": f"http://127.0.0.1:{port}", "LODESMAN": str(ROOT)}
    environ.pop("XDG_CONFIG_HOME", None)
    found = Terminal(folder, port, environ)
    try:
        yield found
    finally:
        found.close()


def prepare_three_sites(user: Terminal, home: Path, stack: ExitStack) -> None:
    """A running server, and a user of group physics with a token at the usual place."""
    server = stack.enter_context(terminal(home / "server", user.port))
    sites = json.dumps([str(ROOT / "examples" / "three-sites.toml")])
    server.start_server("--set", f"resources.files={sites}")
    place = Path(user.environ["HOME"]) / ".config" / "lodesman"
    place.mkdir(parents=True)
    for command in (
        "lode user add ada --vo gridlab --group physics",
        f"lode token issue ada --output {place}/token",
    ):
        server.run(command)
    assert (place / "token").is_file()


def play(text: str, user: Terminal, home: Path, stack: ExitStack) -> Iterator[str]:
    """Do what a document says; one complaint for each command that printed something else."""
    for piece in pieces(text):
        if piece.kind == "run" and piece.name == "three-sites":
            prepare_three_sites(user, home, stack)
        elif piece.kind == "wait":
            user.wait(piece.name)
        elif piece.name:
            (user.folder / piece.name).write_text(piece.text)
        elif piece.kind == "console":
            for command, wanted in steps(piece.text):
                if command == SERVER:
                    user.start_server()
                    continue
                printed = without_signs_of_life(user.run(command))
                if not matches(wanted, printed):
                    yield f"line {piece.line}: $ {command}\n{printed}\n--- instead of ---\n{wanted}"


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("manual", manuals())
def test_the_manual_says_what_happens(manual, tmp_path, free_port):
    text = (ROOT / manual).read_text(encoding="utf-8")
    assert any(piece.kind == "run" for piece in pieces(text)), "say <!-- run: alone --> or three-sites"
    with ExitStack() as stack:
        user = stack.enter_context(terminal(tmp_path / "user", free_port()))
        complaints = list(play(text, user, tmp_path, stack))
    assert not complaints, "\n".join(complaints)
