"""`lode classad`, without a server."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.explanations import CLAUSE_TITLES, clause_cells
from lodesman.user.cli.faults import exit_code, placed
from lodesman.user.cli.tables import emit_json, note, say, show_table
from lodesman.user.cli.words import plain
from lodesman.wire.classads import AttributeValue, ClassAdMatch, MatchSideRow

if TYPE_CHECKING:
    from lodesman.languages.classad import Ad, Node

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

classad = click.Group("classad", help="Evaluate ClassAds, and match two of them.")


def _read_ad(file: Path) -> Ad:
    ads = _read_ads(file)
    if len(ads) > 1:
        note(
            plain(
                f"{file} has {len(ads)} ads; one is needed here. Only the first FILE of eval may have several."
            )
        )
        raise click.exceptions.Exit(1)
    return ads[0]


def _read_ads(file: Path) -> list[Ad]:
    from lodesman.languages.classad import EMPTY, parse_ads

    with click.open_file(str(file), encoding="utf-8", errors="surrogateescape") as stream:
        text = str(stream.read())
    try:
        ads = parse_ads(text) or [EMPTY]
    except LodesmanError as fault:
        note(placed(str(file), fault))
        raise click.exceptions.Exit(exit_code(fault)) from None
    _name_mistakes(str(file), (entry.node for ad in ads for entry in ad))
    return ads


def _name_mistakes(place: str, nodes: Iterable[Node]) -> None:
    from lodesman.languages.classad.functions import mistakes

    for why in dict.fromkeys(why for node in nodes for _, why in mistakes(node)):
        note(plain(f"{place}: warning: {why}, so that call is error: see docs/how-to/classads.md"))


@classad.command("eval")
@click.argument("file", type=_FILE)
@click.argument("other", type=_FILE, required=False)
@click.option(
    "--expression",
    "-e",
    "texts",
    multiple=True,
    metavar="EXPRESSION",
    help="Its value instead; may be repeated.",
)
@_JSON
def _eval(*, file: Path, other: Path | None, texts: tuple[str, ...], as_json: bool) -> int:
    """Show what each attribute of the ads in FILE is worth, with the ad in OTHER as TARGET."""
    from lodesman.languages.classad import Run, evaluate, parse_expression, write_value

    ads, target = _read_ads(file), _read_ad(other) if other else None
    now = time.time()
    try:
        expressions = {name: parse_expression(name) for name in texts}
    except LodesmanError as fault:
        note(placed("--expression", fault))
        return exit_code(fault)
    _name_mistakes("--expression", expressions.values())
    results = [
        [
            AttributeValue(
                name, write_value(evaluate(expressions.get(name, name), my, target, run=Run(now=now)))
            )
            for name in texts or [entry.name for entry in my]
        ]
        for my in ads
    ]
    if as_json:
        emit_json(results if len(ads) > 1 else results[0])
        return 0
    for at, rows in enumerate(results, 1):
        if len(ads) > 1:
            say(f"{plain(str(file))}, ad {at} of {len(ads)}:")
        show_table(["expression" if texts else "attribute", "value"], [(row.name, row.value) for row in rows])
    return 0


@classad.command("match")
@click.argument("file", type=_FILE)
@click.argument("other", type=_FILE)
@_JSON
def _match(*, file: Path, other: Path, as_json: bool) -> int:
    """Say whether two ads match, and show each clause of both Requirements with its value.

    Exit code 0 if they match, 1 if not.
    """
    one, two = _read_ad(file), _read_ad(other)
    now = time.time()
    sides = [_side(str(file), one, two, now), _side(str(other), two, one, now)]
    result = ClassAdMatch(matches=all(side.holds for side in sides), sides=sides)
    if as_json:
        emit_json(result)
        return 0 if result.matches else 1
    for side in sides:
        _show_side(side)
    say("They match." if result.matches else "They do not match.")
    return 0 if result.matches else 1


def _side(file: str, my: Ad, target: Ad, now: float) -> MatchSideRow:
    from lodesman.languages.classad import Run, evaluate
    from lodesman.languages.classad.clauses import explain
    from lodesman.languages.classad.values import is_true

    node = my.node("Requirements")
    clauses = [] if node is None else explain(node, my, target, now=now)
    holds = is_true(evaluate("Requirements", my, target, run=Run(now=now)))
    return MatchSideRow(file, holds, [clause.row for clause in clauses])


def _show_side(side: MatchSideRow) -> None:
    if not side.clauses:
        say(f"{side.file} has no Requirements: it matches nothing.")
        return
    say(f"The Requirements of {side.file} are {'true' if side.holds else 'not true'}:")
    show_table(CLAUSE_TITLES, map(clause_cells, side.clauses))
