"""The Machine/Job Features of the WLCG (HSF-TN-2016-02), read again and again.

A file that is gone was withdrawn. What cannot be read, or is no number, keeps its last value.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Callable

from lodesman.base.errors import InvalidConfig
from lodesman.wire.client.exchange import open_connection, parse_server, trusted_authorities

# The variables that name directories or web addresses, and what is read there.
_NAMES = {
    "MACHINEFEATURES": ("shutdowntime", "grace_secs"),
    "JOBFEATURES": (
        "allocated_cpu", "allocated_CPU", "max_rss_bytes", "wall_limit_secs", "jobstart_secs", "shutdowntime_job",
        "grace_secs_job",
    ),
}  # fmt: skip
# GridKa and Vac spell it so.
_FIELD = {"allocated_CPU": "allocated_cpu"}
_MOST_BYTES = 64
_ANSWER_S = 3.0
# The first values are waited for: the pilot describes itself by them.
_FIRST_S = 10.0
# Between two readings: of a directory that costs next to nothing, but one web server may have all pilots of a site.
_DIRECTORY_S, _WEB_S = 10.0, 60.0
_GONE = (http.client.NOT_FOUND, http.client.GONE)


@dataclass(frozen=True)
class Features:
    """None is unknown. Times are UNIX seconds."""

    allocated_cpu: int | None = None
    max_rss_bytes: int | None = None
    wall_limit_secs: int | None = None
    jobstart_secs: int | None = None
    shutdowntime: int | None = None
    shutdowntime_job: int | None = None
    grace_secs: int | None = None  # how long before it a shutdown time is announced at least
    grace_secs_job: int | None = None

    def shutdown(self, started: float) -> float | None:
        """When machine or slot are shut down, the earlier one after the pilot's start."""
        times = (self.shutdowntime, self.shutdowntime_job)
        return min((float(at) for at in times if at is not None and at >= started), default=None)

    def over(self, started: float) -> int | None:
        """A shutdown time before the pilot's start: none of its own."""
        times = (self.shutdowntime, self.shutdowntime_job)
        return next((at for at in times if at is not None and at < started), None)

    def slot_ends(self, started: float) -> float | None:
        """In UNIX seconds."""
        ends = [self.shutdown(started)]
        if self.wall_limit_secs is not None:
            ends.append((self.jobstart_secs or started) + self.wall_limit_secs)
        return min((at for at in ends if at is not None), default=None)


def reading_s(environment: Mapping[str, str]) -> float:
    """Seconds between two readings."""
    return _WEB_S if any(environment.get(name, "").startswith("http") for name in _NAMES) else _DIRECTORY_S


def read_features(environment: Mapping[str, str], known: Features = Features()) -> Features:
    """From the directory or web address that the environment names; `known` was read before."""
    values: dict[str, int | None] = {}
    for variable, names in _NAMES.items():
        place, before = (
            environment.get(variable, ""),
            {name: getattr(known, _FIELD.get(name, name)) for name in names},
        )
        if place.startswith("/"):
            values.update(_of_directory(place, before))
        elif place.startswith(("http://", "https://")):
            values.update(_read_web(place, before))
    other = values.pop("allocated_CPU", None)
    if values.get("allocated_cpu") is None and other is not None:
        values["allocated_cpu"] = other
    return replace(Features(), **values)


def _of_directory(place: str, before: Mapping[str, int | None]) -> Mapping[str, int | None]:
    try:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return before
    try:
        return {name: _in_directory(directory, name, value) for name, value in before.items()}
    finally:
        os.close(directory)


def _in_directory(directory: int, name: str, before: int | None) -> int | None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError as fault:
        return None if fault.errno == errno.ENOENT else before
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return before
        return _parse_number(os.read(file, _MOST_BYTES), before)
    except OSError:
        return before
    finally:
        os.close(file)


def _read_web(place: str, before: Mapping[str, int | None]) -> Mapping[str, int | None]:
    """One connection for all; what it does not answer stays."""
    values = dict(before)
    try:
        server = parse_server(place)
        connection = open_connection(server, trusted_authorities(None) if server.secure else None)
    except InvalidConfig:
        return values
    connection.timeout = _ANSWER_S
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        for name in before:
            connection.request("GET", f"{server.base}/{name}")
            with connection.getresponse() as answer:
                content = answer.read(_MOST_BYTES)
                if answer.status in _GONE:
                    values[name] = None
                elif answer.status == http.client.OK:
                    values[name] = _parse_number(content, before[name])
                if (
                    not answer.isclosed()
                ):  # more than a number has: what follows belongs to no request of ours
                    answer.read(1 << 16)
                    if not answer.isclosed():
                        break
    return values


def _parse_number(content: bytes, before: int | None) -> int | None:
    """A number that is not above 0 declares nothing."""
    try:
        value = int(float(content.decode("ascii").strip()))
    except (ValueError, OverflowError):
        return before
    return value if value > 0 else None


class FeatureReader:
    """Reads on its own thread: a directory or server that hangs holds up nothing. Any thread reads `latest`."""

    def __init__(
        self, environment: Mapping[str, str], *, read: Callable[..., Features] = read_features
    ) -> None:
        self.latest = Features()
        self._environment = environment
        self._read = read
        self._every_s: Any = None
        self._first = threading.Event()
        self._stirred = threading.Event()
        self._closed = False

    def start(self, every_s: float, *, patience_s: float = _FIRST_S) -> Features:
        """The first values, or what is known of them when the patience ends."""
        self._every_s = every_s
        threading.Thread(target=self.run, name="features", daemon=True).start()
        self._first.wait(patience_s)
        return self.latest

    def run(self) -> None:
        """The thread; ends after `close`."""
        while not self._closed:
            self._stirred.clear()
            self.latest = self._read(self._environment, self.latest)
            self._first.set()
            self._stirred.wait(self._every_s)

    def stir(self) -> None:
        """Read now."""
        self._stirred.set()

    def close(self) -> None:
        """End the thread, after what it reads now."""
        self._closed = True
        self._stirred.set()
