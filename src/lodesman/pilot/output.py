"""Output of a job: its sandbox, packed whatever the payload left, and the tail of its streams."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Callable, Union, cast

from lodesman.base import kernel
from lodesman.pilot.archives import GuardedStream, steers
from lodesman.pilot.launch import TEMPORARY, BadSandbox, safe_name
from lodesman.pilot.protocol import DONE, FAILED, MB, OUTPUT_LIMIT, AssignedJob, PayloadReport
from lodesman.wire.client import Aborted, sha256_of

# An archive of this size travels in the report.
SMALL_OUTPUT_BYTES = 8192
_TAIL_BYTES = 65_536
_WILD = frozenset("*?[")
# The files of an output lie in no more folders, one in the other.
_MOST_FOLDERS = 100
_NOT_FOUND = "not found"
_TOO_DEEP = f"files in more than {_MOST_FOLDERS} folders are left out"
# The server takes no more; each is compared with each file.
_MOST_PATTERNS = 100
# The pilot made the streams for itself alone: whoever fetches them decides who may read them.
_STREAM_MODE = 0o666
# Where a stream is cut, this much of its end is kept.
_CUT_STREAM_BYTES = 1 << 20
# Results are mostly small or packed already: speed goes before the last per cent.
_LEVEL = 3
# What may wait in the compressor, what a member takes besides its content and its name, and what ends an archive.
_PENDING_BYTES = 256 << 10
_MEMBER_BYTES = 2048
_END_BYTES = 1024

# The size of a file that may be packed, or why it may not.
_SizeOrFault = Union[int, str]


@dataclass(frozen=True)
class PackedOutput:
    """An archive, and what the limits kept out of it."""

    sha256: str
    size: int
    cut: tuple[str, ...] = ()  # streams of which only the end is packed
    left_out: tuple[str, ...] = ()  # files
    missing: tuple[str, ...] = ()  # why names and patterns gave nothing


def pack(directory: Path, job: AssignedJob, target: Path, *, stopped: Callable[[], bool]) -> PackedOutput:
    """Pack streams and output files into a tar.gz, whatever modes the payload left. Raises OSError, or Aborted once
    `stopped` is true.
    """
    _unlock(directory)
    names = dict.fromkeys(str(PurePosixPath(name)) for name in (job.std_output, job.std_error))
    streams = {name: _size(directory, name) for name in names}
    files, faults = _find_files(directory, job.output_sandbox, stopped)
    faults = {**{name: why for name, why in streams.items() if isinstance(why, str)}, **faults}
    whole, rest = _sizes(streams), _sizes({name: files[name] for name in files if name not in streams})
    modes = dict.fromkeys(whole, _STREAM_MODE)
    plan, left_out = _plan_bytes(whole, rest, int(job.limits.max_output_mb * MB))
    cut = []
    with target.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packer:
        with tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            space = _ArchiveSpace(raw, packer, int(job.limits.sandbox_mb * MB))
            for name, size in plan.items():
                kept = space.for_member(name, size)
                if kept < size and name not in whole:
                    left_out.append(name)
                elif fault := _add(
                    tar, directory / name, name, size=kept, mode=modes.get(name), stopped=stopped
                ):
                    faults[name] = fault
                elif kept < whole.get(name, 0):
                    cut.append(name)
    missing = tuple(f"{_plain_name(name)} ({why})" for name, why in faults.items())
    size = target.stat().st_size
    return PackedOutput(sha256_of(target), size, tuple(cut), tuple(left_out), missing)


def _plain_name(name: str) -> str:
    text = name if len(name) <= 100 else f"{name[:97]}..."
    return (ascii(text)[1:-1] if steers(text) else text).encode("utf-8", "replace").decode()


def report_output(end: PayloadReport, packed: PackedOutput, *, max_mb: float) -> PayloadReport:
    """The report with the packed output, which may be too large or lack files."""
    over, sentences = bool(packed.cut or packed.left_out), [end.message] if end.message else []
    if over:
        sentences.append(f"The output sandbox is larger than {max_mb:.0f} MB.")
    for prefix, names in (
        ("Only the end was kept of", packed.cut),
        ("Left out:", packed.left_out),
        ("Missing in the output:", packed.missing),
    ):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            sentences.append(f"{prefix} {', '.join(names[:10])}{more}.")
    if over and end.state == DONE:
        end = replace(end, state=FAILED, cause=OUTPUT_LIMIT)
    output = {"sha256": packed.sha256, "size": packed.size}
    return replace(end, message=" ".join(sentences), output=output)


def _unlock(directory: Path) -> None:
    with contextlib.suppress(OSError):
        kernel.unlock_directory(str(directory))  # in its place there may be a link


def enclose_archive(end: PayloadReport, archive: Path) -> tuple[PayloadReport, Path | None]:
    """A small archive goes into the report. Raises OSError."""
    output = end.output or {}
    if output["size"] > SMALL_OUTPUT_BYTES:
        return end, archive
    content = base64.b64encode(archive.read_bytes()).decode()
    archive.unlink()
    return replace(end, output={**output, "content": content}), None


def _plan_bytes(
    streams: Mapping[str, int], files: Mapping[str, int], limit: int
) -> tuple[dict[str, int], list[str]]:
    """Bytes of each, the last ones of a stream, and the files that do not fit. Streams stay whole if they leave half of the
    limit. `limit` 0: none.
    """
    if not limit or sum(streams.values()) + sum(files.values()) <= limit:
        return {**streams, **files}, []
    plan = dict(streams) if sum(streams.values()) <= limit // 2 else _ends(streams, limit)
    left, left_out = limit - sum(plan.values()), []
    for name, size in files.items():
        if size <= left:
            plan[name] = size
            left -= size
        else:
            left_out.append(name)
    return plan, left_out


def _ends(streams: Mapping[str, int], limit: int) -> dict[str, int]:
    kept = dict.fromkeys(streams, 0)
    for shares, name in zip(range(len(streams), 0, -1), sorted(streams, key=lambda name: streams[name])):
        kept[name] = min(streams[name], _CUT_STREAM_BYTES, limit // shares)
        limit -= kept[name]
    return kept


def _sizes(sizes: Mapping[str, _SizeOrFault]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


class _ArchiveSpace:
    def __init__(self, raw: BinaryIO, packer: gzip.GzipFile, limit: int) -> None:
        self._raw = raw
        self._packer = packer
        self._limit = limit

    def for_member(self, name: str, size: int) -> int:
        if not self._limit:
            return size
        spare = self._spare(name, _PENDING_BYTES)
        if spare < size:
            self._packer.flush()
            spare = self._spare(name, 0)
        return max(0, min(size, spare))

    def _spare(self, name: str, pending: int) -> int:
        overhead = pending + _MEMBER_BYTES + _END_BYTES + 2 * len(os.fsencode(name))
        spare = self._limit - self._raw.tell() - overhead
        return spare - spare // 1024  # what cannot be compressed becomes a little longer


def _add(
    tar: tarfile.TarFile, path: Path, name: str, *, size: int, mode: int | None, stopped: Callable[[], bool]
) -> str:
    """Returns why that is not possible."""

    def go_on(_: int) -> None:
        if stopped():
            raise Aborted("The output is not needed any more.")

    try:
        source = path.open("rb")
    except OSError as fault:
        return f"cannot be read: {fault.strerror}"
    with source:
        status = os.fstat(source.fileno())
        entry = tarfile.TarInfo(name)
        entry.size = min(size, status.st_size)
        entry.mode = status.st_mode & 0o777 if mode is None else mode
        entry.mtime = int(status.st_mtime)
        source.seek(status.st_size - entry.size)
        tar.addfile(entry, cast("BinaryIO", GuardedStream(source, go_on)))
    return ""


# --- which files? -------------------------------------------------------------------------------------


def matches(path: PurePosixPath, pattern: PurePosixPath) -> bool:
    """Whether the pattern names the path or a directory above it. `*`, `?` and `[...]` do not cross `/` nor match a leading
    dot; `**` is any number of directories.
    """
    return len(pattern.parts) in _steps_after(path, pattern)


def _steps_after(path: PurePosixPath, pattern: PurePosixPath) -> set[int]:
    """The steps that may follow; their number if it matches. Linear for every pattern."""
    steps = pattern.parts
    at = _skip(steps, {0})
    for part in path.parts:
        if len(steps) in at:
            break
        after = {step + (steps[step] != "**") for step in at if _fits(part, steps[step])}
        at = _skip(steps, after)
    return at


def _fits(part: str, step: str) -> bool:
    hidden = part.startswith(".") and not step.startswith(".")
    return not hidden and (step == "**" or fnmatchcase(part, step))


def _skip(steps: Sequence[str], at: set[int]) -> set[int]:
    """`**` may stand for no directory."""
    reached = set(at)
    for step, word in enumerate(steps):
        if step in reached and word == "**":
            reached.add(step + 1)
    return reached


def _find_files(
    directory: Path, patterns: Sequence[str], stopped: Callable[[], bool]
) -> tuple[dict[str, _SizeOrFault], dict[str, str]]:
    """Files, in order; and what gives nothing, with reasons."""
    # A name may contain the characters of patterns and still be meant literally.
    goals: dict[PurePosixPath, list[str]] = {}
    wild: dict[str, PurePosixPath] = {}
    faults: dict[str, str] = {}
    for pattern in patterns:
        try:
            goal = safe_name(pattern)
        except BadSandbox:
            faults[pattern] = "not a name inside the job's directory"
            continue
        faults[pattern] = _NOT_FOUND
        goals.setdefault(goal, []).append(pattern)
        if _WILD & set(pattern) and len(wild) < _MOST_PATTERNS:
            wild[pattern] = goal
    sizes: dict[str, _SizeOrFault] = {}
    locked: dict[PurePosixPath, str] = {}
    for path in _walk_files(directory, locked) if goals else ():
        if stopped():
            raise Aborted("The output is not needed any more.")
        named = [name for place in (path, *path.parents) for name in goals.get(place, ())]
        named += [name for name, goal in wild.items() if matches(path, goal)]
        if not named:
            continue
        size = sizes[path.as_posix()] = _size(directory, path.as_posix())
        for name in named:
            if size == _TOO_DEEP or faults[name] == _NOT_FOUND:
                faults[name] = _TOO_DEEP if size == _TOO_DEEP else ""
    locked = {folder: why for folder, why in locked.items() if _may_have(folder, goals, wild.values())}
    lost = {name: why for name, why in faults.items() if why}
    odd = {name: why for name, why in sizes.items() if isinstance(why, str) and why != _TOO_DEEP}
    barred = {folder.as_posix(): why for folder, why in locked.items()}
    return {name: sizes[name] for name in sorted(sizes)}, {**lost, **dict(sorted({**odd, **barred}.items()))}


def _may_have(folder: PurePosixPath, goals: Iterable[PurePosixPath], wild: Iterable[PurePosixPath]) -> bool:
    if any(folder == goal or folder in goal.parents or goal in folder.parents for goal in goals):
        return True
    return any(_steps_after(folder, goal) for goal in wild)


def _walk_files(directory: Path, locked: dict[PurePosixPath, str]) -> Iterator[PurePosixPath]:
    """All but directories, links not followed; of a directory too deep only itself. `locked` gets what cannot be read."""

    def note(fault: OSError) -> None:
        at = PurePosixPath(os.path.relpath(fault.filename, directory))
        locked[at] = f"cannot be read: {fault.strerror}"

    for root, directories, files in os.walk(directory, onerror=note):
        base = PurePosixPath(os.path.relpath(root, directory))
        if base == PurePosixPath():
            directories[:] = [name for name in directories if name != TEMPORARY]
        if len(base.parts) == _MOST_FOLDERS:
            files.extend(directories)
            directories.clear()
        # Unlike that of pathlib, this does not raise in a folder that may be read and not entered.
        files.extend(name for name in directories if os.path.islink(f"{root}/{name}"))  # noqa: PTH114
        yield from (base / name for name in sorted(files))


def _size(directory: Path, name: str) -> _SizeOrFault:
    """Not packed: links that lead out, devices, pipes."""
    if steers(name):
        return "control characters in its name"
    try:
        status = os.lstat(directory / name)
        if stat.S_ISREG(status.st_mode) and "/" not in name:
            return status.st_size
        path = (directory / name).resolve(strict=True)
        status = path.stat()
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(directory / name) else _NOT_FOUND  # noqa: PTH114 - as in `_walk_files`
    except (OSError, RuntimeError, ValueError) as fault:
        return f"cannot be followed: {getattr(fault, 'strerror', None) or 'it leads in circles'}"
    if directory.resolve() not in path.parents:
        return "a link that leads out of the job's directory"
    if stat.S_ISDIR(status.st_mode) and name.count("/") == _MOST_FOLDERS:
        return _TOO_DEEP
    return status.st_size if stat.S_ISREG(status.st_mode) else "not a regular file"


# --- the tail of the streams --------------------------------------------------------------------------


def read_tail(streams: Mapping[str, int], limit: int = _TAIL_BYTES) -> str:
    """Of open descriptors by name, at most `limit` bytes of UTF-8."""
    tails = {}
    for name, descriptor in streams.items():
        size = os.fstat(descriptor).st_size
        tails[name] = os.pread(descriptor, limit, max(0, size - limit)) if size else b""
    return _join_tails(tails, limit)


def _join_tails(tails: Mapping[str, bytes], limit: int = _TAIL_BYTES) -> str:
    """If two have content, the name of each stands before it."""
    full = {name: content for name, content in tails.items() if content}
    if len(full) < 2:
        return "".join(_text(content, limit) for content in full.values())
    parts = {}
    left = limit
    # The shortest first: what it leaves over goes to the others.
    for shares, name in zip(range(len(full), 0, -1), sorted(full, key=lambda name: len(full[name]))):
        head = _text(f"--- {name} ---\n".encode("utf-8", "replace"), 300)
        body = _text(full[name], left // shares - len(head.encode()) - 1)
        parts[name] = head + body + ("" if body.endswith("\n") else "\n")
        left -= len(parts[name].encode())
    return "".join(parts[name] for name in full)


def _text(content: bytes, limit: int) -> str:
    if limit <= 0:
        return ""
    raw = content[-limit:]
    if len(content) > limit:
        # Do not begin inside a character: its later bytes are 10xxxxxx, three at most.
        while raw and raw[0] & 0xC0 == 0x80 and len(raw) > limit - 3:
            raw = raw[1:]
    text = raw.decode("utf-8", "replace").replace("\0", "\ufffd")
    # What replaces a bad byte is longer than it.
    return text.encode()[-limit:].decode("utf-8", "ignore")
