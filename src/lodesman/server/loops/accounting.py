"""What jobs used, day by day."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from lodesman.base.errors import InvalidRequest
from lodesman.server.store import Reader
from lodesman.server.store.accounting import UsageOfSome, next_usage
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.usage import (
    DAY_SECONDS,
    OK,
    PilotHoursQuery,
    UsageBy,
    UsageDays,
    UsageOfDays,
    UsageQuery,
    UsedBy,
)

_LOOK_SECONDS: Final = 60.0  # each attempt that has not ended by then costs the writer a row
_AT_ONCE: Final = 10_000
NEWEST: Final = 50_000  # the most attempts that an answer adds up before they are stored
_USUAL_DAYS: Final = 7
_S: Final = 1_000.0
_OF_OWNERS: Final = ("user", "job-group")

May = Callable[[str, str, str], bool]  # (owner, group, VO) -> whether the caller may know the owner


@dataclass(slots=True)
class UsageAdder:
    """Adds up each ended attempt once: the writer refuses sums of attempts that changed."""

    db: Reader
    post: Post
    at_once: int = _AT_ONCE
    _looked: float | None = None

    def tick(self, now: float) -> None:
        """Send a portion if one is due; after LodesmanError it is read again."""
        if self._looked is not None and 0.0 <= now - self._looked < _LOOK_SECONDS:
            return
        usage = next_usage(self.db, self.at_once)
        if usage.last > usage.done or usage.closed:
            self.post(inner_calls.USAGE_ADDED, usage)
        if usage.last - usage.done < self.at_once and len(usage.closed) < self.at_once:
            self._looked = now

    def rest(self, now: float) -> float:
        """Seconds to the next portion."""
        return 0.0 if self._looked is None else self._looked + _LOOK_SECONDS - now


def days_of(query: UsageQuery | PilotHoursQuery, now: float) -> UsageDays:
    """Raises InvalidRequest if the first day is after the last."""
    last = math.floor((query.until or now) / DAY_SECONDS)
    first = query.since // DAY_SECONDS if query.since else last - _USUAL_DAYS + 1
    if first > last:
        raise InvalidRequest("The first day is after the last one.", parameter="since")
    return UsageDays(first, last)


def answer_usage(usages: Iterable[UsageOfSome], by: UsageBy, days: UsageDays, may: May) -> UsageOfDays:
    """Owners and JobGroups are named that `may` admits."""
    rows: dict[tuple[str, str, bool], list[UsageOfSome]] = defaultdict(list)
    for usage in usages:
        names = {
            "user": usage.owner,
            "group": usage.group,
            "site": usage.site,
            "vo": usage.vo,
            "class": usage.job_class,
            "job-group": usage.job_group,
        }
        others = by in _OF_OWNERS and not may(usage.owner, usage.group, usage.vo)
        rows["" if others else names[by], usage.vo, others].append(usage)
    used = [
        replace(_row(name, vo, some), others=others or UNSET) for (name, vo, others), some in rows.items()
    ]
    used.sort(key=lambda usage: (-usage.core_seconds, usage.name, usage.vo))
    return UsageOfDays(by=by, since=days.first * DAY_SECONDS, until=(days.last + 1) * DAY_SECONDS, rows=used)


def _row(name: str, vo: str, some: Iterable[UsageOfSome]) -> UsedBy:
    waste: Counter[str] = Counter()
    failures = 0
    sums = [0] * 6
    for usage in some:
        sums = [a + b for a, b in zip(sums, usage.sums, strict=True)]
        if usage.cause != OK:
            waste[usage.cause] += usage.sums.core_ms
            failures += usage.sums.attempts
    attempts, jobs, wall, core, cpu, measured = sums
    return UsedBy(
        name=name,
        vo=vo,
        jobs=jobs,
        attempts=attempts,
        failures=failures,
        wall_seconds=wall / _S,
        core_seconds=core / _S,
        cpu_seconds=cpu / _S,
        cpu_efficiency=cpu / measured if measured else None,
        wasted_core_seconds=waste.total() / _S,
        waste={cause: amount / _S for cause, amount in waste.most_common()},
    )
