"""What users change: submissions, actions on jobs, accounts and tokens; and the last output of a job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from lodesman.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unavailable,
    counted,
)
from lodesman.languages.jobs import JobSpec
from lodesman.server.http.auth import authorise, may_touch, reach_of, sees_all, vo_administered
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.portions import in_portions, learn_choice
from lodesman.server.live.core import Core
from lodesman.server.live.principals import reads_as
from lodesman.server.live.rules import use_policy
from lodesman.server.store import Reader
from lodesman.server.store.accounts import RevokedTokens
from lodesman.server.store.journal import Change, Command
from lodesman.server.store.read.jobs import job_by_id, last_output, was_given_out
from lodesman.server.store.readers import is_shared_with
from lodesman.server.writer.accounts import (
    UserFaults,
    check_membership,
    disable_user,
    import_users,
    issue_token,
    put_account,
    remove_user,
    revoke_token,
)
from lodesman.server.writer.change import ChangeJobs, ChangePreparation, PreparedChange, find_kinds
from lodesman.server.writer.choice import Choice
from lodesman.server.writer.control import Control, apart
from lodesman.server.writer.missing_jobs import name_missing, no_longer_known
from lodesman.server.writer.prepare import prepare
from lodesman.server.writer.resolving import TakesLong
from lodesman.server.writer.submit import PreparedSubmission, Submit
from lodesman.wire import accounts, calls, jobs
from lodesman.wire.accounts import AccountBody, AuditAction, DisableBody, Principal, TokenAt, TokenBody
from lodesman.wire.call import Nothing, encode
from lodesman.wire.job_queries import ControlBody, ControlQuery
from lodesman.wire.jsv import VerifyBody, VerifyResult
from lodesman.wire.requests import JobAt, SubmitBody

# Bytes of a submission, of what its classes give and of what the JSV made of it, above which its checks could keep all
# others waiting for more than 50 ms.
_LARGE: Final = 1 << 14
# A client waits for 30 seconds.
_CONTROL_SECONDS: Final = 10.0
_EXPRESSION: Final = "constraint"
_STATIONS: Final = "stations"
_DAY_SECONDS: Final = 86_400
# Letters of the names in an entry of the audit trail.
_MOST_DETAIL: Final = 1_000
# What the administrator of a VO may do with its jobs.
_OF_VO_ADMINS: Final = frozenset({"kill", "hold", "release"})


@serves(calls.SUBMIT)
async def _submit(
    core: Core, request: Request[Nothing, SubmitBody]
) -> jobs.Submission | jobs.TrialSubmission:
    """Check the jobs and store them, or say what would be stored."""
    body, who, size = request.body, request.who, request.size
    verified = None
    if core.jsv.is_set:
        async with core.principals.held(who):
            verified = await _verified(core, body, who)
        size += len(encode(verified))

    def check(db: Reader, room: int | None = None) -> tuple[PreparedSubmission, Sequence[jobs.Notice]]:
        return prepare(
            body, who, core.policy, db, core.job_classes.now, verified=verified, room=room, shelf=core.shelf
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
    core.submitted_jobs += 0 if done.repeated else done.count
    return replace(done, notices=notices) if notices else done


def _of_attempts(prepared: PreparedSubmission, most: int) -> list[jobs.Notice]:
    """What is said of jobs that ask for more attempts than they may have (0: any number)."""
    wanted = max(one.max_attempts for one in prepared.cohorts)
    if not most or wanted <= max(most, JobSpec(executable="").max_attempts):
        return []
    return [
        jobs.Notice(
            "MaxAttempts", f"It is {wanted}; an administrator allows {counted(most, 'attempt')} of a job."
        )
    ]


def _takes_long(body: SubmitBody, size: int) -> bool:
    """An expression may take a second to be held against thousands of queues, however short it is."""
    if size > _LARGE:
        return True
    texts = (body.texts or ()) if body.text is None else (body.text,)
    return any(map(_may_have_expression, texts)) or any(map(_has_expression, body.jobs or ()))


def _may_have_expression(text: str) -> bool:
    """JSON may spell a name by the numbers of its characters."""
    folded = text.lower()
    return _EXPRESSION in folded or _STATIONS in folded or "\\u" in folded


def _has_expression(job: dict[str, Any]) -> bool:
    given = {name.lower(): value for name, value in job.items()}
    wanted = given.get("requirements")
    return _STATIONS in given or (
        isinstance(wanted, dict) and any(name.strip().lower() == _EXPRESSION for name in wanted)
    )


async def _verified(core: Core, body: SubmitBody, who: Principal) -> list[VerifyResult]:
    """The submission as the server's JSV left it: the background process asks that. Raises what refuses it."""
    if core.verify is None:
        raise Unavailable("There is no process that asks the JSV of the server.")
    asked = VerifyBody(body, who.name, who.groups, core.jsv, core.job_classes.now.version)
    return (await core.verify(asked)).jobs


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


def _ranges(given: Sequence[tuple[int, int]]) -> tuple[range, ...]:
    backwards = next((f"{first}-{last}" for first, last in given if first > last), None)
    if backwards is not None:
        raise InvalidRequest(f"The range {backwards} runs backwards.")
    return apart(given)


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
    """The last output of a job: live from its pilot's heartbeats, or as its last attempt left it."""
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


