"""What all calls of the reading process share: read connections, the policy in use, the snapshot, who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from lodesman.answers.accounts import Principal
from lodesman.answers.call import Call, Nothing
from lodesman.answers.jobs import Job
from lodesman.answers.server import ConfigurationState
from lodesman.api.auth import may_touch
from lodesman.api.metrics import UpkeepFigures
from lodesman.api.snapshots import Snapshots
from lodesman.background.descriptions import MemberNames
from lodesman.background.direct import Director
from lodesman.background.snapshot import SnapshotKeeper
from lodesman.commands.control import no_longer_known, unseen
from lodesman.matching.policy import Policy
from lodesman.store import Reader
from lodesman.store.read.jobs import job_by_id, was_given_out
from lodesman.store.shelf import Shelf

# How much longer an expensive snapshot is used than a cheap one.
EXPENSIVE = 25.0


@dataclass(slots=True)
class ReadSide:
    """What the reading process has. `announce` tells the hot process of an upload, `ask_hot` makes a service call there;
    `director`: the one that runs, None where there is none.
    """

    db: Reader
    policy: Policy
    shelf: Shelf
    clock: Callable[[], float]
    announce: Callable[[str, str, int], Any]
    hot_metrics: Callable[[], dict[str, float]]
    keeper: SnapshotKeeper
    ask_hot: Callable[[Call[Nothing, Any, Any], Any], Awaitable[Any]]
    director: Director | None = None
    # What the input files of one user may take in all; 0: no limit.
    quota_bytes: int = 0
    # Of the rest of a snapshot, after which a request makes a cheap one anew.
    patience: float = 0.2
    configuration: Callable[[], ConfigurationState] = ConfigurationState
    # What upkeep counts, for /metrics.
    upkeep: Callable[[], UpkeepFigures] = UpkeepFigures
    names: MemberNames = field(init=False)
    snapshots: Snapshots = field(init=False)
    # Plans of jobs at once; of resources and shares there is one.
    job_plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    large_plans: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def __post_init__(self) -> None:
        self.names = MemberNames(self.db)
        self.snapshots = Snapshots(self.db.path, patience=self.patience)

    def fresh(self) -> SnapshotKeeper:
        """The keeper of the snapshot, which a loop refreshes beside the requests: a request waits for a cheap refresh only,
        unless the last one was long ago.
        """
        rest = self.patience if self.keeper.is_cheap else self.patience * EXPENSIVE
        self.keeper.refresh(self.clock(), rest=rest)
        return self.keeper

    def job(self, job_id: int, who: Principal) -> Job:
        """A job that the caller may see. Raises NotFound."""
        job = job_by_id(self.db, job_id)
        may = may_touch(who, self.policy.sharing_groups())
        if job is None and was_given_out(self.db, job_id):
            raise no_longer_known(job_id)
        if job is None or not may(job.owner, job.group, job.vo):
            raise unseen(job_id, job_id)
        return next(self.names.fill((job,)))
