"""One site, CE or queue with its values, and where each of them is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from lodesman.cli.places import directory_of, written_at
from lodesman.cli.session import Row, Session
from lodesman.cli.tables import Cell, Column, emit_json, note, show_table
from lodesman.cli.words import shown

LEVELS_OF_NAMES = ("site", "ce", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How a node is asked for: by at most so many names, of which kind (any if empty), and as which VO sees it."""

    most_names: int
    kind: str = ""
    origin: bool = False
    vo: str = ""


def show_node(session: Session, names: tuple[str, ...], wanted: Wanted) -> None:
    """Ask for a node and print it. A usage error for too many names and for a node of another kind."""
    if len(names) > wanted.most_names:
        raise click.UsageError(f"{len(names)} names are given; there are at most {wanted.most_names}")
    asked = {"path": names[0]} if len(names) == 1 else dict(zip(LEVELS_OF_NAMES, names, strict=False))
    found = session.get("/v1/resources", vo=wanted.vo, **asked)
    if wanted.kind not in ("", found["kind"]):
        raise click.UsageError(f"{names[0]} is a {found['kind']}; see: lode site show")
    if session.as_json:
        emit_json(found)
        return
    of_itself = [(_name(found), one) for one in found["parameters"]]
    rows = of_itself + [row for child in found["below"] for row in _rows_below(child, found["site"])]
    several = found["kind"] != "Queue"
    titles = ["parameter", "value", *(["level", "written at", "instead of"] if wanted.origin else [])]
    columns = [Column(title=title) for title in (["of", *titles] if several else titles)]
    directory = directory_of(said["file"] for _, one in rows for said in one["said"])
    cells = [
        [*([name] if several else []), *(_origin(one, directory) if wanted.origin else _value(one))]
        for name, one in rows
    ]
    show_table(columns, cells)
    if wanted.origin and directory:
        note(f"The files are in {directory}")
    if not found["allowed"]:
        note(f"VO {found['vo']} may not use it: see the parameter VO.")


def _rows_below(node: Row, site: str) -> Iterator[tuple[str, Row]]:
    """The values of a CE or queue that it does not merely inherit, then those of its queues."""
    for one in node["parameters"]:
        yield _name(node).removeprefix(f"{site}/"), one
    for child in node["below"]:
        yield from _rows_below(child, site)


def _name(node: Row) -> str:
    return "/".join(filter(None, (node["site"], node["ce"], node["queue"])))


def _value(one: Row) -> list[Cell]:
    return [one["name"], " ".join(filter(None, (shown(one["value"]), one["unit"])))]


def _origin(one: Row, directory: str) -> list[Cell]:
    """The value with the levels that count, their places, and what the other levels say."""
    places = dict.fromkeys(written_at(said, directory) for said in one["said"] if said["counts"])
    made_of = f"made of {one['made_of']}" if one["made_of"] else ""
    others = [
        f"{shown(said['value'])} ({said['level']}, {written_at(said, directory)})"
        for said in one["said"]
        if not said["counts"]
    ]
    levels = " + ".join(one["levels"]) or one["level"]
    return [*_value(one), levels, ", ".join(filter(None, places)) or made_of, "; ".join(others)]
