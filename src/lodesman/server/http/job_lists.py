"""Lists of jobs and submissions, and what all lists read from a query."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import TypeVar

from msgspec.structs import asdict, replace

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.selection import StepBudget
from lodesman.server.http.auth import may_touch, own_vo, sees_all, vo_administered
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import page
from lodesman.server.live.principals import reads_as
from lodesman.server.loops.accounting import NEWEST, answer_usage, days_of
from lodesman.server.reads.explain import Explainer
from lodesman.server.reads.usage import usage_for
from lodesman.server.store import Reader
from lodesman.server.store.accounting import usage_of_days
from lodesman.server.store.read.job_filter import ANY_JOB, build_filter, check_name
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.submissions import Sight
from lodesman.server.store.read.usage import count_jobs, pilot_hours, usage_facts
from lodesman.server.store.readers import shared_with
from lodesman.server.store.task_queues import with_groups_and_classes
from lodesman.wire import calls, jobs
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.job_queries import CountsQuery, JobsQuery, SubmissionRow, Submissions, SubmissionsQuery
from lodesman.wire.requests import MOST_ID
from lodesman.wire.server import Usage
from lodesman.wire.usage import DAY_SECONDS, HeldOfDays, PilotHoursQuery, UsageOfDays, UsageQuery
from lodesman.wire.vocabulary import JobState, MainReason


@serves(calls.USAGE)
async def _usage(side: ReadSide, request: Request[Nothing, Nothing]) -> Usage:
    may = may_touch(request.who, side.policy.sharing_groups(), for_vo_admins=True)
    vo = own_vo(request.who)
    facts = await side.costly.get(("usage", vo), partial(usage_facts, vo=vo))
    return usage_for(facts, side.policy, may, vo=vo)


@serves(calls.USED)
async def _used(side: ReadSide, request: Request[UsageQuery, Nothing]) -> UsageOfDays:
    asked, vo = request.query, own_vo(request.who)
    days = days_of(asked, side.clock())
    read = partial(usage_of_days, by=asked.by, days=days, vo=vo, newest=NEWEST)
    found = await side.costly.get(("used", asked.by, days, vo), read)
    return answer_usage(
        found, asked.by, days, may_touch(request.who, side.policy.sharing_groups(), for_vo_admins=True)
    )


@serves(calls.PILOT_HOURS)
async def _pilot_hours(side: ReadSide, request: Request[PilotHoursQuery, Nothing]) -> HeldOfDays:
    query, vo, now = request.query, own_vo(request.who), side.clock()
    days = days_of(query, now)
    since, until = days.first * DAY_SECONDS, (days.last + 1) * DAY_SECONDS
    read = partial(pilot_hours, by=query.by, since=since, until=until, now=now, vo=vo)
    rows, purged = await side.costly.get(("pilot-hours", query.by, days, vo), read)
    return HeldOfDays(by=query.by, since=since, until=until, purged=purged, rows=rows)


_T = TypeVar("_T")
_NUMBERS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


@serves(calls.JOBS)
async def _jobs(side: ReadSide, request: Request[JobsQuery, Nothing]) -> jobs.Jobs:
    """One's own jobs, or with `all` all that one may see."""
    who, query = request.who, _after(request.query)
    _check(query)
    selection = JobQuery(
        **asdict(query) | {"limit": query.limit + 1, "owner": _owner(query, who)},
        sight=_sight(side, who),
        states=words("state", query.state, JobState),
    )
    rows = await _searched(side, request, partial(_list_named, query=selection))
    some, more = page(rows, query.limit, attrgetter("id"))
    if query.start:
        keeper, now = side.fresh(), side.clock()
        some = await side.costly.run(lambda db: Explainer(db, side.policy, keeper, now).with_starts(some))
    return jobs.Jobs(list(side.names.fill(some)), **more)


