"""What is printed: tables for terminals (by rich, loaded only there), aligned text elsewhere, JSON for programs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeVar

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.words import NOTHING, located, plain, plain_lines

if TYPE_CHECKING:
    from lodesman.wire.nodes import Remark

R = TypeVar("R")
# Rows of a long list that are kept at once.
PORTION = 1_000
# Texts up to this width stay whole on a narrow terminal: states, groups, ages.
_FOLD_ABOVE = 10
# A longer text in a table is cut: it is one of many rows, and --json has all of it.
_WIDEST = 240


class StyledText(NamedTuple):
    """A text with a style for terminals."""

    text: str
    style: str


# Numbers get their thousands apart; identifiers are texts.
Cell = str | int | StyledText

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


def state(name: str) -> StyledText:
    """A state or verdict in its colour."""
    return StyledText(name, _STYLES.get(name, ""))


def emit_json(value: Any, *, err: bool = False) -> None:
    """In ASCII: it steers no terminal."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value), indent=None if err else 2), err=err)


def emit_json_rows(name: str, rows: Iterable[Any], rest: Callable[[], Mapping[str, Any]]) -> None:
    """One JSON object: the rows, then the `rest`. It is a document also if the rows break off."""
    import msgspec

    opened = False
    try:
        for some in portions(rows):
            texts = (indent(json.dumps(msgspec.to_builtins(row), indent=2), "    ") for row in some)
            with _unbroken():
                sys.stdout.write(("," if opened else f'{{\n  "{name}": [') + "\n" + ",\n".join(texts))
                opened = True
                sys.stdout.flush()
    except (LodesmanError, KeyboardInterrupt):
        if opened:
            write_lines(['\n  ],\n  "more": true\n}'])
        raise
    last = json.dumps(msgspec.to_builtins(rest()), indent=2).removeprefix("{\n")
    write_lines([f"\n  ],\n{last}" if opened else f'{{\n  "{name}": [],\n{last}'])


