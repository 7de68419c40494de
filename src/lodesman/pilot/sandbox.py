"""Input sandboxes: names that stay inside, and archives unpacked member by member, so that nothing gets out.

The standard library's own filters for this are younger than Python 3.9.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from lodesman.client import Client
from lodesman.errors import LodesmanError
from lodesman.pilot.protocol import SandboxFile

_MAX_MEMBERS = 100_000
_MAX_BYTES = 8 << 30
_CHUNK = 1 << 18
# tarfile reads a long name or a header's extension in one piece, whatever length it claims.
_MAX_READ = 4 << 20


class BadSandbox(LodesmanError):
    """An input sandbox, or a name that a job gives, cannot be accepted."""

    code = "sandbox"


def safe_name(name: str) -> PurePosixPath:
    """A relative path that stays inside, without `.` and `..`. Raises BadSandbox."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    outside = "\0" in name or path.is_absolute() or ".." in parts or not parts
    if outside or any(len(part.encode("utf-8", "surrogatepass")) > 255 for part in parts):
        raise BadSandbox(f"{_plain(name)!r} is not the name of a file inside the job's directory.")
    return PurePosixPath(*parts)


def make_place(directory: Path, name: str) -> Path:
    """The path for a file of that name in `directory`; makes the directories before it.

    Raises BadSandbox if the name leads out, also by a symbolic link.
    """
    relative = safe_name(name)
    at = directory
    for part in relative.parts[:-1]:
        at = at / part
        try:
            at.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(at.lstat().st_mode):
                raise BadSandbox(
                    f"{_plain(name)!r} leads through something that is not a directory."
                ) from None
    return at / relative.name


def fetch(client: Client, item: SandboxFile, directory: Path, *, spare: Path) -> None:
    """Download one part of the input sandbox into `directory`; `spare` is a path for an archive.

    Raises BadSandbox, BadChecksum, what the client raises, and OSError.
    """
    if not item.unpack:
        target = make_place(directory, item.name)
        client.download(item.url, target, item.sha256, item.size)
        target.chmod(0o600)
        return
    try:
        client.download(item.url, spare, item.sha256, item.size)
        unpack(spare, directory)
    finally:
        spare.unlink(missing_ok=True)


def unpack(
    archive: Path, directory: Path, *, max_members: int = _MAX_MEMBERS, max_bytes: int = _MAX_BYTES
) -> None:
    """Unpack a tar archive (plain or gzip) into `directory`. Raises BadSandbox and OSError.

    Files, directories and symbolic links that stay inside are accepted; owners and times are dropped.
    """
    try:
        with archive.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw
            with tarfile.open(fileobj=cast("BinaryIO", _BoundedReads(stream)), mode="r:") as tar:
                _unpack_all(tar, directory, max_members, max_bytes)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as fault:
        raise BadSandbox(f"The input sandbox is not a readable archive: {_plain(str(fault))}.") from None


class _BoundedReads:
    """A stream that refuses to read more than some MB in one piece."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_READ:
            raise BadSandbox("The input sandbox has a header that is too long.")
        return self._stream.read(size)


def _unpack_all(tar: tarfile.TarFile, directory: Path, max_members: int, max_bytes: int) -> None:
    size = 0
    for members, member in enumerate(tar, start=1):
        size += max(0, member.size)
        if members > max_members or size > max_bytes:
            raise BadSandbox("The input sandbox becomes too large when it is unpacked.")
        _unpack_one(tar, member, directory)
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all


def _unpack_one(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    if member.isdir() and not [part for part in PurePosixPath(member.name).parts if part != "."]:
        return  # the entry for the directory itself
    target = make_place(directory, member.name)
    if member.isdir():
        make_place(directory, f"{member.name}/x")
        return
    if target.is_symlink() or target.is_file():
        target.unlink()
    if member.issym():
        _link(member, target)
    elif member.isreg():
        _write(tar, member, target)
    else:
        raise BadSandbox(
            f"{_plain(member.name)!r} in the input sandbox is not a file, directory or symbolic link."
        )


def _link(member: tarfile.TarInfo, target: Path) -> None:
    """`..` may only stand first: from a real directory it leads where it seems to lead."""
    goal = PurePosixPath(member.linkname)
    parts = list(goal.parts)
    depth = len(safe_name(member.name).parts) - 1
    while parts and parts[0] == "..":
        parts.pop(0)
        depth -= 1
    if goal.is_absolute() or ".." in parts or depth < 0 or "\0" in member.linkname or not goal.parts:
        raise BadSandbox(f"The symbolic link {_plain(member.name)!r} leads out of the job's directory.")
    target.symlink_to(member.linkname)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise BadSandbox(f"{_plain(member.name)!r} in the input sandbox cannot be read.")
    mode = 0o700 if member.mode & 0o100 else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with source, os.fdopen(os.open(target, flags, mode), "wb") as sink:
        for chunk in iter(lambda: source.read(_CHUNK), b""):
            sink.write(chunk)


def _plain(name: str) -> str:
    """For messages: at most 100 characters, all of them valid in UTF-8."""
    return name[:100].encode("utf-8", "replace").decode()
