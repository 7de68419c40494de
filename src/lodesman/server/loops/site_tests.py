"""Tests of sites (`lode site test`). A test without its client stops; its jobs are cancelled in any case."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import msgspec

from lodesman.base.errors import NotFound, Unavailable
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import not_sent
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import LOCAL, MANUAL, NodePath, QueueId
from lodesman.server.engines.backend import PilotSpec
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.queue_tests import PREFIX, QueueTest
from lodesman.wire.site_tests import SiteCheck, SiteTest

log = logging.getLogger(__name__)

_MOST_QUEUES: Final = 20
_MOST_RUNNING, _MOST_KEPT = 4, 100
_FORSAKEN_SECONDS: Final = 60.0  # without a question of the client
_CLOSE_SECONDS: Final = 15.0  # for orders to end jobs, at the end of the server


@dataclass(eq=False, kw_only=True)
class _SiteRun:
    path: str
    begun_at: float
    left_out: int
    asked_at: float
    checks: dict[QueueId, list[SiteCheck]] = field(default_factory=dict)  # what was found of each queue
    tests: list[QueueTest] = field(default_factory=list)
    futures: list[Future[None]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        return all(future.done() for future in self.futures)

    @property
    def state(self) -> Literal["running", "stopping", "stopped", "finished"]:
        if self.stopped.is_set():
            return "stopped" if self.is_over else "stopping"
        return "finished" if self.is_over else "running"


class SiteTests:
    """All tests of this process."""

    def __init__(
        self,
        settings: PilotSettings | None = None,
        watches: Callable[[], Mapping[str, BackendWatch]] = dict,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`settings` has the program of test jobs; `watches` gives the batch systems of now."""
        self._settings = settings or PilotSettings(servers=(), program=b"")
        self._watches = watches
        self._ticks = ticks
        self._threads = ThreadPoolExecutor(_MOST_QUEUES * _MOST_RUNNING, thread_name_prefix="site-test")
        self._tests: dict[str, _SiteRun] = {}

    def begin(
        self, node: NodePath, policy: Policy, mask: SiteMask, *, seconds: float, now: float
    ) -> SiteTest:
        """Test the queues of a node. Raises Unavailable while others are tested."""
        if sum(not run.is_over for run in self._tests.values()) >= _MOST_RUNNING:
            raise Unavailable(
                "Other sites are tested now.", hint="Try again when one of these tests has ended."
            )
        watches = self._watches()
        queues = [queue for queue in policy.config.tree.queue_ids() if node.covers(queue)]
        run = _SiteRun(
            path=str(node), begun_at=now, asked_at=self._ticks(), left_out=max(0, len(queues) - _MOST_QUEUES)
        )
        for queue in queues[:_MOST_QUEUES]:
            offer, skipped = _testable(policy, queue)
            closed = mask.reason(queue, now) if node != queue else ""
            skipped = skipped or (closed and f"{closed}; name the queue, and it is tested all the same")
            watch = watches.get(offer.backend) if offer is not None else None
            if offer is None or watch is None or skipped:
                words = f"no test job: {skipped or 'its batch system is configured no more'}"
                run.checks[queue] = [SiteCheck(*queue, "submit", "unknown", 0.0, words)]
                continue
            spec = partial(self._spec, offer, watch.options)
            test = QueueTest(queue, watch.backend, spec, seconds=seconds, wait=partial(self._wait, run))
            run.checks[queue] = test.checks
            run.tests.append(test)
        for test in run.tests:
            future = self._threads.submit(test.run)
            future.add_done_callback(partial(_log_bug, test.queue))
            run.futures.append(future)
        name = secrets.token_hex(8)
        self._tests[name] = run
        self._forget_old()
        return self._answer(name, run)

    def ask(self, name: str) -> SiteTest:
        """How a test stands, and what it found so far. Raises NotFound."""
        run = self._find(name)
        run.asked_at = self._ticks()
        return self._answer(name, run)

    def stop(self, name: str) -> SiteTest:
        """Let a test end soon; its jobs are cancelled. Raises NotFound."""
        run = self._find(name)
        if not run.is_over:
            run.stopped.set()
        return self._answer(name, run)

    def close(self) -> None:
        """Stop all, and wait until their jobs are cancelled, or that has taken too long."""
        futures = [future for run in self._tests.values() for future in run.futures]
        for run in self._tests.values():
            run.stopped.set()
        _, left = wait(futures, timeout=_CLOSE_SECONDS)
        if left:
            log.error("test jobs could not be cancelled", extra={"queues": len(left)})
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _find(self, name: str) -> _SiteRun:
        if name not in self._tests:
            hint = "They are kept for a while, and a restart of the server ends them."
            raise NotFound(f"There is no test {name[:80]}.", hint=hint)
        return self._tests[name]

    def _forget_old(self) -> None:
        over = [name for name, run in self._tests.items() if run.is_over]
        for name in over[: max(0, len(self._tests) - _MOST_KEPT)]:
            del self._tests[name]

    def _wait(self, run: _SiteRun, seconds: float, last: bool) -> bool:
        """Whether to stop, after that time; its `last` wait is whole."""
        if last:
            return threading.Event().wait(seconds)
        if self._ticks() - run.asked_at > _FORSAKEN_SECONDS:
            log.info("the client of a test has gone", extra={"path": run.path})
            run.stopped.set()
        return run.stopped.wait(seconds)

    def _spec(self, offer: QueueOffer, options: tuple[str, ...], stay_seconds: int) -> PilotSpec:
        common = self._settings
        orders = {
            "servers": common.servers, "ca_file": common.ca_file, "python": common.python, "stay_seconds": stay_seconds,
            "url_file": common.url_file if offer.backend == LOCAL else "",
        }  # fmt: skip
        return PilotSpec(
            queue=offer.queue,
            submission=f"{PREFIX}{secrets.token_hex(9)}",
            count=1,
            program=common.program,
            pilot_file=msgspec.json.encode(orders),
            python=common.python,
            cores=offer.request.cores,
            memory_mb=offer.settings.memory_mb or 0,
            wall_seconds=offer.settings.wall_seconds or 0,
            options=(*options, *offer.settings.submit_options),
        )

    def _answer(self, name: str, run: _SiteRun) -> SiteTest:
        state = run.state  # before the checks are read: none comes after its end
        words = "a fault in the program ended the test of this queue: see the server's log, and report it"
        faults = [
            SiteCheck(*test.queue, "forget", "failed", 0.0, words)
            for test, future in zip(run.tests, run.futures, strict=True)
            if _bug(future) is not None
        ]
        return SiteTest(
            test=name,
            path=run.path,
            begun_at=run.begun_at,
            state=state,
            queues=len(run.checks),
            left_out=run.left_out,
            doing={str(test.queue): test.doing for test in run.tests if test.doing},
            checks=[check for checks in run.checks.values() for check in list(checks)] + faults,
        )


def _log_bug(queue: QueueId, future: Future[None]) -> None:
    if (bug := _bug(future)) is not None:
        log.error("the test of a queue failed", exc_info=bug, extra={"queue": str(queue)})


def _bug(future: Future[None]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


def _testable(policy: Policy, queue: QueueId) -> tuple[QueueOffer | None, str]:
    """A queue as the first VO sees it that may send pilots there; and why none may, or ''."""
    offers = [offer for vo in policy.config.vos if (offer := policy.vo_config(vo).offer(queue)) is not None]
    reasons = {offer: not_sent(offer, policy.backends) for offer in offers}
    offered = next((offer for offer, reason in reasons.items() if reason is None), None)
    if offered is not None or not offers:
        return offered, "" if offers else "no VO may use it"
    reason = next(reason for reason in reasons.values() if reason is not None)
    others = all(offer.backend == MANUAL for offer in offers)
    return None, reason.text + (", by others: test them there" if others else "")
