"""What all calls of the reading process share: read connections, the policy, the snapshot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import ResourceConfig
from lodesman.languages.jobclass import Classes
from lodesman.languages.jobs.selection import StepBudget
from lodesman.server.http.auth import may_touch, own_vo
from lodesman.server.http.health import UpkeepFigures
from lodesman.server.http.wire import Receive, unless_gone
from lodesman.server.live.principals import reads_as
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.direct import Director
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.loops.site_tests import SiteTests
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.reads.descriptions import MemberNames
from lodesman.server.reads.sites import seen_by
from lodesman.server.reads.submission_counts import SubmissionCounts
from lodesman.server.reads.verifying import Verifier
from lodesman.server.store import Database, Reader, let_go
from lodesman.server.store.read import job_lists
from lodesman.server.store.read.jobs import job_by_id, was_given_out
from lodesman.server.store.readers import is_shared_with
from lodesman.server.store.shelf import Shelf
from lodesman.server.writer.missing_jobs import no_longer_known, unseen_jobs
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Call, Nothing
from lodesman.wire.jobs import Job
from lodesman.wire.jsv import JsvSection
from lodesman.wire.server import ConfigurationState

_T = TypeVar("_T")

# Of the threads that read (`CostlyReads`): one is left to plain lists.
_MOST: Final = 2


class Searches:
    """One at a time for each user, two in all. Belongs to the event loop."""

    def __init__(self) -> None:
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._places = asyncio.Semaphore(_MOST)

    async def run(self, user: str, receive: Receive, read: Callable[[StepBudget], Awaitable[_T]]) -> _T:
        """What `read` returns within this budget of steps. Raises Disconnected, SelectionTooDear."""
        return await unless_gone(receive, self._run(user, read))

    async def _run(self, user: str, read: Callable[[StepBudget], Awaitable[_T]]) -> _T:
        async with self._of.setdefault(user, asyncio.Lock()), self._places:
            budget = StepBudget(job_lists.MOST_STEPS)
            work = asyncio.ensure_future(read(budget))
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                # Its thread is in use until it finds that.
                budget.end()
                await asyncio.gather(work, return_exceptions=True)
                raise


# How much longer an expensive snapshot is used than a cheap one.
_EXPENSIVE: Final = 25.0
# A result that took less time is not kept: users see what they have just done.
_CHEAP_SECONDS: Final = 0.05
# A result is used for this many times what it took, times the patience, but not for longer than _MOST_SECONDS.
_REST: Final = 100.0
_MOST_SECONDS: Final = 60.0
_KEPT_RESULTS: Final = 256


@dataclass(slots=True)
class _Kept:
    """Read again by one request at a time."""

    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    result: Any = None
    begun: float | None = None
    use_seconds: float = 0.0  # from `begun`


@dataclass(eq=False)
class CostlyReads:
    """Reads through all jobs: in a thread, one at a time for each key, shared by all who ask the same."""

    database: Database
    patience: float
    ticks: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._thread = threading.local()
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="read")
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[Reader], _T]) -> _T:
        """What `read` returns, or returned not long ago under this key."""
        asked = self.ticks()
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT_RESULTS:
            self._kept.popitem(last=False)
        async with kept.reading:
            # A request that waited while another one began to read takes that result.
            if kept.begun is None or kept.begun < asked - kept.use_seconds:
                begun = self.ticks()
                kept.result, kept.begun = await self.run(read), begun
                cost = self.ticks() - begun
                kept.use_seconds = (
                    min(_MOST_SECONDS, cost * _REST * self.patience) if cost >= _CHEAP_SECONDS else 0.0
                )
            return cast("_T", kept.result)

    async def run(self, read: Callable[[Reader], _T]) -> _T:
        """Read in a thread, now."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, read)

    def _read(self, read: Callable[[Reader], _T]) -> _T:
        if not hasattr(self._thread, "db"):
            self._thread.db = self.database.reader()
        try:
            return read(self._thread.db)
        except BaseException as fault:
            let_go(fault)
            raise


