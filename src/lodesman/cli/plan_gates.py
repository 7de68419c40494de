"""`lode plan gate`: what the director would do if sites advertised other limits."""

from __future__ import annotations

import re
from typing import Final

import click

from lodesman.answers import calls
from lodesman.answers.site_ads import PlanGatesBody
from lodesman.cli.arguments import Parsed, limit_option
from lodesman.cli.plan_resources import show_director
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import patience

_GATE: Final = re.compile(r"(?P<site>.+?):(?P<name>[A-Za-z_]\w*)=(?P<text>.+)", re.DOTALL)


def _gate(word: str) -> tuple[str, str, str]:
    """SITE:ATTRIBUTE=EXPRESSION. Raises ValueError for anything else."""
    found = _GATE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word[:60]!r} is not SITE:ATTRIBUTE=EXPRESSION, as North:MaxJobs=200.")
    return found["site"], found["name"], found["text"]


@click.command("gate")
@click.argument(
    "gates", nargs=-1, required=True, type=Parsed("gate", _gate), metavar="SITE:ATTRIBUTE=EXPRESSION..."
)
@limit_option(100, 10_000, "rows of each list", least=0)
@with_session
def plan_gates(session: Session, /, *, gates: tuple[tuple[str, str, str], ...], limit: int) -> None:
    """Plan other ads of sites: what the director would do next (administrators).

    Each site is taken to advertise now what its last ad says, with these attributes instead: lode plan gate
    FNAL:MaxJobs=200 FNAL:MaxSubmittingJobs=20. A site that never advertised says these alone. Shown are the pilots by
    group and queue, before and after, and the limits that bind.
    """
    asked: dict[str, dict[str, str]] = {}
    for site, name, text in gates:
        asked.setdefault(site, {})[name] = text
    with patience("The server works out two iterations of the director."):
        answer = session.answer(calls.PLAN_GATES, body=PlanGatesBody(asked, limit=limit))
    show_director(answer)
