"""What the server's own background process asks the hot process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from lodesman.base.errors import NotFound
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.task_queue import key_from_json
from lodesman.server.http.dispatch import Endpoint, Request, serves
from lodesman.server.http.pilots import pools_of_queues
from lodesman.server.live.core import Core
from lodesman.server.live.leases import follow_closings
from lodesman.server.live.rules import change_limits, use_usage
from lodesman.server.store.accounting import add_usage
from lodesman.server.store.audit import append_entries
from lodesman.server.store.director import insert_iteration, put_breakers
from lodesman.server.store.journal import Change, Command
from lodesman.server.store.read.pilots import pilot_by_id
from lodesman.server.store.sandboxes import tidy_inputs
from lodesman.server.store.site_ads import forget_old_ads
from lodesman.server.store.task_queues import store_reasons
from lodesman.server.store.write.pilots import set_seen_there
from lodesman.server.writer.accounts import delete_expired_tokens
from lodesman.server.writer.bound import unbind
from lodesman.server.writer.claim import examine_pilot
from lodesman.server.writer.pilots import drain_pilots, end_pilot, pilots_submitted, prepare_pilots
from lodesman.server.writer.quotas import (
    PART,
    alike_places,
    bucket_page,
    check_limits,
    limited_everywhere,
    limited_there,
    limits_of,
    places_of_queues,
)
from lodesman.server.writer.report import register_output
from lodesman.server.writer.sessions import PilotSession
from lodesman.server.writer.submit import register_input
from lodesman.server.writer.submit_pools import (
    clean_pools,
    judge_queues,
    number_queues,
    refresh_pools,
    rekey_pools,
)
from lodesman.server.writer.upkeep import forget_idle_queues, purge, reconcile
from lodesman.wire import inner_calls, service
from lodesman.wire.call import Call, Nothing
from lodesman.wire.groups import CorrectionUsage
from lodesman.wire.nodes import QueueId
from lodesman.wire.requests import QueuesBody
from lodesman.wire.task_queues import PoolsOfQueues

_A = TypeVar("_A")
_B = TypeVar("_B")


@serves(inner_calls.ALIVE)
async def _alive(core: Core, request: Request[Nothing, service.BackgroundState]) -> Nothing:
    core.background.reported(core.ticks(), request.body)
    return Nothing()


@serves(inner_calls.PREPARE_PILOTS)
async def _prepare_pilots(
    core: Core, request: Request[Nothing, list[service.NewPilot]]
) -> service.PreparedCount:
    stored = await core.commands.run(Change(prepare_pilots, core.live, request.body))
    core.inhabited.forget()
    return service.PreparedCount(len(stored))


@serves(inner_calls.PILOTS_ORDERED)
async def _pilots_ordered(core: Core, request: Request[Nothing, service.LeaveOrder]) -> Nothing:
    """Drained, so that their end says nothing of their queue, and one that joins all the same leaves."""
    numbers, reason = request.body.pilots, request.body.reason
    core.sessions.drain(numbers)
    await core.commands.run(Change(drain_pilots, core.live, numbers, reason))
    return Nothing()


@serves(inner_calls.PILOT_ENDED)
async def _pilot_ended(core: Core, request: Request[Nothing, service.PilotEnd]) -> service.RescuedCount:
    end = request.body
    rescued = await core.commands.run(Change(end_pilot, core.live, end.pilot, end.state, end.reason))
    core.sessions.end(end.pilot)
    return service.RescuedCount(rescued)


@serves(inner_calls.PILOT_NOW)
async def _pilot_now(core: Core, request: Request[Nothing, service.PilotLoad]) -> Raw:
    """A `PilotNow`. Raises NotFound for a pilot that was never prepared."""
    number, session, silent = request.body.pilot, core.sessions.get(request.body.pilot), None
    joined = session is not None
    if session is not None:
        silent = max(0.0, core.ticks() - session.last_seen)
    elif (row := pilot_by_id(core.reader, number)) is not None:
        session = PilotSession(row, now=core.ticks())
    else:
        raise NotFound("There is no such pilot.", pilot=number)
    command = Change(
        examine_pilot, core.live, session, request.body.used, joined=joined, silent_seconds=silent
    )
    return Raw(msgspec.json.encode(await core.commands.run(command)))


@serves(inner_calls.LIMITED)
async def _limited(core: Core, request: Request[Nothing, service.LimitQuery]) -> service.LimitAnswer:
    query, run_places, sessions = request.body, places_of_queues(request.body), core.sessions.items()
    if query.task_queue or query.key:
        among = {*query.queues}
        pilots = {number: session.place for number, session in sessions if session.queue in among}
        jobs = key_from_json(query.key) if query.key else query.task_queue
        return cast(
            "service.LimitAnswer",
            await core.commands.run(Change(limits_of, core.live, run_places, pilots, jobs)),
        )
    held, idle = core.live.pilots.held, dict[RunPlace, list[int]]()
    for number, session in sessions:
        if not held.get(number):
            idle.setdefault(session.place, []).append(number)
    some = [
        service.LimitedQueues(
            [QueueId(session.site, session.ce, session.queue) for session in alike], ids, never
        )
        for alike, ids, never in await _limited_at(core, run_places)
    ]
    kept = [
        service.LimitedPilots([number for session in alike for number in idle[session]], ids)
        for alike, ids, _ in await _limited_at(core, idle)
    ]
    if not some:
        return service.LimitAnswer(idle=kept)
    run_places.update(session.place for _, session in sessions)
    return service.LimitAnswer(
        await core.commands.run(Change(limited_everywhere, core.live, run_places)), some, kept
    )


async def _limited_at(
    core: Core, run_places: Iterable[RunPlace]
) -> list[tuple[list[RunPlace], list[int], list[int]]]:
    """Alike places together, with these task queues and those that would not start in an empty place."""
    rows = []
    for alike in await core.commands.run(Change(alike_places, core.live, [*run_places])):
        # A command for each: the writer is not held for long.
        ids, never = await core.commands.run(Change(limited_there, core.live, alike[0]))
        if ids:
            rows.append((alike, ids, never))
    return rows


@serves(inner_calls.USAGE_FOUND)
async def _usage_found(core: Core, request: Request[Nothing, CorrectionUsage]) -> Nothing:
    await use_usage(core, request.body.usage, request.body.seconds)
    return Nothing()


@serves(inner_calls.CHECK_LIMITS)
async def _check_limits(core: Core, _request: Request[Nothing, Nothing]) -> service.LimitCheck:
    before = core.live.bookings.wrong
    await change_limits(core, Change(check_limits, core.quotas))
    return service.LimitCheck(core.live.bookings.wrong - before)


@serves(inner_calls.LIMIT_BUCKETS)
async def _limit_buckets(core: Core, _request: Request[Nothing, Nothing]) -> list[service.BehindBucket]:
    """By rule; other commands come between its parts."""
    all_buckets: list[service.BehindBucket] = []
    for first in count(0, PART):
        rows, more = await core.commands.run(Change(bucket_page, core.live, first))
        all_buckets += rows
        if not more:
            break
    return sorted(all_buckets, key=lambda bucket: (bucket.row.rule, bucket.row.of, bucket.row.resource))


@serves(inner_calls.POOLS_OF_QUEUES)
async def _pools_of_queues(core: Core, request: Request[Nothing, QueuesBody]) -> PoolsOfQueues:
    return pools_of_queues(core, [QueueId(*names) for names in request.body.queues])


@serves(inner_calls.FORGET_IDLE)
async def _forget_idle(core: Core, _request: Request[Nothing, Nothing]) -> Nothing:
    await core.commands.run(Change(forget_idle_queues, core.live))
    await follow_closings(core)
    await core.commands.run(Change(forget_old_ads))
    core.principals.forget(await core.commands.run(Change(delete_expired_tokens)))
    return Nothing()


def _done(_answer: Any) -> Nothing:
    return Nothing()


def _posts(
    call: Call[Nothing, _B, _A],
    command: Callable[[Core, _B], Command[Any]],
    answer: Callable[[Any], Any] = _done,
) -> Endpoint[Core]:
    """A call that posts one command; `answer` makes the answer from the command's."""

    async def post(core: Core, request: Request[Nothing, _B]) -> _A:
        return cast("_A", answer(await core.commands.run(command(core, request.body))))

    return Endpoint(call, post)


