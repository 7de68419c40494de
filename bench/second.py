"""What is promised of PostgreSQL: targets of its own, and a part of what SQLite does in the same run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.figures import Figure

TARGETS = {
    "claims-http": 5_000,
    "claims-50": 25_000,
    "bulk-json": 25_000,
    "start": 6,
    "scale-claim-64": 1.2,
    "scale-claim-1": 1.2,
    "pgqueuer": 3,
}
PART_OF_SQLITE = {"claims-http": 0.5}
SUFFIX = "-postgresql"


def on_postgresql(figures: Sequence[Figure], beside: Sequence[Figure]) -> list[Figure]:
    """The figures of a row on PostgreSQL. `beside`: those on SQLite in the same run; a rate is held against them."""
    sqlite = {figure.row: figure for figure in beside}
    found = [
        replace(one, row=one.row + SUFFIX, what=f"{one.what}; PostgreSQL", target=TARGETS.get(one.row))
        for one in figures
    ]
    ratios = [
        Figure(
            row=f"{one.row}{SUFFIX}-part", what=f"{one.what}; PostgreSQL against SQLite", unit="x",
            value=one.value / sqlite[one.row].value, target=PART_OF_SQLITE.get(one.row), size=one.size,
        )
        for one in figures
        if one.row in sqlite and sqlite[one.row].value and not one.less
    ]  # fmt: skip
    return found + ratios