@dataclass(slots=True)
class ReadSide:
    """The state of the reading process."""

    db: Reader
    policy: Policy
    shelf: Shelf
    clock: Callable[[], float]
    keeper: SnapshotKeeper
    ask_hot: Callable[[Call[Nothing, Any, Any], Any], Awaitable[Any]]
    # The job classes as they are stored.
    classes: Callable[[Reader], Classes]
    director: Director | None = None
    # What the input files and outputs of one user may take in all, and how many input files; 0: no limit.
    quota_bytes: int = 0
    most_files: int = 0
    # Of each user, the bytes and the number of files that are on their way.
    reserved: Counter[str] = field(default_factory=Counter)
    files_coming: Counter[str] = field(default_factory=Counter)
    # By job and attempt, while its output comes.
    handing_in: WeakValueDictionary[tuple[int, int], asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )
    # Of the rest of a snapshot, after which a request makes a cheap one anew.
    patience: float = 0.2
    configuration: Callable[[], ConfigurationState] = ConfigurationState
    # What upkeep counts, for /metrics.
    upkeep: Callable[[], UpkeepFigures] = UpkeepFigures
    site_tests: SiteTests = field(default_factory=SiteTests)
    gates: GateOptions = field(default_factory=GateOptions)
    # Of all pilots, for those that people start themselves.
    pilot_settings: PilotSettings = field(default_factory=lambda: PilotSettings(servers=(), program=b""))
    # The server's verifier, for plans: submissions bring the one that is configured where they come in.
    jsv: JsvSection = field(default_factory=JsvSection)
    verifier: Verifier = field(init=False)
    names: MemberNames = field(init=False)
    costly: CostlyReads = field(init=False)
    searches: Searches = field(default_factory=Searches)
    submissions: SubmissionCounts = field(init=False)
    # Plans of jobs at once; of resources and shares there is one.
    job_plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    large_plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    # The digest of a policy, and by VO what its users see of it.
    _seen: tuple[str, dict[str, ResourceConfig]] = ("", {})

    def __post_init__(self) -> None:
        self.names = MemberNames(self.db)
        self.costly = CostlyReads(self.db.database, patience=self.patience)
        self.submissions = SubmissionCounts(self.clock)
        self.verifier = Verifier(lambda: self.costly.run(self.classes))

    @property
    def watches(self) -> Mapping[str, BackendWatch]:
        """The batch systems by name; none without a director."""
        return {} if self.director is None else self.director.watches

    def fresh(self) -> SnapshotKeeper:
        """A request waits for a cheap refresh only, unless the last one was long ago."""
        rest = self.patience if self.keeper.is_cheap else self.patience * _EXPENSIVE
        self.keeper.refresh(self.clock(), rest=rest)
        return self.keeper

    def config(self, who: Principal) -> ResourceConfig:
        """The configuration as the caller may see it."""
        vo = own_vo(who)
        if not vo:
            return self.policy.config
        if self._seen[0] != self.policy.digest:
            self._seen = (self.policy.digest, {})
        if vo not in self._seen[1]:
            self._seen[1][vo] = seen_by(self.policy, vo)
        return self._seen[1][vo]

    def job(self, job_id: int, who: Principal, *, for_vo_admins: bool = False) -> Job:
        """`for_vo_admins`: also for that of its VO. Raises NotFound."""
        job = job_by_id(self.db, job_id)
        may = may_touch(who, self.policy.sharing_groups(), for_vo_admins=for_vo_admins)
        if job is None and was_given_out(self.db, job_id):
            raise no_longer_known(job_id)
        if job is None or not (
            may(job.owner, job.group, job.vo) or is_shared_with(self.db, job.submission, reads_as(who))
        ):
            raise unseen_jobs(job_id, job_id)
        return next(self.names.fill((job,)))

    def only_reads(self, job: Job, who: Principal) -> bool:
        """Whether the job is only shared with the caller: its secrets are not."""
        return not may_touch(who, self.policy.sharing_groups())(job.owner, job.group, job.vo)
