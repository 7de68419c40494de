"""`lode plan --gate`: what the director would do if sites advertised other limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from lodesman.user.cli.plan_resources import show_director
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import patience
from lodesman.wire import calls
from lodesman.wire.site_ads import PlanGatesBody

_GATE: Final = re.compile(r"(?P<site>.+?):(?P<name>[A-Za-z_]\w*)=(?P<text>.+)", re.DOTALL)


class GateChange(NamedTuple):
    """An attribute that a site is taken to advertise, with its expression."""

    site: str
    name: str
    text: str


def gate_change(word: str) -> GateChange:
    """SITE:ATTRIBUTE=EXPRESSION. Raises ValueError for anything else."""
    found = _GATE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word[:60]!r} is not SITE:ATTRIBUTE=EXPRESSION, as North:MaxJobs=200.")
    return GateChange(found["site"], found["name"], found["text"])


def plan_gates(session: Session, gates: Iterable[GateChange], limit: int) -> None:
    """Show the next iteration of the director as sites advertise themselves, and with these attributes instead."""
    asked: dict[str, dict[str, str]] = {}
    for one in gates:
        asked.setdefault(one.site, {})[one.name] = one.text
    with patience("The server works out two iterations of the director."):
        answer = session.answer(calls.PLAN_GATES, body=PlanGatesBody(asked, limit=limit))
    show_director(answer)
