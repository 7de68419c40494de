"""Output archives unpacked without trust: only plain files and directories, below the target, up to a size.

What a payload left behind may be meant to harm: links that lead out, names with `..`, devices, bombs. The
filters of tarfile are not in every Python 3.11, so the members are judged here.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from lodesman.errors import LodesmanError, TooLarge

CHUNK = 1 << 18
MOST_FILES = 1_000_000


@dataclass(slots=True)
class Unpacked:
    """What came out: files and their bytes, and the names left out with the reason."""

    files: int = 0
    size: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)


class DamagedArchive(LodesmanError):
    """An archive that cannot be read to its end."""

    code = "damaged-archive"


def unpack(archive: Path, target: Path, *, most_bytes: int) -> Unpacked:
    """Unpack a tar.gz into a new directory. Raises DamagedArchive and TooLarge; OSError for the disk."""
    target.mkdir()
    out = Unpacked()
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|gz") as tar:
            for count, member in enumerate(tar):
                if count >= MOST_FILES:
                    raise TooLarge(f"The archive has more than {MOST_FILES} files.", limit=MOST_FILES)
                _take(tar, member, target, (out, most_bytes))
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as fault:
        raise DamagedArchive(f"The archive is damaged: {fault}.") from None
    return out


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, told: tuple[Unpacked, int]) -> None:
    out, most_bytes = told
    path = safe_path(member.name)
    if path is None:
        out.left_out.append((member.name, "its name leads out of the directory"))
        return
    if member.isdir():
        _make_directory(target / path)
        return
    source = tar.extractfile(member) if member.isreg() else None
    if source is None:
        out.left_out.append((member.name, "it is no plain file"))
        return
    with _new_file(target / path, executable=bool(member.mode & 0o100)) as sink:
        _copy(source, sink, out, most_bytes)
    out.files += 1


def safe_path(name: str) -> PurePosixPath | None:
    """The name as a path below a directory; None if it would lead anywhere else."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        return None
    return path


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} as a file and as a directory.") from None


def _new_file(path: Path, *, executable: bool) -> IO[bytes]:
    """A new file; an archive that has one name twice is refused, since one of the two would be lost."""
    _make_directory(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o777 if executable else 0o666)
    except (FileExistsError, IsADirectoryError):
        raise DamagedArchive(f"The archive has {path.name} twice.") from None
    return os.fdopen(descriptor, "wb")


def _copy(source: IO[bytes], sink: IO[bytes], out: Unpacked, most_bytes: int) -> None:
    while chunk := source.read(CHUNK):
        out.size += len(chunk)
        if out.size > most_bytes:
            raise TooLarge(
                f"The output is more than {most_bytes >> 20} MB when unpacked.",
                hint="If that is right: lode output --max-mb N.",
                limit=most_bytes,
            )
        sink.write(chunk)
