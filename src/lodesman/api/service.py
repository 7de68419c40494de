"""What the server's own background process asks the hot process, and how both of them are."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from lodesman.answers import calls, server, service
from lodesman.answers.call import Nothing
from lodesman.answers.nodes import QueueId
from lodesman.api.core import Core
from lodesman.api.dispatch import Request, serves
from lodesman.commands.claim import ExaminePilot
from lodesman.commands.pilots import EndPilot, PilotSubmitted, PreparePilots
from lodesman.commands.sandboxes import RegisterSandbox, TidyInputs
from lodesman.commands.sessions import PilotSession
from lodesman.commands.submit_pools import CleanPools, JudgeQueues, NameQueues, RefreshPools, RekeyPools
from lodesman.commands.upkeep import ForgetIdleQueues, Purge, Reconcile
from lodesman.errors import NotFound, Unavailable
from lodesman.store.director import delete_old_closings, insert_iteration
from lodesman.store.journal import Change
from lodesman.store.read.pilots import pilot_by_id
from lodesman.store.write.task_queues import store_reasons


@serves(calls.HEALTH)
async def is_well(core: Core, _request: Request[Nothing, Nothing]) -> server.Health:
    """200 while the writer takes commands; `degraded` while the background process does not do its part.

    Raises Unavailable.
    """
    if not core.journal.is_open:
        raise Unavailable("The server takes no changes: its writer has ended.")
    now, ticks = core.clock(), core.ticks()
    return server.Health(
        status="ok" if core.background.is_well(ticks) else "degraded",
        time=now,
        commits=core.journal.commits,
        configuration=core.configuration().in_short(now),
        background=core.background.answer(ticks),
    )


@serves(calls.HOT_METRICS)
async def hot_metrics(core: Core, _request: Request[Nothing, Nothing]) -> server.HotMetrics:
    """Counters of the hot process, for the reading process's /metrics."""
    configuration, background, ticks = core.configuration(), core.background, core.ticks()
    return server.HotMetrics(
        background_heard_seconds_ago=ticks - background.heard_or_since,
        background_ok=int(background.is_well(ticks)),
        background_restarts_total=background.restarts,
        configuration_loaded_timestamp_seconds=configuration.loaded_at,
        configuration_refused=int(configuration.refused_at is not None),
        configuration_refusals_total=configuration.refusals,
        commits_total=core.journal.commits,
        commands_total=core.journal.commands,
        claims_total=core.claims,
        claimed_jobs_total=core.claimed_jobs,
        submitted_jobs_total=core.submitted_jobs,
        pilots_joined=len(core.sessions),
    )


@serves(calls.ALIVE)
async def alive(core: Core, request: Request[Nothing, service.Alive]) -> service.Done:
    """The background process lives."""
    core.background.heard(core.ticks(), request.body.failing)
    return service.Done()


# --- pilots -------------------------------------------------------------------------------------------------------------


@serves(calls.PREPARE_PILOTS)
async def prepare_pilots(core: Core, request: Request[Nothing, list[service.NewPilot]]) -> service.Prepared:
    """Store pilots before they are submitted."""
    return service.Prepared(await core.command(PreparePilots(core.live, request.body)))


@serves(calls.PILOTS_SUBMITTED)
async def pilots_submitted(core: Core, request: Request[Nothing, service.Outcomes]) -> service.Accepted:
    """Store what the batch systems answered."""
    return service.Accepted(await core.command(PilotSubmitted(core.live, request.body)))


@serves(calls.PILOT_ENDED)
async def pilot_ended(core: Core, request: Request[Nothing, service.PilotEnd]) -> service.Rescued:
    """A pilot is gone."""
    end = request.body
    rescued = await core.command(EndPilot(core.live, end.pilot, end.state, end.reason))
    core.forget_pilot(end.pilot)
    return service.Rescued(rescued)


@serves(calls.PILOT_NOW)
async def pilot_now(core: Core, request: Request[Nothing, service.PilotLoad]) -> Raw:
    """A `PilotNow`, of a pilot that has joined or not. Raises NotFound for one that was never prepared."""
    body = request.body
    session = core.sessions.get(body.pilot)
    silent = None if session is None else max(0.0, core.ticks() - session.last_seen)
    command = ExaminePilot(
        core.live,
        session or _coming(core, body.pilot),
        body.used,
        joined=session is not None,
        silent_seconds=silent,
    )
    return Raw(msgspec.json.encode(await core.command(command)))


