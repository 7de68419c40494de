"""What is printed: tables fitted to the terminal, plain aligned text elsewhere, JSON for programs.

rich is imported only for a terminal. No text is ever read as markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any, NamedTuple, TextIO

import click
import msgspec

from lodesman.cli.words import NOTHING, plain

# Texts up to this width stay whole on a narrow terminal: states, groups, ages.
FOLD_ABOVE = 10
# A longer text in a table is cut: it is one of many rows, and --json tells all of it.
WIDEST = 240
PATIENCE_SECONDS = 2.0


class Styled(NamedTuple):
    """A text with a style for terminals."""

    text: str
    style: str


Cell = str | Styled


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its title, and whether it holds numbers, which stand to the right."""

    title: str
    right: bool = False


# A column is named by its title; `>` before it puts numbers to the right.
Columns = Sequence[str | Column]


def _columns(titles: Columns) -> list[Column]:
    return [
        one if isinstance(one, Column) else Column(title=one.removeprefix(">"), right=one.startswith(">"))
        for one in titles
    ]


_STYLES = {
    "Running": "yellow",
    "Completing": "yellow",
    "Stalled": "bold red",
    "Matched": "cyan",
    "Waiting": "blue",
    "Held": "magenta",
    "Done": "green",
    "Failed": "red",
    "Killed": "red",
    "never": "bold red",
    "not now": "bold yellow",
    "now": "bold green",
}


def state(name: str) -> Styled:
    """A state or verdict in its colour."""
    return Styled(name, _STYLES.get(name, ""))


def emit_json(value: Any) -> None:
    """One value on standard output as JSON, in ASCII, so that no terminal is steered by it."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2, sort_keys=False))


def note(text: str) -> None:
    """A remark for people, on standard error: standard output stays clean for what was asked."""
    click.echo(f"lode: {plain(text)}", err=True)


def say(text: str) -> None:
    """A line of the answer."""
    click.echo(plain(text))


def show_table(columns: Columns, rows: Sequence[Sequence[Cell]], *, out: TextIO | None = None) -> None:
    """Print a table: with colours and fitted if `out` is a terminal, as plain text of any width if not."""
    stream = sys.stdout if out is None else out
    if is_terminal(stream):
        _rich_table(columns, rows, stream)
        return
    for line in text_table(columns, rows):
        click.echo(line, file=stream)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads the stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def text_table(titles: Columns, rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Aligned lines, two blanks between columns, nothing cut but what is wider than `WIDEST`."""
    columns = _columns(titles)
    texts = [[column.title.upper() for column in columns]]
    texts += [[_fitting(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in texts) for place in range(len(columns))]
    for row in texts:
        cells = [
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _fitting(cell: Cell) -> str:
    """What is shown of a cell."""
    text = plain(_text(cell)) or NOTHING
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell


def _rich_table(columns: Columns, rows: Sequence[Sequence[Cell]], stream: TextIO) -> None:
    from rich.console import Console

    Console(file=stream, highlight=False, markup=False, emoji=False).print(rich_table(columns, rows))


def rich_table(titles: Columns, rows: Sequence[Sequence[Cell]]) -> Any:
    """The table for rich. Where the terminal is narrow texts are folded, numbers never; beyond `WIDEST` they are cut."""
    from rich.table import Table
    from rich.text import Text

    columns = _columns(titles)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        cells = (len(_fitting(row[place])) for row in rows)
        widest = max(cells, default=0)
        table.add_column(
            Text(column.title.upper()),
            justify="right" if column.right else "left",
            no_wrap=column.right,
            overflow="fold",
            min_width=max(widest, len(column.title)) if column.right else min(widest, FOLD_ABOVE),
        )
    for row in rows:
        table.add_row(*(_rich_cell(cell) for cell in row))
    return table


def _rich_cell(cell: Cell) -> Any:
    from rich.text import Text

    return Text(_fitting(cell), style=cell.style if isinstance(cell, Styled) else "")


def show_fields(pairs: Sequence[tuple[str, Cell]]) -> None:
    """Names and values of one thing, one a line."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, cell in pairs:
        value = plain(_text(cell)) or NOTHING
        if isinstance(cell, Styled) and is_terminal(sys.stdout):
            value = _coloured(value, cell.style)
        click.echo(f"{plain(name).ljust(width)}  {value}")


def _coloured(text: str, style: str) -> str:
    colour = style.rpartition(" ")[2]
    return click.style(text, fg=colour, bold=style.startswith("bold")) if colour else text


@contextmanager
def patience(what: str, *, seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Say what goes on after that time, if a person waits and it is not done by then."""
    if not is_terminal(sys.stderr):
        yield
        return
    timer = Timer(seconds, note, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress(
    what: str, total: int, *, shown: bool, of_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, for people, if it shall be `shown`; the function adds to it."""
    if not shown or not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    count = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (TextColumn(what, markup=False), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
