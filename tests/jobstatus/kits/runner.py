"""Runs the cases of the conformance suite on any reader and any writer of $JOBSTATUS.

    PYTHONPATH=src:. python tests/jobstatus/kits/runner.py \\
        --reader 'lode jobstatus show' --writer 'lode jobstatus write' [--foreign] [GROUP | NAME ...]

A reader is run as `READER DIR --json [--now T] [--allocated A] [--jobstart J] [--batch-end T] [--strict]` and prints a JSON
object: error (null if there are values), keys, remaining_expected, remaining_max, draining_waste, kill_waste, flags. A
writer is run as `WRITER --script steps.json DIR` and prints a JSON object for each publication. With --foreign a reader may
have other words for errors, and cases with flags are left out. Exit code 1: a case failed.

case.json, a case of a reader:
  files      by name: a text, or {text | base64 | symlink | fifo | device | directory, size, hardlink, uid, lease, written}
  now, allocated, jobstart, batch_end    what the site knows; null: not given
  mode       "strict"; else lenient
  written    when the files were written, in seconds from `now`
  holder     what has a lock on used_CPU meanwhile: kind, mode, then (holders.py)
  expected   error (null, or REASON:KEY), keys after repair, the four answers, flags
With steps.json the writer runs first. Of a timeline, `expected` has the keys at the end, the payloads that were refused,
and when can_postpone_last_job changed; each publication is held against the rules (history.py).
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.jobstatus.kits.history import faults
from tests.jobstatus.kits.holders import hold

from lodesman.site.jobstatus.values import KEYS, Status, read

CASES = Path(__file__).parents[1] / "cases"
ANSWERS = ("remaining_expected", "remaining_max", "draining_waste", "kill_waste")
Run = Callable[[Sequence[str]], str]
"""Runs a command with these arguments; returns what it prints."""


@dataclass(frozen=True)
class Candidate:
    """foreign: it has words of its own for errors, and no flags."""

    reader: Run | None = None
    writer: Run | None = None
    foreign: bool = False


@dataclass(frozen=True)
class Case:
    """One folder of `cases`."""

    folder: Path
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def group(self) -> str:
        return self.data["group"]

    @property
    def steps(self) -> Path | None:
        script = self.folder / "steps.json"
        return script if script.exists() else None


def all_cases(*wanted: str) -> list[Case]:
    """Those of these groups or names; all without."""
    files = sorted(CASES.glob("*/case.json"))
    found = [Case(file.parent, json.loads(file.read_text())) for file in files]
    return [case for case in found if not wanted or case.group in wanted or case.name in wanted]


def command(words: str) -> Run:
    """A candidate that is a command."""

    def run(arguments: Sequence[str]) -> str:
        argv = [*shlex.split(words), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False).stdout

    return run


# --- what is in the directory ---


@contextmanager
def built(case: Case, parent: Path) -> Iterator[Path]:
    """The directory of a case, as long as its files and leases are there. Raises PermissionError where root is needed."""
    directory = parent / "status"
    directory.mkdir()
    with ExitStack() as stack:
        for name, file in case.data.get("files", {}).items():
            _make(directory / name, {"text": file} if isinstance(file, str) else file, case, stack)
        for number in range(case.data.get("other_names", 0)):
            (directory / f"other-{number}").touch()
        directory.chmod(int(case.data.get("directory_mode", "0755"), 8))
        if case.data.get("directory_link"):
            (parent / "link").symlink_to(directory)
        yield parent / "link" if case.data.get("directory_link") else directory


def _make(path: Path, file: Mapping[str, Any], case: Case, stack: ExitStack) -> None:
    if "symlink" in file:
        path.symlink_to(file["symlink"])
        return
    if "fifo" in file:
        os.mkfifo(path)
    elif "device" in file:
        os.mknod(path, 0o20644, os.makedev(*file["device"]))
    elif "directory" in file:
        path.mkdir()
    else:
        path.write_bytes(
            base64.b64decode(file["base64"]) if "base64" in file else file.get("text", "").encode()
        )
    if "size" in file:
        os.truncate(path, file["size"])
    if "hardlink" in file:
        os.link(path, path.parent.parent / file["hardlink"])
    if "uid" in file:
        os.chown(path, file["uid"], file["uid"])
    written = case.data["now"] + file.get("written", case.data.get("written", 0))
    os.utime(path, (written, written))
    if file.get("lease"):
        _lease(path, stack)


def _lease(path: Path, stack: ExitStack) -> None:
    """Whoever opens it for reading waits until it is given back, or 45 s."""
    descriptor = os.open(path, os.O_RDWR)
    stack.callback(os.close, descriptor)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    stack.callback(signal.signal, signal.SIGIO, before)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)


# --- one case ---


def run_case(case: Case, candidate: Candidate, parent: Path) -> list[str] | None:
    """What differs from what the case expects; None if it cannot be run."""
    reader, writer = candidate.reader, candidate.writer
    if case.group == "stress":
        return None if reader is None or writer is None else run_stress(case, reader, writer, parent)
    if not _can_run(case, candidate):
        return None
    with built(case, parent) as directory, ExitStack() as stack:
        if "holder" in case.data:
            stack.enter_context(hold(directory / "used_CPU", **case.data["holder"]))
        history = ""
        if case.steps is not None and writer is not None:
            history = writer(["--script", str(case.steps), str(directory)])
        found = _judge(case, candidate, directory, history)
        found += [f"{name} was made" for name in case.data.get("absent", ()) if (directory / name).exists()]
    return found


def _can_run(case: Case, candidate: Candidate) -> bool:
    """Not without the programs and rights that it needs, nor what a foreign reader may do otherwise."""
    if "root" in case.data.get("needs", ()) and os.geteuid() != 0:
        return False
    if candidate.foreign and case.data["expected"].get("flags"):
        return False
    return (candidate.reader if case.steps is None else candidate.writer) is not None


def _judge(case: Case, candidate: Candidate, directory: Path, history: str) -> list[str]:
    expected, reader = case.data["expected"], candidate.reader
    if case.group == "timeline":
        return compare_history(expected, history) + _compare_files(expected, directory, history)
    if case.group == "locks" and case.steps:
        return _compare_files(expected, directory, history)
    if reader is None:
        return []
    if case.steps:
        for file in directory.iterdir():
            os.utime(file, (case.data["now"], case.data["now"]))
    said = reader([str(directory), "--json", *_options(case.data)])
    try:
        found = compare(expected, json.loads(said), foreign=candidate.foreign)
        return found + (["it prints control bytes"] if "\x1b" in said else [])
    except ValueError:
        return [f"it prints no JSON: {said[:200]!r}"]


def _options(data: Mapping[str, Any]) -> Iterator[str]:
    for name in ("now", "allocated", "jobstart", "batch_end"):
        if data.get(name) is not None:
            yield from (f"--{name.replace('_', '-')}", str(data[name]))
    if data.get("mode") == "strict":
        yield "--strict"


def compare(expected: Mapping[str, Any], found: Mapping[str, Any], *, foreign: bool = False) -> list[str]:
    """What a reader says that differs; values beside an error are ignored."""
    if foreign and expected.get("error") and found.get("error"):
        return []
    names = ("error",) if expected.get("error") else ("error", "keys", *ANSWERS, "flags")
    wanted = {name: expected[name] for name in names if name in expected}
    return [
        f"{name}: {found.get(name)!r}, not {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def publications(history: str) -> list[tuple[float, Status]]:
    """Those that a writer said it wrote, in order."""
    lines = [json.loads(line) for line in history.splitlines()]
    return [(one["at"], Status.of(one["keys"])) for one in lines if one.get("keys") and one["written"]]


def compare_history(expected, history):
    """Rules that the publications break, and where they differ; a writer that prints none is not judged by them."""
    log = publications(history)
    if not log:
        return []
    found = faults(log)
    refused = [json.loads(line).get("refused") for line in history.splitlines()]
    postpone = [[at, one.can_postpone_last_job] for at, one in log]
    turns = [
        turn for before, turn in zip([[0, None], *postpone], postpone, strict=False) if before[1] != turn[1]
    ]
    for name, said in (("refused", [one for one in refused if one]), ("postpone", turns)):
        if said != expected[name]:
            found.append(f"{name}: {said}, not {expected[name]}")
    if expected.get("fresh_end") and log[-1][1].first_exp_job_end <= log[-1][0]:
        found.append("the first end is in the past")
    return found


def _compare_files(expected: Mapping[str, Any], directory: Path, history: str) -> list[str]:
    files = {key: (directory / key).read_bytes() for key in KEYS if (directory / key).exists()}
    keys = read(files, strict=True)[0].items()
    log = publications(history)
    if log and "fresh_end" in expected and keys != log[-1][1].items():
        return ["the files are not the last publication"]
    return compare({"keys": expected["keys"]}, {"keys": keys}) if "keys" in expected else []


# --- stress ---


def stress_script(publications: int) -> str:
    """A pilot of which all values change each time, and used_CPU has one to three digits."""
    steps: list[dict[str, object]] = []
    for n in range(publications):
        at, name = 1_000 + 10 * n, f"p{n}"
        if n:
            steps.append({"at": at, "do": "end", "payload": f"p{n - 1}", "pending": True})
        ends = {"expected_end": at + 100 + n, "enforced_end": at + 5_000 + 2 * n}
        steps.append({"at": at, "do": "start", "payload": name, "cores": 10 ** (n % 3) + n % 9, **ends})
        steps.append({"at": at, "do": "priority", "value": n})
    return json.dumps({"allocated": 1_000, "steps": steps})


def run_stress(case: Case, reader: Run, writer: Run, parent: Path) -> list[str]:
    """Read while a writer does not rest, again and again: only what was published may be read."""
    script = parent / "steps.json"
    script.write_text(stress_script(case.data["publications"]))
    readings: list[dict[str, Any]] = []
    log: list[dict[str, Any]] = []
    for turn in range(case.data["turns"]):
        directory = parent / f"status-{turn}"
        directory.mkdir(mode=0o755)
        with ThreadPoolExecutor(1) as pool:
            history = pool.submit(writer, ["--script", str(script), str(directory)])
            while not history.done():
                readings += _read_once(reader, directory)
        log += [status.items() for _, status in publications(history.result())]
        if len(readings) >= case.data["readings"]:
            break
    never = [one for one in readings if one not in log]
    found = [f"{len(never)} of {len(readings)} readings were never published: {never[0]}"] if never else []
    return found + ([] if len(readings) >= case.data["readings"] else [f"only {len(readings)} readings"])


def _read_once(reader: Run, directory: Path) -> list[dict[str, Any]]:
    """The keys; nothing as long as there are none."""
    said = reader([str(directory), "--json", "--now", "1000000", "--allocated", "1000", "--jobstart", "0"])
    found: dict[str, Any] = json.loads(said) if said.startswith("{") else {"error": "none"}
    return [] if found["error"] else [found["keys"]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reader", type=command)
    parser.add_argument("--writer", type=command)
    parser.add_argument("--foreign", action="store_true")
    parser.add_argument("names", nargs="*", metavar="GROUP | NAME")
    options = parser.parse_args()
    candidate = Candidate(options.reader, options.writer, options.foreign)
    failed = 0
    for case in all_cases(*options.names):
        with tempfile.TemporaryDirectory() as folder:
            found = run_case(case, candidate, Path(folder))
        failed += bool(found)
        verdict = "left out" if found is None else "; ".join(found) or "ok"
        sys.stdout.write(f"{case.name}: {verdict}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
