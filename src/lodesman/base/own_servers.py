"""Servers of this account on this machine: each notes itself in a private folder, where its owner's programs find it.

A note has no token and no address: it names the server's data folder, which has both, closed to all others.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lodesman.base import kernel
from lodesman.base.processes import read_process

_MOST_BYTES, _MOST_ADDRESS = 10_000, 300


class RunningServer(NamedTuple):
    """A server that runs: its address, and the folder with its data."""

    url: str
    data: Path

    @property
    def token_file(self) -> Path:
        """With the token of the server's first user, if this account's alone."""
        return self.data / "admin.token"


def notes_folder(environ: Mapping[str, str]) -> Path:
    """Where servers of this account note themselves."""
    base = environ.get("XDG_STATE_HOME") or ""
    home = Path(environ.get("HOME") or "~").expanduser()
    root = Path(base) if base.startswith("/") else home / ".local" / "state"
    return root / "lodesman" / "servers"


def running_servers(environ: Mapping[str, str]) -> list[RunningServer]:
    """By their folders. Notes of ended servers, of other machines and of other accounts say nothing."""
    return sorted(_running(notes_folder(environ)), key=lambda server: server.data)


def _running(folder: Path) -> Iterator[RunningServer]:
    with suppress(OSError):
        if is_private(folder, stat.S_IFDIR):
            for note in folder.iterdir():
                data = _data_of(note) if is_private(note) and not note.name.startswith(".") else None
                url = _address(data) if data is not None else ""
                if data is not None and url:
                    yield RunningServer(url, data)


def is_private(path: Path, kind: int = stat.S_IFREG) -> bool:
    """Whether a file, or what else is asked for, is this account's alone."""
    try:
        entry = path.lstat()
    except OSError:
        return False
    return stat.S_IFMT(entry.st_mode) == kind and entry.st_uid == os.getuid() and not entry.st_mode & 0o077


def _data_of(note: Path) -> Path | None:
    try:
        with note.open("rb") as file:
            facts = json.loads(file.read(_MOST_BYTES))
        data, pid, start, boot = (facts[name] for name in ("data", "process", "start", "boot"))
        if type(pid) is not int or pid < 1 or boot != machine_run() or not start:
            return None
        os.kill(pid, 0)  # refused for a process of another account
        return Path(data) if start == process_start(pid) else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _address(data: Path) -> str:
    """'' for a folder or file that others may have made."""
    file = data / "run" / "url"
    try:
        is_ours = data.is_absolute() and is_private(data, stat.S_IFDIR) and is_private(file)
        return file.read_text(encoding="utf-8")[:_MOST_ADDRESS].strip() if is_ours else ""
    except (OSError, UnicodeDecodeError):
        return ""


def process_start(pid: int) -> str:
    """In ticks since the machine's start; '' for one that is not there."""
    process = read_process(pid)
    return "" if process is None else str(process.start)


def machine_run() -> str:
    """Which run of which machine this is."""
    try:
        return kernel.boot_id().strip()
    except OSError:
        return ""
