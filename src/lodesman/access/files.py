"""Files and folders that a job takes along; folders are packed."""

from __future__ import annotations

import glob
import gzip
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from lodesman.errors import InvalidRequest

_MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Folder:
    """What of a folder is taken along: paths here, and as they are below the job's directory."""

    name: str
    files: tuple[tuple[Path, str], ...]


Taken = Path | Folder


class FilePicker:
    """Gathers what is taken along: plain files by themselves, what is in folders by its top folder, in its place."""

    def __init__(self) -> None:
        self._plain: dict[str, Path] = {}
        self._folders: dict[str, dict[str, Path]] = {}

    def inputs(self) -> dict[str, Taken]:
        """By their names in InputSandbox."""
        folders = {
            f"{top}/": Folder(top, tuple((path, name) for name, path in sorted(files.items())))
            for top, files in self._folders.items()
        }
        return {**self._plain, **folders}

    def add(self, path: Path, name: str = "") -> None:
        """A plain file. Its name with folders stays if it is below this folder."""
        pure = PurePosixPath(name or str(path))
        if pure.is_absolute() or ".." in pure.parts or len(pure.parts) == 1:
            self._plain[str(pure)] = path
        else:
            self._folders.setdefault(pure.parts[0], {})[str(pure)] = path

    def add_word(self, word: str) -> None:
        """A file, a folder with all that is in it, or a pattern. Raises InvalidRequest."""
        found = [word]
        if not os.path.lexists(word):
            found = sorted(glob.glob(word, recursive=True))  # noqa: PTH207 - hidden files are left out, as by a shell
        if not found:
            raise InvalidRequest(
                f"--files {word}: there is no such file.", hint="Paths are relative to this folder."
            )
        for one in found:
            path = Path(one)
            if path.is_file():
                self.add(path)
            elif path.is_dir():
                self._add_folder(path)
            else:
                raise InvalidRequest(f"--files {one}: is no plain file and no folder.")

    def _add_folder(self, path: Path) -> None:
        pure = PurePosixPath(path)
        inside = not pure.is_absolute() and ".." not in pure.parts
        below = str(pure) if inside else path.resolve().name
        for file, name in files_below(path):
            self.add(file, name if below == "." else f"{below}/{name}")


def folder(path: Path) -> Folder:
    """A whole folder, under its own name. Raises InvalidRequest."""
    name = path.resolve().name
    return Folder(name, tuple((file, f"{name}/{inner}") for file, inner in files_below(path)))


def files_below(path: Path) -> Iterator[tuple[Path, str]]:
    """All plain files in a folder, and their names in it. Raises InvalidRequest."""
    count = 0
    for base, folders, files in os.walk(path):
        folders.sort()
        here = Path(base)
        links = [one for one in folders if (here / one).is_symlink()]
        odd = links or [one for one in sorted(files) if not (here / one).is_file()]
        if odd:
            raise InvalidRequest(
                f"{here / odd[0]} is no plain file, so the folder {path} cannot be taken along whole.",
                hint=f"Name what is needed of it: --files '{path}/*.txt'.",
            )
        for one in sorted(files):
            count += 1
            if count > _MOST_FILES:
                raise InvalidRequest(f"The folder {path} has more than {_MOST_FILES:,} files.")
            yield here / one, (here / one).relative_to(path).as_posix()


def packed(inputs: Mapping[str, Taken], scratch: Path) -> dict[str, Path]:
    """Plain files for all inputs: folders are packed below `scratch`. Raises OSError."""
    found = {}
    for name, one in inputs.items():
        if isinstance(one, Path):
            found[name] = one
            continue
        found[name] = scratch / f"{len(list(scratch.iterdir()))}-{one.name}.tar.gz"
        with found[name].open("wb") as raw:
            _pack(one, raw)
    return found


def _pack(one: Folder, raw: IO[bytes]) -> None:
    """The same bytes for the same files, so that they are uploaded once."""
    with gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path, name in one.files:
            with path.open("rb") as file:
                info = tarfile.TarInfo(name)
                status = os.fstat(file.fileno())
                info.size, info.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
                tar.addfile(info, file)