def _coming(core: Core, number: int) -> PilotSession:
    """A pilot that has not joined, as far as it is known."""
    row = pilot_by_id(core.reader, number)
    if row is None:
        raise NotFound("There is no such pilot.", pilot=number)
    return PilotSession(row, msgspec.json.decode(row.node), now=core.ticks())


# --- the director and pending reasons -----------------------------------------------------------------------------------


@serves(calls.ITERATION)
async def iteration(core: Core, request: Request[Nothing, service.Iteration]) -> service.Done:
    """Store what the director decided and why."""
    await core.command(Change(insert_iteration, bytes(request.body.plan).decode()))
    return service.Done()


@serves(calls.REASONS)
async def reasons(core: Core, request: Request[Nothing, service.Reasons]) -> service.Changed:
    """Why the jobs of task queues wait now."""
    body = request.body
    await core.command(Change(store_reasons, body.changed, body.facts_at))
    return service.Changed(len(body.changed))


# --- SubmitPools --------------------------------------------------------------------------------------------------------


@serves(calls.NAME_QUEUES)
async def name_queues(core: Core, request: Request[Nothing, list[QueueId]]) -> service.NewQueues:
    """Queues that pools may speak of."""
    return service.NewQueues(await core.command(NameQueues(core.live, request.body)))


@serves(calls.REKEY_POOLS)
async def rekey_pools(core: Core, request: Request[Nothing, service.Renewals]) -> service.Rekeyed:
    """SubmitPools whose Requirements have another identifier under the types of today."""
    return service.Rekeyed(await core.command(RekeyPools(core.live, request.body, core.policy.digest)))


@serves(calls.POOL_PASS)
async def pool_pass(core: Core, request: Request[Nothing, service.Difference]) -> service.PassDone:
    """What an evaluation of all pools found."""
    row = await core.command(RefreshPools(core.live, request.body, core.policy.digest))
    return service.PassDone(row.id, row.at)


@serves(calls.JUDGE_QUEUES)
async def judge_queues(core: Core, request: Request[Nothing, service.Judgement]) -> service.Judged:
    """Task queues to hold and to release."""
    return service.Judged(**await core.command(JudgeQueues(core.live, request.body)))


@serves(calls.CLEAN_POOLS)
async def clean_pools(core: Core, request: Request[Nothing, service.Cleaning]) -> service.Removed:
    """Pools that no job needs."""
    return service.Removed(await core.command(CleanPools(core.live, request.body)))


# --- upkeep -------------------------------------------------------------------------------------------------------------


@serves(calls.UPLOADED)
async def uploaded(core: Core, request: Request[Nothing, service.UploadedFile]) -> service.Done:
    """An input sandbox lies on disk."""
    file = request.body
    await core.command(RegisterSandbox(file.owner, file.sha256, file.size, file.quota))
    return service.Done()


@serves(calls.PURGE)
async def purge(core: Core, request: Request[Nothing, service.Old]) -> service.Purged:
    """Delete what is old."""
    purged: service.Purged = await core.command(Purge(core.live, request.body))
    return purged


@serves(calls.TIDY)
async def tidy(core: Core, request: Request[Nothing, service.UnusedInputs]) -> service.Tidied:
    """Mark and remove input files that no job names."""
    return service.Tidied(await core.command(TidyInputs(request.body)))


@serves(calls.RECONCILE)
async def reconcile(core: Core, request: Request[Nothing, service.Suspects]) -> service.Repaired:
    """Check what the reconciler suspects, and repair it."""
    repaired: service.Repaired = await core.command(Reconcile(core.live, request.body))
    return repaired


@serves(calls.FORGET_IDLE)
async def forget_idle(core: Core, _request: Request[Nothing, Nothing]) -> service.Done:
    """Free the slots of task queues that have been empty for long."""
    await core.command(ForgetIdleQueues(core.live))
    await core.command(Change(delete_old_closings))
    return service.Done()
