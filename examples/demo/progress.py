"""Live progress of the demo: bars on a terminal that can draw in place, else one plain line per change.

The display is fed with snapshots and draws only then: no thread, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from examples.demo.figures import duration, number, plain
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

# The stages that users see, and the job states of each.
STAGES: dict[str, tuple[str, ...]] = {
    "waiting": ("Waiting",),
    "matched": ("Matched",),
    "running": ("Running", "Stalled", "Completing"),
    "done": ("Done",),
    "failed": ("Failed", "Killed", "Deleted"),
    "held": ("Held",),
}
_COLOURS = {"waiting": "blue", "matched": "cyan", "running": "yellow", "done": "green", "failed": "red"}
_BAR_WIDTH = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSnapshot:
    """The demo at one moment: jobs by state, pilots by site and state, seconds since the start.

    `total` is the final number of jobs; jobs that are not submitted yet are in no state. `doing`: what the demo itself does,
    empty while it only waits for jobs.
    """

    states: Mapping[str, int]
    total: int
    pilots: Mapping[str, Mapping[str, int]]
    elapsed: float
    doing: str = ""


class Display:
    """Shows snapshots; a context manager that leaves the terminal as it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        in_place = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False) if in_place else None
        self._last: tuple[object, ...] | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: DemoSnapshot) -> None:
        """Draw this moment, or write a line if it differs from the last one; time alone is no difference."""
        if self._live is not None:
            self._live.update(progress_view(snapshot), refresh=True)
            return
        pilots = {k: dict(v) for k, v in snapshot.pilots.items()}
        now = (snapshot.doing, dict(snapshot.states), snapshot.total, pilots)
        if now != self._last:
            self._last = now
            line = progress_line(snapshot)
            self._console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


def by_stage(states: Mapping[str, int]) -> dict[str, int]:
    """Jobs by stage, all stages present; a state that this program does not know is `other`."""
    counts = {stage: sum(states.get(state, 0) for state in members) for stage, members in STAGES.items()}
    other = sum(states.values()) - sum(counts.values())
    return {**counts, "other": other} if other else counts


def progress_line(snapshot: DemoSnapshot) -> str:
    """The moment in one line."""
    counts = by_stage(snapshot.states)
    jobs = ", ".join(f"{stage} {count}" for stage, count in counts.items() if count) or "none yet"
    pilots = "; ".join(f"{plain(site)} {_pilots(states)}" for site, states in sorted(snapshot.pilots.items()))
    doing = f"{snapshot.doing}; " if snapshot.doing else ""
    return f"{duration(snapshot.elapsed)}: {doing}jobs {jobs} (of {snapshot.total}); pilots {pilots or 'none yet'}"


def progress_view(snapshot: DemoSnapshot) -> Group:
    """The moment as bars, with the pilots of each site below."""
    bars = Table.grid(padding=(0, 1))
    bars.add_column(width=9)
    bars.add_column(width=_BAR_WIDTH)
    bars.add_column(justify="right")
    for stage, count in by_stage(snapshot.states).items():
        colour = _COLOURS.get(stage, "magenta")
        # A total of zero would show a pulsing bar.
        bar = ProgressBar(max(snapshot.total, 1), count, _BAR_WIDTH)
        bar.complete_style = bar.finished_style = colour
        bars.add_row(stage, bar, number(count, 12))
    sites = Table.grid(padding=(0, 2))
    for site, states in sorted(snapshot.pilots.items()):
        sites.add_row(Text(plain(site)), Text(_pilots(states)))
    title = f"{number(snapshot.total, 12)} jobs, {duration(snapshot.elapsed)}"
    title += f": {snapshot.doing}" if snapshot.doing else ""
    return Group(Text(title, style="bold"), bars, Text("Pilots", style="bold"), sites)


def _pilots(states: Mapping[str, int]) -> str:
    present = sorted((state.lower(), count) for state, count in states.items() if count)
    return ", ".join(f"{plain(state)} {count}" for state, count in present) or "none"
