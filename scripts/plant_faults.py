"""Plant faults one by one in a copy of the tree, and see whether the tests of ./check catch each of them.

Examples, from the root of the checkout:
  .venv/bin/python scripts/plant_faults.py                        all faults, each by the tests that its entry names
  .venv/bin/python scripts/plant_faults.py at-most-lets-one-more  one of them
  .venv/bin/python scripts/plant_faults.py --whole nth-bit-beside by all tests of SQLite, one after the other: an hour

The faults stand in tests/data/planted_faults.toml. A test counts that fails with the fault and passes without it; what is
marked `thorough` does not, and Hypothesis tries as few examples as in ./check --fast. A fault for a batch system or for
PostgreSQL needs it here. Exit codes: 0 all were caught, 1 one was not, 2 an entry of the list is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAULTS = Path("tests/data/planted_faults.toml")
_SOME_FAILED, _LONGEST_S, _END_S = 1, 1_200, 60
_ENDED = (signal.SIGINT, signal.SIGTERM)

# Rooms that have no parts.
WHOLE = {"pilot", "wire"}


@dataclass(frozen=True, kw_only=True)
class PlantedFault:
    """A fault as a person makes it: `old`, which the file has once, becomes `new`; `tests` catch it, on this `store`."""

    name: str
    kind: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    store: str = "sqlite"

    @property
    def room(self) -> str:
        """The part of a room in which it is planted: `server/store`, `base/errors`; `pilot` and `wire` are one part."""
        room, part = Path(self.file).parts[2:4]
        return room if room in WHOLE else f"{room}/{part.removesuffix('.py')}"


@dataclass(frozen=True, kw_only=True)
class Planting:
    """What became of one fault: the test that caught it, '' if none did; `trouble`: why that cannot be said."""

    name: str
    room: str
    kind: str
    caught_by: str = ""
    trouble: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        """In words."""
        return self.caught_by or (f"NOT JUDGED: {self.trouble}" if self.trouble else "SURVIVED")


class WrongEntry(Exception):
    """An entry of the list does not fit the tree."""


def read_faults(root: Path) -> list[PlantedFault]:
    """The list. Raises WrongEntry."""
    entries: list[dict[str, Any]] = tomllib.loads((root / FAULTS).read_text(encoding="utf-8"))["fault"]
    try:
        return [PlantedFault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    except (KeyError, TypeError) as fault:
        raise WrongEntry(f"{FAULTS}: {fault}") from None


def planted(root: Path, fault: PlantedFault) -> str:
    """The text of its file with the fault in it. Raises WrongEntry."""
    text = (root / fault.file).read_text(encoding="utf-8")
    if (count := text.count(fault.old)) != 1:
        raise WrongEntry(f"{fault.name}: its old text occurs {count} times in {fault.file}")
    return text.replace(fault.old, fault.new)


class Copy:
    """A copy of the tree in which faults are planted."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def having(self, fault: PlantedFault) -> Iterator[None]:
        """With the fault in it. Raises WrongEntry."""
        path = self.root / fault.file
        whole, broken = path.read_text(encoding="utf-8"), planted(self.root, fault)
        self._write(path, broken)
        try:
            yield
        finally:
            self._write(path, whole)

    def first_failure(self, tests: Sequence[str], store: str) -> str:
        """The first test that fails, '' if all pass. Raises WrongEntry if they cannot be run, or all are skipped."""
        cache = self.root / ".pytest_cache"
        shutil.rmtree(cache, ignore_errors=True)
        words = ["-x", "-q", "--no-header", "--tb=no", "-n0", "-m", "not thorough", f"--store={store}"]
        words += ["-o", f"cache_dir={cache}", *tests]
        said, code = self._run([sys.executable, "-m", "pytest", *words])
        failed = cache / "v" / "cache" / "lastfailed"
        if code == _SOME_FAILED:
            return next(iter(json.loads(failed.read_text()))) if failed.exists() else "a test that hung"
        last = said.strip().rpartition("\n")[2]
        if code or " passed" not in last:
            raise WrongEntry(last)
        return ""

    def _run(self, command: list[str]) -> tuple[str, int]:
        environ = {
            **os.environ,
            "PYTHONPATH": f"{self.root / 'src'}:{self.root}",
            "HYPOTHESIS_PROFILE": "fast",
        }
        with subprocess.Popen(
            command, cwd=self.root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            try:
                return running.communicate(timeout=_LONGEST_S)[0], running.returncode
            except subprocess.TimeoutExpired:
                return "", _SOME_FAILED
            finally:
                _end(running)

    def _write(self, path: Path, text: str) -> None:
        """Compiled modules go by the time of their source, in whole seconds: it gets another one."""
        at = int(path.stat().st_mtime) + 1
        path.write_text(text, encoding="utf-8")
        os.utime(path, (at, at))


def _end(running: subprocess.Popen[str]) -> None:
    """As Ctrl-C does: what the tests started ends with them."""
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
        try:
            running.wait(_END_S)
        except subprocess.TimeoutExpired:
            running.kill()


@contextmanager
def copied(root: Path) -> Iterator[Copy]:
    """A copy of what git knows of, or would take in; it goes at the end, however that comes."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # tests of root run programs of the tree as nobody
        for one in filter(None, names):
            if (root / one).is_file():
                target = Path(name, one)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / one, target)
        yield Copy(Path(name))


def plant(copy: Copy, fault: PlantedFault, *, whole: bool = False) -> Planting:
    """What becomes of a fault. Raises WrongEntry for one that does not fit the tree."""
    begun, caught, trouble = time.monotonic(), "", ""
    with copy.having(fault):
        try:
            caught = copy.first_failure(() if whole else fault.tests, fault.store)
        except WrongEntry as wrong:
            trouble = str(wrong)
    if "::" in caught:
        try:
            trouble = f"{caught} fails without it, too" if copy.first_failure([caught], fault.store) else ""
        except WrongEntry as wrong:
            trouble = str(wrong)
    return Planting(
        name=fault.name, room=fault.room, kind=fault.kind, caught_by="" if trouble else caught, trouble=trouble,
        seconds=round(time.monotonic() - begun, 1),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the faults that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="FAULT", help="the name of a fault; none: all of them")
    parser.add_argument("--whole", action="store_true", help="run all tests, not those named")
    parser.add_argument("--json", action="store_true", help="print a list of objects at the end")
    options = parser.parse_args(arguments)
    for number in _ENDED:
        signal.signal(number, signal.default_int_handler)
    try:
        faults = read_faults(ROOT)
        if strange := {*options.names} - {one.name for one in faults}:
            raise WrongEntry(f"There is no fault {', '.join(sorted(strange))}.")
        wanted = [one for one in faults if not options.names or one.name in options.names]
        for one in wanted:
            planted(ROOT, one)
        found = []
        with copied(ROOT) as copy:
            for one in wanted:
                found.append(plant(copy, one, whole=options.whole))
                if not options.json:
                    print(_line(found[-1]), flush=True)
    except WrongEntry as wrong:
        print(f"plant_faults: {wrong}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("plant_faults: interrupted", file=sys.stderr)
        return 130
    caught = sum(bool(one.caught_by) for one in found)
    print(
        json.dumps([asdict(one) for one in found], indent=1)
        if options.json
        else f"{caught} of {len(found)} were caught."
    )
    return int(caught < len(found))


def _line(one: Planting) -> str:
    return f"{one.name:<32} {one.room:<20} {one.kind:<20} {one.outcome} ({one.seconds:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
