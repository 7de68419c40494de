"""The pilot's session with the server: joined by its one-time token, kept by a lease, left in order.

The join presents the queue that the pilot runs in, and the SubmitPools that this queue serves (RFC #7). A pilot that
was sent to no particular queue (through a broker, or by hand) finds it in its environment: a site sets LODESMAN_SITE,
LODESMAN_CE and LODESMAN_QUEUE; batch systems set a variable with the name of the queue.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, NamedTuple

from lodesman.client import Client, Retry
from lodesman.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    LodesmanError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from lodesman.pilot.context import PilotContext, PilotFile
from lodesman.pilot.decisions import ClaimRequest
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.protocol import (
    PROTOCOL,
    ClaimReply,
    HeartbeatReply,
    JoinReply,
    parse_claim,
    parse_heartbeat,
    parse_join,
)

_REQUEST_TIMEOUT_S = 30.0
_LEAVE_TIMEOUT_S = 5.0
_REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, InvalidRequest)

# The variable that names the queue, and one that proves this batch system.
_BATCH_SYSTEMS = (
    ("SLURM_JOB_PARTITION", "SLURM_JOB_ID"),
    ("PBS_QUEUE", "PBS_JOBID"),
    ("LSB_QUEUE", "LSB_JOBID"),
    ("QUEUE", "SGE_ROOT"),
)
# A longer list is not presented: the server finds the pools itself in any case.
_MAX_PRESENTED = 5_000


class BatchQueue(NamedTuple):
    """Site, CE and queue by name."""

    site: str
    ce: str
    queue: str


@dataclass(frozen=True)
class ServedPools:
    """The SubmitPools that a queue serves, as of the server's pass of this number."""

    number: int
    pools: tuple[str, ...]


class JoinRefused(LodesmanError):
    """The server knows no such pilot, or its join token was used before."""

    code = "join-refused"


