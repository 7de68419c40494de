"""What both processes of a server do alike: how they take in a configuration, and how they keep their memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Container

from lodesman.config import ServerConfig
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId

CONFIG_SECONDS = 2.0
"""How often the configuration files are looked at."""
GC_THRESHOLDS = (20_000, 20, 50)


def policy_of(
    config: ServerConfig, *, life_seconds: int, inhabited: Callable[[], Container[QueueId]]
) -> Policy:
    """The policy of a configuration. `life_seconds`: of pilots, as read at the start; `inhabited`: where pilots live now."""
    return Policy(
        config.resources,
        add_eligible_sites=config.submit_pools.add_eligible_sites,
        submission_pools=frozenset(config.director.pools),
        life_seconds=life_seconds,
        loaded_at=time.time(),
        inhabited=inhabited,
    )


def keep_what_was_loaded() -> None:
    """Leave what is there now to no collection of garbage: one that walks through it all stops every answer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