@contextmanager
def _unbroken() -> Iterator[None]:
    """The first Ctrl-C waits until all is written."""
    came: list[int] = []

    def keep(number: int, _frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def note(text: str) -> None:
    """A remark, on standard error."""
    click.echo(f"lode: {plain(text)}", err=True)


def note_all(remarks: Iterable[Remark], before: str = "") -> None:
    """One a line."""
    for remark in remarks:
        note(before + located(remark.message, remark.source, remark.section, remark.line))


def say(text: str) -> None:
    """A line of the answer."""
    click.echo(plain(text))


def write_text(text: str) -> None:
    """For files and programs; harmless for a terminal."""
    if text:
        sys.stdout.write(plain_lines(text) if is_terminal(sys.stdout) else text)
        sys.stdout.flush()


def show_table(titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, apart: bool = False) -> None:
    """Fitted to a terminal; nothing without rows. `>` before a title puts its column to the right; `apart`: after a blank
    line.
    """
    cells = list(rows)
    if cells and apart:
        click.echo()
    if cells and is_terminal(sys.stdout):
        from rich.console import Console

        console = Console(highlight=False, markup=False, emoji=False)
        console.print(rich_table(titles, cells, console.width))
    elif cells:
        write_lines(text_table(titles, cells))


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads the stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show_long_table(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A portion at a time; columns may get wider on the way."""
    widths: list[int] = []
    for cells in portions(rows):
        if is_terminal(sys.stdout):
            show_table(titles, cells)
        else:
            write_lines(text_table(titles, cells, widths))


def portions(rows: Iterable[R]) -> Iterator[list[R]]:
    """The rows, some at a time."""
    left = iter(rows)
    while some := list(islice(left, PORTION)):
        yield some


def write_lines(lines: Iterable[str]) -> None:
    """All at once, since handing out each takes longer than making it."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def text_table(
    titles: Sequence[str], rows: Sequence[Sequence[Cell]], widths: list[int] | None = None
) -> Iterator[str]:
    """Cells beyond `_WIDEST` are cut. `widths`: of the portion above, empty for the first."""
    texts = [] if widths else [[title.removeprefix(">").upper() for title in titles]]
    texts += [[_cut_cell(cell).text for cell in row] for row in rows]
    needed = [max(map(len, column)) for column in zip(*texts, strict=True)]
    widths = needed if widths is None else widths
    widths[:] = map(max, widths or needed, needed)
    for row in texts:
        cells = [
            text.rjust(width) if title.startswith(">") else text.ljust(width)
            for text, width, title in zip(row, widths, titles, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _styled(cell: Cell) -> StyledText:
    if isinstance(cell, int):
        return StyledText(f"{cell:,}", "")
    text, style = cell if isinstance(cell, StyledText) else (cell, "")
    return StyledText(plain(text) or NOTHING, style)


def _cut_cell(cell: Cell) -> StyledText:
    text, style = _styled(cell)
    return StyledText(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}...", style)


def rich_table(titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> Any:
    """Texts are folded to the width, numbers never. Where that does not fit each row is a list of fields. Cells beyond
    `_WIDEST` are cut.
    """
    from rich.table import Table
    from rich.text import Text

    fitting = [list(map(_cut_cell, row)) for row in rows]
    names = [title.removeprefix(">").upper() for title in titles]
    columns = [_column(title, [row[place].text for row in fitting]) for place, title in enumerate(titles)]
    spare = width - 2 * (len(columns) - 1) - sum(least for least, _ in columns)
    table = Table(box=None, pad_edge=False, header_style="bold")
    if spare < 0:
        table.show_header = False
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for number, row in enumerate(fitting):
            if number:
                table.add_row()
            for name, cell in zip(names, row, strict=True):
                table.add_row(name, Text(cell.text, style=cell.style))
        return table
    # rich itself would make columns narrower than they may be, and cut the lines.
    for name, title, size in zip(names, titles, _sizes(columns, spare), strict=True):
        right = title.startswith(">")
        justify: Any = "right" if right else "left"
        table.add_column(Text(name), justify=justify, no_wrap=right, overflow="fold", width=size)
    for row in fitting:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return table


def _column(title: str, texts: Iterable[str]) -> tuple[int, int]:
    """Least and full; only texts may be folded."""
    from rich.cells import cell_len

    right, name = title.startswith(">"), title.removeprefix(">")
    widest = max(map(cell_len, texts), default=0)
    full = max(widest, len(name))
    return full if right else min(max([widest, *map(len, name.split())]), _FOLD_ABOVE), full


def _sizes(columns: Sequence[tuple[int, int]], spare: int) -> list[int]:
    """Columns that need least come first."""
    sizes = [least for least, _ in columns]
    hungry = sorted(range(len(columns)), key=lambda place: columns[place][1] - columns[place][0])
    for left, place in zip(range(len(columns), 0, -1), hungry, strict=True):
        more = min(columns[place][1] - columns[place][0], spare // left)
        sizes[place] += more
        spare -= more
    return sizes


def show_fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one a line."""
    fields = list(pairs)
    width = max(len(name) for name, _ in fields)
    for name, cell in fields:
        click.echo(f"{plain(name).ljust(width)}  {coloured(*_styled(cell))}")


def coloured(text: str, style: str) -> str:
    """In colour, if a terminal shows it."""
    if not style or not is_terminal(sys.stdout):
        return text
    return click.style(text, fg=style.rpartition(" ")[2], bold=style.startswith("bold"))


# --- what is drawn again and again -----------------------------------------------------------------------------------------


SECONDS: Final = 2.0
# The counts, which may take two lines, and the line of the cursor.
_BELOW: Final = 3


class WatchedList(NamedTuple):
    """One picture of a list that is drawn again."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    counts: str  # the line below
    has_ended: bool  # nothing will change any more


def watch_list(draw: Callable[[], WatchedList]) -> None:
    """Draw until all has ended."""
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            frame = draw()
            live.update(fit_frame(frame, live.console), refresh=True)
            if frame.has_ended:
                return
            time.sleep(SECONDS)


def fit_frame(frame: WatchedList, console: Any) -> Any:
    """As many rows as fit, how many more there are, and the counts."""
    from rich.console import Group
    from rich.text import Text

    room = max(3, console.height - _BELOW)
    shown = min(len(frame.rows), room)
    while True:
        table = rich_table(frame.titles, frame.rows[:shown], console.width)
        lines = len(console.render_lines(table, pad=False))
        more = len(frame.rows) - shown
        if lines + bool(more) <= room or shown <= 1:
            break
        shown = max(1, min(shown - 1, shown * room // (lines + 1)))
    rest = [Text(f"... and {more:,} more")] if more else []
    return Group(table, *rest, Text(frame.counts))
