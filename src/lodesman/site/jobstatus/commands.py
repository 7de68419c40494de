"""`show` and `check`: what a job publishes and means; `write`: what a script publishes. Bytes of users are never printed."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import steps
from .channel import Publication
from .reader import JobDirectory, StatusSnapshot, take_snapshots
from .values import KEYS, Flags, Status, Value
from .waste import Estimate, estimate

GOOD, REPAIRED, USAGE, INVALID, STALE, LOCKED = range(6)
"""Exit codes."""
VERDICTS = ("good", "repaired", "usage", "invalid", "stale", "locked")
"""The words for them."""
EXIT_CODES = """\
Exit codes: 0 good, 1 repaired or clamped, 2 wrong usage, 3 invalid or not there, 4 older than 10 minutes, 5 locked for
5 seconds. Of several directories: the highest. Values that are not known are null in JSON, never 0."""

_LOCKED = ("locked", "busy", "no-answer")
_OLD = {"stale", "silent"}
# Nothing is wrong with what the job published.
_HARMLESS = {"allocated-unknown", "overdue", "suspended"}
_HOUR_S = 3600
_TIMES = KEYS[1:5]
_LAST_TIME = 253_402_300_799  # of the year 9999
_MEANINGS = {
    "used_CPU": "cores that payloads use",
    "last_job_start": "last start or commit",
    "first_exp_job_end": "first expected end",
    "last_exp_job_end": "last expected end",
    "last_max_job_end": "last enforced end",
    "add_uncom_time": "core-seconds that are not committed, beside those since the last start",
    "add_final_exp_waste": "core-seconds that a drain would leave idle after the first end",
    "can_postpone_last_job": "whether more payloads may start",
    "priority_factor": "higher: keep it, among jobs of this user",
}
WORDS = {
    "absent": "there is no such directory",
    "allocated-unknown": "without --allocated, draining waste is a lower bound",
    "beyond-batch-end": "the job claims to stay longer than the batch system lets it",
    "busy": "{} is leased by a process of the user, or replaced again and again",
    "clock": "it was written in the future: clocks differ, or the user set the time of the file",
    "draining-clamped": "the job claims to waste more by a drain than it has left",
    "draining-negative": "draining waste would be negative",
    "ends-out-of-order": "the ends are out of order",
    "float": "{} has a decimal point",
    "hard-link": "{} is a file with another name",
    "interrupted": "used_CPU is older than the other files: the writer died while it wrote",
    "kill-clamped": "the job claims to lose more by a kill than it was given",
    "kill-negative": "kill waste would be negative",
    "locked": "{} is locked by a process that does not let go: the job is suspended or stuck",
    "negative": "{} is negative",
    "no-answer": "the reader did not end in time: a file system hangs, or the user stopped it",
    "no-status": "{} is missing: the job publishes nothing",
    "not-a-directory": "this is not a directory",
    "not-a-file": "{} is not a regular file",
    "not-a-number": "{} is not a whole number of at most 18 digits",
    "not-permitted": "the reader may not become the user of the job",
    "not-true-or-false": "{} is neither True nor False",
    "other-device": "{} is on another file system than its directory",
    "overdue": "an expected end has passed",
    "silent": "it is older than an hour: as if nothing was published",
    "skew": "the last start is in the future: clocks differ",
    "spelling": "{} is not spelled True or False",
    "stale": "it is older than 10 minutes",
    "start-in-future": "{} is in the future",
    "suspended": "time for which the job was suspended is not counted",
    "symlink": "{} is a symbolic link",
    "too-long": "{} has more than 64 bytes",
    "unreadable": "{} cannot be read",
    "used-above-allocated": "more cores are used than allocated",
    "writable-by-others": "others than the user can write to the directory",
    "wrong-owner": "{} belongs to another user",
}
"""What a flag or fault says of the file or directory."""


@dataclass(frozen=True)
class _Findings:
    directory: Path
    now: float
    snapshot: StatusSnapshot
    estimate: Estimate

    @property
    def flags(self) -> Flags:
        return tuple(sorted({*self.snapshot.flags, *self.estimate.flags}))

    @property
    def code(self) -> int:
        if self.snapshot.fault:
            return LOCKED if self.snapshot.fault.partition(":")[0] in _LOCKED else INVALID
        if not _OLD.isdisjoint(self.flags):
            return STALE
        return GOOD if _HARMLESS.issuperset(self.flags) else REPAIRED


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `show` and `check`."""
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add = shared.add_argument
    add("--now", type=_moment, metavar="T", help="UNIX time of the question (default: now)")
    add("--allocated", type=_count, metavar="N", help="cores of the job, by the batch system")
    add("--jobstart", type=_moment, metavar="T", help="UNIX time when the batch system started it")
    add("--batch-end", type=_moment, metavar="T", help="UNIX time when the batch system will end it")
    add(
        "--uid",
        type=_count,
        metavar="U",
        help="user id of the job, by the batch system (default: the directory's owner)",
    )
    add("--strict", action="store_true", help="refuse what has to be repaired")
    add("--json", action="store_true", dest="as_json", help="one JSON object in a line for each directory")
    for name, many, run, words in (
        ("show", "+", _show, "Show what jobs publish, how long they stay, and what is lost by a drain or a kill."),
        ("check", 1, _check, "Say whether a directory is good, and what is wrong."),
    ):  # fmt: skip
        command = commands.add_parser(
            name, parents=[shared], help=words, description=words, epilog=EXIT_CODES, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add_argument(
            "directories", nargs=many, type=Path, metavar="DIR", help="a directory of $JOBSTATUS"
        )
        command.set_defaults(run=run)


def add_write(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `write`."""
    words = "Publish what a script says, by a clock of its own, and print each publication as a JSON object in a line."
    command = commands.add_parser(
        "write", help=words, description=f"{words}\n\n{steps.__doc__}", allow_abbrev=False,
        epilog="Exit codes: 0 written, 2 wrong usage, 3 not this directory, 5 the last publication was not written: locked.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("--script", required=True, type=Path, metavar="STEPS", help="a JSON file")
    command.add_argument(
        "directory", type=Path, metavar="DIR", help="a directory of yours in which no other can write"
    )
    command.set_defaults(run=_write)


def _write(options: argparse.Namespace) -> int:
    try:
        text = options.script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        return refuse(f"{plain(options.script)}: {fault}", USAGE)
    try:
        return _follow(text, options.directory.absolute())
    except steps.InvalidSteps as fault:
        return refuse(f"{plain(options.script)}: {fault}", USAGE)
    except OSError as fault:
        return refuse(f"{plain(options.directory)}: {fault.strerror}", INVALID)


def _follow(text: str, directory: Path) -> int:
    facts, script = steps.read_script(text)
    code = GOOD
    with closing(Publication(directory)) as publication:
        for happened in steps.follow(facts, script, publication):
            sys.stdout.write(f"{happened.line()}\n")
            if happened.status is not None:
                code = GOOD if happened.written else LOCKED
    return code


def refuse(text: str, code: int) -> int:
    """Returns the exit code."""
    sys.stderr.write(f"jobstatus: {text}\n")
    return code


def _show(options: argparse.Namespace) -> int:
    return _run(options, _in_full)


def _check(options: argparse.Namespace) -> int:
    return _run(options, _verdict)


def _run(options: argparse.Namespace, in_words: Callable[[_Findings], Iterator[str]]) -> int:
    highest = GOOD
    for answer in _ask(options):
        lines = [_as_json(answer)] if options.as_json else in_words(answer)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        highest = max(highest, answer.code)
    return highest


def _ask(options: argparse.Namespace) -> Iterator[_Findings]:
    now = time.time() if options.now is None else options.now
    directories = [
        JobDirectory(directory, options.allocated, options.uid) for directory in options.directories
    ]
    for directory, snapshot in zip(directories, take_snapshots(directories, now=now, strict=options.strict)):
        yield _findings(directory.path, snapshot, now, options)


def _findings(
    directory: Path, snapshot: StatusSnapshot, now: float, options: argparse.Namespace
) -> _Findings:
    expected = Estimate() if snapshot.status is None else estimate(
        snapshot.status, now=now, allocated=options.allocated, jobstart=options.jobstart,
        batch_ends=options.batch_end, age=snapshot.age_s,
    )  # fmt: skip
    return _Findings(directory, now, snapshot, expected)


def _as_json(answer: _Findings) -> str:
    """Control characters of the path are escaped."""
    snapshot, expected = answer.snapshot, answer.estimate
    return json.dumps({
        "directory": str(answer.directory), "verdict": VERDICTS[answer.code], "error": snapshot.fault,
        "keys": (snapshot.status or Status()).items(), "as_of": snapshot.as_of, "age_s": snapshot.age_s,
        "remaining_expected": expected.remaining_expected, "remaining_max": expected.remaining_max,
        "draining_waste": expected.draining_waste, "kill_waste": expected.kill_waste, "flags": answer.flags,
    })  # fmt: skip


# --- words ----------------------------------------------------------------------------------------------------------------


def _verdict(answer: _Findings) -> Iterator[str]:
    yield f"{plain(answer.directory)}: {VERDICTS[answer.code]}"
    fault = answer.snapshot.fault
    for flag in [fault] if fault else answer.flags:
        if flag not in _HARMLESS:
            yield f"  {in_words(flag)}"


def _in_full(answer: _Findings) -> Iterator[str]:
    snapshot, bounds = answer.snapshot, answer.estimate
    if snapshot.status is None:
        yield from _verdict(answer)
        return
    age = "at an unknown time" if snapshot.age_s is None else f"{_span(snapshot.age_s)} ago"
    yield f"{plain(answer.directory)}: {VERDICTS[answer.code]}, written {age}"
    for key, value in snapshot.status.items().items():
        yield _row(key, "-" if value is None else str(value), _meaning(key, value, answer.now))
    longest = "unknown" if bounds.remaining_max is None else _span(bounds.remaining_max)
    expected = "unknown" if bounds.remaining_expected is None else _span(bounds.remaining_expected)
    yield _row("remaining", expected, f"at most: {longest}")
    yield _row("draining waste", *_cost(bounds.draining_waste))
    yield _row("kill waste", *_cost(bounds.kill_waste))
    for flag in answer.flags:
        yield f"  {in_words(flag)}"


def in_words(flag: str) -> str:
    """A flag or fault as a sentence."""
    word, _, key = flag.partition(":")
    return WORDS[word].format(key or "the directory")


def _row(name: str, value: str, meaning: str) -> str:
    return f"  {name:<22} {value:>18}  {meaning}".rstrip()


def _meaning(key: str, value: Value | None, now: float) -> str:
    if value is None:
        return f"{_MEANINGS[key]}: not published"
    if key not in _TIMES or value > _LAST_TIME:
        return _MEANINGS[key]
    apart = f"{_span(now - value)} ago" if value <= now else f"in {_span(value - now)}"
    return f"{_MEANINGS[key]}: {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(value))}, {apart}"


def _cost(core_seconds: int | None) -> Sequence[str]:
    if core_seconds is None:
        return ("unknown", "")
    return (f"{core_seconds / _HOUR_S:,.2f} core-hours", f"{core_seconds:,} core-seconds")


def _span(seconds: float) -> str:
    minutes, rest = divmod(math.floor(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next((place for place, (count, _) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count:,} {unit}" for count, unit in units[first : first + 2])


def plain(path: Path) -> str:
    """Without characters that a terminal obeys or lacks."""
    return "".join(
        letter if letter.isprintable() and letter.isascii() else ascii(letter)[1:-1] for letter in str(path)
    )


def _moment(text: str) -> float:
    if not 0 <= float(text) <= _LAST_TIME:
        raise argparse.ArgumentTypeError(f"{text!r} is not a UNIX time")
    return float(text)


def _count(text: str) -> int:
    if not 0 <= int(text) < 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {2**32 - 2}")
    return int(text)
