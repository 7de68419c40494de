"""What changes jobs: submissions, actions, changed attributes, readers; and the last output of a job."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from lodesman.base.errors import (
    Forbidden,
    InvalidRequest,
    LodesmanError,
    NotFound,
    Unavailable,
    counted,
)
from lodesman.languages.jobs import JobSpec
from lodesman.languages.jobs.selection import SelectionTooDear
from lodesman.server.http.auth import may_touch, sees_all
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.wire import Disconnected, Receive, gone
from lodesman.server.live.core import Core
from lodesman.server.live.principals import reads_as
from lodesman.server.store import Reader
from lodesman.server.store.accounts import list_users
from lodesman.server.store.journal import Change
from lodesman.server.store.read.job_filter import ANY_JOB
from lodesman.server.store.read.jobs import job_by_id, last_output, was_given_out
from lodesman.server.store.readers import is_shared_with, readers_of
from lodesman.server.writer.change import ChangeJobs, ChangePreparation, PreparedChange, find_kinds
from lodesman.server.writer.choice import Choice
from lodesman.server.writer.control import Control, RangeAction, join_ranges
from lodesman.server.writer.control_outcome import ControlOutcome
from lodesman.server.writer.groups import group_named, known_groups
from lodesman.server.writer.missing_jobs import name_missing, no_longer_known
from lodesman.server.writer.prepare import prepare
from lodesman.server.writer.readers import add_readers, own_submission, remove_readers
from lodesman.server.writer.resolving import TakesLong
from lodesman.server.writer.submit import PreparedSubmission, Submit
from lodesman.wire import calls, jobs
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing, encode
from lodesman.wire.job_queries import ControlBody, ControlQuery, ReadersBody, SubmissionAt, SubmissionReaders
from lodesman.wire.jsv import VerifyBody, VerifyResult
from lodesman.wire.requests import JobAt, SubmitBody

if TYPE_CHECKING:
    from lodesman.server.http.read_side import ReadSide

# Bytes of a submission, of what its classes give and of what the JSV made of it, above which its checks could keep all
# others waiting for more than 50 ms.
_LARGE: Final = 1 << 14
# A client waits for 30 seconds.
_CONTROL_SECONDS: Final = 10.0
_EXPRESSION: Final = "constraint"
_STATIONS: Final = "stations"
# What the administrator of a VO may do with its jobs.
_OF_VO_ADMINS: Final = frozenset({"kill", "hold", "release"})


@serves(calls.SUBMIT)
async def _submit(
    core: Core, request: Request[Nothing, SubmitBody]
) -> jobs.Submission | jobs.TrialSubmission:
    body, who, size = request.body, request.who, request.size
    verified = None
    if core.jsv.is_set:
        async with core.principals.held(who):
            verified = await _verified(core, body, who)
        size += len(encode(verified))

    def check(db: Reader, room: int | None = None) -> tuple[PreparedSubmission, Sequence[jobs.Notice]]:
        return prepare(
            body,
            who,
            core.policy,
            db,
            core.job_classes.prepared,
            verified=verified,
            room=room,
            shelf=core.shelf,
        )

    try:
        if _takes_long(body, size):
            raise TakesLong
        prepared, notices = check(core.reader, _LARGE - size)
    except TakesLong:
        # Seconds of work: beside the loop, where it slows the others but does not stop them.
        prepared, notices = await core.checking.read(check)
    core.principals.check(who)
    notices = [*notices, *_of_attempts(prepared, core.limits.attempts)]
    if body.dry_run:
        held = sum(cohort.jobs for cohort in prepared.cohorts if cohort.held)
        return jobs.TrialSubmission(prepared.count, held, notices, dry_run=True)
    done: jobs.Submission = await core.commands.run(Submit(core.live, prepared, core.limits), together=True)
    core.counts.submitted_jobs += 0 if done.repeated else done.count
    return replace(done, notices=notices) if notices else done


def _of_attempts(prepared: PreparedSubmission, most: int) -> list[jobs.Notice]:
    attempts = max(cohort.max_attempts for cohort in prepared.cohorts)
    if not most or attempts <= max(most, JobSpec(executable="").max_attempts):
        return []
    return [
        jobs.Notice(
            "MaxAttempts", f"It is {attempts}; an administrator allows {counted(most, 'attempt')} of a job."
        )
    ]


def _takes_long(body: SubmitBody, size: int) -> bool:
    """An expression may take a second to be held against thousands of queues."""
    if size > _LARGE:
        return True
    texts = (body.texts or ()) if body.text is None else (body.text,)
    return any(map(_may_have_expression, texts)) or any(map(_has_expression, body.jobs or ()))


def _may_have_expression(text: str) -> bool:
    """JSON may spell a name by the numbers of its characters."""
    folded = text.lower()
    return _EXPRESSION in folded or _STATIONS in folded or "\\u" in folded


def _has_expression(job: dict[str, Any]) -> bool:
    values = {name.lower(): value for name, value in job.items()}
    requirements = values.get("requirements")
    return _STATIONS in values or (
        isinstance(requirements, dict) and any(name.strip().lower() == _EXPRESSION for name in requirements)
    )


async def _verified(core: Core, body: SubmitBody, who: Principal) -> list[VerifyResult]:
    if core.verify is None:
        raise Unavailable("There is no process that asks the JSV of the server.")
    question = VerifyBody(body, who.name, who.groups, core.jsv, core.job_classes.now.version)
    return (await core.verify(question)).jobs


@serves(calls.CONTROL)
async def _control(core: Core, request: Request[ControlQuery, ControlBody]) -> jobs.Controlled:
    body, who = request.body, request.who
    choice = None if body.selection is None else Choice.of(body.selection, who.name)
    if (
        body.selection is not None
        and body.selection.where
        and choice
        and choice.owner != who.name
        and not sees_all(who)
    ):
        raise Forbidden("Jobs of others are not chosen by attributes: their descriptions are not shown.")
    ranges = _ranges(body.ranges)
    if not ranges:
        if choice is None:
            raise InvalidRequest("Neither ranges of jobs nor a selection are given.")
        ranges = (range(1, max(2, core.live.ids.next_job)),)
    may = may_touch(who, core.policy.sharing_groups(), for_vo_admins=body.action in _OF_VO_ADMINS)
    act = partial(
        Control, core.live, body.action, reason=body.reason, may=may, name=who.name, admin=sees_all(who),
        most=0 if sees_all(who) else core.limits.waiting_jobs, choice=choice,
        dry_run=request.query.dry_run,
    )  # fmt: skip
    learn = None if choice is None else partial(learn_choice, core, choice, request.receive)
    out = await in_portions(core, who, ranges, act, seconds=_CONTROL_SECONDS, learn=learn)
    if choice is None and not out.rest:
        name_missing(core.reader, out)
    each = out.each() if len(body.ranges) > 1 and choice is None else UNSET
    rest = [(ids[0], ids[-1]) for ids in out.rest] or UNSET
    return jobs.Controlled(out.changed, out.refused, out.examples, each, rest)


def _ranges(pairs: Sequence[tuple[int, int]]) -> tuple[range, ...]:
    backwards = next((f"{first}-{last}" for first, last in pairs if first > last), None)
    if backwards is not None:
        raise InvalidRequest(f"The range {backwards} runs backwards.")
    return join_ranges(pairs)


@serves(calls.CHANGE_JOBS)
async def _change(core: Core, request: Request[Nothing, jobs.ChangeBody]) -> jobs.JobsChanged:
    """Judged here for each kind of jobs; the writer moves those that are still of that kind."""
    body, who = request.body, request.who
    ranges = _ranges(body.ranges)
    may = may_touch(who, core.policy.sharing_groups())

    def judge(db: Reader) -> PreparedChange:
        work = ChangePreparation(
            body.attributes, core.policy, db, core.job_classes.now, core.jsv,
            hold_if_impossible=body.hold_if_impossible, by=who.name,
        )  # fmt: skip
        return work.prepare(find_kinds(db, ranges, may))

    change = await core.checking.read(judge)
    act = partial(
        ChangeJobs, core.live, "change", reason=body.reason, may=may, name=who.name, change=change,
        most=0 if sees_all(who) else core.limits.task_queues, dry_run=body.dry_run,
    )  # fmt: skip
    out = await in_portions(core, who, ranges, act)
    name_missing(core.reader, out)
    each = out.each() if len(body.ranges) > 1 else UNSET
    return jobs.JobsChanged(out.changed, out.refused, out.examples, each, dry_run=body.dry_run)


@serves(calls.JOB_LOGS)
async def _job_logs(core: Core, request: Request[JobAt, Nothing]) -> jobs.Logs:
    """Live from heartbeats, or as the last attempt left it."""
    job_id, db = request.query.job, core.reader
    last = last_output(db, job_id)
    if last is None and was_given_out(db, job_id) and not job_by_id(db, job_id):
        raise no_longer_known(job_id)
    may = may_touch(request.who, core.policy.sharing_groups())
    if last is None or not (
        may(last.owner, last.group, last.vo) or is_shared_with(db, last.submission, reads_as(request.who))
    ):
        raise NotFound(f"Job {job_id} has no output yet, or is not yours.", job=job_id)
    session = core.sessions.get(last.pilot or 0)
    tail, usage = last.tail or "", {}
    if not last.ended and session is not None:
        tail = session.tails.get((job_id, last.attempt), b"").decode("utf-8", "ignore")
        usage = session.usage.get((job_id, last.attempt), {})
    return jobs.Logs(job_id, last.state, last.attempt, not last.ended, tail, **usage)


# --- actions in portions: others are served in between ------------------------------------------------------------------

_Ranges = tuple[range, ...]


async def in_portions(
    core: Core,
    who: Principal,
    ranges: _Ranges,
    act: Callable[..., RangeAction],
    *,
    seconds: float = math.inf,
    learn: Callable[[_Ranges], Awaitable[None]] | None = None,
) -> ControlOutcome:
    """`seconds`: then the rest is left, as is what is too dear. `learn`: find out which of the next jobs are chosen."""
    async with core.turns.of(who.name):
        end = asyncio.get_running_loop().time() + seconds
        # Many rows take many commands: others are served in between.
        core.principals.check(who)
        if learn is not None:
            await learn(ranges)
        command = partial(core.turns.command, jobs=sum(map(len, ranges)))
        out: ControlOutcome = await command(act(ranges=ranges))
        while out.rest and asyncio.get_running_loop().time() < end:
            try:
                core.principals.check(who)
                if learn is not None:
                    await learn(out.rest)
                out.go_on(await command(act(ranges=out.rest)))
            except SelectionTooDear:
                break
            except LodesmanError as fault:
                raise _unfinished(act(ranges=()).action, out, fault) from fault
    return out


async def learn_choice(core: Core, choice: Choice, receive: Receive, ranges: _Ranges) -> None:
    """In a thread; requests take turns. Raises Disconnected."""
    if choice.job_filter == ANY_JOB:
        return
    leaving = asyncio.ensure_future(gone(receive))
    try:
        portions, is_over = choice.learn_in_portions(core.choosing.db, ranges), False
        while not is_over:
            async with core.choosing.lock:
                if leaving.done():
                    raise Disconnected
                is_over = await asyncio.to_thread(next, portions, True)
    finally:
        leaving.cancel()


def _unfinished(action: str, out: ControlOutcome, fault: LodesmanError) -> LodesmanError:
    done, left = f"{action} had changed {counted(out.changed, 'job')}", out.rest[0].start
    message = f"{fault.message} Until then {done}; from job {left} on nothing was done."
    rest = [(ids[0], ids[-1]) for ids in out.rest]
    data = {**fault.data, "changed": out.changed, "refused": out.refused, "rest": rest}
    return type(fault)(message, hint=fault.hint, **data)


# --- readers --------------------------------------------------------------------------------------------------------------


@serves(calls.SET_READERS)
async def _set_readers(core: Core, request: Request[Nothing, ReadersBody]) -> SubmissionReaders:
    """Who may read no more gets nothing more, also of answers under way."""
    body, who = request.body, request.who
    user = None if sees_all(who) else who.name
    _, vo = own_submission(core.reader, body.submission, user)
    if body.how == "add":
        groups = known_groups(core.policy, list_users(core.reader))
        groups = {name: group for name, group in groups.items() if not group.vos or vo in group.vos}
        for name in body.readers:
            if name.startswith("@"):
                group_named(groups, name[1:])
        command = Change(partial(add_readers, by=who.name), body.submission, body.readers, user)
    else:
        command = Change(partial(remove_readers), body.submission, body.readers, user)
    word = "with" if body.how == "add" else "no more with"
    detail = f"{word} {', '.join(body.readers)}"
    await core.commands.run(request.audited(command, "submission-shared", str(body.submission), detail))
    if body.how == "remove":
        core.principals.end_readers(frozenset(body.readers))
    return SubmissionReaders(body.submission, readers_of(core.reader, body.submission))


@serves(calls.READERS)
async def _readers(side: ReadSide, request: Request[SubmissionAt, Nothing]) -> SubmissionReaders:
    number = request.query.submission
    own_submission(side.db, number, None if sees_all(request.who) else request.who.name)
    return SubmissionReaders(number, readers_of(side.db, number))
