"""Sites, CEs and queues: their names, their parameters, and what of them is closed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from lodesman.wire.call import Page
from lodesman.wire.vocabulary import BreakerState, Level

Scalar = str | int | float | bool
# Of a parameter, as configured or asked for.
Value = Scalar | list[Scalar]


class NodePath(NamedTuple):
    """A site, a CE or a queue: the names below the node are empty."""

    site: str
    ce: str = ""
    queue: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, self))

    def covers(self, node: NodePath) -> bool:
        """It is that node, or has it; empty names stand for any."""
        return all(mine in ("", theirs) for mine, theirs in zip(self, node, strict=True))

    @property
    def kind(self) -> Literal["Site", "CE", "Queue"]:
        """What it is."""
        return "Queue" if self.queue else "CE" if self.ce else "Site"


class QueueId(NodePath):
    """The identity of a CE queue: all three names are given."""

    __slots__ = ()

    @property
    def ce_path(self) -> NodePath:
        """The computing element it belongs to."""
        return NodePath(self.site, self.ce)


class Place(Struct, frozen=True):
    """A CE queue."""

    site: str
    ce: str
    queue: str


class Written(Struct, frozen=True):
    """Where in the configuration something is written."""

    file: str  # '': nowhere.
    section: str
    line: int  # Counts from 1; 0: nowhere.


class Remark(Struct, frozen=True):
    """What is wrong with a configuration, or odd about it."""

    message: str
    source: str  # The file.
    section: str
    line: int  # 0: unknown.


class QueuesExcluded(Struct, frozen=True):
    """How many CE queues one criterion excludes, whatever the others say."""

    criterion: str
    queues: int


# A `Level`, or what the program itself takes where none says anything.
_AnyLevel = Literal[
    "default", "CE type", "site", "site(VO)", "CE", "CE(VO)", "queue", "queue(VO)", "built-in"
]  # fmt: skip
# A `Kind`, or nothing of parameters that are not declared.
_DeclaredKind = Literal["number", "string", "list", "version", "boolean", "deduced", "expression", ""]


class BreakerBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order for the breaker of a queue."""

    path: str  # SITE/CE/QUEUE.
    # To open and stay so, to close and stay so, or to move by itself again.
    order: Literal["open", "close", "auto"]
    reason: str = ""


class BreakerOrder(Place, frozen=True):
    """What an administrator ordered for the breaker of a queue."""

    state: Literal["open", "closed"]
    reason: str
    ordered_by: str
    at: float  # UNIX seconds.

    @property
    def text(self) -> str:
        """Who ordered it, when and why."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.state} by order of {self.ordered_by} since {utc(self.at)}{why}"


class BreakerOrdered(Struct, frozen=True, kw_only=True):
    """The order for a queue's breaker."""

    path: str
    now: BreakerOrder | None  # The one that holds; None: the breaker moves by itself.
    before: BreakerOrder | None


CLOSED_BY: Final = "closed by"


# Before a closing that was announced begins, what pilots have to leave.
_LEAVE_SECONDS: Final = 60.0


