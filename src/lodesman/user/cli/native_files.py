"""Texts in the words of Grid Engine; faults come back at their places."""

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
        """The file and its line, from 1, of a line of the text."""
        start, file = [one for one in self.files if one[0] < max(line, 1)][-1]
        return file, line - start

    def say(self, notices: Iterable[_Notice]) -> None:
        """Print notices at their places."""
        for one in notices:
            file, line = self.place(one.line)
            note(f"{file}:{line}: {one.message}")

    def say_faults(self, session: Session, fault: LodesmanError) -> None:
        """For people: print the faults at their places and end the command, by Exit."""
        faults = fault.data.get("faults", ())
        if not faults or session.as_json:
            return
        for one in faults:
            found = LodesmanError(one["message"], hint=one.get("hint", ""), **one.get("data", {}))
            file, line = self.place(found.data.get("line") or 1)
            found.data["line"] = line if "line" in found.data else None
            note(placed(file, found))
        note(fault.hint)
        raise click.exceptions.Exit(exit_code(fault))


def read_native(path: Path) -> NativeText:
    """Read a file, all files of a folder, or standard input (`-`). Raises OSError, InvalidRequest."""
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
    """The names of job classes; a folder stands for those in its files."""
    found: list[str] = []
    for word in words:
        is_folder = "/" in word and Path(word).is_dir()
        found += _CLASS_NAME.findall(read_native(Path(word)).text) if is_folder else [word]
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
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
