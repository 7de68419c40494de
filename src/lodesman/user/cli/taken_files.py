"""The files that the words of a command take along."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

import click

from lodesman.base.errors import InvalidRequest
from lodesman.user.access.files import FilePicker, Folder, Taken
from lodesman.user.cli.tables import note
from lodesman.user.cli.words import counted, size

LARGE_BYTES = 8 << 20
_SCRIPT_BYTES, _MOST_WORDS, _FEW = 256 << 10, 5_000, 5
_WRITTEN = re.compile(r"[0-9&]?>>?[ \t]*[^\s;|&<>()]+")
_BETWEEN = re.compile(r"[\s;|&<>()\"'`=,]+")


def named_files(words: Iterable[str]) -> tuple[list[str], str]:
    """The small files here that words name, and another thing that they name, or ''.

    In a word with blanks only plain files count; numbers are no names: `sleep 3` means seconds.
    """
    names: dict[str, None] = {}
    left = ""
    for word in words:
        is_text = any(mark.isspace() for mark in word)
        parts = _BETWEEN.split(word) if is_text else [word, word.partition("=")[2]]
        for part in parts:
            kind = _kind_here(part)
            if kind == "small":
                names[part] = None
            elif kind and not is_text:
                left = left or part
    return list(names), left


def _kind_here(word: str) -> str:
    """`small`, `large`, `folder`, or '' for what is not here."""
    pure = PurePosixPath(word)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or word.startswith("-") or word.isdecimal():
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
    command: Sequence[str], script: str, named: Sequence[str], *, named_only: bool
) -> tuple[str, FilePicker]:
    """The program as the job finds it, and what goes along; says so. Raises InvalidRequest."""
    if not script:
        _refuse_line(command)
    picker = FilePicker()
    for word in named:
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
    files, left = named_files(words)
    chosen = _names_of(picker.inputs())
    if left and not any(
        name == str(PurePosixPath(left)) or name.startswith(f"{PurePosixPath(left)}/") for name in chosen
    ):
        kind = "a folder" if Path(left).is_dir() else f"a file of {size(Path(left).stat().st_size)}"
        raise InvalidRequest(
            f"The command names {left}, which is {kind} here, and no node has it.",
            hint=f"Take it along (--files {left}), or take nothing along that the command names (--no-files).",
        )
    new = [name for name in files if str(PurePosixPath(name)) not in chosen]
    for name in new:
        picker.add(Path(name))
    if new:
        many = counted(len(new), "file")
        bytes_ = size(sum(Path(name).stat().st_size for name in new))
        note(f"The job takes along {', '.join(new[:5])}{', ...' if len(new) > 5 else ''} ({many}, {bytes_}).")
    return program, picker


def _refuse_line(command: Sequence[str]) -> None:
    word = command[0]
    if len(command) == 1 and len(word.split()) > 1 and word[:1] != "/" and not Path(word).exists():
        hint = f"Leave the quotes out; or let a shell run it: lode submit -- sh -c {shlex.quote(word)}"
        raise InvalidRequest("is one word with blanks in it, and no program is called so.", hint=hint)


def note_left_behind(script: str, folder: Path, picker: FilePicker, keep: Sequence[str]) -> None:
    """Which files a script names and does not write (`keep`, `>`), though no node has them."""
    with Path(script).open("rb") as file:
        lines = file.read(_SCRIPT_BYTES).decode("utf-8", "replace").splitlines()
    text = _WRITTEN.sub(" ", "\n".join(line for line in lines if not line.lstrip().startswith("#")))
    words = dict.fromkeys(word.removeprefix("./") for word in _BETWEEN.split(text))
    sent = {Path(script).name, *keep, *_names_of(picker.inputs())}
    left = [
        word
        for word in islice(words, _MOST_WORDS)
        if word not in sent and "/" not in word and _is_file_in(folder, word)
    ]
    if not left:
        return
    files = " ".join(f"--files {shlex.quote(name)}" for name in left[:_FEW])
    where, how = "in this folder", f"add {files}"
    if folder != Path():
        where = f"beside it in {folder}"
        how = f"submit it there (cd {shlex.quote(str(folder))}), and add {files}"
    more, are = ", ..." if len(left) > _FEW else "", "is" if len(left) == 1 else "are"
    note(f"{Path(script).name} names {', '.join(left[:_FEW])}{more}, which {are} {where} "
         f"but {are} not sent with the job: {how}{more}.")  # fmt: skip


def _is_file_in(folder: Path, word: str) -> bool:
    try:
        return bool(word) and not word.startswith("-") and (folder / word).is_file()
    except (OSError, ValueError):
        return False


def _names_of(inputs: Mapping[str, Taken]) -> set[str]:
    folders = [path for path in inputs.values() if isinstance(path, Folder)]
    return set(inputs) | {name for folder in folders for _, name in folder.files}


def _is_program_here(program: str) -> bool:
    """A bare name only if no command is called so."""
    import shutil

    pure = PurePosixPath(program)
    if pure.is_absolute() or ".." in pure.parts or not Path(program).is_file():
        return False
    return "/" in program or shutil.which(program) is None


def scratch_folder() -> Path:
    """A folder that ends with this call."""
    import tempfile

    return Path(
        click.get_current_context().find_root().with_resource(tempfile.TemporaryDirectory(prefix="lode-"))
    )
