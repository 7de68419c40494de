"""What is drawn again and again on a terminal: as many rows as fit, and the counts of all below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from lodesman.user.cli.tables import Cell, rich_table

SECONDS: Final = 2.0
# The counts, which may take two lines, and the line of the cursor.
_BELOW: Final = 3


class WatchedList(NamedTuple):
    """One picture: a table, the line below it, and whether nothing in it will change any more."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    counts: str
    has_ended: bool


def watch_list(draw: Callable[[], WatchedList]) -> None:
    """Draw again and again until all has ended."""
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            frame = draw()
            live.update(fitted(frame, live.console), refresh=True)
            if frame.has_ended:
                return
            time.sleep(SECONDS)


def fitted(frame: WatchedList, console: Any) -> Any:
    """A picture that is not higher than the terminal: the first rows, how many more there are, and the counts."""
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
