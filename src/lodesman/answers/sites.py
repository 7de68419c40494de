"""Answers about sites, CEs and queues, as configured and as used."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from lodesman.answers.nodes import Place, Value, Written
from lodesman.answers.vocabulary import Level

# A `Level`, or what the program itself takes where none says anything.
AnyLevel = Literal[
    "default", "CE type", "site", "site(VO)", "CE", "CE(VO)", "queue", "queue(VO)", "built-in"
]  # fmt: skip
# A `Kind`, or nothing of parameters that are not declared.
DeclaredKind = Literal["number", "string", "list", "version", "boolean", "deduced", ""]


class Closing(Place):
    """A site, CE (`queue` is '') or queue that is closed: by whom, why, since when, and until when (None: until it is
    opened). `keep_pilots`: those that were there take jobs.
    """

    reason: str
    closed_by: str
    since: float
    until: float | None
    keep_pilots: bool


class ClosingThere(Closing):
    """One that closes so many of the eligible CE queues."""

    queues: int


class SiteClosed(ClosingThere):
    """What closing did to so many configured CE queues: `drained` pilots leave. `renewed`: it was closed already. A dry
    run did nothing.
    """

    drained: int
    renewed: bool
    dry_run: bool


class SiteOpened(ClosingThere):
    """What was opened, and what is closed around it or in it all the same."""

    still_closed: list[Closing]


class SiteRow(Struct):
    """A configured site: how many CEs and queues it has, its live pilots by state, the jobs that run there, and what of
    it is closed.
    """

    site: str
    ces: int
    queues: int
    pilots: dict[str, int]
    running_jobs: int
    closed: list[Closing]


class Sites(Struct):
    """All configured sites, in their order; and all that is closed, be it configured or not."""

    sites: list[SiteRow]
    closed: list[Closing]


class EffectiveValue(Struct):
    """The value that holds for a queue, and the level that says it; where it is written, if `origin` was asked for."""

    value: Value
    level: Level
    file: str | UnsetType = UNSET
    line: int | UnsetType = UNSET


class QueueRow(Place):
    """A CE queue that the VO may use, its parameters by name, its live pilots by state, and what closes it."""

    parameters: dict[str, EffectiveValue]
    pilots: dict[str, int]
    closed: list[Closing]


class Queues(Struct):
    """All CE queues that a VO may use, in the order of the configuration."""

    queues: list[QueueRow]


class Said(Written):
    """What one level says of a parameter; `counts`: it has a part in the value that holds."""

    level: Level
    value: Value
    counts: bool


class Parameter(Written):
    """A value that holds, in `unit`; `levels` say it, and `level` is the strongest of them.

    `made_of`: the parameter that a built-in value was made of. `said`: all that the levels say, the strongest first.
    """

    name: str
    value: Value
    type: DeclaredKind
    unit: str
    level: AnyLevel
    levels: list[Level]
    made_of: str
    said: list[Said]


class NodeBelow(Written):
    """A site, CE or queue with the parameters that it does not merely inherit; names that it has not are empty.

    `grid`: the section that the site stands under in a DIRAC configuration. `allowed`: the VO may use it.
    """

    kind: Literal["Site", "CE", "Queue"]
    site: str
    ce: str
    queue: str
    grid: str
    allowed: bool
    parameters: list[Parameter]
    below: list[NodeBelow]


class ResourceNode(NodeBelow):
    """A site, CE or queue with all its parameters as a VO sees them ('': nobody in particular)."""

    vo: str
