"""Pilots that people start themselves: stored with a join token each, and ended if not started in time."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import msgspec

from lodesman.base.errors import Conflict, InvalidRequest, counted
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.request import GENERIC
from lodesman.decide.resources import MANUAL, QueueId
from lodesman.server.engines.backend import join_token_of, stamp_of
from lodesman.server.loops.launch import PilotSettings, common_of
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import unstarted_pilots
from lodesman.server.store.read.why import pilots_of_queue
from lodesman.server.writer.pilots import hash_token
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.client import parse_server
from lodesman.wire.service import NewPilot, PilotEnd
from lodesman.wire.vocabulary import PilotState

log = logging.getLogger(__name__)

_UNSTARTED: Final = "it was not started before its file expired"


def check_room(db: Reader, policy: Policy, offer: QueueOffer, count: int) -> int | None:
    """The most pilots that may be in a queue, None: any number. Raises InvalidRequest if files are not for that queue,
    Conflict if their number exceeds it.
    """
    queue = offer.queue
    if offer.backend != MANUAL:
        hint = f'The server sends pilots there. Files are for queues with Backend = "{MANUAL}".'
        raise InvalidRequest(f"{queue} has the backend {offer.backend}.", hint=hint, parameter="queue")
    if not offer.settings.generic_pilots:
        raise InvalidRequest(
            f"{queue} takes private pilots only (GenericPilots is no), and these would serve all users of VO "
            f"{offer.request.vo}.", parameter="queue",
        )  # fmt: skip
    present, caps = len(pilots_of_queue(db, queue)), list(_caps(policy, queue))
    for name, most in caps:
        if present + count > most:
            hint = f"Make at most {max(0, most - present)} more, or wait until some have ended or expired: lode pilot ls"
            words = (
                f"{counted(present, 'pilot')} {'is' if present == 1 else 'are'} there or may still be started"
            )
            words = f"{name} of {queue} is {most}, and {words}."
            raise Conflict(words, hint=hint, room=max(0, most - present))
    return min((most for _, most in caps), default=None)


def _caps(policy: Policy, queue: QueueId) -> Iterator[tuple[str, int]]:
    """As each VO sees them; each counts all pilots there."""
    for vo in policy.config.vos:
        offer = policy.vo_config(vo).offer(queue)
        if offer is not None:
            caps = {"MaxTotalJobs": offer.settings.max_total_jobs, "Slots": offer.settings.slots}
            yield from ((name, most) for name, most in caps.items() if most is not None)


def new_pilots(
    offer: QueueOffer, settings: PilotSettings, count: int, seconds: float, most_there: int | None
) -> tuple[list[NewPilot], list[dict[str, object]]]:
    """Rows to store, and for each its file, with a join token and its lifetime. `most_there`: pilots in the queue."""
    mark, secret, place = settings.mark, secrets.token_urlsafe(32), offer.queue._asdict()
    submission = mark + secrets.token_hex(12)[len(mark) :]
    common, rows, files = common_of(settings, offer), [], []
    common |= {} if offer.settings.forwards else place
    for number in range(1, count + 1):
        stamp, token = stamp_of(submission, number), join_token_of(secret, number)
        rows.append(NewPilot(
            stamp=stamp, join_hash=hash_token(token), vo=offer.request.vo, **place, request=asdict(offer.request),
            pilot_type=GENERIC, backend=MANUAL, join_seconds=seconds, forwards=offer.settings.forwards,
            most_there=most_there,
        ))  # fmt: skip
        files.append({**common, "stamp": stamp, "join_token": token})
    return rows, files


def notices_of(settings: PilotSettings) -> list[str]:
    """That pilots on other machines may not reach the server."""
    if any(parse_server(server).is_reachable for server in settings.servers):
        return []
    where = ", ".join(settings.servers)
    words = f"The address of the server is {where}: these pilots reach it on its own machine alone, or by a tunnel (ssh -R)."
    return [
        f"{words} For other machines set host, tls_certificate, tls_key and public_url of [server]; then make new files."
    ]


class UnstartedPilots(msgspec.Struct, frozen=True):
    """Ends pilots whose files have expired."""

    db: Reader
    post: Post

    def tick(self, now: float) -> int:
        """Returns how many it ended. Raises LodesmanError."""
        expired = unstarted_pilots(self.db, MANUAL, now)
        for number in expired:
            self.post(inner_calls.PILOT_ENDED, PilotEnd(number, PilotState.ABORTED, _UNSTARTED))
        if expired:
            log.info("pilots were not started before their files expired", extra={"pilots": len(expired)})
        return len(expired)


def text_of(file: dict[str, object]) -> str:
    """The pilot's own file, as the pilot reads it (`pilot.context`)."""
    return msgspec.json.encode(file).decode()
