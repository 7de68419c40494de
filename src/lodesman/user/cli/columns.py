"""Lists by columns: which of them, in which order, as a table, CSV or by a template."""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from itertools import chain
from typing import Any, Final, Generic, Literal, TypeVar, cast

import click

from lodesman.user.cli.arguments import utc_option
from lodesman.user.cli.tables import Cell, StyledText, portions, show_long_table, state, write_lines
from lodesman.user.cli.words import (
    HOUR,
    age,
    hours,
    iso,
    joined,
    megabytes,
    moment,
    number,
    percent,
    plain,
    span,
)
from lodesman.wire.nodes import utc

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal[
    "text",  # a text, or several
    "state",  # of a job or pilot, or a verdict
    "id",  # a whole number without marks between its thousands
    "count",
    "number",
    "part",  # of 1, shown in percent
    "mb",
    "moment",  # UNIX seconds, shown by the clock of the reader
    "utc",  # UNIX seconds, shown in UTC
    "age",  # UNIX seconds, shown as the time since then
    "span",  # seconds
    "hours",  # seconds, shown in hours
]
_CELLS: Final[Mapping[Kind, Callable[[Any], Cell]]] = {
    "text": lambda value: joined(value) if isinstance(value, list) else value,
    "state": state, "id": str, "count": int, "number": number, "part": percent,
    "mb": megabytes, "utc": utc, "age": age, "span": span, "hours": hours,
}  # fmt: skip
_WORDS: Final[Mapping[Kind, Callable[[Any], str]]] = {
    "utc": lambda at: iso(at, utc=True),
    "age": lambda then: f"{max(0.0, time.time() - then):.0f}",
    "part": lambda part: f"{part:.6f}",
    "span": lambda seconds: f"{round(seconds, 3):.15g}",
    "hours": lambda seconds: f"{seconds / HOUR:.6f}",
}
_TO_THE_RIGHT: Final = frozenset({"id", "count", "number", "part", "mb", "age", "span", "hours"})
_OPTIONS: Final = ("columns", "sort", "format", "utc")
_FIELD: Final = re.compile(r"{([^{}]*)}")
_SEPARATORS: Final = {"csv": ",", "tsv": "\t"}
_ESCAPES: Final = {"\\t": "\t", "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One fact of the rows of a list."""

    name: str  # in --columns, --sort, templates and the first line of CSV
    kind: Kind
    value: Callable[[R], Any]  # None: not known
    cell_of: Callable[[R], Cell] | None = None  # for people, where the kind does not say it
    heading: str = ""  # in a table, if it is not the name; > puts it to the right

    @property
    def title(self) -> str:
        """The heading."""
        return self.heading or f"{'>' if self.kind in _TO_THE_RIGHT else ''}{self.name.replace('_', ' ')}"

    def cell(self, row: R, *, utc: bool) -> Cell:
        """For people."""
        if self.cell_of is not None:
            return self.cell_of(row)
        value = self.value(row)
        if value is None:
            return ""
        return moment(value, utc=utc) if self.kind == "moment" else _CELLS[self.kind](value)

    def word(self, row: R, *, utc: bool) -> str:
        """For programs: times in ISO 8601, ages and spans in seconds, nothing if not known."""
        value = self.value(row)
        if value is None:
            return ""
        if self.kind == "moment":
            return iso(value, utc=utc)
        if self.kind in _WORDS:
            return _WORDS[self.kind](value)
        if isinstance(value, float):
            return f"{value:.15g}"
        if isinstance(value, list):
            return ", ".join(map(plain, value))
        return plain(value.text if isinstance(value, StyledText) else value)


Columns = Mapping[str, Column[R]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListShape:
    """How a user wants a list."""

    columns: str = ""
    sort: str = ""
    format: str = "table"
    utc: bool = False

    def pick_columns(self, columns: Columns[R], usual: Iterable[str] | None = None) -> list[Column[R]]:
        """The named columns, else the usual ones, else all. Raises UsageError."""
        names = [name.strip().lower() for name in self.columns.split(",") if name.strip()]
        return [_find_column(columns, name) for name in names or (columns if usual is None else usual)]

    def sort_rows(self, columns: Columns[R], rows: Iterable[R]) -> list[R]:
        """Sorted, unknown values last. Raises UsageError."""
        ordered = list(rows)
        for name in reversed([word.strip() for word in self.sort.split(",") if word.strip()]):
            value = _find_column(columns, name.lstrip("-").lower()).value
            valued = [row for row in ordered if value(row) is not None]
            unknown = [row for row in ordered if value(row) is None]
            ordered = [*sorted(valued, key=value, reverse=name.startswith("-")), *unknown]
        return ordered

    def check(self, columns: Columns[Any]) -> None:
        """Raises UsageError for an unknown column or format."""
        self.pick_columns(columns, ())
        self.sort_rows(columns, ())
        if fields := _FIELD.findall(self.format):
            for name in fields:
                _find_column(columns, name)
        elif self.format not in ("table", *_SEPARATORS):
            raise click.UsageError(
                f"--format {self.format!r} is none of table, csv, tsv, and no template as '{_template_of(columns)}'.",
                click.get_current_context(silent=True),
            )

    def show(
        self,
        columns: Columns[R],
        rows: Iterable[R],
        usual: Iterable[str] | None = None,
        *,
        sums: Sequence[R] = (),
    ) -> None:
        """Print rows as they come; `sums` only below a table."""
        shown = self.pick_columns(columns, usual)
        rows = self.sort_rows(columns, rows) if self.sort else rows
        if "{" in self.format:
            for some in portions(rows):
                write_lines(self._fill_template(columns, row) for row in some)
        elif self.format in _SEPARATORS:
            writer = csv.writer(sys.stdout, delimiter=_SEPARATORS[self.format], lineterminator="\n")
            writer.writerow([column.name for column in shown])
            for some in portions(rows):
                writer.writerows([[column.word(row, utc=self.utc) for column in shown] for row in some])
                sys.stdout.flush()
        else:
            cells = ([column.cell(row, utc=self.utc) for column in shown] for row in chain(rows, sums))
            show_long_table([column.title for column in shown], cells)

    def _fill_template(self, columns: Columns[R], row: R) -> str:
        text = re.sub(r"\\[tn]", lambda escape: _ESCAPES[escape[0]], self.format)
        return _FIELD.sub(lambda field: columns[field[1]].word(row, utc=self.utc), text)

    @property
    def is_table(self) -> bool:
        """Whether people read it."""
        return self.format == "table"


def _find_column(columns: Columns[R], name: str) -> Column[R]:
    if name not in columns:
        raise click.UsageError(
            f"There is no column {name[:40]!r}. There are {', '.join(columns)}.",
            click.get_current_context(silent=True),
        )
    return columns[name]


def table_of(*columns: Column[R]) -> dict[str, Column[R]]:
    """Columns by their names."""
    return {column.name: column for column in columns}


def _template_of(columns: Columns[Any]) -> str:
    numbers = ("job", "pilot", "submission", "tq")
    names = [column.name for column in columns.values() if column.kind == "text" or column.name in numbers]
    names = names or list(columns)
    return f"{{{names[0]}}} {{{next(name for name in ('state', *columns) if name in columns and name != names[0])}}}"


def shaped(*tables: Columns[Any]) -> Callable[[F], F]:
    """Give a command `--columns`, `--sort`, `--format` and, for moments, `--utc`, as its `shape`. The command checks it
    unless there is exactly one table.
    """
    has_moments = not tables or any(column.kind == "moment" for table in tables for column in table.values())
    template = (
        f"a template: '{_template_of(tables[0])}'"
        if len(tables) == 1
        else "a template with columns in braces"
    )
    options = (
        *([utc_option] if has_moments else []),
        click.option(
            "--format",
            default="table",
            metavar="FORMAT",
            help=f"table, csv, tsv, or {template}.",
        ),
        click.option(
            "--sort", default="", metavar="NAMES", help="Sort what is shown by columns; -NAME: downwards."
        ),
        click.option("--columns", default="", metavar="NAMES", help="These columns, with commas between."),
    )

    def decorate(command: F) -> F:
        @wraps(command)
        def run(*arguments: Any, **values: Any) -> Any:
            shape = ListShape(**{name: values.pop(name) for name in _OPTIONS if name in values})
            if len(tables) == 1:
                shape.check(tables[0])
            return command(*arguments, shape=shape, **values)

        return cast("F", reduce(lambda made, option: option(made), options, cast("Any", run)))

    return decorate
