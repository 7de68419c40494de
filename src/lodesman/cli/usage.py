"""`lode usage`: states, actual and target shares, sites, times, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from lodesman.answers import calls
from lodesman.answers.server import Faulty, GroupClaims, PilotCount, SiteOutcomes, Usage
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, say, show_table, state
from lodesman.cli.words import counted, number, span, states


@click.command()
@json_option
@pass_session
def usage(session: Session, /) -> None:
    """Show job states, actual and target shares, sites, times, failures."""
    session.show(calls.USAGE, text=_show)


def _show(answer: Usage) -> None:
    say(f"Jobs: {states(answer.states)}.")
    for word, times in (("Waited", answer.waiting_seconds), ("Ran", answer.running_seconds)):
        say(f"{word}: half at most {span(times.p50)}, 95 % at most {span(times.p95)}.")
    say(f"Attempts: {answer.attempts.attempts:,} of {counted(answer.attempts.jobs, 'job')}.")
    _show_groups(answer.groups)
    _show_sites(answer.sites, answer.pilots)
    _show_faulty(answer.faulty)


def _show_groups(groups: Sequence[GroupClaims]) -> None:
    if not groups:
        return
    compared = sum(group.compared for group in groups)
    target = sum(group.target for group in groups)
    cells: list[list[Cell]] = [
        [group.group, number(group.share), f"{group.claims:,}", _part(group.compared, compared),
         _part(group.target, target)]
        for group in groups
    ]  # fmt: skip
    click.echo()
    show_table(("group", ">share", ">job starts", ">actual", ">target"), cells)


def _part(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _show_sites(sites: Sequence[SiteOutcomes], pilots: Sequence[PilotCount]) -> None:
    live: dict[str, dict[str, int]] = {}
    for row in pilots:
        live.setdefault(row.site, {})[row.state] = row.pilots
    ended = {row.site: row for row in sites}
    cells: list[list[Cell]] = [
        [
            name,
            states(ended[name].outcomes if name in ended else {}),
            span(ended[name].cpu_seconds if name in ended else None),
            states(live.get(name, {})),
        ]
        for name in sorted({*ended, *live})
    ]
    if cells:
        click.echo()
        show_table(("site", "ended attempts", ">cpu", "pilots"), cells)


def _show_faulty(faulty: Sequence[Faulty]) -> None:
    """Held, failed and killed jobs by their reason."""
    counts: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], int] = {}
    for row in faulty:
        kind = (row.state, row.reason)
        counts[kind] += row.count
        example.setdefault(kind, row.id)
    if counts:
        cells: list[list[Cell]] = [
            [f"{n:,}", state(kind[0]), str(example[kind]), kind[1]] for kind, n in counts.most_common(20)
        ]
        click.echo()
        show_table((">jobs", "state", ">for instance", "reason"), cells)


COMMANDS = (usage,)