_pilots_submitted = _posts(
    inner_calls.PILOTS_SUBMITTED, lambda core, outcomes: Change(pilots_submitted, core.live, outcomes)
)
_unbind = _posts(
    inner_calls.UNBIND,
    lambda core, order: Change(unbind, core.live, order.pilots, order.reason),
    service.RescuedCount,
)
_pilots_seen = _posts(inner_calls.PILOTS_SEEN, lambda _, seen: Change(set_seen_there, seen))
_reasons = _posts(inner_calls.REASONS, lambda _, body: Change(store_reasons, body.changed, body.facts_at))
_breakers = _posts(inner_calls.BREAKERS, lambda _, changed: Change(put_breakers, changed))
_iteration = _posts(
    inner_calls.ITERATION, lambda _, body: Change(insert_iteration, bytes(body.plan).decode())
)
_number_queues = _posts(
    inner_calls.NUMBER_QUEUES, lambda core, queues: Change(number_queues, core.live, queues)
)
_rekey_pools = _posts(
    inner_calls.REKEY_POOLS, lambda core, body: Change(rekey_pools, core.live, body, core.policy.digest)
)
_pool_pass = _posts(
    inner_calls.POOL_PASS,
    lambda core, difference: Change(refresh_pools, core.live, difference, core.policy.digest),
    lambda row: service.PassNumber(row.id, row.at),
)
_judge_queues = _posts(inner_calls.JUDGE_QUEUES, lambda core, body: Change(judge_queues, core.live, body))
_clean_pools = _posts(
    inner_calls.CLEAN_POOLS, lambda core, body: Change(clean_pools, core.live, body), service.RemovedCount
)
_uploaded = _posts(
    inner_calls.UPLOADED,
    lambda _, file: Change(
        register_input, file.owner, file.sha256, file.size, quota=file.quota, most_files=file.most_files
    ),
)
_output_stored = _posts(inner_calls.OUTPUT_STORED, lambda _, stored: Change(register_output, stored))
_note = _posts(inner_calls.NOTE, lambda _, notes: Change(append_entries, notes))
_usage_added = _posts(inner_calls.USAGE_ADDED, lambda _, found: Change(add_usage, found))
_purge = _posts(inner_calls.PURGE, lambda core, old: Change(purge, core.live, old), lambda done: done)
_tidy = _posts(inner_calls.TIDY, lambda _, unused: Change(tidy_inputs, unused), service.TidyResult)
_reconcile = _posts(
    inner_calls.RECONCILE, lambda core, suspects: Change(reconcile, core.live, suspects), lambda done: done
)
