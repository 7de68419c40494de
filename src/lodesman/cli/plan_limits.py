"""`lode plan resources`, its last part: what the director would do next, before and after, and the limits that bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from lodesman.cli.session import Row
from lodesman.cli.tables import Cell, Column, note, say, show_table
from lodesman.cli.words import counted, number

FEW = 10
TWICE = tuple(
    Column(title=title, right=True) for title in ("expected", "then", "asked", "then", "placed", "then")
)
GROUPS = (Column(title="group"), Column(title="vo"), *TWICE)
LIMITS = (
    Column(title="limit"),
    Column(title="of"),
    *(Column(title=title, right=True) for title in ("number", "then", "pilots", "then")),
    Column(title="for instance"),
)
QUEUES = (
    Column(title="queue"),
    *(Column(title=title, right=True) for title in ("pilots", "then", "room", "then")),
)


def cut_lists(found: Row) -> list[Row]:
    """The lists that the server may have cut."""
    return [found[name] for name in ("groups", "queues", "only_after", "only_before")]


def tell_limits(found: Row | None) -> None:
    """Nothing if there is no director; in few words if it would do the same."""
    if found is None:
        return
    pilots = found["pilots"]
    if _changes(found):
        told = ", ".join(f"{_pair(pilots[name])} {name}" for name in ("expected", "asked", "placed"))
        click.echo(f"Next iteration of the director, pilots before and after: {told}.")
        _table(GROUPS, [_group(row) for row in found["groups"]["rows"]], found["groups"]["count"])
    else:
        click.echo(
            f"Next iteration of the director: nothing changes, {pilots['asked']['after']:,} pilots asked and "
            f"{pilots['placed']['after']:,} placed."
        )
    limits = [row for row in found["limits"] if row["pilots"]["after"]]
    _table(LIMITS, [_limit(row) for row in limits], len(limits))
    _table(QUEUES, [_queue(row) for row in found["queues"]["rows"]], found["queues"]["count"])
    for line in _only(found):
        say(line)
    for line in found["assumed"]:
        note(f"Assumed: {line}.")


def _changes(found: Row) -> bool:
    """Whether anything is decided otherwise."""
    rows = [found["pilots"], *found["groups"]["rows"], *found["limits"]]
    values = [
        value for row in rows for value in row.values() if isinstance(value, Mapping) and "after" in value
    ]
    return bool(found["queues"]["count"]) or any(value["before"] != value["after"] for value in values)


def _table(columns: tuple[Column, ...], rows: list[list[Cell]], count: int) -> None:
    """The first few rows of `count`."""
    if rows:
        show_table(columns, rows[:FEW])
        if count > min(len(rows), FEW):
            note(f"{count - min(len(rows), FEW):,} more: --json.")


def _pair(value: Mapping[str, Any]) -> str:
    return " -> ".join(_pilots(value[when]) for when in ("before", "after"))


def _pilots(value: float | None) -> str:
    """Means are told to a tenth."""
    return number(round(value, 1) if isinstance(value, float) else value)


def _both(value: Mapping[str, Any]) -> list[Cell]:
    return [_pilots(value[when]) for when in ("before", "after")]


def _group(row: Row) -> list[Cell]:
    numbers = [cell for name in ("expected", "asked", "placed") for cell in _both(row[name])]
    return [row["group"], row["vo"], *numbers]


def _limit(row: Row) -> list[Cell]:
    example = row["example"]
    where = f"tq {example['name']}" if row["of"] == "task queues" else example["name"]
    return [
        row["limit"],
        row["of"],
        *_both(row["count"]),
        *_both(row["pilots"]),
        f"{where}: {example['text']}",
    ]


def _queue(row: Row) -> list[Cell]:
    return [f"{row['site']}/{row['ce']}/{row['queue']}", *_both(row["pilots"]), *_both(row["room"])]


def _only(found: Row) -> Iterator[str]:
    """The task queues that get pilots only before, or only after."""
    for name, when in (("only_after", "only after the change"), ("only_before", "only before it")):
        some = found[name]
        if not some["count"]:
            continue
        who = f"{counted(some['count'], 'task queue')} {'gets' if some['count'] == 1 else 'get'} pilots"
        yield f"{who} {when}, {some['pilots']:,} together:"
        for row in some["rows"][:FEW]:
            where = ", ".join(row["queues"])
            jobs, pilots = counted(row["jobs"], "job"), counted(row["pilots"], "pilot")
            yield f"  tq {row['id']} of {row['owner']}, {jobs}: {pilots} to {where}"
