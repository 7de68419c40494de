"""Files and folders that a job takes along."""

from __future__ import annotations

import codecs
import glob
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lodesman.base.errors import InvalidJob, InvalidRequest, LodesmanError, NotFound
from lodesman.base.kernel import FIRST_LINE_BYTES, wants_interpreter_with_cr
from lodesman.user.access.caller import Caller
from lodesman.wire import job_calls
from lodesman.wire.requests import InputBody, SandboxAt

_MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is taken along."""

    name: str
    files: tuple[tuple[Path, str], ...]  # paths here, and below the job's directory


Taken = Path | Folder


class FilePicker:
    """Gathers plain files, and those in folders by their top folder. A file that is named twice is one;
    two for one place on the node are refused.
    """

    def __init__(self) -> None:
        self._plain: dict[str, Path] = {}
        self._places: dict[str, Path] = {}
        self._folders: dict[str, dict[str, Path]] = {}

    def inputs(self) -> dict[str, Taken]:
        """By their names in InputSandbox."""
        folders = {
            f"{top}/": Folder(top, tuple((path, name) for name, path in sorted(files.items())))
            for top, files in self._folders.items()
        }
        return {**self._plain, **folders}

    def add(self, path: Path, name: str = "") -> None:
        """Below this folder a file's name keeps the folders. Raises InvalidRequest."""
        pure = PurePosixPath(name or str(path))
        is_plain = pure.is_absolute() or ".." in pure.parts or len(pure.parts) == 1
        place = pure.name if is_plain else str(pure)
        other = self._places.setdefault(place, path)
        if other is not path:
            _check_same(other, path)
        elif is_plain:
            self._plain[str(pure)] = path
        else:
            self._folders.setdefault(pure.parts[0], {})[place] = path

    def add_word(self, word: str) -> None:
        """A file, a whole folder or a pattern. Raises InvalidRequest."""
        names = [word]
        if not os.path.lexists(word):
            names = sorted(glob.glob(word, recursive=True))  # noqa: PTH207 - hidden files are left out, as by a shell
        if not names:
            raise InvalidRequest(
                f"--files {word}: there is no such file.", hint="Paths are relative to this folder."
            )
        for name in names:
            path = Path(name)
            if path.is_file():
                self.add(path)
            elif path.is_dir():
                self._add_folder(path)
            else:
                raise InvalidRequest(f"--files {name}: is no plain file and no folder.")

    def _add_folder(self, path: Path) -> None:
        pure = PurePosixPath(path)
        inside = not pure.is_absolute() and ".." not in pure.parts
        below = str(pure) if inside else path.resolve().name
        for file, name in files_below(path):
            self.add(file, name if below == "." else f"{below}/{name}")


def _check_same(path: Path, other: Path) -> None:
    if path != other and not path.samefile(other):
        raise InvalidRequest(
            f"{path} and {other} are two files of one name, and would lie in one place on the node.",
            hint="Rename one of them, or leave it out.",
        )


def whole_folder(path: Path) -> Folder:
    """Raises InvalidRequest."""
    name = path.resolve().name
    return Folder(name, tuple((file, f"{name}/{inner}") for file, inner in files_below(path)))


def files_below(path: Path) -> Iterator[tuple[Path, str]]:
    """Plain files with their names in the folder. Raises InvalidRequest."""
    count = 0
    for base, folders, files in os.walk(path):
        folders.sort()
        here = Path(base)
        links = [folder for folder in folders if (here / folder).is_symlink()]
        odd = links or [name for name in sorted(files) if not (here / name).is_file()]
        if odd:
            raise InvalidRequest(
                f"{here / odd[0]} is no plain file, so the folder {path} cannot be taken along whole.",
                hint=f"Name what is needed of it: --files '{path}/*.txt'.",
            )
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                raise InvalidRequest(f"The folder {path} has more than {_MOST_FILES:,} files.")
            yield here / name, (here / name).relative_to(path).as_posix()


