"""What the site mask says to `lode why`: which queues administrators closed, and how they are opened again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

from lodesman.answers.vocabulary import ClampName
from lodesman.commands.site_mask import as_row
from lodesman.director.site_mask import Closing, utc
from lodesman.services.why.picture import NOT_LOOKED_AT, Rooms
from lodesman.services.why.step import counted, step

SHOWN: Final = 5
WHO_SHOWN: Final = 3
OPENED: Final = (NOT_LOOKED_AT, "the director has not looked at it since it was opened")

Gate = tuple[str, str]
Found = Sequence[tuple[Closing, int]]
"""Closings, each with the queues of somebody's that it closes."""


def shut(rooms: Rooms, found: Found, eligible: int) -> list[tuple[Gate, int]]:
    """((gate, words), the queues among these that take no pilot), most queues first: what is closed now, and of the
    others what left no room at the director's last iteration.
    """
    gates: dict[Gate, int] = {}
    left = eligible
    for closing, mask in found:
        gate = (ClampName.CLOSED.value, closing.text)
        gates[gate] = gates.get(gate, 0) | mask & left
        left &= ~mask
    for known, mask in rooms.shut(left):
        gate = OPENED if known[0] == ClampName.CLOSED else known
        gates[gate] = gates.get(gate, 0) | mask
    return sorted(((gate, mask) for gate, mask in gates.items() if mask), key=lambda one: -one[1].bit_count())


def mask_step(found: Found, eligible: int, *, may_run: bool) -> dict[str, Any]:
    """The step "site_mask": how many of the eligible queues are closed, by whom, why and since when.

    `may_run`: a pilot may run it all the same, one that was there and may stay.
    """
    closed = 0
    for _, mask in found:
        closed |= mask
    count, total = closed.bit_count(), eligible.bit_count()
    rows = [{**as_row(one), "queues": mask.bit_count()} for one, mask in found[:SHOWN]]
    text = f"{count} of {counted(total, 'eligible queue')} closed by administrators"
    told = "; ".join(
        f"{one.path} is {one.text} ({counted(mask.bit_count(), 'queue')})" for one, mask in found[:SHOWN]
    )
    more = len(found) - SHOWN
    text += f": {told}" if told else ""
    text += f"; and {more} more" if more > 0 else ""
    holds = may_run or not total or count < total
    return step("site_mask", holds, text, closings=rows, more=max(0, more), queues=count, age_seconds=0.0)


def who_opens_them(closings: Iterable[Closing]) -> str:
    """Who can open what is closed, and how."""
    found = list(closings)
    told = [_who(one) for one in found[:WHO_SHOWN]]
    more = len(found) - WHO_SHOWN
    return "; ".join([*told, *([f"and so of {more} more"] if more > 0 else [])])


def _who(closing: Closing) -> str:
    time = "" if closing.until is None else f", or time: at {utc(closing.until)}"
    return f"{closing.closed_by} or another administrator: {command(closing)}{time}"


def command(closing: Closing) -> str:
    """The command that opens it."""
    names = [name for name in closing.node if name]
    words = names if any("/" in name for name in names) else ["/".join(names)]
    return shlex.join(["lode", "site", "open", *words])