@serves(calls.ADD_USER)
async def _add_user(core: Core, request: Request[Nothing, AccountBody]) -> accounts.UserMade:
    body = request.body
    check_membership(core.policy.config, body.vo, body.groups, reach_of(request.who))
    command = Change(put_account, body, by=request.who.name, reach=reach_of(request.who))
    rights = (", administrator" if body.admin else "") + (
        ", administrator of the VO" if body.vo_admin else ""
    )
    detail = f"VO {body.vo}, groups {', '.join(body.groups)}{rights}"
    await core.commands.run(request.audited(command, "user-changed", body.name, detail))
    core.principals.forget_users([body.name])
    await use_policy(core, core.policy)
    return accounts.UserMade(body.name)


@serves(calls.REMOVE_USER)
async def _remove_user(
    core: Core, request: Request[Nothing, accounts.RemoveUserBody]
) -> accounts.UserRemoved:
    """What the tokens of the user are used for ends with them."""
    name, who, dry_run = request.body.name, request.who, request.body.dry_run
    command: Command[accounts.UserRemoved] = Change(
        remove_user, name, by=who.name, reach=reach_of(who), dry_run=dry_run
    )
    if dry_run:
        found: accounts.UserRemoved = await core.commands.run(command)
        return found
    done: accounts.UserRemoved = await core.commands.run(request.audited(command, "user-removed", name))
    core.principals.forget_users([name])
    await use_policy(core, core.policy)
    return done


@serves(calls.IMPORT_USERS)
async def _import_users(
    core: Core, request: Request[Nothing, accounts.ImportUsersBody]
) -> accounts.ImportedUsers:
    """Raises what refuses one of them, with its number in `data.user`; more of them are in `data.others`."""
    body, who, faults = request.body, request.who, UserFaults()
    for number, one in enumerate(body.users):
        with faults.of(number):
            check_membership(core.policy.config, one.vo, one.groups, reach_of(who))
    faults.refuse()
    command: Command[list[accounts.ImportedUser]] = Change(
        partial(
            import_users,
            users=body.users,
            update=body.update,
            dry_run=body.dry_run,
            by=who.name,
            reach=reach_of(who),
        )
    )
    if not body.dry_run:
        names = [one.name for one in body.users]
        command = request.audited(command, "users-imported", str(len(names)), ", ".join(names)[:_MOST_DETAIL])
    done: list[accounts.ImportedUser] = await core.commands.run(command)
    if not body.dry_run:
        core.principals.forget_users([one.name for one in done if one.change == "changed"])
        await use_policy(core, core.policy)
    return accounts.ImportedUsers(done, body.dry_run)


@serves(calls.DISABLE_USER)
async def _disable_user(core: Core, request: Request[Nothing, DisableBody]) -> accounts.UserDisabled:
    body = request.body
    who = request.who
    command = Change(disable_user, body.name, disabled=body.disabled, by=who.name, reach=reach_of(who))
    action: AuditAction = "user-disabled" if body.disabled else "user-enabled"
    done: accounts.UserDisabled = await core.commands.run(request.audited(command, action, body.name))
    core.principals.forget_users([body.name])
    return done


@serves(calls.ISSUE_TOKEN)
async def _issue_token(core: Core, request: Request[Nothing, TokenBody]) -> accounts.Token:
    """Users make tokens for themselves, no better than the one that they use; administrators make any, those of a VO for its
    users.
    """
    body, who = request.body, request.who
    if body.account != who.name:
        authorise(who, "vo-admin")
    elif not set(body.scopes) <= who.scopes:
        raise Conflict("A token cannot give more than the one it is asked with.")
    seconds = body.seconds or None
    if who.expires_at is not None and body.account == who.name:
        # A token cannot outlive itself by making another.
        left = max(0.0, who.expires_at - core.clock())
        seconds = left if seconds is None else min(seconds, left)
    command = Change(
        issue_token,
        body.account,
        body.scopes,
        seconds=seconds,
        note=body.note,
        parent=who.token or None,
        most=core.limits.tokens,
        reach=reach_of(who),
    )
    how_long = "until revoked" if seconds is None else f"for {seconds / _DAY_SECONDS:,.6g} d"
    detail = "; ".join(filter(None, (", ".join(body.scopes), how_long, body.note)))
    return accounts.Token(
        await core.commands.run(request.audited(command, "token-issued", body.account, detail))
    )


@serves(calls.REVOKE_TOKEN)
async def _revoke_token(core: Core, request: Request[TokenAt, Nothing]) -> accounts.Revoked:
    """Revoke a token, and those that it made for the same user, or for all. Users revoke their own."""
    who, asked = request.who, request.query
    mine, others = "" if sees_all(who) or vo_administered(who) else who.name, asked.all and sees_all(who)
    command = Change(revoke_token, asked.prefix, account=mine, with_others=others, reach=reach_of(who))
    detail = "with all that it made" if others else ""
    done: RevokedTokens = await core.commands.run(
        request.audited(command, "token-revoked", asked.prefix, detail)
    )
    core.principals.forget(done.hashes)
    return accounts.Revoked(len(done.hashes), done.kept)
