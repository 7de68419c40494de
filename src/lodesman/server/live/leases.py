"""The leases of pilots, and what else the hot process sees to by itself: the clock, strays, closings, delays."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from msgspec import UNSET

from lodesman.base.errors import LodesmanError
from lodesman.server.live.core import Core
from lodesman.server.live.rules import use_shares
from lodesman.server.store.journal import Change
from lodesman.server.store.read.upkeep import stray_attempts
from lodesman.server.store.write.pilots import set_last_seen
from lodesman.server.writer.ahead import HeardPilot, may_hoard, take_back
from lodesman.server.writer.pilots import end_pilot
from lodesman.server.writer.quotas import open_delays
from lodesman.server.writer.report import LOST, note_silence
from lodesman.server.writer.site_mask import TendingOutcome, tend_closings
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire.nodes import NodePath
from lodesman.wire.service import Suspects
from lodesman.wire.vocabulary import PilotState

log = logging.getLogger(__name__)

_SEEN_SECONDS = 30.0
# In one command: their jobs are tens of milliseconds of the writer's time.
_SILENT_AT_ONCE = 100
_MOST_STRAYS: Final = 100_000
_STRAYS_AT_ONCE: Final = 500


class Leases:
    """Watches the sessions on the event loop."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen_stored = core.ticks()
        # The closings that begin or end, and were tended to for that.
        self._tended: set[tuple[NodePath, float, bool]] = set()

    async def watch(self) -> None:
        """End silent pilots, and store now and then when each pilot was last heard."""
        for pilot_id in self._core.sessions.expired():
            await self._lost(pilot_id)
        await self._note_silence()
        await self._take_back()
        await self._tend_closings()
        if self._core.clock() >= self._core.policy.shares_until:
            with suppress(LodesmanError):
                await use_shares(self._core)
        now = self._core.ticks()
        if now - self._seen_stored > _SEEN_SECONDS:
            self._seen_stored = now
            await self._core.commands.note(self._core.strangers.take())
            seen = {s.id: self._core.clock() - (now - s.last_seen) for s in self._core.sessions.values()}
            with suppress(LodesmanError):
                await self._core.commands.run(Change(set_last_seen, seen))

    async def _tend_closings(self) -> None:
        core, now = self._core, self._core.clock()
        closings = {
            (closing.node, closing.start, closing.is_over(now)): closing
            for closing in core.live.mask.closings
        }
        self._tended &= closings.keys()
        due = {
            key
            for key, closing in closings.items()
            if key not in self._tended
            and (closing.is_over(now) or (closing.begins is not UNSET and closing.empties(now)))
        }
        if due:
            with suppress(LodesmanError):
                await follow_closings(core)
                self._tended |= due

    async def _note_silence(self) -> None:
        silent = list(self._core.sessions.newly_silent().items())
        for begun in range(0, len(silent), _SILENT_AT_ONCE):
            since = dict(silent[begun : begun + _SILENT_AT_ONCE])
            with suppress(LodesmanError):
                stalled = await self._core.commands.run(Change(note_silence, self._core.live, since))
                log.warning("pilots are silent", extra={"pilots": sorted(since), "stalled": stalled})

    async def _take_back(self) -> None:
        core = self._core
        if not core.live.parked:
            return
        epoch = core.clock() - core.ticks()
        ahead = {
            session.id: HeardPilot(
                session.offer.cores,
                epoch + session.last_seen,
                epoch + session.steady_since,
                memory_mb=session.offer.memory_mb,
                excused_since=epoch + session.excused_since,
                named_at=epoch + session.named_at,
            )
            for session in list(core.sessions.values())
            if may_hoard(core.live, session.id, session.offer.cores)
        }
        if not ahead:
            return
        with suppress(LodesmanError):
            for number, gone in (await core.commands.run(Change(take_back, core.live, ahead))).items():
                log.warning(
                    "what a pilot had ahead was taken back", extra={"pilot": number, "jobs": len(gone)}
                )
                if number in core.sessions:
                    core.sessions[number].given_back.update(gone)

    async def _lost(self, pilot_id: int) -> None:
        if not self._core.sessions.has_expired(pilot_id):
            return  # a heartbeat came, or it ended, meanwhile
        log.warning("the heartbeat of a pilot is lost", extra={"pilot": pilot_id})
        await self.end(pilot_id, "its lease ended", cause="lease-expired")

    async def end(self, pilot_id: int, reason: str, *, cause: str = LOST) -> None:
        """End a lost pilot; its jobs go back. `cause`: of its attempts."""
        end = Change(end_pilot, self._core.live, pilot_id, PilotState.LOST, reason, cause=cause)
        try:
            await self._core.commands.run(end)
        except LodesmanError as fault:
            log.warning("a lost pilot could not be ended yet: %s", fault, extra={"pilot": pilot_id})
            return
        self._core.sessions.end(pilot_id)


async def look_at_clock(core: Core) -> None:
    """See whether the clock was set."""
    core.clock_watch.look(core.clock(), core.ticks())


async def open_due_delays(core: Core) -> None:
    """Let jobs start whose matching delay is over."""
    if core.live.queues.index.delays.next_at <= core.ticks():
        with suppress(LodesmanError):  # it is asked again soon
            await core.commands.run(Change(open_delays, core.live))


async def follow_closings(core: Core) -> None:
    """Let pilots leave where a closing begins, and stay where it ends. Raises LodesmanError."""
    done: TendingOutcome = await core.commands.run(Change(tend_closings, core.live))
    core.sessions.drain(done.staying, drain=False)
    core.sessions.drain(done.leaving)


async def mend_strays(core: Core) -> None:
    """At the start: attempts that their jobs do not name, or whose pilots have ended. A fault costs one of them."""
    strays = stray_attempts(core.reader, _MOST_STRAYS)
    for begun in range(0, len(strays), _STRAYS_AT_ONCE):
        some = strays[begun : begun + _STRAYS_AT_ONCE]
        if not await _mend(core, some):
            for stray in some:
                await _mend(core, [stray])
    if strays:
        log.error("stray attempts were found at the start", extra={"found": len(strays)})


async def _mend(core: Core, strays: list[int]) -> bool:
    with suppress(LodesmanError):
        await core.commands.run(Change(reconcile, core.live, Suspects(attempts=strays)))
        return True
    return False