class Closing(Place, frozen=True):
    """A closed site, CE (`queue` is empty) or queue."""

    reason: str
    closed_by: str
    since: float
    until: float | None  # None: until it is opened.
    keep_pilots: bool  # Pilots there take jobs.
    # The closing was announced at `since`, and nothing shall run there from then on.
    begins: float | UnsetType = UNSET

    @property
    def node(self) -> NodePath:
        """What is closed."""
        return NodePath(self.site, self.ce, self.queue)

    @property
    def start(self) -> float:
        """From when on it is closed."""
        return self.since if self.begins is UNSET else self.begins

    def is_ahead(self, now: float) -> bool:
        """Whether it was announced and has not begun."""
        return self.begins is not UNSET and now < self.begins

    def is_over(self, now: float) -> bool:
        """At `until` it is over."""
        return self.until is not None and now >= self.until

    def holds(self, now: float) -> bool:
        """At `until` it is open."""
        return not (self.is_ahead(now) or self.is_over(now))

    def shuts_out(self, now: float, life_seconds: float) -> bool:
        """No pilot is sent: it holds, or could begin while one runs that lives that long (0: for any time)."""
        if self.is_over(now) or not self.is_ahead(now):
            return not self.is_over(now)
        return not life_seconds or now + life_seconds > self.start

    def empties(self, now: float) -> bool:
        """Pilots that are there leave: they may not stay, and it holds or is about to."""
        return not (self.keep_pilots or self.is_over(now) or self.is_ahead(now + _LEAVE_SECONDS))

    def concerns(self, node: NodePath) -> bool:
        """It closes a node, a part of it, or all around it."""
        return self.node.covers(node) or node.covers(self.node)

    @property
    def text(self) -> str:
        """Who closed it, since when and why."""
        return f"{CLOSED_BY} {self.closed_by} since {utc(self.start)}{self._until}: {self.reason}"

    @property
    def _until(self) -> str:
        return "" if self.until is None else f" until {utc(self.until)}"

    def text_at(self, now: float) -> str:
        """Before it begins, from when on and by whose order."""
        if not self.is_ahead(now):
            return self.text
        return f"to be closed from {utc(self.start)}{self._until}, says {self.closed_by}: {self.reason}"

    def ahead_text(self, now: float) -> str:
        """What an announced closing means for jobs."""
        minutes = int((self.start - now) // 60)
        jobs = (
            f"jobs that ask for at most {minutes} min of CPUTime still start" if minutes else "no job starts"
        )
        return f"{self.text_at(now)}; until then {jobs}"


def by_time(closings: Iterable[Closing], now: float) -> dict[str, Any]:
    """What is `closed` and what is `announced`, if there is any."""
    every = list(closings)
    ahead = [closing for closing in every if closing.is_ahead(now)]
    return {
        "closed": [closing for closing in every if not closing.is_ahead(now)],
        "announced": ahead or UNSET,
    }


def utc(at: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """As 2026-11-21 21:30 UTC; one that no calendar has in words."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(f"{form} UTC")
    except (OverflowError, ValueError, OSError):
        return "a time that no calendar has"


class ClosedQueues(Closing, frozen=True, kw_only=True):
    """A closing, and how many eligible CE queues it closes."""

    queues: int


class SiteClosed(ClosedQueues, frozen=True, kw_only=True):
    """A closing of configured CE queues."""

    drained: int  # How many pilots leave.
    renewed: bool  # It was closed before.
    dry_run: bool
    # Of the queues of a closing that was announced, those that get no pilots until it is over, since no end of these
    # is known.
    endless: int | UnsetType = UNSET
    # What was announced for the same node, and is no more, since it is closed now.
    replaced: Closing | UnsetType = UNSET


class SiteOpened(ClosedQueues, frozen=True, kw_only=True):
    """What was opened."""

    still_closed: list[Closing]  # Around it or in it.
    staying: int  # How many pilots were to leave, and do not now.


class FailingQueue(Place, frozen=True):
    """A CE queue whose last pilots did not start, or whose breaker has an order."""

    breaker: BreakerState
    failures: int  # In a row.
    retry_at: float | None  # When one pilot tries it again, UNIX seconds; None if others are sent.
    reason: str  # Of the last failure.
    order: str  # By whom, when and why; '': none.


class SiteRow(Struct, frozen=True):
    """A configured site."""

    site: str
    ces: int  # How many it has.
    queues: int  # How many it has.
    pilots: dict[str, int]  # Live ones by state.
    running_jobs: int
    closed: list[Closing]  # What of it is closed.
    failing: list[FailingQueue] = []  # Its queues where pilots do not start.
    max_running_jobs: int | UnsetType = UNSET  # How many of all VOs may run there, if that is limited.
    ad_at: float | UnsetType = UNSET  # When its newest ad came, of a site that advertises.
    ad_is_too_old: bool | UnsetType = UNSET  # So its gate is shut.
    announced: list[Closing] | UnsetType = UNSET  # What of it is going to be closed.


class Sites(Page, frozen=True):
    """All configured sites, in their order, and all closings, also of what is not configured."""

    sites: list[SiteRow]
    closed: list[Closing]
    announced: list[Closing] | UnsetType = UNSET  # Closings to come.


class EffectiveValue(Struct, frozen=True):
    """The value that holds for a queue."""

    value: Value
    level: Level  # Where it comes from.
    file: str | UnsetType = UNSET  # Where it is written, if `origin` was asked for.
    line: int | UnsetType = UNSET


class UsableQueue(Place, frozen=True):
    """A CE queue that the VO may use."""

    parameters: dict[str, EffectiveValue]  # By name.
    pilots: dict[str, int]  # Live ones by state.
    closed: list[Closing]  # What closes it.
    failing: FailingQueue | UnsetType = UNSET  # If its last pilots did not start.
    announced: list[Closing] | UnsetType = UNSET  # What is going to close it.


class Queues(Page, frozen=True):
    """All CE queues that a VO may use, in the order of the configuration."""

    queues: list[UsableQueue]


class LevelValue(Written, frozen=True):
    """The value of a parameter at one level."""

    level: Level
    value: Value
    counts: bool  # It is a part of the value that holds.


class QueueSetting(Written, frozen=True):
    """A value that holds."""

    name: str
    value: Value
    level: _AnyLevel  # The strongest that gives it.
    made_of: str  # The source of a built-in one.


class Parameter(QueueSetting, frozen=True):
    """A parameter and the value that holds."""

    type: _DeclaredKind
    unit: str  # Of the value.
    levels: list[Level]  # Those that give the value.
    said: list[LevelValue]  # The values of all levels, the strongest first.


class NodeBelow(Written, frozen=True):
    """A site, CE or queue with the parameters that it does not merely inherit."""

    kind: Literal["Site", "CE", "Queue"]
    site: str
    ce: str  # '' of a site.
    queue: str  # '' of a site and of a CE.
    grid: str  # The section of a DIRAC configuration with the site.
    allowed: bool  # The VO may use it.
    parameters: list[Parameter]
    below: list[NodeBelow]


class ResourceNode(NodeBelow, frozen=True):
    """A site, CE or queue with all its parameters as a VO sees them."""

    vo: str  # '': as declared for all.
    # Those that hold around it or in it, and those that are announced; left out if there are none.
    closings: list[Closing] | UnsetType = UNSET
