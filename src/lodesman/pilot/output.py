"""Output sandboxes: find what a job wants back and pack it, whatever the payload left in its directory."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from lodesman.client import sha256_of
from lodesman.pilot.sandbox import BadSandbox, safe_name

# Of streams over the limit this much is kept.
CUT_STREAM_BYTES = 1 << 20
# The job's own temporary files; never part of its output.
TEMPORARY = ".tmp"
# Results are mostly small or packed already: speed goes before the last per cent.
_LEVEL = 3


@dataclass(frozen=True)
class Wanted:
    """What to pack: the streams always, the rest by name or pattern; `most_bytes` 0: no limit."""

    streams: Sequence[str]
    patterns: Sequence[str]
    most_bytes: int = 0


@dataclass(frozen=True)
class Packed:
    """An archive that was written. `over`: the limit was passed, and only the streams are in it, cut."""

    file: Path
    sha256: str
    size: int
    over: bool
    missing: tuple[str, ...]


def pack(directory: Path, wanted: Wanted, target: Path) -> Packed:
    """Pack the output sandbox into `target`, a tar.gz. Raises OSError if that cannot be written."""
    streams = list(dict.fromkeys(str(PurePosixPath(name)) for name in wanted.streams if name))
    files, missing = _find(directory, wanted.patterns)
    names = list(dict.fromkeys([*streams, *files]))
    sizes = [_size(directory, name) for name in names]
    over = bool(wanted.most_bytes) and sum(size for size in sizes if size is not None) > wanted.most_bytes
    with gzip.GzipFile(target, "wb", compresslevel=_LEVEL, mtime=0) as sink:
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in streams if over else names:
                _add(tar, directory, name, most=CUT_STREAM_BYTES if over else None)
    return Packed(target, sha256_of(target), target.stat().st_size, over, tuple(missing))


def matches(path: PurePosixPath, pattern: PurePosixPath) -> bool:
    """Whether the pattern names the path or a directory above it.

    `*`, `?` and `[...]` do not cross `/` and do not match a leading dot; `**` is any number of directories,
    so at the end of a pattern it is all that is below.
    """
    steps = pattern.parts
    # Where in the pattern one may stand after each part of the path: no pattern takes long this way.
    at = _skip(steps, {0})
    for part in path.parts:
        if len(steps) in at:
            return True
        after = {step + (steps[step] != "**") for step in at if _fits(part, steps[step])}
        at = _skip(steps, after)
    return len(steps) in at


def _fits(part: str, step: str) -> bool:
    if part.startswith(".") and not step.startswith("."):
        return False
    return step == "**" or fnmatchcase(part, step)


def _skip(steps: Sequence[str], at: set[int]) -> set[int]:
    """`**` may stand for no directory at all."""
    reached = set(at)
    for place in range(len(steps)):
        if place in reached and steps[place] == "**":
            reached.add(place + 1)
    return reached


def _find(directory: Path, patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """(names of files found, in order; patterns that found nothing)."""
    goals: dict[str, PurePosixPath | None] = {}
    for pattern in patterns:
        try:
            goals[pattern] = safe_name(pattern)
        except BadSandbox:
            goals[pattern] = None
    found: list[str] = []
    hits: set[str] = set()
    for path in _walk(directory) if any(goals.values()) else ():
        which = [name for name, goal in goals.items() if goal is not None and _names(goal, path)]
        hits.update(which)
        if which:
            found.append(path.as_posix())
    return sorted(found), [pattern for pattern in goals if pattern not in hits]


def _names(goal: PurePosixPath, path: PurePosixPath) -> bool:
    """A name may hold the signs of patterns and still be meant as it stands."""
    return goal == path or goal in path.parents or matches(path, goal)


def _walk(directory: Path) -> Iterator[PurePosixPath]:
    """All entries that are no directories, without following links; what cannot be read is left out."""
    for root, directories, files in os.walk(directory):
        base = PurePosixPath(os.path.relpath(root, directory))
        if base == PurePosixPath():
            directories[:] = [name for name in directories if name != TEMPORARY]
        links = [name for name in directories if Path(root, name).is_symlink()]
        yield from (base / name for name in _sorted(files, links))


def _sorted(*names: Iterable[str]) -> list[str]:
    return sorted(name for some in names for name in some)


def _size(directory: Path, name: str) -> int | None:
    """Bytes of a file that may be packed; None for all that may not: links that lead out, devices, pipes."""
    try:
        told = os.lstat(directory / name)
        if stat.S_ISREG(told.st_mode) and "/" not in name:
            return told.st_size
        path = (directory / name).resolve(strict=True)
        told = path.stat()
    except (OSError, RuntimeError, ValueError):
        return None
    inside = directory.resolve() in path.parents
    return told.st_size if inside and stat.S_ISREG(told.st_mode) else None


def _add(tar: tarfile.TarFile, directory: Path, name: str, *, most: int | None) -> None:
    """Add one file; of a file over `most` bytes the end is kept."""
    size = _size(directory, name)
    if size is None:
        return
    try:
        source = (directory / name).open("rb")
    except OSError:
        return
    with source:
        told = os.fstat(source.fileno())
        entry = tarfile.TarInfo(name)
        entry.size = told.st_size if most is None else min(most, told.st_size)
        entry.mode = 0o755 if told.st_mode & stat.S_IXUSR else 0o644
        entry.mtime = int(told.st_mtime)
        source.seek(told.st_size - entry.size)
        tar.addfile(entry, source)
