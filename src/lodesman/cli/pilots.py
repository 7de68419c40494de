"""`lode pilot`, `lode usage`: the pilots that run jobs, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from lodesman.answers import calls
from lodesman.answers.pilots import ListedPilot, PilotInFull
from lodesman.answers.requests import DrainBody, PilotAt, PilotsQuery
from lodesman.answers.server import Faulty, GroupClaims, PilotCount, SiteOutcomes
from lodesman.answers.shares import ShareCorrection
from lodesman.answers.vocabulary import PilotState
from lodesman.cli.arguments import MOST_LISTED, PILOT_RANGES, limit_option, merged, total
from lodesman.cli.columns import UTC, Column, ListShape, shaped, table_of
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, emit_json, note, say, show_fields, show_table, state
from lodesman.cli.words import (
    age,
    counted,
    moment,
    number,
    path_of,
    percent,
    plain_lines,
    shown,
    span,
    states,
)
from lodesman.errors import InvalidRequest, NotFound

_MOST_DRAINED = 10_000
_MOST_OWNERS = 10
# Jobs of one pilot that a list names.
_MOST_JOBS = 4


pilot = click.Group("pilot", help="List pilots, show what they do and wrote, and let them leave.")


def _doing(row: ListedPilot) -> str | None:
    """The jobs that it runs, or that it is idle; None for one that does not run."""
    if row.jobs:
        return ", ".join(map(str, row.jobs[:_MOST_JOBS])) + (", ..." if len(row.jobs) > _MOST_JOBS else "")
    return "idle" if row.state is PilotState.RUNNING else None


def _serves(row: ListedPilot) -> str:
    if row.bound_job is not None:
        return f"job {row.bound_job}"
    return " ".join(filter(None, (row.owner, row.group and f"({row.group})"))) or "any"


def _remark(row: ListedPilot) -> str:
    serves = _serves(row)
    only = f"for {serves}" if serves != "any" and row.bound_job not in row.jobs else ""
    return ", ".join(filter(None, (row.reason or ("draining" if row.drain else ""), only)))


COLUMNS: Final[dict[str, Column[ListedPilot]]] = table_of(
    Column("pilot", "id", lambda row: row.id),
    Column("state", "state", lambda row: row.state.value),
    Column("queue", "text", path_of),
    Column("host", "text", lambda row: row.node_host or row.host or None),
    Column("jobs", "text", _doing),
    Column("running", "count", lambda row: len(row.jobs)),
    Column("done", "count", lambda row: row.jobs_done),
    Column("sent", "moment", lambda row: row.created_at),
    Column("age", "age", lambda row: row.created_at),
    Column("joined", "moment", lambda row: row.joined_at),
    Column("seen", "age", lambda row: row.last_seen),
    Column("ended", "moment", lambda row: row.ended_at),
    Column("serves", "text", _serves),
    Column("vo", "text", lambda row: row.vo),
    Column("stamp", "text", lambda row: row.stamp),
    Column("backend", "text", lambda row: row.backend),
    Column("native", "text", lambda row: row.native_id),
    Column("remark", "text", _remark),
)
_USUAL: Final = ("pilot", "state", "queue", "host", "jobs", "sent", "age", "seen", "remark")


@pilot.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also pilots that have ended.")
@limit_option(100)
@shaped
@with_session
def _list_pilots(session: Session, /, *, everything: bool, limit: int, **options: Any) -> None:
    """List live pilots, the newest first, with the jobs that each runs now."""
    shape = ListShape(**options)
    shape.check(COLUMNS)
    rows = session.call(calls.PILOTS, PilotsQuery(all=everything, limit=limit + 1)).pilots
    some, more = rows[:limit], len(rows) > limit
    session.exit_if_json({"pilots": some, "more": more})
    if not rows:
        note("There is no pilot." if everything else "There is no live pilot; --all shows those that ended.")
    shape.show(COLUMNS, _USUAL, some)
    if more:
        note(f"There are more: --limit {min(limit * 10, MOST_LISTED)}.")


@pilot.command("show")
@click.argument("pilot_id", metavar="ID|STAMP")
@UTC
@with_session
def _show_pilot(session: Session, /, *, pilot_id: str, utc: bool) -> None:
    """Show all that is known of a pilot: where it is, what it runs, and what its machine offers."""
    show_fields(_fields(session.answer(calls.PILOT, PilotAt(pilot_id)), utc=utc))


def _fields(row: PilotInFull, *, utc: bool) -> Iterator[tuple[str, Cell]]:
    def at(then: float | None) -> str:
        return "-" if then is None else f"{moment(then, utc=utc)}, {age(then)} ago"

    yield "pilot", str(row.id)
    yield "stamp", row.stamp
    yield "state", state(row.state)
    yield "runs", _doing(row) or ""
    yield "jobs done", row.jobs_done
    yield "queue", path_of(row)
    yield "host", row.node_host or row.host
    yield "batch system", f"{row.backend}, as {row.native_id or 'not accepted yet'}"
    yield "serves", f"{_serves(row)}, VO {row.vo}"
    yield "sent", at(row.created_at)
    yield "accepted", at(row.submitted_at)
    yield "joined", at(row.joined_at)
    yield "last seen", at(row.last_seen)
    yield "ended", at(row.ended_at)
    leaves = row.drain_reason or "a user said so"
    yield "remark", row.reason or (f"it leaves: {leaves}" if row.drain else "")
    for name, value in sorted(row.node.items()):
        yield f"node.{name}", shown(value)
    yield "more", f"lode pilot logs {row.id}, lode why pilot:{row.id}"


@pilot.command("logs")
@click.argument("pilot_id", metavar="ID|STAMP")
@with_session
def _show_logs(session: Session, /, *, pilot_id: str) -> None:
    """Show the end of what a pilot wrote (64 kB), as its batch system keeps it."""
    answer = session.answer(calls.PILOT_LOGS, PilotAt(pilot_id))
    where = f" on {answer.host}" if answer.host else ""
    note(f"Pilot {answer.pilot}, {answer.native_id} of {answer.backend}{where}:")
    click.echo(plain_lines(answer.text), nl=not answer.text.endswith("\n"))


@pilot.command("drain")
@click.argument("ids", nargs=-1, required=True, type=PILOT_RANGES, metavar="ID|RANGE...")
@with_session
def _drain(session: Session, /, *, ids: tuple[Any, ...]) -> None:
    """Let pilots finish what they run and leave (administrators)."""
    ranges = merged(ids)
    if total(ranges) > _MOST_DRAINED:
        raise InvalidRequest(f"The maximum number of pilots is {_MOST_DRAINED:,} at once.")
    numbers = [pilot_id for one in ranges for pilot_id in range(one.first, one.last + 1)]
    answer = session.call(calls.DRAIN, body=DrainBody(numbers))
    if session.as_json:
        emit_json(answer)
    elif answer.changed:
        click.echo(f"{counted(answer.changed, 'pilot')} will finish and leave.")
    if not answer.changed and len(numbers) == 1:
        raise NotFound(f"There is no live pilot {numbers[0]} that was not draining already.")


# --- usage --------------------------------------------------------------------------------------------------------------


@click.command()
@with_session
def usage(session: Session, /) -> None:
    """Show job states, actual and target shares, sites, times, failures."""
    answer = session.answer(calls.USAGE)
    say(f"Jobs: {states(answer.states)}.")
    for word, times in (("Waited", answer.waiting_seconds), ("Ran", answer.running_seconds)):
        say(f"{word}: half at most {span(times.p50)}, 95 % at most {span(times.p95)}.")
    say(f"Attempts: {answer.attempts.attempts:,} of {counted(answer.attempts.jobs, 'job')}.")
    _show_groups(answer.groups)
    if answer.correction is not None:
        _show_correction(answer.correction)
    _show_sites(answer.sites, answer.pilots)
    _show_faulty(answer.faulty)


def _show_groups(groups: Sequence[GroupClaims]) -> None:
    compared = sum(group.compared for group in groups)
    target = sum(group.target for group in groups)
    rows: list[list[Cell]] = []
    for one in groups:
        shares = (percent(one.compared, compared), percent(one.target, target))
        rows.append([one.group, number(one.share), one.claims, *shares])
    show_table(("group", ">share", ">job starts", ">actual", ">target"), rows, apart=True)
    private = sum(group.private for group in groups)
    starts = sum(group.claims for group in groups) - private
    if compared < starts:
        say(
            f"Actual and target: {compared:,} of {starts:,} starts; with many groups, a random sample of one in 64."
        )
    if private:
        say(
            f"Not part of actual and target: {counted(private, 'start')} by private pilots, which serve one group."
        )


def _show_correction(found: ShareCorrection) -> None:
    word = "core-hours" if found.currency == "core-seconds" else "job starts"
    rows: list[list[Cell]] = []
    for one in found.groups:
        factor = f"{one.factor:.3g}"
        rows.append(
            [one.group, "", *_used(one.used, found), factor, number(one.share), number(one.corrected)]
        )
        for owner in one.owners[:_MOST_OWNERS] if len(one.owners) > 1 else ():
            factor, weight = f"{owner.factor:.3g}", f"{owner.weight:.3g}"
            rows.append([one.group, owner.owner, *_used(owner.used, found), factor, "1", weight])
    used = [f">in {span(one.time_span)}" for one in found.slices]
    show_table(("group", "owner", *used, ">factor", ">share", ">corrected"), rows, apart=True)
    say(f"Shares are corrected by usage, in {word}, as of {age(found.at)} ago.")


def _used(amounts: Sequence[float], found: ShareCorrection) -> list[str]:
    by_hours = found.currency == "core-seconds"
    return [number(amount / 3_600) if by_hours else f"{amount:,.0f}" for amount in amounts]


def _show_sites(sites: Sequence[SiteOutcomes], pilots: Sequence[PilotCount]) -> None:
    live: dict[str, dict[str, int]] = {}
    for row in pilots:
        live.setdefault(row.site, {})[row.state] = row.pilots
    ended = {row.site: row for row in sites}
    rows: list[list[Cell]] = []
    for name in sorted({*ended, *live}):
        outcomes, cpu = (ended[name].outcomes, ended[name].cpu_seconds) if name in ended else ({}, None)
        rows.append([name, states(outcomes), span(cpu), states(live.get(name, {}))])
    show_table(("site", "ended attempts", ">cpu", "pilots"), rows, apart=True)


def _show_faulty(faulty: Sequence[Faulty]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for row in faulty:
        counts[row.state, row.reason] += row.count
    example: dict[tuple[str, str], str] = {(row.state, row.reason): str(row.id) for row in reversed(faulty)}
    rows: list[list[Cell]] = [
        [count, state(name), example[name, why], why] for (name, why), count in counts.most_common(20)
    ]
    show_table((">jobs", "state", ">for instance", "reason"), rows, apart=True)
