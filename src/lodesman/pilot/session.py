"""The pilot's session with the server: joined by a one-time token, kept by a lease, left in order.

The join presents the queue and the SubmitPools that it serves (RFC #7), by the pilot's file, LODESMAN_SITE, LODESMAN_CE and
LODESMAN_QUEUE, or a variable of the batch system.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Callable, NamedTuple

from lodesman.base.errors import InvalidRequest, LodesmanError, Unauthorized, Unavailable
from lodesman.pilot import protocol
from lodesman.pilot.context import PilotContext, PilotFile
from lodesman.pilot.decisions import ClaimRequest
from lodesman.pilot.node import WorkerNode
from lodesman.pilot.protocol import ClaimReply, HeartbeatReply, JoinReply
from lodesman.wire.client import Client, Retry

_REQUEST_TIMEOUT_S = 30.0
_LEAVE_TIMEOUT_S = 5.0
_REFUSED = (Unauthorized, *protocol.REFUSED)

# The variable that names the queue, and one that proves this batch system.
_BATCH_SYSTEMS = (
    ("SLURM_JOB_PARTITION", "SLURM_JOB_ID"),
    ("PBS_QUEUE", "PBS_JOBID"),
    ("LSB_QUEUE", "LSB_JOBID"),
    ("QUEUE", "SGE_ROOT"),
)
# A longer list is not presented: the server finds the pools itself in any case.
_MAX_PRESENTED = 100


class BatchQueue(NamedTuple):
    """Site, CE and queue by name."""

    site: str
    ce: str
    queue: str


class JoinRefused(LodesmanError, code="join-refused"):
    """The server knows no such pilot, or its token was used before."""


class ServerSession:
    """Each answer renews what is known of the lease."""

    def __init__(self, context: PilotContext, *, on_lost: Callable[[], None]) -> None:
        """`on_lost`: the server does not know the pilot any more."""
        self._context = context
        self._on_lost = on_lost
        options = context.options
        self._terms = JoinReply(heartbeat_s=options.heartbeat_s, idle_s=options.idle_s)
        self.lease_s = 0.0
        self.last_contact = context.ticker()
        self.lost = False
        # With the SubmitPools of its queue as soon as they are known.
        self.file = context.pilot_file

    def join(
        self, node: WorkerNode, *, nonce: str, wait: Callable[[float], Any], queue: BatchQueue | None = None
    ) -> JoinReply:
        """While no server answers, try until join_patience_s is over. The SubmitPools of `queue` are asked for first if the
        file lacks them. `wait(seconds)` is true if the pilot shall not go on. Raises JoinRefused, Unavailable.
        """
        timeout_s = self._context.options.join_patience_s
        body = {"join_token": self.file.join_token, "protocol": protocol.PROTOCOL, "nonce": nonce}
        start, failures = self._context.ticker(), 0
        while True:
            try:
                self._terms = self._join_once({**body, "node": asdict(node)}, queue)
                break
            except _REFUSED as fault:
                raise JoinRefused(fault.message, hint=fault.hint) from None
            except LodesmanError as fault:
                failures += 1
                if self._context.ticker() - start > timeout_s:
                    raise Unavailable(
                        f"No server accepted this pilot in {timeout_s:.0f} s: {fault.message}"
                    ) from None
                if wait(self._context.delay(failures)):
                    raise Unavailable("The pilot was ended before it joined.") from None
        self.lease_s = self._terms.lease_s
        self.last_contact = self._context.ticker()
        return self._terms

    def _join_once(self, body: Mapping[str, Any], queue: BatchQueue | None) -> JoinReply:
        if queue is not None and self.file.submit_pools is None:
            self._ask_pools(queue)
        answer = self._request_once("", "/v1/pilots/join", {**body, **join_facts(queue, self.file)})
        try:
            return protocol.parse_join(answer, self._terms)
        except InvalidRequest as fault:
            raise Unavailable(f"The answer to the join cannot be read: {fault.message}") from None

    def _ask_pools(self, queue: BatchQueue) -> None:
        """A server that refuses leaves them unknown."""
        body = {"queues": [list(queue)]}
        try:
            answer = self._request_once(self.file.join_token, "/v1/submit-pools/for-queues", body)
        except Unavailable:
            raise
        except LodesmanError:
            return
        try:
            (row,) = protocol.read_records(answer, "queues")
            pools = protocol.read_value(row, "pools", "tuple[str, ...]")
            number = protocol.read_value(answer, "pass", "int")
        except (InvalidRequest, ValueError):
            raise Unavailable("The answer about SubmitPools cannot be read.") from None
        self.file = replace(self.file, submit_pools=pools, pools_pass=number)

    def _request_once(self, token: str, path: str, body: Mapping[str, Any]) -> Any:
        with contextlib.closing(self.client(token=token)) as client:
            return client.request("POST", path, body, idempotent=True)

    def client(self, *, token: str | None = None, rounds: int = 1) -> Client:
        """For one thread, by default with the pilot's token."""
        file, rng = self._context.pilot_file, random.Random(self._context.rng.random())
        token = self._terms.token if token is None else token
        retry = Retry(rounds=rounds)
        return Client(file.servers, token, ca_file=file.ca_file, url_file=file.url_file, retry=retry, rng=rng)

    def claim(self, client: Client, request: ClaimRequest, claim_token: str) -> ClaimReply:
        """The same token gives the same jobs: so a lost answer is asked for again."""
        resource = asdict(request)
        asks = {name: resource.pop(name) for name in ("count", "wait_s", "ahead")}
        body = {"claim_token": claim_token, **asks, "resource": resource}
        answer = self._post(client, "claim", body, timeout=request.wait_s + _REQUEST_TIMEOUT_S)
        scaling = self._context.options.cpu_scaling_factor
        return protocol.parse_claim(answer, scaling=scaling, sandbox_mb=self._terms.sandbox_mb)

    def beat(self, client: Client, jobs: Sequence[Mapping[str, Any]], state: str) -> HeartbeatReply:
        """The answer may change the lease."""
        reply = protocol.parse_heartbeat(self._post(client, "heartbeat", {"jobs": jobs, "state": state}))
        self.lease_s = reply.lease_s or self.lease_s
        return reply

    def report(self, client: Client, reports: Sequence[Mapping[str, Any]]) -> Any:
        """The answer as it came."""
        return self._post(client, "report", {"reports": reports})

    def upload(self, client: Client, path: str, file: Path, sha256: str) -> Any:
        """Send an archive."""
        return self._answer(lambda: client.upload(path, file, sha256))

    def leave(self, reason: str, message: str) -> bool:
        """All reports are in; false if no server answered."""
        with contextlib.suppress(LodesmanError), contextlib.closing(self.client(rounds=3)) as client:
            self._post(client, "leave", {"reason": reason, "message": message}, timeout=_LEAVE_TIMEOUT_S)
            return True
        return False

    def _post(self, client: Client, name: str, body: Any, *, timeout: float = _REQUEST_TIMEOUT_S) -> Any:
        """Every request may be repeated: the server answers by what it knows."""
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
            self.last_contact = self._context.ticker()
            raise
        self.last_contact = self._context.ticker()
        return answer


def find_queue(file: PilotFile, environment: Mapping[str, str]) -> BatchQueue | None:
    """None if a part of its name is unknown. The file overrides the environment."""
    by_batch = (environment.get(name) for name, proof in _BATCH_SYSTEMS if proof in environment)
    queue = BatchQueue(
        file.site or environment.get("LODESMAN_SITE", ""),
        file.ce or environment.get("LODESMAN_CE", ""),
        file.queue or environment.get("LODESMAN_QUEUE") or next(filter(None, by_batch), ""),
    )
    return queue if all(queue) else None


def join_facts(queue: BatchQueue | None, file: PilotFile) -> dict[str, Any]:
    """The part of the join request about queue, SubmitPools and their pass."""
    if queue is None:
        return {}
    body: dict[str, Any] = {"place": queue._asdict()}
    if file.submit_pools is not None:
        body["pools_pass"] = file.pools_pass
        if len(file.submit_pools) <= _MAX_PRESENTED:
            body["submit_pools"] = list(file.submit_pools)
    return body
