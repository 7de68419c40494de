"""Lists as a user wants them: which columns, in which order, as a table, as CSV, or by a template."""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import click

from lodesman.user.cli.tables import Cell, Styled, portions, show_long_table, state, write_lines
from lodesman.user.cli.words import age, iso, moment, plain, span

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["text", "id", "count", "state", "moment", "age", "span", "mb"]
_TO_THE_RIGHT: Final = frozenset({"id", "count", "age", "span", "mb"})
_FIELD: Final = re.compile(r"{([^{}]*)}")
_SEPARATORS: Final = {"csv": ",", "tsv": "\t"}
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One fact of a row: its name in --columns and --sort, and what it is of a row (None: not known)."""

    name: str
    kind: Kind
    value: Callable[[R], Any]

    @property
    def title(self) -> str:
        """As tables want it."""
        return f"{'>' if self.kind in _TO_THE_RIGHT else ''}{self.name.replace('_', ' ')}"

    def cell(self, row: R, *, utc: bool) -> Cell:
        """For people."""
        value = self.value(row)
        if value is None:
            return ""
        cells: Mapping[str, Callable[[Any], Cell]] = {
            "id": str, "count": int, "state": state, "age": age, "span": span, "mb": megabytes,
            "moment": lambda at: moment(at, utc=utc),
        }  # fmt: skip
        return cells[self.kind](value) if self.kind in cells else value

    def word(self, row: R, *, utc: bool) -> str:
        """For programs: times in ISO 8601, ages and spans in seconds, nothing for what is not known."""
        value = self.value(row)
        if value is None:
            return ""
        if self.kind == "moment":
            return iso(value, utc=utc)
        if self.kind == "age":
            return f"{max(0.0, time.time() - value):.0f}"
        if isinstance(value, Styled):
            return plain(value.text)
        return plain(f"{value:.15g}" if isinstance(value, float) else value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListShape:
    """What a user said about a list."""

    columns: str = ""
    sort: str = ""
    format: str = "table"
    utc: bool = False

    def chosen(self, known: Mapping[str, Column[R]], usual: Iterable[str]) -> list[Column[R]]:
        """The columns to show. Raises UsageError for one that is unknown."""
        names = [name.strip().lower() for name in self.columns.split(",") if name.strip()] or usual
        return [_named(known, name) for name in names]

    def ordered(self, known: Mapping[str, Column[R]], rows: Sequence[R]) -> list[R]:
        """The rows sorted; what is not known comes last."""
        found = list(rows)
        for name in reversed([word.strip() for word in self.sort.split(",") if word.strip()]):
            down = name.startswith("-")
            value = _named(known, name.lstrip("-").lower()).value
            there = [row for row in found if value(row) is not None]
            absent = [row for row in found if value(row) is None]
            found = [*sorted(there, key=value, reverse=down), *absent]
        return found

    def check(self, known: Mapping[str, Column[Any]]) -> None:
        """Raises UsageError for what is unknown, before the server is asked."""
        self.chosen(known, ())
        self.ordered(known, [])
        if fields := _FIELD.findall(self.format):
            for name in fields:
                _named(known, name)
        elif self.format not in ("table", *_SEPARATORS):
            raise click.UsageError(
                f"--format {self.format!r} is none of table, csv, tsv, and no template as '{{job}} {{state}}'.",
                click.get_current_context(silent=True),
            )

    def show(self, known: Mapping[str, Column[R]], usual: Iterable[str], rows: Iterable[R]) -> None:
        """Print the rows as they come; sorted, when all are there."""
        columns, found = self.chosen(known, usual), self.ordered(known, list(rows)) if self.sort else rows
        if "{" in self.format:
            for some in portions(found):
                write_lines(self._filled(known, row) for row in some)
        elif self.format in _SEPARATORS:
            writer = csv.writer(sys.stdout, delimiter=_SEPARATORS[self.format], lineterminator="\n")
            writer.writerow([one.name for one in columns])
            for some in portions(found):
                writer.writerows([[one.word(row, utc=self.utc) for one in columns] for row in some])
                sys.stdout.flush()
        else:
            cells = ([one.cell(row, utc=self.utc) for one in columns] for row in found)
            show_long_table([one.title for one in columns], cells)

    def _filled(self, known: Mapping[str, Column[R]], row: R) -> str:
        """The template with the words of a row."""
        text = re.sub(r"\\[tn]", lambda escape: _ESCAPES[escape[0]], self.format)
        return _FIELD.sub(lambda field: known[field[1]].word(row, utc=self.utc), text)

    @property
    def is_table(self) -> bool:
        """Whether it is for people."""
        return self.format == "table"


def megabytes(value: float) -> str:
    """Memory for reading."""
    return f"{value:,.0f} MB"


def _named(known: Mapping[str, Column[R]], name: str) -> Column[R]:
    if name not in known:
        raise click.UsageError(
            f"There is no column {name[:40]!r}. There are {', '.join(known)}.",
            click.get_current_context(silent=True),
        )
    return known[name]


def table_of(*columns: Column[R]) -> dict[str, Column[R]]:
    """Columns by their names."""
    return {one.name: one for one in columns}


UTC = click.option("--utc", is_flag=True, help="Times of the clock in UTC instead of local time.")


def shaped(command: F) -> F:
    """A command that takes `--columns`, `--sort`, `--format` and `--utc`."""
    for option in (
        UTC,
        click.option(
            "--format",
            default="table",
            metavar="FORMAT",
            help="table, csv, tsv, or a template: '{job} {state}'.",
        ),
        click.option(
            "--sort", default="", metavar="NAMES", help="Sort what is shown by columns; -NAME: downwards."
        ),
        click.option("--columns", default="", metavar="NAMES", help="These columns, with commas between."),
    ):
        command = option(command)
    return command