async def _searched(
    side: ReadSide,
    request: Request[JobsQuery, Nothing] | Request[SubmissionsQuery, Nothing],
    read: Callable[..., _T],
) -> _T:
    """What jobs say is read in turns."""
    if build_filter(request.query) == ANY_JOB:
        return await side.costly.run(partial(read, budget=None))
    search = lambda budget: side.costly.run(partial(read, budget=budget))  # noqa: E731
    return await side.searches.run(request.who.name, request.receive, search)


def _list_named(db: Reader, *, query: JobQuery, budget: StepBudget | None) -> list[jobs.Job]:
    return with_groups_and_classes(db, list_jobs(db, query, budget))


def _after(query: JobsQuery) -> JobsQuery:
    """The jobs that follow a page; ids are their cursors. Raises InvalidRequest."""
    reached = numbers(query.after, 1)
    if reached is None:
        return query
    if query.newest:
        return replace(query, last=min(query.last, max(0, reached[0] - 1)))
    return replace(query, first=max(query.first, reached[0] + 1))


@serves(calls.JOB_COUNTS)
async def _job_counts(side: ReadSide, request: Request[CountsQuery, Nothing]) -> jobs.Counts:
    who = request.who
    may = may_touch(who, side.policy.sharing_groups(), for_vo_admins=True)
    owner = who.name if request.query.own else None
    vo = own_vo(who) if owner is None else ""
    counts = await side.costly.get(("counts", owner, vo), partial(count_jobs, owner=owner, vo=vo))
    return jobs.Counts([count for count in counts if may(count.owner, count.group, who.vo)])


@serves(calls.SUBMISSIONS)
async def _submissions(side: ReadSide, request: Request[SubmissionsQuery, Nothing]) -> Submissions:
    """One's own, or with `all` all that one may see."""
    who, query = request.who, request.query
    _check(query)
    states, (before,) = words("state", query.state, JobState), numbers(query.after, 1) or (MOST_ID,)
    query = replace(query, owner=_owner(query, who))
    sight = _sight(side, who)

    def read(db: Reader, *, budget: StepBudget | None) -> tuple[list[SubmissionRow], int | None]:
        rows, after = side.submissions.find(db, query, sight, states=states, before=before, budget=budget)
        shared = shared_with(db, sight.reads)
        by = ((row, "" if row.owner == who.name else shared.get(row.id, "")) for row in rows)
        return [replace(row, shared_by=name) if name else row for row, name in by], after

    rows, following = await _searched(side, request, read)
    if following is None:
        return Submissions(rows)
    return Submissions(rows, more=True, cursor=str(following))


def _owner(query: JobsQuery | SubmissionsQuery, who: Principal) -> str:
    """'' for all owners."""
    return query.owner or ("" if query.all or query.shared else who.name)


def _sight(side: ReadSide, who: Principal) -> Sight:
    shared = side.policy.sharing_groups().intersection(who.groups)
    if sees_all(who):
        return Sight(reads=reads_as(who))
    whole_vo = bool(vo_administered(who))
    return Sight(who.name, sorted(shared), who.vo, whole_vo=whole_vo, reads=reads_as(who))


def _check(query: JobsQuery | SubmissionsQuery) -> None:
    words("reason", query.reason, MainReason)
    check_name(query.name)
    build_filter(query)


def words(parameter: str, text: str, kind: type[StrEnum]) -> tuple[str, ...]:
    """The words of a parameter, with commas between. Raises InvalidRequest."""
    members, chosen = list(kind), tuple(dict.fromkeys(filter(None, text.split(","))))
    for word in chosen:
        if word not in members:
            hint = f"There are {', '.join(members)}."
            raise InvalidRequest(f"{parameter}: {shown(word)} is unknown.", hint=hint, parameter=parameter)
    return chosen


def numbers(after: str, count: int) -> tuple[int, ...] | None:
    """The numbers of a cursor; None without one. Raises InvalidRequest."""
    if not after:
        return None
    values = tuple(map(int, after.split("."))) if _NUMBERS.fullmatch(after) else ()
    if len(values) != count:
        raise InvalidRequest("`after` is no cursor of this list.", hint="Give `cursor` of the page before.")
    return values
