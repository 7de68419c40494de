"""`lode usage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import click

from lodesman.user.cli.arguments import PAST_UTC
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table, state
from lodesman.user.cli.words import HOUR, age, counted, hours, number, percent, plain, span, states
from lodesman.wire import calls
from lodesman.wire.groups import ShareCorrection
from lodesman.wire.nodes import utc
from lodesman.wire.server import Faulty, GroupClaims, PilotCount, SiteOutcomes
from lodesman.wire.usage import (
    PILOT_HOURS_BY,
    USAGE_BY,
    HeldBy,
    HeldOfDays,
    PilotHoursBy,
    PilotHoursQuery,
    UsageBy,
    UsageOfDays,
    UsageQuery,
    UsedBy,
)

_MOST_OWNERS = 10
_FEW_CAUSES: Final = 3


def _waste(row: UsedBy) -> str:
    return ";".join(f"{cause}={amount / HOUR:.6f}" for cause, amount in row.waste.items())


def _wasted_by(row: UsedBy) -> str:
    few = [f"{cause} {hours(amount)} h" for cause, amount in list(row.waste.items())[:_FEW_CAUSES]]
    more = len(row.waste) - len(few)
    return ", ".join([*map(plain, few), *([f"{more} more"] if more else [])])


def _used_columns(by: UsageBy) -> Columns[UsedBy]:
    nameless = {"class": "no class", "job-group": "no JobGroup"}

    def name(row: UsedBy) -> str:
        return row.name or ("others" if row.others is True else nameless.get(by, "others"))

    return table_of(
        Column("name", "text", lambda row: row.name, name, by),
        Column("vo", "text", lambda row: row.vo),
        Column("jobs", "count", lambda row: row.jobs),
        Column("attempts", "count", lambda row: row.attempts),
        Column("failures", "count", lambda row: row.failures),
        Column("wall_hours", "hours", lambda row: row.wall_seconds, heading=">wall h"),
        Column("core_hours", "hours", lambda row: row.core_seconds, heading=">core h"),
        Column("cpu_hours", "hours", lambda row: row.cpu_seconds, heading=">cpu h"),
        Column("cpu_efficiency", "part", lambda row: row.cpu_efficiency, heading=">cpu"),
        Column("wasted_core_hours", "hours", lambda row: row.wasted_core_seconds, heading=">wasted h"),
        Column("waste", "text", _waste),
        Column("wasted_by", "text", _wasted_by),
    )


def _held_columns(by: PilotHoursBy) -> Columns[HeldBy]:
    return table_of(
        Column("name", "text", lambda row: row.name, lambda row: row.name or "all groups", by),
        Column("vo", "text", lambda row: row.vo),
        Column("pilots", "count", lambda row: row.pilots),
        Column("live", "count", lambda row: row.live),
        Column("held_core_hours", "hours", lambda row: row.held_core_seconds, heading=">held core h"),
        Column("used_core_hours", "hours", lambda row: row.used_core_seconds, heading=">used core h"),
        Column("idle_core_hours", "hours", lambda row: row.idle_core_seconds, heading=">idle core h"),
        Column("used", "part", _part_used, lambda row: percent(row.used_core_seconds, row.held_core_seconds)),
        Column("unknown_starts", "count", lambda row: row.unknown_starts),
        Column("unknown_ends", "count", lambda row: row.unknown_ends),
    )


def _part_used(row: HeldBy) -> float | None:
    return row.used_core_seconds / row.held_core_seconds if row.held_core_seconds else None


_USED: Final = (
    "jobs",
    "failures",
    "wall_hours",
    "core_hours",
    "cpu_efficiency",
    "wasted_core_hours",
    "wasted_by",
)
_HELD: Final = ("pilots", "live", "held_core_hours", "used_core_hours", "idle_core_hours", "used")
# What --csv has.
_USED_CSV: Final = tuple(name for name in _used_columns("group") if name != "wasted_by")
_HELD_CSV: Final = tuple(name for name in _held_columns("site") if name != "used")


@click.group("usage", invoke_without_command=True)
@click.option(
    "--by",
    type=click.Choice(dict.fromkeys((*USAGE_BY, *PILOT_HOURS_BY))),
    help="One row for each of these.  [default: group; of pilots: site]",
)
@click.option(
    "--pilots", is_flag=True, help="What pilots held, and what payloads used of it (--by queue, too)."
)
@click.option(
    "--since",
    type=PAST_UTC,
    metavar="WHEN",
    help="From that day on (UTC): 7d, 2w, yesterday, 2026-11-01.  [default: 7 days]",
)
@click.option("--until", type=PAST_UTC, metavar="WHEN", help="Up to that day.  [default: today]")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV, for spreadsheets.")
@shaped(_used_columns("group"), _held_columns("site"))
@with_session
@click.pass_context
def usage(
    context: click.Context,
    session: Session,
    /,
    *,
    by: UsageBy | PilotHoursBy | None,
    pilots: bool,
    since: float | None,
    until: float | None,
    as_csv: bool,
    shape: ListShape,
) -> None:
    """Show what jobs used: jobs, failures, hours, CPU efficiency, waste by cause.

    Attempts count on the day of their end (UTC). The sums stay when jobs are purged. Wasted are the core hours of
    attempts that did not end Done.

    --pilots: what the batch systems gave, hour by hour: cores from when each pilot joined to its end, or until now; what
    payloads used of them; and what was idle.
    """
    if context.invoked_subcommand is not None:
        return
    if (by or "site") not in (PILOT_HOURS_BY if pilots else USAGE_BY):
        words = (
            f"Pilots serve many: --by {', '.join(PILOT_HOURS_BY)}."
            if pilots
            else f"--by {by}: with --pilots."
        )
        raise click.UsageError(words, context)
    if as_csv and session.as_json:
        raise click.UsageError("--csv and --json are two forms: give one of them.", context)
    if as_csv:
        names = _HELD_CSV if pilots else _USED_CSV
        shape = replace(shape, format="csv", columns=shape.columns or ",".join(names))
    shape.check(_held_columns("site") if pilots else _used_columns("group"))
    days = _second(since), _second(until)
    if pilots:
        held = session.call(calls.PILOT_HOURS, PilotHoursQuery(cast("PilotHoursBy", by or "site"), *days))
        session.exit_if_json(held)
        _show_held(held, shape)
    else:
        used = session.call(calls.USED, UsageQuery(cast("UsageBy", by or "group"), *days))
        session.exit_if_json(used)
        _show_used(used, shape)


def _second(at: float | None) -> int:
    return 0 if at is None else max(1, int(at))


def _show_used(answer: UsageOfDays, shape: ListShape) -> None:
    usual = ("name", *(["vo"] if _has_vos(answer) else []), *_USED)
    sums = [_together(answer.rows)] if len(answer.rows) > 1 else []
    shape.show(_used_columns(answer.by), answer.rows, usual, sums=sums)
    if not shape.is_table:
        return
    which = "Attempts that ended" if answer.rows else "No attempt ended"
    note(f"{which} from {utc(answer.since)[:10]} to {utc(answer.until - 1)[:10]} (UTC).")


def _has_vos(answer: UsageOfDays) -> bool:
    return answer.by in ("user", "group", "job-group") and len({row.vo for row in answer.rows}) > 1


def _together(rows: Sequence[UsedBy]) -> UsedBy:
    waste: Counter[str] = Counter()
    for row in rows:
        waste.update(row.waste)
    measured_rows = [row for row in rows if row.cpu_efficiency]
    measured = sum(row.cpu_seconds / (row.cpu_efficiency or 1.0) for row in measured_rows)
    cpu = sum(row.cpu_seconds for row in rows)
    return UsedBy(
        name="all", vo="", jobs=sum(row.jobs for row in rows), attempts=sum(row.attempts for row in rows),
        failures=sum(row.failures for row in rows), wall_seconds=sum(row.wall_seconds for row in rows),
        core_seconds=sum(row.core_seconds for row in rows), cpu_seconds=cpu,
        cpu_efficiency=cpu / measured if measured else None,
        wasted_core_seconds=sum(row.wasted_core_seconds for row in rows), waste=dict(waste.most_common()),
    )  # fmt: skip


# --- of pilots ----------------------------------------------------------------------------------------------------------


def _show_held(answer: HeldOfDays, shape: ListShape) -> None:
    many = answer.by == "group" and len({row.vo for row in answer.rows}) > 1
    sums = [_held_together(answer.rows)] if len(answer.rows) > 1 else []
    shape.show(_held_columns(answer.by), answer.rows, ("name", *(["vo"] if many else []), *_HELD), sums=sums)
    if not shape.is_table:
        return
    which = "Hours of pilots" if answer.rows else "No pilot ran"
    note(f"{which} from {utc(answer.since)[:10]} to {utc(answer.until - 1)[:10]} (UTC), up to now.")
    if lost := sum(row.unknown_ends for row in answer.rows):
        note(
            f"Of {counted(lost, 'pilot')} the end is not known: lost, counted until last heard. They held more."
        )
    if unseen := sum(row.unknown_starts for row in answer.rows):
        note(
            f"{counted(unseen, 'pilot')} more ended, never seen to run: what they held is not known, and not in it."
        )
    if answer.purged > answer.since:
        note(f"Pilots that ended before {utc(answer.purged)[:16]} are purged: up to then it is too little.")


def _held_together(rows: Sequence[HeldBy]) -> HeldBy:
    return HeldBy(
        name="all", vo="", pilots=sum(row.pilots for row in rows), live=sum(row.live for row in rows),
        held_core_seconds=sum(row.held_core_seconds for row in rows),
        used_core_seconds=sum(row.used_core_seconds for row in rows),
        idle_core_seconds=sum(row.idle_core_seconds for row in rows),
        unknown_starts=sum(row.unknown_starts for row in rows), unknown_ends=sum(row.unknown_ends for row in rows),
    )  # fmt: skip


# --- of the jobs that are there -----------------------------------------------------------------------------------------


@usage.command("shares")
@with_session
def _shares(session: Session, /) -> None:
    """Show job states, actual and target shares, sites, times, failures."""
    answer = session.answer(calls.USAGE)
    say(f"Jobs: {states(answer.states)}.")
    for word, times in (("Waited", answer.waiting_seconds), ("Ran", answer.running_seconds)):
        say(f"{word}: median {span(times.p50)}, 95th percentile {span(times.p95)}.")
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
    for row in groups:
        shares = (percent(row.compared, compared), percent(row.target, target))
        rows.append([row.group, number(row.share), row.claims, *shares])
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


def _show_correction(correction: ShareCorrection) -> None:
    word = "core-hours" if correction.currency == "core-seconds" else "job starts"
    rows: list[list[Cell]] = []
    for row in correction.groups:
        factor = f"{row.factor:.3g}"
        rows.append(
            [row.group, "", *_used_in(row.used, correction), factor, number(row.share), number(row.corrected)]
        )
        for owner in row.owners[:_MOST_OWNERS] if len(row.owners) > 1 else ():
            factor, weight = f"{owner.factor:.3g}", f"{owner.weight:.3g}"
            rows.append([row.group, owner.owner, *_used_in(owner.used, correction), factor, "1", weight])
    used = [f">in {span(part.time_span)}" for part in correction.slices]
    show_table(("group", "owner", *used, ">factor", ">share", ">corrected"), rows, apart=True)
    say(f"Shares are corrected by usage, in {word}, as of {age(correction.at)} ago.")


def _used_in(amounts: Sequence[float], correction: ShareCorrection) -> list[str]:
    by_hours = correction.currency == "core-seconds"
    return [number(amount / HOUR) if by_hours else f"{amount:,.0f}" for amount in amounts]


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
