"""`lode site` and `lode queue`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, Literal, cast

import click
from msgspec import UNSET

from lodesman.user.cli.arguments import filter_option, node_names
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.commands.programs import advertise
from lodesman.user.cli.commands.site_ads import gate, site_token
from lodesman.user.cli.commands.site_mask import close_site, note_closed, open_site
from lodesman.user.cli.commands.site_tests import test_site
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table
from lodesman.user.cli.words import age, path_of, shown, span, states
from lodesman.wire import calls
from lodesman.wire.nodes import BreakerBody, Closing, FailingQueue, NodeBelow, Parameter, SiteRow, UsableQueue
from lodesman.wire.requests import AllQuery, NodeQuery, QueuesQuery

# These have a column of their own; all others stand together in the last one.
_MAIN_PARAMETERS = ("Platform", "CPUTime", "Memory", "MaxRAM", "NumberOfProcessors", "Tag")
_ORIGIN = click.option(
    "--origin", is_flag=True, help="Also the level of each value, and the file and line where it is written."
)
_VO = click.option(
    "--vo", default="", metavar="NAME", help="As this VO sees them (administrators); else yours."
)


site = click.Group(
    "site",
    help="List sites, close, open, test and advertise them.",
    commands=[close_site, open_site, test_site, site_token, advertise, gate],
)


def _running(row: SiteRow) -> Cell:
    most = row.max_running_jobs
    return row.running_jobs if most is UNSET else f"{row.running_jobs:,} of {most:,}"


def _ad(row: SiteRow) -> str:
    if row.ad_at is UNSET:
        return "none"
    return f"{age(row.ad_at)}{', too old' if row.ad_is_too_old else ''}"


_SITES: Final[Columns[SiteRow]] = table_of(
    Column("site", "text", lambda row: row.site),
    Column("ces", "id", lambda row: row.ces),
    Column("queues", "id", lambda row: row.queues),
    Column("running_jobs", "count", lambda row: row.running_jobs, _running),
    Column(
        "max_running_jobs",
        "count",
        lambda row: None if row.max_running_jobs is UNSET else row.max_running_jobs,
    ),
    Column("pilots", "text", lambda row: states(row.pilots)),
    Column("ad", "age", lambda row: None if row.ad_at is UNSET else row.ad_at, _ad, "ad"),
    Column("closed", "text", lambda row: _closed_parts(row.closed)),
    Column("to_be_closed", "text", lambda row: _closed_parts(row.announced or ())),
    Column(
        "failing", "text", lambda row: ", ".join(f"{failing.ce}/{failing.queue}" for failing in row.failing)
    ),
)


@site.command("ls")
@shaped(_SITES)
@with_session
def _list_sites(session: Session, /, *, shape: ListShape) -> None:
    """List the sites with their queues, live pilots and running jobs, and what is closed."""
    answer = session.whole(calls.SITES, AllQuery(), "sites")
    session.exit_if_json(answer)
    usual = [
        *("site", "ces", "queues", "running_jobs", "pilots"),
        *(["ad"] if any(row.ad_at is not UNSET for row in answer.sites) else []),
        *(["closed"] if answer.closed else []),
        *(["to_be_closed"] if answer.announced else []),
        *(["failing"] if any(row.failing for row in answer.sites) else []),
    ]
    shape.show(_SITES, answer.sites, usual)
    if not answer.sites:
        note("No site is configured; see: lode init.")
    note_closed(answer.closed)
    note_closed(answer.announced)
    _note_failing(failing for row in answer.sites for failing in row.failing)


def _closed_parts(closings: Sequence[Closing]) -> str:
    parts = ", ".join("/".join(filter(None, (closing.ce, closing.queue))) for closing in closings)
    return parts if all(closing.ce for closing in closings) else "all"


@site.command("show")
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE]")
@_ORIGIN
@_VO
@with_session
def _show_site(session: Session, /, *, names: tuple[str, ...], origin: bool, vo: str) -> None:
    """Show a site, or a CE of it, with every value and what its CEs and queues say otherwise.

    SITE CE as two words, if a name has a slash. --origin adds to each value the level that gave it, the file and the
    line.
    """
    _show_node(session, NodeQuery(**node_names(names, most=2), vo=vo), origin=origin)


queue = click.Group("queue", help="List the queues of CEs.")


@queue.command("ls")
@_ORIGIN
@filter_option("--site", "site_name", about="Only the queues of this site.")
@_VO
@shaped()
@with_session
def _list_queues(session: Session, /, *, origin: bool, site_name: str, vo: str, shape: ListShape) -> None:
    """List the queues that your VO may use, with their effective parameters; each parameter is a column of its own name."""
    if origin and shape != ListShape():
        raise click.UsageError("--origin shows a row for each parameter: no --columns, --sort, --format.")
    queues = session.whole(calls.QUEUES, QueuesQuery(vo, origin), "queues").queues
    queues = [row for row in queues if site_name in ("", row.site)]
    session.exit_if_json({"queues": queues})
    if origin:
        _show_origins(queues)
    else:
        _show_queues(queues, shape)
    if not queues:
        note("There is no such queue.")


def _show_origins(queues: Sequence[UsableQueue]) -> None:
    rows = [
        (path_of(row), name, parameter)
        for row in queues
        for name, parameter in sorted(row.parameters.items())
    ]
    directory = directory_of(parameter.file or "" for _, _, parameter in rows)
    cells = (
        [
            path,
            name,
            shown(value.value),
            value.level,
            written_at(value.file or "", value.line or 0, directory),
        ]
        for path, name, value in rows
    )
    show_table(("queue", "parameter", "value", "level", "written at"), cells)
    _note_directory(directory)


def _show_queues(queues: Sequence[UsableQueue], shape: ListShape) -> None:
    used = [name for name in _MAIN_PARAMETERS if any(name in row.parameters for row in queues)]
    closed = [closing for row in queues for closing in row.closed]
    announced = [closing for row in queues for closing in row.announced or ()]
    failing = [row.failing for row in queues if row.failing is not UNSET]
    columns = _queue_columns(queues, used)
    shape.check(columns)
    more = (*(["closed"] if closed else []), *(["breaker"] if failing else []))
    shape.show(columns, queues, ("queue", *map(str.lower, used), "others", "pilots", *more))
    note_closed([*closed, *announced])
    _note_failing(failing)


def _queue_columns(queues: Sequence[UsableQueue], used: Sequence[str]) -> Columns[UsableQueue]:
    parameters = sorted({name for row in queues for name in row.parameters}, key=str.lower)
    return table_of(
        *(_parameter_column(name, queues) for name in parameters),
        Column("queue", "text", path_of),
        Column("others", "text", lambda row: _others(row, used)),
        Column("pilots", "text", lambda row: states(row.pilots) if row.pilots else None),
        Column("closed", "text", _level),
        Column("breaker", "text", lambda row: None if row.failing is UNSET else row.failing.breaker.value),
    )


def _parameter_column(name: str, queues: Sequence[UsableQueue]) -> Column[UsableQueue]:
    """It is sorted as numbers if all are."""
    values = [row.parameters[name].value for row in queues if name in row.parameters]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return Column(
            name.lower(), "id", lambda row: row.parameters[name].value if name in row.parameters else None
        )
    return Column(
        name.lower(),
        "text",
        lambda row: shown(row.parameters[name].value) if name in row.parameters else None,
    )


def _others(row: UsableQueue, used: Sequence[str]) -> str:
    values = (
        (name, shown(parameter.value))
        for name, parameter in sorted(row.parameters.items())
        if name not in used
    )
    return " ".join(f"{name}={text}" for name, text in values)


def _level(row: UsableQueue) -> str | None:
    if not row.closed:
        return None
    return "the queue" if row.closed[0].queue else "the CE" if row.closed[0].ce else "the site"


@queue.command("breaker")
@click.argument("name", metavar="SITE/CE/QUEUE")
@click.argument("order", type=click.Choice(["open", "close", "auto"]))
@click.option("--reason", default="", help="Why; needed to open or close.")
@with_session
def _breaker(session: Session, /, *, name: str, order: str, reason: str) -> None:
    """Open the breaker of a queue: no pilot is sent; or close it: pilots are sent, whatever fails (administrators).

    auto, after a repair: its failures are forgotten, pilots are sent, and it moves by itself again.
    """
    if order != "auto" and not reason:
        raise click.UsageError(f"Say why: --reason, to {order} a breaker.", click.get_current_context())
    body = BreakerBody(path=name, order=cast("Literal['open', 'close', 'auto']", order), reason=reason)
    answer = session.answer(calls.BREAKER, body=body)
    text = "is closed and moves by itself" if answer.now is None else f"is {answer.now.text}"
    say(f"The breaker of {answer.path} {text}, from the director's next iteration on.")


@queue.command("show")
@click.argument("names", nargs=-1, required=True, metavar="SITE/CE/QUEUE")
@_ORIGIN
@_VO
@with_session
def _show_queue(session: Session, /, *, names: tuple[str, ...], origin: bool, vo: str) -> None:
    """Show a queue with every value that holds there.

    SITE CE QUEUE as three words, if a name has a slash. --origin adds to each value the level that gave it, the
    file and the line, and what other levels say.
    """
    _show_node(session, NodeQuery(**node_names(names), vo=vo), origin=origin, kind="Queue")


# --- one site, CE or queue ----------------------------------------------------------------------------------------------


def _show_node(session: Session, query: NodeQuery, *, origin: bool, kind: str = "") -> None:
    node = session.call(calls.RESOURCES, query)
    if kind not in ("", node.kind):
        raise click.UsageError(f"{query.path or query.site} is a {node.kind}; see: lode site show")
    session.exit_if_json(node)
    rows = [(path_of(node), parameter) for parameter in node.parameters]
    rows += [row for child in node.below for row in _rows_below(child, node.site)]
    directory = directory_of(word.file for _, parameter in rows for word in parameter.said)
    titles = ("of", "parameter", "value", "level", "written at", "instead of")
    chosen = slice(1 if node.kind == "Queue" else 0, None if origin else 3)
    show_table(titles[chosen], ([name, *_origin(parameter, directory)][chosen] for name, parameter in rows))
    if origin:
        _note_directory(directory)
    note_closed(node.closings)
    if not node.allowed:
        note(f"VO {node.vo} may not use it: see the parameter VO.")


def _rows_below(node: NodeBelow, site: str) -> Iterator[tuple[str, Parameter]]:
    """What a CE or queue does not merely inherit, then its queues."""
    for parameter in node.parameters:
        yield path_of(node).removeprefix(f"{site}/"), parameter
    for child in node.below:
        yield from _rows_below(child, site)


def _origin(parameter: Parameter, directory: str) -> list[Cell]:
    places = [(word, written_at(word.file, word.line, directory)) for word in parameter.said]
    counting = dict.fromkeys(place for word, place in places if word.counts and place)
    others = (f"{shown(word.value)} ({word.level}, {place})" for word, place in places if not word.counts)
    written = ", ".join(counting) or (f"made of {parameter.made_of}" if parameter.made_of else "")
    value = " ".join(filter(None, (shown(parameter.value), parameter.unit)))
    return [
        parameter.name,
        value,
        " + ".join(parameter.levels) or parameter.level,
        written,
        "; ".join(others),
    ]


def directory_of(files: Iterable[str]) -> str:
    """The common directory, with a slash; '' if there is none."""
    parts = [file.split("/")[:-1] for file in dict.fromkeys(files) if file]
    if not parts:
        return ""
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))]
    return "/".join([*common, ""]) if common else ""


def written_at(file: str, line: int, directory: str = "") -> str:
    """`FILE:LINE`, or ''."""
    if not file:
        return ""
    return f"{file.removeprefix(directory)}:{line}" if line else file.removeprefix(directory)


def _note_directory(directory: str) -> None:
    if directory:
        note(f"The files are in {directory}")


def _note_failing(queues: Iterable[FailingQueue]) -> None:
    """Queues that fail alike share a line."""
    alike: dict[str, list[FailingQueue]] = {}
    for row in queues:
        alike.setdefault(row.order or f"the last pilots did not start: {row.reason}", []).append(row)
    for text, rows in alike.items():
        first = rows[0]
        others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        tried = [max(0.0, row.retry_at - time.time()) for row in rows if row.retry_at is not None]
        again = (
            ""
            if not tried
            else f"; the next one is sent in {span(min(tried))}"
            if min(tried)
            else "; one tries it"
        )
        note(f"{path_of(first)}{others}: {'its breaker is ' if first.order else ''}{text}{again}")
