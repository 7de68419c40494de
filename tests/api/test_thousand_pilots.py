"""A decision for 1,000 pilots of a real Slurm, from the decision to the last stored id."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.kits import slurm_kit
from tests.kits.shell_pilots import PROGRAM

from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PilotIdentity, PilotOrder, TypeReason
from lodesman.decide.director.placement import Placement
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.resources import load_resources
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.slurm import SlurmBackend
from lodesman.server.loops.launch import PilotSettings, SubmissionPools
from lodesman.server.store.read.pilots import live_pilots

SITES = '[site.Far]\nVO = ["lab"]\n[site.Far.ce.ce.queue.down]\nBackend = "far"\n'
SETTINGS = PilotSettings(
    servers=("http://127.0.0.1:1",), program=PROGRAM, python="python3", idle_seconds=5.0, heartbeat_seconds=5.0,
    life_seconds=100, ca_file="",
)  # fmt: skip


class Counting:
    """Passes commands on, and remembers their programs."""

    def __init__(self, runner: Here) -> None:
        self._runner = runner
        self.programs: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, words, *more, **options):
        self.programs.append(words[0])
        return self._runner.run(words, *more, **options)


@pytest.mark.slow
@pytest.mark.engines
def test_a_thousand_pilots_are_two_submissions_at_most(house, record_property):
    runner = Counting(Here(environment=slurm_kit.environment(slurm_kit.slurm_of_this_session())))
    backend = SlurmBackend(cast("Any", runner))
    policy = house.policy(load_resources([("sites.toml", SITES)]), backends={"far"})
    (offer,) = policy.vo_config("lab").offers
    key = TaskQueueKey(owner="ann", group="physics", vo="lab")
    identity = PilotIdentity(
        private=False, owner="ann", group="physics", serves_owner="", serves_group=None, pilot_type="",
        reason=TypeReason.DRAWN,
    )  # fmt: skip
    order = PilotOrder(tq_id=1, key=key, count=1_000, pool="Default", identity=identity)
    placed = Placement(order=order, queue_id=offer.queue, count=1_000, request=offer.request)
    watch = SimpleNamespace(backend=backend, options=())
    pools = SubmissionPools(
        read_options({"DefaultSubmitPools": "Default", "SubmitPools": "Default"}), watches={"far": cast("Any", watch)},
        post=house.post, settings=SETTINGS, note=lambda *_: None,
    )  # fmt: skip
    house.submitted({})
    begun = time.monotonic()
    pools.launch(
        cast("Any", SimpleNamespace(placement=SimpleNamespace(placements=(placed,)))),
        {("lab", offer.queue): offer},
    )
    for pool in pools._pools.values():
        for thread in list(pool._threads):
            pool.configure(None)
            thread.join()
    seconds = time.monotonic() - begun
    record_property("seconds", seconds)
    stored = live_pilots(house.side.db)
    assert len({one.native_id for one in stored if one.native_id}) == 1_000
    assert runner.programs.count("sbatch") <= 2