class ServerSession:
    """All requests of a pilot go through here: each answer renews what is known of the lease."""

    def __init__(self, context: PilotContext, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when the server does not know the pilot any more."""
        self._context = context
        self._on_lost = on_lost
        options = context.options
        self._terms = JoinReply(heartbeat_s=options.heartbeat_s, idle_s=options.idle_s)
        self.lease_s = 0.0
        self.last_contact = context.ticker()
        self.lost = False
        # What the pilot's queue serves, from its file or asked for before the join.
        self.served: ServedPools | None = None
        file = context.pilot_file
        if file.submit_pools is not None:
            self.served = ServedPools(file.pools_pass, file.submit_pools)

    def join(
        self, node: WorkerNode, *, nonce: str, wait: Callable[[float], Any], queue: BatchQueue | None = None
    ) -> JoinReply:
        """Become a known pilot; while no server answers, try again until join_patience_s is over.

        `queue`: where it runs; the SubmitPools of this queue are asked for first if the file does not list them.
        `wait(seconds)` sleeps and is true if the pilot shall not go on. Raises JoinRefused, Unavailable.
        """
        file, timeout_s = self._context.pilot_file, self._context.options.join_patience_s
        body = {"join_token": file.join_token, "protocol": PROTOCOL, "nonce": nonce, "node": node.as_json()}
        start, failures = self._context.ticker(), 0
        while True:
            try:
                self._terms = self._join_once(body, queue)
                break
            except _REFUSED as fault:
                raise JoinRefused(fault.message, hint=fault.hint) from None
            except LodesmanError as fault:
                failures += 1
                if self._context.ticker() - start > timeout_s:
                    message = f"No server accepted this pilot in {timeout_s:.0f} s."
                    raise Unavailable(message, last=str(fault)) from None
                if wait(self._context.delay(failures)):
                    raise Unavailable("The pilot was ended before it joined.") from None
        self.lease_s = self._terms.lease_s
        self._heard()
        return self._terms

    def _join_once(self, body: Mapping[str, Any], queue: BatchQueue | None) -> JoinReply:
        if queue is not None and self.served is None:
            self.served = self._ask_pools(queue)
        client = self._client("")
        try:
            body = {**body, **presented(queue, self.served)}
            answer = client.request("POST", "/v1/pilots/join", body, idempotent=True)
        finally:
            client.close()
        try:
            return parse_join(answer, self._terms)
        except InvalidRequest as fault:
            raise Unavailable(f"The answer to the join cannot be read: {fault.message}") from None

    def _ask_pools(self, queue: BatchQueue) -> ServedPools | None:
        """The pools of the queue, by the join token; None if the server refuses. Raises Unavailable."""
        client = self._client(self._context.pilot_file.join_token)
        try:
            return _ask_served_pools(client, queue)
        except Unavailable:
            raise
        except LodesmanError:
            return None
        finally:
            client.close()

    def client(self, *, rounds: int = 1) -> Client:
        """A connection for one thread, with the pilot's token."""
        return self._client(self._terms.token, rounds=rounds)

    def claim(self, client: Client, request: ClaimRequest, claim_token: str) -> ClaimReply:
        """Ask for jobs. The same token again gives the same jobs: a lost answer is asked for in this way."""
        resource = {
            "cores": request.cores,
            "memory_mb": request.memory_mb,
            "norm_cpu_seconds": request.norm_cpu_seconds,
        }
        body = {
            "claim_token": claim_token,
            "count": request.count,
            "wait_s": request.wait_s,
            "resource": resource,
        }
        answer = self._post(client, "claim", body, timeout=request.wait_s + _REQUEST_TIMEOUT_S)
        scaling = self._context.options.cpu_scaling_factor
        return parse_claim(answer, scaling=scaling, sandbox_mb=self._terms.sandbox_mb)

    def beat(self, client: Client, jobs: Sequence[Mapping[str, Any]], state: str) -> HeartbeatReply:
        """Send a heartbeat; the answer may change the lease."""
        reply = parse_heartbeat(self._post(client, "heartbeat", {"jobs": jobs, "state": state}))
        self.lease_s = reply.lease_s or self.lease_s
        return reply

    def report(self, client: Client, reports: Sequence[Mapping[str, Any]]) -> Any:
        """Send reports; returns the answer as it came."""
        return self._post(client, "report", {"reports": reports})

    def upload(self, client: Client, path: str, file: Path, sha256: str) -> Any:
        """Send an archive."""
        return self._answer(lambda: client.upload(path, file, sha256))

    def leave(self, reason: str, message: str) -> bool:
        """Report that this pilot has ended and all its reports are in; false if no server answered."""
        client = self.client(rounds=3)
        try:
            self._post(client, "leave", {"reason": reason, "message": message}, timeout=_LEAVE_TIMEOUT_S)
        except LodesmanError:
            return False
        finally:
            client.close()
        return True

    def _post(self, client: Client, name: str, body: Any, *, timeout: float = _REQUEST_TIMEOUT_S) -> Any:
        """Every request of a pilot may be repeated: the server answers by what it knows already."""
        path = f"/v1/pilots/{name}"
        return self._answer(lambda: client.request("POST", path, body, idempotent=True, timeout=timeout))

    def _answer(self, request: Callable[[], Any]) -> Any:
        try:
            answer = request()
        except Unauthorized:
            self.lost = True
            self._on_lost()
            raise
        except _REFUSED:
            self._heard()
            raise
        self._heard()
        return answer

    def _heard(self) -> None:
        self.last_contact = self._context.ticker()

    def _client(self, token: str, *, rounds: int = 1) -> Client:
        file, rng = self._context.pilot_file, random.Random(self._context.rng.random())
        return Client(file.servers, token, ca_file=file.ca_file, retry=Retry(rounds=rounds), rng=rng)


def find_queue(file: PilotFile, environment: Mapping[str, str]) -> BatchQueue | None:
    """The pilot's queue, or None if a part of its name is unknown. The pilot's file overrides the environment."""
    found = BatchQueue(
        file.site or environment.get("LODESMAN_SITE", ""),
        file.ce or environment.get("LODESMAN_CE", ""),
        file.queue or environment.get("LODESMAN_QUEUE", "") or _queue_of_batch_system(environment),
    )
    return found if all(found) else None


def _queue_of_batch_system(environment: Mapping[str, str]) -> str:
    for name, proof in _BATCH_SYSTEMS:
        if environment.get(name) and proof in environment:
            return environment[name]
    return ""


def _ask_served_pools(client: Client, queue: BatchQueue) -> ServedPools:
    """Ask `getSubmitPoolsForQueue`. Raises what `Client.request` raises, and Unavailable for an unreadable answer."""
    body = {"queues": [list(queue)]}
    answer = client.request("POST", "/v1/submit-pools/for-queues", body, idempotent=True)
    try:
        number, (row,) = answer["pass"], answer["queues"]
        pools = tuple(row["pools"])
    except (KeyError, TypeError, ValueError):
        raise Unavailable("The answer about SubmitPools cannot be read.") from None
    if not isinstance(number, int) or not all(isinstance(pool, str) for pool in pools):
        raise Unavailable("The answer about SubmitPools cannot be read.")
    return ServedPools(number, pools)


def presented(queue: BatchQueue | None, served: ServedPools | None) -> dict[str, Any]:
    """The part of the join request about the queue, its SubmitPools and the pass that they are from."""
    if queue is None:
        return {}
    body: dict[str, Any] = {"place": queue._asdict()}
    if served is not None:
        body["pools_pass"] = served.number
        if len(served.pools) <= _MAX_PRESENTED:
            body["submit_pools"] = list(served.pools)
    return body
