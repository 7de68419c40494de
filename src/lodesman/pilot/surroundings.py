"""The folders around those that a confined payload does not see: the pilot's own, and other pilots' of its account."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence

# As the scripts for batch systems and pilots on their own name their folders.
_PILOTS_NAME = re.compile(r"(lode|lodesman)-\w{8}")


def folders_of(hidden: Sequence[str]) -> tuple[str, ...]:
    """Without those in which all accounts write: jobs need them."""
    return tuple(dict.fromkeys(above for above in map(os.path.dirname, hidden) if not is_for_all(above)))


def is_for_all(folder: str) -> bool:
    """Whether all accounts may write in a folder. Raises OSError."""
    mode = os.stat(folder).st_mode  # noqa: PTH116 - wardens start without pathlib
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def other_pilots(folder: str) -> list[str]:
    """The folders of other pilots of this account beside this one."""
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(folder)) as entries:  # noqa: PTH120
        named = [entry for entry in entries if _PILOTS_NAME.fullmatch(entry.name) and entry.path != folder]
        return [entry.path for entry in named if _is_pilots(entry)]
    return []


def _is_pilots(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        is_own = entry.is_dir(follow_symlinks=False) and entry.stat().st_uid == os.geteuid()
        return is_own and all(os.path.isdir(f"{entry.path}/{name}") for name in ("work", "outbox"))  # noqa: PTH112
    return False
