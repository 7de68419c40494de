"""The figures as a table for people and for Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.figures import Figure, shown

HEAD = ("row", "what", "target", "measured", "met", "ratio to floor", "CPU us each")
VERDICT = {True: "yes", False: "NO", None: "-"}


def cells(figure: Figure) -> tuple[str, ...]:
    """One line of the table."""
    sign = "<=" if figure.less else ">="
    target = "-" if figure.target is None else f"{sign} {shown(figure.target)} {figure.unit}"
    ratio = "-" if figure.ratio is None else f"{figure.ratio:.3g} x {figure.floor_name}"
    measured = f"{shown(figure.value)} {figure.unit}"
    cpu = ", ".join(f"{name} {shown(value)}" for name, value in figure.cpu_us.items()) or "-"
    return figure.row, figure.what, target, measured, VERDICT[figure.met], ratio, cpu


def plain(figures: Sequence[Figure]) -> str:
    """Columns in a fixed width."""
    rows = [HEAD, *map(cells, figures)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in (lines[0], "-" * (sum(widths) + 10), *lines[1:]))


def markdown(figures: Sequence[Figure]) -> str:
    """A table as docs/benchmarks.md has it."""
    rows = [HEAD, tuple("-" for _ in HEAD), *map(cells, figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def missed(figures: Sequence[Figure]) -> list[Figure]:
    """The figures that miss their targets."""
    return [figure for figure in figures if figure.met is False]
