"""Which files a configuration is made of, and whether they have changed since they were read."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

MAGIC = frozenset("*?[")

Stamp = tuple[int, int, int, int]
Stamps = Mapping[Path, Stamp | None]


class Texts(Struct, frozen=True):
    """The texts that a configuration was read from: the server's own file, and the resource files by name."""

    own: str = ""
    files: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What to look at: the server's own file (if there is one), and the names under `[resources]`.

    A name with `*`, `?` or `[` stands for all files that fit it at the time, sorted; names count from `base`.
    """

    base: Path
    own: Path | None = None
    names: tuple[str, ...] = ()

    def resource_files(self) -> tuple[Path, ...]:
        """The files that describe resources, each once; a plain name is among them even if there is no file."""
        found = (path for name in self.names for path in self.matches(name))
        return tuple(dict.fromkeys(found))

    def matches(self, name: str) -> list[Path]:
        """The files that one name stands for."""
        plain = self.base / name
        if not MAGIC & set(name) or plain.exists():
            return [plain]
        pattern = name if Path(name).is_absolute() else f"{glob.escape(str(self.base))}/{name}"
        found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path takes no absolute pattern
        return [Path(path) for path in found if Path(path).is_file()]

    def stamps(self) -> Stamps:
        """What tells a change of each file: times, size and identity; None for one that is not there."""
        own = () if self.own is None else (self.own,)
        return {path: _stamp(path) for path in (*own, *self.resource_files())}


def _stamp(path: Path) -> Stamp | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino
