"""Texts of Grid Engine; faults come back at their places."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import click

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.user.cli.faults import exit_code, placed
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import note

FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
_CLASS_NAME = re.compile(r"^[ \t]*jcname[ \t]+(\S+)", re.MULTILINE)


class _Notice(Protocol):
    @property
    def line(self) -> int: ...
    @property
    def message(self) -> str: ...


class NativeText(NamedTuple):
    """The text of files, one behind the other."""

    text: str
    files: tuple[tuple[int, str], ...]  # each with the line, from 0, at which it begins

    def place(self, line: int) -> tuple[str, int]:
        """The file and its line, from 1."""
        start, file = [start for start in self.files if start[0] < max(line, 1)][-1]
        return file, line - start

    def say(self, notices: Iterable[_Notice]) -> None:
        """Print notices at their places."""
        for notice in notices:
            file, line = self.place(notice.line)
            note(f"{file}:{line}: {notice.message}")

    def say_faults(self, session: Session, fault: LodesmanError) -> None:
        """For people; ends the command, by Exit."""
        faults = fault.data.get("faults", ())
        if not faults or session.as_json:
            return
        for member in faults:
            error = LodesmanError(member["message"], hint=member.get("hint", ""), **member.get("data", {}))
            file, line = self.place(error.data.get("line") or 1)
            error.data["line"] = line if "line" in error.data else None
            note(placed(file, error))
        note(fault.hint)
        raise click.exceptions.Exit(exit_code(fault))


def read_native(path: Path) -> NativeText:
    """A file, all files of a folder, or standard input (`-`). Raises OSError, InvalidRequest."""
    texts, files, line = list[str](), list[tuple[int, str]](), 0
    for file in _files(path):
        if texts and not texts[-1].endswith("\n"):
            texts[-1] += "\n"
            line += 1
        files.append((line, str(file)))
        texts.append(_read(file))
        line += texts[-1].count("\n")
    return NativeText("".join(texts), tuple(files))


def class_names(words: Iterable[str]) -> list[str]:
    """A folder stands for the job classes in its files."""
    names: list[str] = []
    for word in words:
        is_folder = "/" in word and Path(word).is_dir()
        names += _CLASS_NAME.findall(read_native(Path(word)).text) if is_folder else [word]
    return names


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise InvalidRequest(f"There is no file in {path}.")
    return files


def _read(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            return str(stream.read())
    except UnicodeDecodeError:
        hint = "Convert it, as with: iconv -f LATIN1 -t UTF-8 FILE."
        raise InvalidRequest(f"{file} is not text in UTF-8.", hint=hint) from None
