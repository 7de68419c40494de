"""What the doors share: commands with time limits, acts, places of directories."""

from __future__ import annotations

import math
import os
import pwd
import re
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lodesman.site.jobstatus.vacate.candidates import Candidate

_SECONDS = 60.0
_MOST_BYTES = 64
_ODD = re.compile(r"^\.|[^A-Za-z0-9_.@+-]")
SHUTDOWN = "shutdowntime_job"
# Not sooner than the grace that the site, and not the job, has promised; a number of another form counts as none. In a
# folder of the job's user any name may be a link by now: dd makes a new file (excl), by its one name, once.
_WRITE_THERE = """\
end={ends}; grace={grace}; \
if [ -f "$grace" ] && [ ! -h "$grace" ] && [ -O "$grace" ]; then grace=$(head -c 19 "$grace"); case $grace in \
'' | 0?* | *[!0-9]* | ??????????*) ;; *) grace=$(($(date +%s) + grace)); [ "$end" -ge "$grace" ] || end=$grace ;; esac; fi; \
umask 022; rm -f {file}.new; echo "$end" | dd of={file}.new conv=excl status=none && mv -fT {file}.new {file}"""


class SiteFault(RuntimeError):
    """A batch system did not answer, or not sensibly. The message is a sentence."""


@dataclass(frozen=True)
class Act:
    """Run `words`, or write `text` to the file `path`."""

    words: Sequence[str] = ()
    path: str = ""
    text: str = ""

    def __str__(self) -> str:
        """As a line for a shell."""
        if self.path:
            return f"echo {shlex.quote(self.text)} > {shlex.quote(self.path)}"
        return " ".join(map(shlex.quote, self.words))


@dataclass(frozen=True)
class JobPlaces:
    """Directories of jobs, with {job}, {node} and {user}. Empty: there are none."""

    jobstatus: str = "/run/jobstatus/{job}"  # what the job writes
    jobfeatures: str = ""  # what the site writes for it; shutdowntime_job there makes it drain
    write_with: str = ""  # runs a line of the shell on {node}; empty: the directories are here
    requeue: bool = False  # a killed job waits again, where the batch system can do that

    def status_of(self, job: Candidate, node: str) -> str:
        """The directory of $JOBSTATUS on a node."""
        return _fill_in(self.jobstatus, job, node)

    def shutdown_acts(self, job: Candidate, ends: float, now: float) -> list[Act]:
        """Ask the job, on each node with files of its own, to have ended then; not before the promised grace."""
        folders = {node: _fill_in(self.jobfeatures, job, node) for node in job.nodes if self.jobfeatures}
        if self.write_with:
            return [
                self._on_node(node, f"{folder}/{SHUTDOWN}", math.ceil(ends))
                for node, folder in folders.items()
            ]
        acts = []
        for folder in filter(os.path.isdir, dict.fromkeys(folders.values())):
            grace = site_number(Path(folder), "grace_secs_job") or 0
            acts.append(Act(path=f"{folder}/{SHUTDOWN}", text=str(math.ceil(max(ends, now + grace)))))
        return acts

    def _on_node(self, node: str, path: str, ends: int) -> Act:
        words = [word.replace("{node}", node) for word in shlex.split(self.write_with)]
        file, grace = shlex.quote(path), shlex.quote(f"{os.path.dirname(path)}/grace_secs_job")  # noqa: PTH120
        return Act((*words, _WRITE_THERE.format(ends=ends, file=file, grace=grace)))


def _fill_in(text: str, job: Candidate, node: str) -> str:
    """What has another meaning in a path or for a shell becomes `_`."""
    for word, value in (("{job}", job.job), ("{node}", node), ("{user}", job.owner)):
        text = text.replace(word, _ODD.sub("_", value))
    return text


class SiteDoor(Protocol):
    """A batch system."""

    def can_drain(self, job: Candidate) -> bool:
        """The job can be asked to end."""

    def running(self) -> list[Candidate]:
        """What holds cores, also if it is leaving. Raises SiteFault."""

    def kill_s(self) -> float:
        """Seconds that a killed job may keep its cores, as far as the batch system says."""

    def kill(self, job: Candidate) -> list[Act]:
        """How this job is ended now."""

    def drain(self, job: Candidate, ends: float, now: float) -> list[Act]:
        """Empty: it cannot be made to end by then, or does so by itself."""


@dataclass(frozen=True)
class ConsentDoor:
    """Nothing but their own consent ends such jobs by then: they are asked by shutdowntime_job in their Job Features."""

    places: JobPlaces

    def can_drain(self, job: Candidate) -> bool:
        """If it has Job Features."""
        return bool(self.places.shutdown_acts(job, 0.0, 0.0))

    def kill_s(self) -> float:
        """The batch system does not say."""
        return 0.0

    def drain(self, job: Candidate, ends: float, now: float) -> list[Act]:
        """Ask the job."""
        return self.places.shutdown_acts(job, ends, now)


def answer(
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    seconds: float = _SECONDS,
    most: int = 0,
) -> str:
    """Raises SiteFault if the command ends with more than `most`, or not in time."""
    try:
        done = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SiteFault(f"{words[0]} did not answer within {seconds:g} s.") from None
    except OSError as fault:
        raise SiteFault(f"{words[0]} could not be run: {fault.strerror}.") from None
    if not 0 <= done.returncode <= most:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
        raise SiteFault(f"{words[0]} ended with {done.returncode} and said: {shown(lines[0])}")
    return done.stdout.decode("utf-8", "replace")


def perform(act: Act) -> None:
    """A file is replaced whole, for everybody to read. Raises SiteFault."""
    if not act.path:
        answer(act.words)
        return
    path = Path(act.path)
    try:
        number, name = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with open(number, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
                file.write(act.text + "\n")
                os.fchmod(number, 0o644)  # in a folder of the job's user its name may be a link by now
            os.replace(name, path)  # noqa: PTH105
        except OSError:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise
    except OSError as fault:
        raise SiteFault(f"{act.path} could not be written: {fault.strerror}.") from None


def site_number(directory: Path, *names: str) -> int | None:
    """The first key that the site, and not the job, has written."""
    for name in names:
        with suppress(OSError):
            number = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                about = os.fstat(number)
                text = os.read(number, _MOST_BYTES).strip()
            finally:
                os.close(number)
            ours = (
                stat.S_ISREG(about.st_mode)
                and about.st_uid in (0, os.geteuid())
                and not about.st_mode & 0o022
            )
            if ours and text.isdigit() and len(text) <= 18:
                return int(text)
    return None


def uid_of(name: str) -> int | None:
    """None: the account is not known here."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def shown(text: str) -> str:
    """What another program said, cut, without what a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])