def joined_inputs(entries: Iterable[Any], inputs: Mapping[str, Taken], base: Path) -> list[Any]:
    """Entries below `base`, and what is taken along. Raises InvalidRequest."""
    from lodesman.languages.jobs.record import tidy

    names = [tidy(name) if isinstance(name, str) and tidy(name) in inputs else name for name in entries]
    plain = {
        PurePosixPath(name).name: (name, path) for name, path in inputs.items() if isinstance(path, Path)
    }
    twice = set()
    for name in names:
        also, path = plain.get(PurePosixPath(str(name)).name, ("", Path()))
        if also and (base / str(name)).is_file():
            _check_same(path, base / str(name))
            twice |= {also} - {name}
    return list(dict.fromkeys([*names, *(name for name in inputs if name not in twice)]))


def check_programs(programs: Collection[str], inputs: Mapping[str, Taken], *, piped: bool = False) -> None:
    """Raises InvalidJob for a script that no node can start, and a program that its folder lacks. `piped`: of standard
    input.
    """
    plain = {PurePosixPath(name).name: path for name, path in inputs.items() if isinstance(path, Path)}
    folders = [one for one in inputs.values() if isinstance(one, Folder)]
    for folder in folders:
        _check_folder(programs, folder)
    for name, path in {**plain, **{name: path for folder in folders for path, name in folder.files}}.items():
        if name in programs:
            with path.open("rb") as file:
                head = file.read(FIRST_LINE_BYTES)
            if head.startswith(codecs.BOM_UTF8):
                raise InvalidJob(
                    f"Executable: {'the script' if piped else path} begins with a byte order mark (BOM): no node reads its "
                    "first line.",
                    hint="Save it as UTF-8 without BOM, for instance with sed '1s/^\\xef\\xbb\\xbf//'.",
                    attribute="Executable",
                )
            if wants_interpreter_with_cr(head):
                script = "the script" if piped else path
                how = "sed 's/\\r$//'" if piped else f"sed -i 's/\\r$//' {shlex.quote(str(path))}"
                raise InvalidJob(
                    f"Executable: the first line of {script} ends with CR LF: no node has such an interpreter.",
                    hint=f"Write it with line ends of Unix: {how}",
                    attribute="Executable",
                )


def _check_folder(programs: Iterable[str], folder: Folder) -> None:
    names = {name for _, name in folder.files}
    for program in programs:
        if program.startswith(f"{folder.name}/") and program not in names:
            raise InvalidJob(
                f"Executable is {program}, and the folder {folder.name} of the InputSandbox has no such file.",
                hint="Paths in it are as they are in the folder.",
                attribute="Executable",
            )


def program_left(programs: Iterable[str], inputs: Iterable[str], base: Path) -> str:
    """The warning of a program beside a description that does not go along, or ''."""
    sent = {PurePosixPath(name).name for name in inputs}
    for name in programs:
        if "/" not in name and name not in sent and (base / name).is_file() and shutil.which(name) is None:
            return f"Executable is {name}, a command of the node; the {base / name} here is not in the InputSandbox."
    return ""


def measure_files(paths: Iterable[Path]) -> dict[Path, InputBody]:
    """Raises OSError."""
    from lodesman.wire.client import sha256_of

    bodies = {}
    for path in dict.fromkeys(paths):
        status = path.stat()
        is_program = bool(status.st_mode & stat.S_IXUSR)
        changed = max(0, int(status.st_mtime))
        bodies[path] = InputBody(sha256_of(path), status.st_size, executable=is_program, modified=changed)
    return bodies


def files_by_digest(files: Mapping[Path, InputBody]) -> dict[str, tuple[Path, InputBody]]:
    """One file for each digest."""
    return {body.sha256: (path, body) for path, body in files.items()}


def upload_files(
    caller: Caller, files: Mapping[Path, InputBody], advance: Callable[[int], None] = lambda _: None
) -> None:
    """Upload what the server lacks; `advance` gets the bytes of each. Raises LodesmanError with the file."""
    for path, body in files_by_digest(files).values():
        try:
            caller.call(job_calls.SANDBOX, SandboxAt(body.sha256))
        except NotFound:
            _send(caller, path, body.sha256)
        advance(body.size)


def _send(caller: Caller, path: Path, sha256: str) -> None:
    try:
        caller.client.upload(job_calls.PUT_SANDBOX.path, path, sha256, method=job_calls.PUT_SANDBOX.method)
    except LodesmanError as fault:
        fault.message = f"{path}: {fault.message}"
        raise
