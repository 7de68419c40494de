"""The pilot's standing with the server: joined by its one-time token, kept by a lease, left in order."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

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
from lodesman.pilot.batch_queue import BatchQueue, ServedPools, ask_served_pools, presented
from lodesman.pilot.life import Ask
from lodesman.pilot.node import Node
from lodesman.pilot.pilot_file import PilotFile
from lodesman.pilot.protocol import PROTOCOL, Claim, Orders, parse_claim, parse_orders

ONCE = Retry(rounds=1)
PATIENT = Retry(rounds=10)
_REQUEST_TIMEOUT_S = 30.0
_LEAVE_TIMEOUT_S = 5.0
_REFUSED = (Unauthorized, Forbidden, NotFound, Conflict, InvalidRequest)


class JoinRefused(LodesmanError):
    """The server knows no such pilot, or its join token was used before."""

    code = "join-refused"


@dataclass(frozen=True)
class Terms:
    """What the server grants at the join; times in seconds."""

    pilot: int
    token: str = field(repr=False)
    lease_s: float = 1800.0
    heartbeat_s: float = 60.0
    idle_s: float = 120.0
    # The most that the server takes as the output of one job, in MB.
    sandbox_mb: float = 200.0


@dataclass(frozen=True)
class Chance:
    """Time and chance for back-off: monotonic seconds, and a generator."""

    ticker: Callable[[], float]
    rng: random.Random


class Session:
    """All requests of a pilot go through here, so that each answer renews what is known of the lease."""

    def __init__(self, papers: PilotFile, chance: Chance, *, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when the server does not know the pilot any more."""
        self._papers = papers
        self._chance = chance
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._terms: Terms | None = None
        self.lease_s = 0.0
        self.last_contact = chance.ticker()
        self.lost = False
        # What the pilot's queue serves, from its file or asked for before the join.
        self.served = _told(papers)

    def join(
        self, node: Node, *, nonce: str, wait: Callable[[float], Any], queue: BatchQueue | None = None
    ) -> Terms:
        """Become a known pilot; the server is looked for until the file's patience ends.

        `queue`: where it runs; the SubmitPools of this queue are asked for first if the file does not list them.
        `wait(seconds)` sleeps and is true if the pilot shall not go on. Raises JoinRefused, Unavailable.
        """
        papers, patience = self._papers, self._papers.options.join_patience_s
        body = {"join_token": papers.join_token, "protocol": PROTOCOL, "nonce": nonce, "node": node.as_json()}
        client = self._new(retry=ONCE, token="")
        start = self._chance.ticker()
        failures = 0
        while True:
            try:
                if queue is not None and self.served is None:
                    self.served = self._ask_pools(queue)
                told = {**body, **presented(queue, self.served)}
                terms = _terms(client.request("POST", "/v1/pilots/join", told, idempotent=True), papers)
                break
            except _REFUSED as fault:
                raise JoinRefused(fault.message, hint=fault.hint) from None
            except LodesmanError as fault:
                failures += 1
                if self._chance.ticker() - start > patience:
                    raise Unavailable(
                        f"No server took this pilot in {patience:.0f} s.", last=str(fault)
                    ) from None
                if wait(self.delay(failures)):
                    raise Unavailable("The pilot was ended before it joined.") from None
        client.close()
        self._terms = terms
        self.lease_s = terms.lease_s
        self._heard()
        return terms

    def _ask_pools(self, queue: BatchQueue) -> ServedPools | None:
        """getSubmitPoolsForQueue, by the join token; None if the server refuses. Raises Unavailable."""
        client = self._new(retry=ONCE, token=self._papers.join_token)
        try:
            return ask_served_pools(client, queue)
        except Unavailable:
            raise
        except LodesmanError:
            return None
        finally:
            client.close()

    def client(self, *, retry: Retry = ONCE) -> Client:
        """A connection of one's own, for one thread, with the pilot's token."""
        return self._new(retry=retry, token=self._terms.token if self._terms else "")

    def delay(self, failures: int) -> float:
        """How long to wait after so many failures in a row, with full jitter."""
        with self._lock:
            return Retry().delay(failures, self._chance.rng)

    def claim(self, client: Client, ask: Ask, claim_token: str) -> Claim:
        """Ask for jobs. The same token again gives the same jobs: it is how a lost answer is asked for."""
        resource = {
            "cores": ask.cores,
            "memory_mb": ask.memory_mb,
            "norm_cpu_seconds": ask.norm_cpu_seconds,
        }
        body = {"claim_token": claim_token, "count": ask.count, "wait_s": ask.wait_s, "resource": resource}
        timeout = ask.wait_s + _REQUEST_TIMEOUT_S
        answer = self._post(client, "/v1/pilots/claim", body, timeout=timeout)
        return parse_claim(answer, sandbox_mb=self._terms.sandbox_mb if self._terms else 0)

    def beat(self, client: Client, jobs: list[dict[str, Any]], state: str) -> Orders:
        """Send a heartbeat; the lease is what the answer says."""
        orders = parse_orders(self._post(client, "/v1/pilots/heartbeat", {"jobs": jobs, "state": state}))
        if orders.lease_s:
            self.lease_s = orders.lease_s
        return orders

    def report(self, client: Client, reports: list[dict[str, Any]]) -> Any:
        """Send reports; returns the answer as it came."""
        return self._post(client, "/v1/pilots/report", {"reports": reports})

    def upload(self, client: Client, path: str, file: Path, sha256: str) -> Any:
        """Send an archive."""
        return self._told(lambda: client.upload(path, file, sha256))

    def leave(self, reason: str, message: str) -> bool:
        """Say that this pilot has ended and all its reports are in; false if nobody heard."""
        client = self.client(retry=Retry(rounds=3))
        body = {"reason": reason, "message": message}
        try:
            self._post(client, "/v1/pilots/leave", body, timeout=_LEAVE_TIMEOUT_S)
        except LodesmanError:
            return False
        finally:
            client.close()
        return True

    def _post(self, client: Client, path: str, body: Any, *, timeout: float = _REQUEST_TIMEOUT_S) -> Any:
        """Every request of a pilot may be repeated: the server answers by what it knows already."""
        return self._told(lambda: client.request("POST", path, body, idempotent=True, timeout=timeout))

    def _told(self, request: Callable[[], Any]) -> Any:
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
        self.last_contact = self._chance.ticker()

    def _new(self, *, retry: Retry, token: str) -> Client:
        with self._lock:
            rng = random.Random(self._chance.rng.random())
        papers = self._papers
        return Client(papers.servers, token, ca_file=papers.ca_file, retry=retry, rng=rng)


def _told(papers: PilotFile) -> ServedPools | None:
    if papers.submit_pools is None:
        return None
    return ServedPools(papers.pools_pass, papers.submit_pools)


def _terms(answer: Any, papers: PilotFile) -> Terms:
    """Read the answer to a join; what it does not say is as in the pilot's file."""
    options = papers.options
    if not isinstance(answer, dict) or not isinstance(answer.get("token"), str):
        raise Unavailable("The answer to the join cannot be understood.")
    pilot = answer.get("pilot")
    return Terms(
        pilot=pilot if isinstance(pilot, int) else 0,
        token=answer["token"],
        lease_s=_number(answer, "lease_s", 1800.0),
        heartbeat_s=max(0.1, _number(answer, "heartbeat_s", options.heartbeat_s)),
        idle_s=_number(answer, "idle_s", options.idle_s),
        sandbox_mb=_number(answer, "sandbox_mb", Terms.sandbox_mb) or Terms.sandbox_mb,
    )


def _number(answer: dict[str, Any], name: str, default: float) -> float:
    value = answer.get(name)
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if usable and value is not None else default
