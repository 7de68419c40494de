"""`lode usage`: what jobs used, day by day; and the states, shares, times and failures of the jobs that are there."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, cast

import click

from lodesman.user.cli.moments import PAST_UTC
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table, state
from lodesman.user.cli.words import age, counted, joined, number, percent, span, states
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
_HOUR: Final = 3_600.0
_FEW_CAUSES: Final = 3
_USED = (">jobs", ">failures", ">wall h", ">core h", ">CPU", ">wasted h", "wasted by")
_CSV = (
    "name", "vo", "jobs", "attempts", "failures", "wall_hours", "core_hours", "cpu_hours", "cpu_efficiency",
    "wasted_core_hours", "waste",
)  # fmt: skip
_HELD = (">pilots", ">live", ">held core h", ">used core h", ">idle core h", ">used")
_HELD_CSV = (
    "name", "vo", "pilots", "live", "held_core_hours", "used_core_hours", "idle_core_hours", "unknown_starts",
    "unknown_ends",
)  # fmt: skip


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
    days = _second(since), _second(until)
    if pilots:
        held = session.call(calls.PILOT_HOURS, PilotHoursQuery(cast("PilotHoursBy", by or "site"), *days))
        session.exit_if_json(held)
        (_write_held if as_csv else _show_held)(held)
        return
    found = session.call(calls.USED, UsageQuery(cast("UsageBy", by or "group"), *days))
    session.exit_if_json(found)
    if as_csv:
        _write_csv(found.rows)
        return
    _show_used(found)


def _second(at: float | None) -> int:
    """As the query has it: 0 if no time was given."""
    return 0 if at is None else max(1, int(at))


def _show_used(found: UsageOfDays) -> None:
    many = _has_vos(found)
    rows: list[list[Cell]] = [
        [_name(found.by, one), *([one.vo] if many else []), *_used(one)] for one in found.rows
    ]
    if len(found.rows) > 1:
        rows.append(["all", *([""] if many else []), *_used(_together(found.rows))])
    show_table((found.by, *(["VO"] if many else []), *_USED), rows)
    which = "Attempts that ended" if found.rows else "No attempt ended"
    note(f"{which} from {utc(found.since)[:10]} to {utc(found.until - 1)[:10]} (UTC).")


def _name(by: UsageBy, one: UsedBy) -> str:
    nothing = {"class": "no class", "job-group": "no JobGroup"}
    return one.name or ("others" if one.others is True else nothing.get(by, "others"))


def _has_vos(found: UsageOfDays) -> bool:
    """Whether names alone could mean several."""
    return found.by in ("user", "group", "job-group") and len({one.vo for one in found.rows}) > 1


def _together(rows: Sequence[UsedBy]) -> UsedBy:
    waste: Counter[str] = Counter()
    for one in rows:
        waste.update(one.waste)
    known = [one for one in rows if one.cpu_efficiency]
    measured = sum(one.cpu_seconds / (one.cpu_efficiency or 1.0) for one in known)
    cpu = sum(one.cpu_seconds for one in rows)
    return UsedBy(
        name="", vo="", jobs=sum(one.jobs for one in rows), attempts=sum(one.attempts for one in rows),
        failures=sum(one.failures for one in rows), wall_seconds=sum(one.wall_seconds for one in rows),
        core_seconds=sum(one.core_seconds for one in rows), cpu_seconds=cpu,
        cpu_efficiency=cpu / measured if measured else None,
        wasted_core_seconds=sum(one.wasted_core_seconds for one in rows), waste=dict(waste.most_common()),
    )  # fmt: skip


def _used(one: UsedBy) -> list[Cell]:
    few = [f"{cause} {_hours(amount)} h" for cause, amount in list(one.waste.items())[:_FEW_CAUSES]]
    more = len(one.waste) - len(few)
    efficiency = "-" if one.cpu_efficiency is None else percent(one.cpu_efficiency)
    hours = (_hours(one.wall_seconds), _hours(one.core_seconds))
    causes = joined([*few, *([f"{more} more"] if more else [])])
    return [one.jobs, one.failures, *hours, efficiency, _hours(one.wasted_core_seconds), causes]


def _hours(seconds: float) -> str:
    hours = seconds / _HOUR
    return number(round(hours, 1 if hours >= 1 else 3))


def _write_csv(rows: Sequence[UsedBy]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(_CSV)
    for one in rows:
        efficiency = "" if one.cpu_efficiency is None else f"{one.cpu_efficiency:.6f}"
        times = (f"{part / _HOUR:.6f}" for part in (one.wall_seconds, one.core_seconds, one.cpu_seconds))
        counts = (one.jobs, one.attempts, one.failures)
        wasted = (f"{one.wasted_core_seconds / _HOUR:.6f}", _causes(one.waste))
        table.writerow((one.name, one.vo, *counts, *times, efficiency, *wasted))


def _causes(waste: Mapping[str, float]) -> str:
    return ";".join(f"{cause}={amount / _HOUR:.6f}" for cause, amount in waste.items())


# --- of pilots ----------------------------------------------------------------------------------------------------------


def _write_held(found: HeldOfDays) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(_HELD_CSV)
    for one in found.rows:
        hours = (f"{part / _HOUR:.6f}" for part in _held(one))
        table.writerow((one.name, one.vo, one.pilots, one.live, *hours, one.unknown_starts, one.unknown_ends))


def _held(one: HeldBy) -> tuple[float, ...]:
    return one.held_core_seconds, one.used_core_seconds, one.idle_core_seconds


def _show_held(found: HeldOfDays) -> None:
    many = found.by == "group" and len({one.vo for one in found.rows}) > 1
    rows: list[list[Cell]] = [
        [one.name or "all groups", *([one.vo] if many else []), *_held_cells([one])] for one in found.rows
    ]
    if len(found.rows) > 1:
        rows.append(["all", *([""] if many else []), *_held_cells(found.rows)])
    show_table((found.by, *(["VO"] if many else []), *_HELD), rows)
    which = "Hours of pilots" if found.rows else "No pilot ran"
    note(f"{which} from {utc(found.since)[:10]} to {utc(found.until - 1)[:10]} (UTC), up to now.")
    if lost := sum(one.unknown_ends for one in found.rows):
        note(
            f"Of {counted(lost, 'pilot')} the end is not known: lost, counted until last heard. They held more."
        )
    if unseen := sum(one.unknown_starts for one in found.rows):
        note(
            f"{counted(unseen, 'pilot')} more ended, never seen to run: what they held is not known, and not in it."
        )
    if found.purged > found.since:
        note(f"Pilots that ended before {utc(found.purged)[:16]} are purged: up to then it is too little.")


def _held_cells(rows: Sequence[HeldBy]) -> list[Cell]:
    held, used, idle = (sum(column) for column in zip(*map(_held, rows), strict=True))
    pilots, live = sum(one.pilots for one in rows), sum(one.live for one in rows)
    return [pilots, live, _hours(held), _hours(used), _hours(idle), percent(used, held)]


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
            [one.group, "", *_used_in(one.used, found), factor, number(one.share), number(one.corrected)]
        )
        for owner in one.owners[:_MOST_OWNERS] if len(one.owners) > 1 else ():
            factor, weight = f"{owner.factor:.3g}", f"{owner.weight:.3g}"
            rows.append([one.group, owner.owner, *_used_in(owner.used, found), factor, "1", weight])
    used = [f">in {span(one.time_span)}" for one in found.slices]
    show_table(("group", "owner", *used, ">factor", ">share", ">corrected"), rows, apart=True)
    say(f"Shares are corrected by usage, in {word}, as of {age(found.at)} ago.")


def _used_in(amounts: Sequence[float], found: ShareCorrection) -> list[str]:
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
