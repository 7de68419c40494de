"""The local pilots that this process started or saw started: none is started again, whatever its directory says later.

A keeper that ended before it started its pilot is no start: another may be launched, in the same directory alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from lodesman.server.engines.pilot_directory import PilotDirectory

_REAP_SECONDS: Final = 1.0
MOST_LAUNCHES: Final = 3  # keepers that end before they start their pilot, until it is given up
Folder = tuple[int, int]
"""Device and inode of a directory: they stay if it is renamed, and those of a copy are others."""


class StartedPilots:
    """What is known of starts, and the keepers that are children of this process."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._folders: dict[str, Folder] = {}  # in which a keeper was launched
        self._launches: Counter[str] = Counter()
        self._keepers: dict[int, str] = {}

    def add(self, stamps: Iterable[str]) -> None:
        """These were started."""
        self._begun.update(stamps)

    def has(self, pilot: PilotDirectory) -> bool:
        """Whether it was started, or a keeper was launched for it in another directory. Raises OSError."""
        if pilot.stamp in self._begun:
            return True
        folder = self._folders.get(pilot.stamp)
        with contextlib.suppress(FileNotFoundError):
            return folder is not None and folder_of(pilot.path) != folder
        return False

    def forget(self, stamp: str) -> None:
        """Its directory was removed in order."""
        self._begun.discard(stamp)
        self._folders.pop(stamp, None)

    # --- keepers ----------------------------------------------------------------------------------

    def add_launch(self, stamp: str, folder: Folder, keeper: int) -> None:
        """A keeper was launched in this directory."""
        self._folders[stamp] = folder
        self._launches[stamp] += 1
        self._keepers[keeper] = stamp

    def is_spent(self, stamp: str) -> bool:
        """Whether it is given up: the last of its keepers ended before it started it."""
        return self._launches[stamp] >= MOST_LAUNCHES

    def keep_counts(self, stamps: Collection[str]) -> None:
        """Forget the launches of all others."""
        for stamp in self._launches.keys() - stamps:
            del self._launches[stamp]

    def reap(self) -> None:
        """Reap the keepers that ended; those of an earlier backend are init's."""
        for pid, stamp in list(self._keepers.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # another part of the process waited for it
                ended, status = pid, -1
            if ended:
                del self._keepers[pid]
            if ended and status == 0:
                self._begun.add(stamp)

    def reap_ended(self) -> None:
        """Reap all that end within a second: of a pilot that is left the keeper may not."""
        until = time.monotonic() + _REAP_SECONDS
        self.reap()
        while self._keepers and time.monotonic() < until:
            select.select([], [], [], 0.01)
            self.reap()


def folder_of(path: Path) -> Folder:
    """What names a directory, and no copy of it. Raises OSError."""
    entry = path.lstat()
    return entry.st_dev, entry.st_ino
