"""What attempts used, by day; each ended attempt counts once (ADR 0069)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lodesman.base.errors import Conflict
from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, greatest, keys, member
from lodesman.server.store.read.upkeep import CHAIN, last_of_portion
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.usage import (
    DAY_SECONDS,
    OK,
    UNKNOWN_CLASS,
    UNKNOWN_GROUP,
    UsageBy,
    UsageDays,
    UsageIncrement,
    UsageKey,
    UsageSums,
)

RETURNED: Final = "returned"
"""The cause of attempts that a pilot had ahead and gave back: they count as none (ADR 0077)."""
CAUSES: Final = frozenset({
    OK, "exit", "signal", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "not-started", "never-started", "input",
    "warden-lost", "killed", "pilot-shutdown", "pilot-lost", "lease-expired", "not-named", "not-taken",
    RETURNED, NODE_FAULT,
})  # fmt: skip
"""Pilots send causes as texts; all others are added up as one."""
_FAILURES: Final = CAUSES - {OK}
_OTHER: Final = "other"
_MS: Final = 1_000


def _of_class(alias: str) -> str:
    variant = f"coalesce({member(f'{alias}.key', 'variant')}, '')"
    return f"coalesce(({member(f'{alias}.key', 'job_class')}) || '.' || {variant}, '')"


def _of_group(alias: str) -> str:
    return f"coalesce({member(f'{alias}.key', 'project')}, '')"


_ENDED = f"""SELECT a.id, s.owner, s.grp, s.vo, a.site, a.outcome, a.cause, a.number, a.started_at, a.ended_at,
a.cpu_seconds, CASE WHEN q.id IS NOT NULL THEN coalesce({member("q.key", "cores")}, '1')
WHEN r.id IS NOT NULL THEN coalesce({member("r.key", "cores")}, '1') END,
CASE WHEN q.id IS NOT NULL THEN {_of_class("q")} WHEN r.id IS NOT NULL THEN {_of_class("r")} END,
CASE WHEN q.id IS NOT NULL THEN {_of_group("q")} WHEN r.id IS NOT NULL THEN {_of_group("r")} END
FROM {{}} JOIN job j ON j.id = a.job_id JOIN submission s ON s.id = j.submission_id
LEFT JOIN task_queue q ON q.id = a.tq_id LEFT JOIN task_queue r ON r.id = j.tq_id WHERE a.ended_at IS NOT NULL AND """
_OF_ATTEMPTS = _ENDED.format("attempt a")
_OF_OPEN = _ENDED.format("usage_open o JOIN attempt a ON a.id = o.attempt_id")
_BETWEEN = "a.id > ? AND a.id <= ?"
_STILL_OPEN = "SELECT id FROM attempt WHERE id > ? AND id <= ? AND ended_at IS NULL"
_STATE = "SELECT done, changes, purged FROM usage_fold"
_IS_IN = """SELECT count(*) FROM usage_fold
WHERE done >= ? AND NOT EXISTS (SELECT 1 FROM usage_open WHERE attempt_id = ?)"""
# The attempts in these chains that are not added up yet.
_NOT_IN = f"""{CHAIN.format("attempt")} SELECT id FROM chain
WHERE id > (SELECT done FROM usage_fold) OR id IN (SELECT attempt_id FROM usage_open)"""
_LAST_END = f"{CHAIN.format('attempt')} SELECT max(ended_at) FROM attempt WHERE id IN (SELECT id FROM chain)"
_KEY: Final = "day = ? AND owner = ? AND grp = ? AND vo = ? AND site = ? AND cause = ? AND job_class = ? AND job_group = ?"
_ADD = Statement(
    sql="""INSERT INTO usage_day
    (day, owner, grp, vo, site, cause, job_class, job_group, attempts, jobs, wall_ms, core_ms, cpu_ms, measured_core_ms)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (day, owner, grp, vo, site, cause, job_class, job_group) DO UPDATE SET
    attempts = usage_day.attempts + excluded.attempts, jobs = usage_day.jobs + excluded.jobs,
    wall_ms = usage_day.wall_ms + excluded.wall_ms, core_ms = usage_day.core_ms + excluded.core_ms,
    cpu_ms = usage_day.cpu_ms + excluded.cpu_ms,
    measured_core_ms = usage_day.measured_core_ms + excluded.measured_core_ms""",
    key=(0, 1, 2, 3, 4, 5, 6, 7),
)
_INSERT_OPEN = Statement(sql="INSERT INTO usage_open (attempt_id) VALUES (?)", key=(0,))
_DONE = "UPDATE usage_fold SET changes = changes + 1, done = ? WHERE one = 1"
_SUMS: Final = "attempts, jobs, wall_ms, core_ms, cpu_ms, measured_core_ms"
_ALL = f"SELECT day, owner, grp, vo, site, cause, job_class, job_group, {_SUMS} FROM usage_day"
# What a reader distinguishes, as (owner, group, VO, site, class, JobGroup). Owner, group and VO say who may read it.
_COLUMNS: Final[dict[UsageBy, str]] = {
    "user": "owner, grp, vo, '', '', ''",
    "group": "'', grp, vo, '', '', ''",
    "site": "'', '', '', site, '', ''",
    "vo": "'', '', vo, '', '', ''",
    "class": "'', '', '', '', job_class, ''",
    "job-group": "owner, grp, vo, '', '', job_group",
}
_SHOWN: Final[dict[UsageBy, Callable[[UsageKey], tuple[str, str, str, str, str, str]]]] = {
    "user": lambda key: (key.owner, key.group, key.vo, "", "", ""),
    "group": lambda key: ("", key.group, key.vo, "", "", ""),
    "site": lambda key: ("", "", "", key.site, "", ""),
    "vo": lambda key: ("", "", key.vo, "", "", ""),
    "class": lambda key: ("", "", "", "", key.job_class, ""),
    "job-group": lambda key: (key.owner, key.group, key.vo, "", "", key.job_group),
}
_BY = f"""SELECT {{}}, cause, {", ".join(f"sum({name})" for name in _SUMS.split(", "))}
FROM usage_day WHERE day >= ? AND day <= ? AND ? IN ('', vo) GROUP BY 1, 2, 3, 4, 5, 6, 7"""


class _UsageState(NamedTuple):
    done: int  # attempts up to this one are added up, but for the open ones
    changes: int  # how often sums were changed since the beginning
    purged: float  # when the last purged attempt ended, UNIX seconds


class UsageOfSome(NamedTuple):
    """Sums by what a reader distinguishes; other columns are ''."""

    owner: str
    group: str
    vo: str
    site: str
    job_class: str
    job_group: str
    cause: str
    sums: UsageSums


_NOTHING: Final = UsageSums(0, 0, 0, 0, 0, 0)


def _plus(sums: UsageSums, other: UsageSums) -> UsageSums:
    return UsageSums(*map(sum, zip(sums, other, strict=True)))


class _EndedAttempt(NamedTuple):
    id: int
    owner: str
    group: str
    vo: str
    site: str
    outcome: str
    cause: str
    number: int
    started_at: float | None
    ended_at: float
    cpu_seconds: float | None
    cores: str | int | None  # this and the next two are None if its task queue is gone
    job_class: str | None
    job_group: str | None

    @property
    def key(self) -> UsageKey:
        cause = self.cause if self.cause in _FAILURES else _OTHER
        if self.outcome == "Done" or self.is_none:
            cause = OK
        day = math.floor(self.ended_at / DAY_SECONDS)
        job_class = UNKNOWN_CLASS if self.job_class is None else self.job_class
        job_group = UNKNOWN_GROUP if self.job_group is None else self.job_group
        return UsageKey(day, self.owner, self.group, self.vo, self.site, cause, job_class, job_group)

    @property
    def is_none(self) -> bool:
        """Its pilot gave it back before it started: only its job counts then."""
        return self.outcome == "Released" and self.cause == RETURNED and self.started_at is None

    @property
    def sums(self) -> UsageSums:
        """An attempt that never started used nothing; a payload has at least one core."""
        wall = 0.0 if self.started_at is None else max(0.0, self.ended_at - self.started_at)
        core_ms = round(wall * int(self.cores or 1) * _MS)
        is_measured, cpu = self.cpu_seconds is not None, self.cpu_seconds or 0.0
        return UsageSums(
            int(not self.is_none),
            int(self.number == 1),
            round(wall * _MS),
            core_ms,
            round(cpu * _MS),
            core_ms if is_measured else 0,
        )


def _added(ended: Iterable[_EndedAttempt]) -> dict[UsageKey, UsageSums]:
    alike: dict[UsageKey, list[UsageSums]] = defaultdict(list)
    for attempt in ended:
        alike[attempt.key].append(attempt.sums)
    return {key: UsageSums(*map(sum, zip(*some, strict=True))) for key, some in alike.items()}


def usage_state(db: Reader) -> _UsageState:
    """How far attempts are added up."""
    return _UsageState(*db.only(_STATE))


def next_usage(db: Reader, portion: int) -> UsageIncrement:
    """The next portion to add up: new attempts, and open ones that ended."""
    with db:
        return _next(db, portion)


def _next(db: Reader, portion: int) -> UsageIncrement:
    done, changes, _ = usage_state(db)
    last = last_of_portion(db, "attempt", done, portion) or done
    closed = [_EndedAttempt(*row) for row in db.execute(f"{_OF_OPEN} true LIMIT ?", (portion,))]
    new = (_EndedAttempt(*row) for row in db.execute(_OF_ATTEMPTS + _BETWEEN, (done, last)))
    sums = list(_added([*closed, *new]).items())
    opened = [row[0] for row in db.execute(_STILL_OPEN, (done, last))]
    return UsageIncrement(
        done=done,
        changes=changes,
        last=last,
        sums=sums,
        opened=opened,
        closed=[attempt.id for attempt in closed],
    )


def add_usage(tx: Transaction, portion: UsageIncrement) -> None:
    """Store a portion. Raises Conflict if the attempts have changed since."""
    now = usage_state(tx.reader())
    if (now.done, now.changes) != (portion.done, portion.changes):
        raise Conflict("The usage of these attempts was added up, or changed, in between.")
    _put(tx, dict(portion.sums))
    tx.later_many(_INSERT_OPEN, [(attempt_id,) for attempt_id in portion.opened])
    if portion.closed:
        tx.write(f"DELETE FROM usage_open WHERE attempt_id IN {GIVEN}", (keys(portion.closed),), rows=ANY)
    tx.write(_DONE, (portion.last,), rows=ONE)


def take_out(tx: Transaction, attempt_id: int) -> None:
    """Take an attempt out before it changes; it is added up again afterwards."""
    if tx.read(_IS_IN, (attempt_id, attempt_id))[0][0]:
        sums = _added(_by_id(tx, [attempt_id]))
        _put(tx, {key: UsageSums(*(-amount for amount in amounts)) for key, amounts in sums.items()})
        tx.later(_INSERT_OPEN, (attempt_id,))
        for key in sums:
            tx.write(f"DELETE FROM usage_day WHERE {_KEY} AND attempts = 0", key, rows=AT_MOST_ONE)
    tx.write("UPDATE usage_fold SET changes = changes + 1", rows=ONE)


def add_before_purge(tx: Transaction, heads: Sequence[int]) -> None:
    """Add up the rest of attempts about to be deleted. `heads`: the last of each chain."""
    values = (keys(heads),)
    if missing := [row[0] for row in tx.read(_NOT_IN, values)]:
        _put(tx, _added(_by_id(tx, missing)))
        tx.write(f"DELETE FROM usage_open WHERE attempt_id IN {GIVEN}", (keys(missing),), rows=ANY)
        tx.write("UPDATE usage_fold SET changes = changes + 1", rows=ONE)
    (last,) = tx.read(_LAST_END, values)[0]
    if last is not None:
        tx.write(f"UPDATE usage_fold SET purged = {greatest('purged', '?')}", (last,), rows=ONE)


def _by_id(tx: Transaction, ids: Sequence[int]) -> list[_EndedAttempt]:
    return [_EndedAttempt(*row) for row in tx.read(f"{_OF_ATTEMPTS} a.id IN {GIVEN}", (keys(ids),))]


def _put(tx: Transaction, sums: Mapping[UsageKey, UsageSums]) -> None:
    tx.later_many(_ADD, [(*key, *amounts) for key, amounts in sums.items()])


def usage_of_days(db: Reader, by: UsageBy, days: UsageDays, *, vo: str, newest: int) -> list[UsageOfSome]:
    """Ended on these days, in one VO ('': in all); with the first `newest` attempts not added up yet."""
    with db:
        stored: Iterable[Sequence[Any]] = db.execute(_BY.format(_COLUMNS[by]), (*days, vo))
        rows = [UsageOfSome._make((*row[:7], UsageSums(*row[7:]))) for row in stored]
        coming = _next(db, newest).sums
    for key, amounts in coming:
        if days.first <= key.day <= days.last and vo in ("", key.vo):
            rows.append(UsageOfSome(*_SHOWN[by](key), key.cause, amounts))
    return rows


def wrong_usage(db: Reader, portion: int = 20_000) -> list[UsageKey]:
    """Stored sums that differ from the attempts, which are all read. Larger ones are right where attempts were
    purged, or cores are unknown.
    """
    state, sums, unsure = usage_state(db), dict[UsageKey, UsageSums](), set[int]()
    still_open = {row[0] for row in db.execute("SELECT attempt_id FROM usage_open")}
    after = 0
    while (last := last_of_portion(db, "attempt", after, portion)) is not None and after < state.done:
        ended = [
            _EndedAttempt(*row) for row in db.execute(_OF_ATTEMPTS + _BETWEEN, (after, min(last, state.done)))
        ]
        counted = [attempt for attempt in ended if attempt.id not in still_open]
        unsure.update(attempt.key.day for attempt in counted if attempt.cores is None)
        for key, amounts in _added(counted).items():
            sums[key] = _plus(sums.get(key, _NOTHING), amounts)
        after = last
    stored = {UsageKey(*row[:8]): UsageSums(*row[8:]) for row in db.execute(_ALL)}
    stored, sums = _as_far_as_known(lambda key: key._replace(job_class=UNKNOWN_CLASS), stored, sums)
    stored, sums = _as_far_as_known(lambda key: key._replace(job_group=UNKNOWN_GROUP), stored, sums)
    return [
        key
        for key in sorted(stored.keys() | sums.keys())
        if not _agree(
            stored.get(key, _NOTHING),
            sums.get(key, _NOTHING),
            exactly=key.day not in unsure and key.day * DAY_SECONDS > state.purged,
        )
    ]


def _as_far_as_known(
    less: Callable[[UsageKey], UsageKey], *all_sums: Mapping[UsageKey, UsageSums]
) -> list[dict[UsageKey, UsageSums]]:
    """Merged where the class, or the JobGroup, of some is not known."""
    unknown = {key for sums in all_sums for key in sums if less(key) == key}
    merged: list[dict[UsageKey, UsageSums]] = []
    for sums in all_sums:
        merged.append({})
        for key, amounts in sums.items():
            of_any = less(key)
            merged_key = of_any if of_any in unknown else key
            merged[-1][merged_key] = _plus(merged[-1].get(merged_key, _NOTHING), amounts)
    return merged


def _agree(stored: UsageSums, counted: UsageSums, *, exactly: bool) -> bool:
    if exactly:
        return stored == counted
    return all(amount >= other for amount, other in zip(stored, counted, strict=True))
