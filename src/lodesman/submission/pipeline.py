"""The ordered list of optimizers and the loop that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lodesman.matching import TaskQueueKey
from lodesman.submission.draft import Draft, Optimizer, World
from lodesman.submission.optimizers import check_names, check_possible, make_key, make_submit_pool

OPTIMIZERS: tuple[Optimizer, ...] = (check_names, make_submit_pool, make_key)


def optimize(draft: Draft, world: World, verdicts: Mapping[TaskQueueKey, str] | None = None) -> Draft:
    """Run the optimizers in order, then judge whether the job is possible at all.

    verdicts: what was found for keys judged before in the same world. Raises InvalidJob.
    """
    for optimizer in OPTIMIZERS:
        draft = optimizer(draft, world)
    known = None if verdicts is None or draft.key is None else verdicts.get(draft.key)
    return check_possible(draft, world) if known is None else replace(draft, never=known)
