"""The files that a job takes along: those of --files, those that its command names, and folders, which are packed."""

from __future__ import annotations

import glob
import gzip
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import click

from lodesman.cli.tables import note
from lodesman.cli.words import counted, size
from lodesman.errors import InvalidRequest

LARGE_BYTES = 8 << 20
_MOST_FILES = 100_000
_BETWEEN = re.compile(r"[\s;|&<>()\"'`=,]+")


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


def named_files(words: Iterable[str]) -> tuple[list[str], str]:
    """The small plain files here that the words of a command name, and another thing that they name, '' if there is none.

    In a word with blanks, which may be a command of a shell, only plain files count.
    """
    found: dict[str, None] = {}
    left = ""
    for word in words:
        is_text = any(mark.isspace() for mark in word)
        parts = _BETWEEN.split(word) if is_text else [word, word.partition("=")[2]]
        for part in parts:
            kind = _kind_here(part)
            if kind == "small":
                found[part] = None
            elif kind and not is_text:
                left = left or part
    return list(found), left


def _kind_here(word: str) -> str:
    """`small` (a plain file), `large` or `folder`; '' for what is not here."""
    pure = PurePosixPath(word)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or word.startswith("-"):
        return ""
    try:
        if Path(word).is_dir():
            return "folder"
        if not Path(word).is_file():
            return ""
        return "small" if Path(word).stat().st_size <= LARGE_BYTES else "large"
    except (OSError, ValueError):
        return ""


def pick(
    command: Sequence[str], script: str, asked: Sequence[str], *, named_only: bool
) -> tuple[str, FilePicker]:
    """What a command takes along, said to the user, and the program as the job finds it. Raises InvalidRequest."""
    picker = FilePicker()
    for word in asked:
        picker.add_word(word)
    program, words = command[0], command[1:]
    if script:
        picker.add(Path(script), Path(script).name)
        program = Path(script).name
    elif _is_program_here(program):
        picker.add(Path(program))
        program = str(PurePosixPath(program))
    if named_only:
        return program, picker
    found, left = named_files(words)
    chosen = _names_of(picker.inputs())
    if left and not any(
        one == str(PurePosixPath(left)) or one.startswith(f"{PurePosixPath(left)}/") for one in chosen
    ):
        what = "a folder" if Path(left).is_dir() else f"a file of {size(Path(left).stat().st_size)}"
        raise InvalidRequest(
            f"The command names {left}, which is {what} here, and no node has it.",
            hint=f"Take it along (--files {left}), or take nothing along that the command names (--no-files).",
        )
    new = [one for one in found if str(PurePosixPath(one)) not in chosen]
    for one in new:
        picker.add(Path(one))
    if new:
        many = counted(len(new), "file")
        bytes_ = size(sum(Path(one).stat().st_size for one in new))
        note(f"The job takes along {', '.join(new[:5])}{', ...' if len(new) > 5 else ''} ({many}, {bytes_}).")
    return program, picker


def _names_of(inputs: Mapping[str, Taken]) -> set[str]:
    folders = [one for one in inputs.values() if isinstance(one, Folder)]
    return set(inputs) | {name for one in folders for _, name in one.files}


def _is_program_here(program: str) -> bool:
    """Whether the program is a file below this folder; one without a folder in its name, if no command is called so."""
    import shutil

    pure = PurePosixPath(program)
    if pure.is_absolute() or ".." in pure.parts or not Path(program).is_file():
        return False
    return "/" in program or shutil.which(program) is None


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


def scratch_folder() -> Path:
    """A folder that goes with the end of this call."""
    import tempfile

    return Path(click.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="lode-")))
