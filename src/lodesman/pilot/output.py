"""Output sandboxes: find what a job wants back and pack it, whatever the payload left in its directory."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Callable, Union, cast

from lodesman.client import Aborted, sha256_of
from lodesman.pilot.sandbox import BadSandbox, safe_name

# Of streams that have no room this much is kept.
CUT_STREAM_BYTES = 1 << 20
# The job's own temporary files; never part of its output.
TEMPORARY = ".tmp"
# Results are mostly small or packed already: speed goes before the last per cent.
_LEVEL = 3
# What may wait in the compressor, what a member takes besides its content and its name, and what ends an archive.
_PENDING_BYTES = 256 << 10
_MEMBER_BYTES = 2048
_END_BYTES = 1024

# A file that is wanted: its size, or why it cannot be packed.
Look = Union[int, str]


@dataclass(frozen=True)
class Wanted:
    """What to pack: the streams always, the rest by name or pattern.

    At most `most_bytes` of content, in an archive of at most `most_packed`; 0: no limit.
    """

    streams: Sequence[str]
    patterns: Sequence[str]
    most_bytes: int = 0
    most_packed: int = 0


@dataclass(frozen=True)
class Packed:
    """An archive that was written. Over the limit: streams of which only the ends are in it (`cut`), and files
    that had no room (`left_out`). `missing`: (name or pattern, why nothing of it is in the archive).
    """

    file: Path
    sha256: str
    size: int
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


def pack(
    directory: Path, wanted: Wanted, target: Path, *, stopped: Callable[[], bool] = lambda: False
) -> Packed:
    """Pack the output sandbox into `target`, a tar.gz.

    Raises OSError if that cannot be written, and Aborted as soon as `stopped` says that nobody wants it.
    """
    names = list(dict.fromkeys(str(PurePosixPath(name)) for name in wanted.streams if name))
    streams = {name: _look(directory, name) for name in names}
    files, missing = _find(directory, wanted.patterns)
    missing = [(name, why) for name, why in streams.items() if isinstance(why, str)] + missing
    whole, rest = _sizes(streams), _sizes({name: files[name] for name in files if name not in streams})
    plan, left_out = planned(whole, rest, wanted.most_bytes)
    cut = []
    with target.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packer:
        with tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            room = _Room(raw, packer, wanted.most_packed)
            for name, size in plan.items():
                kept = room.of(name, size)
                if kept < size and name not in whole:
                    left_out.append(name)
                elif fault := _add(tar, directory / name, name, most=kept, stopped=stopped):
                    missing.append((name, fault))
                elif kept < whole.get(name, 0):
                    cut.append(name)
    size = target.stat().st_size
    return Packed(target, sha256_of(target), size, tuple(cut), tuple(left_out), tuple(missing))


def planned(
    streams: Mapping[str, int], files: Mapping[str, int], most: int
) -> tuple[dict[str, int], list[str]]:
    """How many bytes of each are packed, the last ones of a stream; and the files that have no room.

    Streams that leave others half of the room stay whole. Pure; `most` 0: no limit.
    """
    if not most or sum(streams.values()) + sum(files.values()) <= most:
        return {**streams, **files}, []
    plan = dict(streams) if sum(streams.values()) <= most // 2 else _ends(streams, most)
    left, left_out = most - sum(plan.values()), []
    for name, size in files.items():
        if size <= left:
            plan[name] = size
            left -= size
        else:
            left_out.append(name)
    return plan, left_out


def _ends(streams: Mapping[str, int], most: int) -> dict[str, int]:
    """So much of the end of each stream; what a short one leaves over is the others'."""
    kept = dict.fromkeys(streams, 0)
    for shares, name in zip(range(len(streams), 0, -1), sorted(streams, key=lambda name: streams[name])):
        kept[name] = min(streams[name], CUT_STREAM_BYTES, most // shares)
        most -= kept[name]
    return kept


def _sizes(looks: Mapping[str, Look]) -> dict[str, int]:
    return {name: size for name, size in looks.items() if isinstance(size, int)}


class _Room:
    """An archive that shall not become larger than `most` bytes (0: no limit), whatever its members are."""

    def __init__(self, raw: BinaryIO, packer: gzip.GzipFile, most: int) -> None:
        self._raw = raw
        self._packer = packer
        self._most = most

    def of(self, name: str, size: int) -> int:
        """How many of a member's `size` bytes fit for certain."""
        if not self._most:
            return size
        spare = self._spare(name, _PENDING_BYTES)
        if spare < size:
            self._packer.flush()
            spare = self._spare(name, 0)
        return max(0, min(size, spare))

    def _spare(self, name: str, pending: int) -> int:
        around = pending + _MEMBER_BYTES + _END_BYTES + 2 * len(os.fsencode(name))
        spare = self._most - self._raw.tell() - around
        return spare - spare // 1024  # what cannot be compressed becomes a little longer


def _add(tar: tarfile.TarFile, path: Path, name: str, *, most: int, stopped: Callable[[], bool]) -> str:
    """Add a file, of one over `most` bytes the end; returns why that cannot be. Raises Aborted and OSError."""
    try:
        source = path.open("rb")
    except OSError as fault:
        return f"cannot be read: {fault.strerror}"
    with source:
        told = os.fstat(source.fileno())
        entry = tarfile.TarInfo(name)
        entry.size = min(most, told.st_size)
        entry.mode = 0o755 if told.st_mode & stat.S_IXUSR else 0o644
        entry.mtime = int(told.st_mtime)
        source.seek(told.st_size - entry.size)
        tar.addfile(entry, cast("BinaryIO", _Watched(source, stopped)))
    return ""


class _Watched:
    """A file that is read only as long as somebody wants it."""

    def __init__(self, source: BinaryIO, stopped: Callable[[], bool]) -> None:
        self._source = source
        self._stopped = stopped

    def read(self, size: int) -> bytes:
        if self._stopped():
            raise Aborted("Nobody wants this output any more.")
        return self._source.read(size)


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


def _find(directory: Path, patterns: Sequence[str]) -> tuple[dict[str, Look], list[tuple[str, str]]]:
    """(what was found, in order; patterns of which nothing can be packed, each with the reason)."""
    goals: dict[str, PurePosixPath] = {}
    whys: dict[str, str] = {}
    for pattern in patterns:
        try:
            goals[pattern] = safe_name(pattern)
            whys[pattern] = "not found"
        except BadSandbox:
            whys[pattern] = "no name inside the job's directory"
    found: dict[str, Look] = {}
    for path in _walk(directory) if goals else ():
        which = [name for name, goal in goals.items() if _names(goal, path)]
        if not which:
            continue
        look = found[path.as_posix()] = _look(directory, path.as_posix())
        for name in which:
            if isinstance(look, int):
                whys[name] = ""
            elif whys[name] == "not found":
                whys[name] = look
    ordered = {name: found[name] for name in sorted(found)}
    return ordered, [(name, why) for name, why in whys.items() if why]


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


def _look(directory: Path, name: str) -> Look:
    """Bytes of a file that may be packed, or why it may not: links that lead out, devices, pipes."""
    try:
        told = os.lstat(directory / name)
        if stat.S_ISREG(told.st_mode) and "/" not in name:
            return told.st_size
        path = (directory / name).resolve(strict=True)
        told = path.stat()
    except FileNotFoundError:
        return "a link to nothing" if (directory / name).is_symlink() else "not found"
    except (OSError, RuntimeError, ValueError) as fault:
        return f"cannot be followed: {getattr(fault, 'strerror', None) or 'it leads in circles'}"
    if directory.resolve() not in path.parents:
        return "a link that leads out of the job's directory"
    return told.st_size if stat.S_ISREG(told.st_mode) else "no plain file"
