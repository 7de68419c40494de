"""What all calls of the reading process share: read connections, the policy in use, the picture, who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from lodesman.api.auth import authenticate, may_touch
from lodesman.api.metrics import UpkeepFigures
from lodesman.api.snapshots import Snapshots
from lodesman.background.names import MemberNames
from lodesman.commands import sandboxes
from lodesman.commands.accounts import Principal, find_principal
from lodesman.commands.configuration import ConfigurationState
from lodesman.commands.forget import no_longer_known
from lodesman.commands.policy import Policy
from lodesman.errors import NotFound
from lodesman.services.why.picture import Picture
from lodesman.services.why.queue_gate import Gates
from lodesman.store import views
from lodesman.store.engine import Reader

# How much longer an expensive picture is used than a cheap one.
EXPENSIVE = 25.0


@dataclass(slots=True)
class ReadSide:
    """What the reading process has. `announce` tells the hot process of an upload, `ask_hot` makes a service call there;
    `gates` looks at CE queues as the director does, None where there is none.
    """

    db: Reader
    policy: Policy
    shelf: sandboxes.Shelf
    clock: Callable[[], float]
    announce: Callable[[str, str, int], Any]
    hot_metrics: Callable[[], dict[str, float]]
    picture: Picture
    ask_hot: Callable[[str, Any], Awaitable[Any]]
    gates: Gates | None = None
    # What the input files of one user may take in all; 0: no limit.
    quota_bytes: int = 0
    # Of the rest of a picture, after which a request makes a cheap one anew.
    patience: float = 0.2
    configuration: Callable[[], ConfigurationState] = ConfigurationState
    # What upkeep counts, for /metrics.
    upkeep: Callable[[], UpkeepFigures] = UpkeepFigures
    names: MemberNames = field(init=False)
    snapshots: Snapshots = field(init=False)

    def __post_init__(self) -> None:
        self.names = MemberNames(self.db)
        self.snapshots = Snapshots(self.db.path, patience=self.patience)

    def look(self) -> Picture:
        """The picture of the world. Somebody keeps it fresh beside the requests; a request waits for a cheap look only,
        unless nobody has looked for long.
        """
        patience = self.patience if self.picture.is_cheap else self.patience * EXPENSIVE
        self.picture.look(self.clock(), patience=patience)
        return self.picture

    def who(self, request: Request) -> Principal:
        """The principal of a request."""
        return authenticate(request.scope, lambda digest: find_principal(self.db, digest), self.clock())

    def job(self, request: Request, who: Principal) -> views.Row:
        """The job of the path, if the caller may see it."""
        job_id = request.path_params["job"]
        job = views.find_job(self.db, job_id)
        may = may_touch(who, self.policy.sharing_groups())
        if job is None and views.was_given_out(self.db, job_id):
            raise no_longer_known(job_id)
        if job is None or not may(job["owner"], job["group"], job["vo"]):
            raise NotFound(f"There is no job {job_id} that is yours.", job=job_id)
        return next(self.names.fill((job,)))
