"""The pilot's own folder, which others of its account can lock: payloads without namespaces, and those of other pilots."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from lodesman.pilot.decisions import is_of_node

_CHANGED = "Its folder was locked or changed by a job"


class OwnFolder:
    """Gives the pilot back what it needs of its folder. `unlock` may be called by any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = (directory, directory / "work", directory / "outbox")
        self._seen: set[Path] = set()
        # How often something was found locked: what fails while this grows is no fault of the node, nor of a job's input.
        self.changes = 0

    def __str__(self) -> str:
        """What is wrong with it, in words."""
        return f"{_CHANGED}: {self._directory}"

    def unlock(self, *more: Path) -> None:
        """Let the pilot do all in its folders and in `more`, and pass those of its account above them."""
        for folder in reversed(self._directory.parents):
            self._unlock(folder, stat.S_IXUSR)
        for folder in (*self._own, *more):
            self._unlock(folder, stat.S_IRWXU)

    def _unlock(self, folder: Path, needed: int) -> None:
        try:
            if folder in self._own[1:]:
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
            # No link is followed, whoever put it there.
            descriptor = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as fault:
            is_other = fault.errno in (errno.ENOTDIR, errno.ELOOP) or folder in self._seen
            self.changes += folder in self._own and is_other and not is_of_node(fault.errno)
            return
        self._seen.add(folder)
        try:
            entry = os.fstat(descriptor)
            if entry.st_uid == os.geteuid() and entry.st_mode & needed != needed:
                # It may be a folder of many: it loses nothing.
                os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(entry.st_mode) | needed)  # noqa: PTH101
                self.changes += 1
        except OSError:
            return
        finally:
            os.close(descriptor)
