"""Answers about SubmitPools."""

from __future__ import annotations

from msgspec import Struct, field

from lodesman.answers.places import Place, Scalar
from lodesman.answers.vocabulary import Kind


class ServedQueue(Place):
    """A CE queue and the SubmitPools that it serves."""

    pools: list[str]


class Served(Struct):
    """SubmitPools by CE queue, as of the pass number `pass`."""

    number: int = field(name="pass")
    at: float
    queues: list[ServedQueue]


class Required(Struct):
    """What one Requirement asks of a parameter of this kind, in `unit`: any of the values `wanted`."""

    kind: Kind
    unit: str
    wanted: list[Scalar]


class PoolJobs(Struct):
    """Jobs that need a SubmitPool."""

    waiting: int
    held: int
    running: int


class Pool(Struct):
    """A SubmitPool: what it asks for, by parameter, how many `queues` serve it, and the jobs that need it. `queues` and
    `refreshed_at` are None until a pass has found them; `unused_since` None: jobs need it.
    """

    id: str
    vo: str
    requirements: dict[str, Required]
    queues: int | None
    created_at: float
    refreshed_at: float | None
    unused_since: float | None
    jobs: PoolJobs


class PoolPass(Struct):
    """One pass over all SubmitPools, and why it was made: so many `pools`, of which `changed`; task queues `held` and
    `released` since then nothing, or something, could run their jobs. It took so many seconds.
    """

    id: int
    at: float
    cause: str
    pools: int
    changed: int
    held: int
    released: int
    seconds: float


class PoolInFull(Pool):
    """A SubmitPool with the queues that serve it, and the last passes, the youngest first."""

    served_by: list[Place]
    passes: list[PoolPass]


class Pools(Struct):
    """SubmitPools, those that most jobs need first; `total`: how many there are."""

    pools: list[Pool]
    total: int
    last_pass: PoolPass | None
