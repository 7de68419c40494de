"""What users and our own background process ask the hot process: everything that changes something."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from lodesman.api import bodies
from lodesman.api.auth import may_touch, need_admin, need_user
from lodesman.api.core import Core
from lodesman.api.wire import SMALL_BODY, SUBMIT_BODY, Receive, Scope, Send, decode, read_body, send_json
from lodesman.commands.accounts import AddAccount, IssueToken, Principal, Revoked, RevokeToken
from lodesman.commands.control import Control, Outcome
from lodesman.commands.membership import check_membership
from lodesman.commands.pilots import DrainPilots
from lodesman.commands.prepare import prepare
from lodesman.commands.submit import Submit, Submitted
from lodesman.errors import Conflict, InvalidRequest, LodesmanError

# Bytes of a submission above which its checks would keep everybody waiting.
LARGE_TEXT = 1 << 18
LARGE_BATCH = 2 << 20

SUBMIT = msgspec.json.Decoder(bodies.SubmitBody)
CONTROL = msgspec.json.Decoder(bodies.ControlBody)
DRAIN = msgspec.json.Decoder(bodies.DrainBody)
ACCOUNT = msgspec.json.Decoder(bodies.AccountBody)
TOKEN = msgspec.json.Decoder(bodies.TokenBody)


class UserCalls:
    """Submissions, actions on jobs, drains, accounts and tokens."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._one_large = asyncio.Lock()

    async def submit(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/jobs."""
        need_user(who, "jobs:write")
        raw = await read_body(scope, receive, SUBMIT_BODY)
        body = decode(SUBMIT, raw)
        if len(raw) <= (LARGE_TEXT if body.text is not None else LARGE_BATCH):
            prepared, notices = prepare(body, who, self.core.policy, self.core.reader)
        else:
            # Seconds of work: beside the loop, where it slows the others but does not stop them.
            async with self._one_large:
                prepared, notices = await asyncio.to_thread(
                    prepare, body, who, self.core.policy, self.core.second_reader
                )
        told = [
            {"attribute": n.attribute, "message": n.message, "line": n.line, "column": n.column}
            for n in notices
        ]
        if body.dry_run:
            held = sum(stop - start for c in prepared.cohorts if c.held for start, stop in c.runs)
            answer = {"count": prepared.count, "held": held, "notices": told, "dry_run": True}
            await send_json(send, msgspec.json.encode(answer))
            return
        done: Submitted = await self.core.command(Submit(self.core.live, prepared))
        self.core.submitted_jobs += 0 if done.repeated else done.count
        answer = {
            "submission": done.submission,
            "first": done.first,
            "count": done.count,
            "held": done.held,
            "repeated": done.repeated,
            "notices": told,
        }
        await send_json(send, msgspec.json.encode(answer))

    async def control(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/jobs/control."""
        need_user(who, "jobs:write")
        body = decode(CONTROL, await read_body(scope, receive, SMALL_BODY))
        may = may_touch(who, self.core.policy.sharing_groups())
        ranges = tuple((first, last) for first, last in body.ranges)
        backwards = next((f"{first}-{last}" for first, last in ranges if first > last), None)
        if backwards is not None:
            raise InvalidRequest(f"The range {backwards} runs backwards.")
        # Many rows take many commands: others are served in between.
        act = partial(Control, self.core.live, body.action, reason=body.reason, may=may, name=who.name)
        out = await self.core.command(act(ranges))
        while out.rest:
            more = act(out.rest, goes_on=True)
            try:
                out.go_on(await self.core.command(more))
            except LodesmanError as fault:
                raise _half_done(fault, body.action, out) from fault
        answer = {"changed": out.changed, "refused": out.refused, "examples": out.examples}
        await send_json(send, msgspec.json.encode(answer))

    async def drain(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/pilots/drain."""
        need_admin(who)
        body = decode(DRAIN, await read_body(scope, receive, SMALL_BODY))
        for pilot_id in body.pilots:
            session = self.core.sessions.get(pilot_id)
            if session is not None:
                session.drain = True
        self.core.pilots_drained()
        changed = await self.core.command(DrainPilots(self.core.live, body.pilots))
        await send_json(send, msgspec.json.encode({"changed": changed}))

    async def account(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/users."""
        need_admin(who)
        body = decode(ACCOUNT, await read_body(scope, receive, SMALL_BODY))
        check_membership(self.core.policy.config, body.vo, body.groups)
        name = await self.core.command(AddAccount(body.name, body.vo, tuple(body.groups), body.admin))
        self.core.principals = {k: p for k, p in self.core.principals.items() if p.name != name}
        await send_json(send, msgspec.json.encode({"name": name}))

    async def token(self, scope: Scope, receive: Receive, send: Send, who: Principal) -> None:
        """POST /v1/tokens."""
        body = decode(TOKEN, await read_body(scope, receive, SMALL_BODY))
        if who.kind == "pilot" or body.account != who.name:
            need_admin(who)
        elif not set(body.scopes) <= who.scopes:
            raise Conflict("A token cannot give more than the one it is asked with.")
        seconds = body.seconds or None
        if who.expires_at is not None and body.account == who.name:
            # A token cannot outlive itself by making another.
            left = max(0.0, who.expires_at - self.core.clock())
            seconds = left if seconds is None else min(seconds, left)
        made_with = who.token or None
        token = await self.core.command(
            IssueToken(body.account, tuple(body.scopes), seconds, body.note, parent=made_with)
        )
        await send_json(send, msgspec.json.encode({"token": token}))

    async def revoke(self, _receive: Receive, send: Send, who: Principal, prefix: str) -> None:
        """DELETE /v1/tokens/{prefix}."""
        need_admin(who)
        done: Revoked = await self.core.command(RevokeToken(prefix))
        for digest in done.hashes:
            self.core.principals.pop(digest, None)
        await send_json(send, msgspec.json.encode({"revoked": len(done.hashes), "kept": done.kept}))


def _half_done(fault: LodesmanError, action: str, out: Outcome) -> LodesmanError:
    """The fault that ended an action on many jobs, with what was done before it."""
    begins = out.rest[0][0]
    told = f"{fault.message} Until then {action} had changed {out.changed} jobs; from job {begins} on nothing was done."
    done = {"changed": out.changed, "refused": out.refused, "rest": out.rest}
    return type(fault)(told, hint=fault.hint, **{**fault.data, **done})
