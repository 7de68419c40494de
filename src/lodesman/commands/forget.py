"""Forgetting, as the writer does it: in small portions, each checked again (`retention` finds what is old)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from lodesman.answers.service import Forgotten, Old
from lodesman.commands.live import Live
from lodesman.errors import NotFound
from lodesman.store import forget
from lodesman.store.journal import Transaction

# Rows of one table that the end of a submission deletes at once.
MOST_ROWS = 500


@dataclass(slots=True)
class Forget:
    """Delete what is old. What is not old any more, or was not, stays."""

    live: Live
    old: Old

    def apply(self, tx: Transaction) -> Forgotten:
        """Files are removed by whoever asked, after the commit."""
        old = self.old
        jobs = self._jobs(tx) if old.jobs else []
        if old.holes:
            forget.close_holes(tx, old.holes, old.before)
        if old.templates:
            forget.delete_templates(tx, old.templates)
        done = not old.submissions or forget.delete_submissions(tx, old.submissions, MOST_ROWS)
        if old.pilots:
            forget.delete_pilots(tx, old.pilots, old.before)
        queues = self._queues(tx) if old.queues else 0
        return Forgotten(jobs=jobs, queues=queues, more=not done)

    def _jobs(self, tx: Transaction) -> list[forget.GoneJob]:
        found = forget.old_jobs(tx, self.old.jobs, self.old.before)
        newest = max((row[3] for row in found if row[3] is not None), default=0)
        if newest > forget.claims_at(tx):
            # Counters and cursors follow from these attempts: write them while the attempts are there.
            self.live.write_claims(tx)
        return forget.delete_jobs(tx, found) if found else []

    def _queues(self, tx: Transaction) -> int:
        live = self.live
        gone = [
            tq_id
            for tq_id, emptied_at in self.old.queues
            if not live.matcher.index.has(tq_id) and forget.is_still_empty(tx, tq_id, emptied_at)
        ]
        for tq_id in gone:
            reason = live.held.pop(tq_id, None)
            if reason is not None:
                tx.undo.append(partial(live.held.__setitem__, tq_id, reason))
            live.fronts.forget(tq_id)
        forget.delete_queues(tx, gone)
        return len(gone)


def no_longer_known(first: int, last: int | None = None) -> NotFound:
    """What is answered when jobs are named that were forgotten: their ids were given out, and nothing has them."""
    last = first if last is None else last
    which = f"Job {first} is" if first == last else f"The jobs from {first} to {last} are"
    return NotFound(
        f"{which} no longer known.",
        hint="The server forgets jobs some time after they have ended (keep_days in its configuration).",
        first=first,
        last=last,
    )


def portions(items: Iterable[tuple[int, int]], *, most: int, weight: int) -> Iterable[list[int]]:
    """Keys of (key, weight) in portions of at most `most`, and of about that weight in all."""
    portion: list[int] = []
    sum_ = 0
    for key, own in items:
        if portion and (len(portion) >= most or sum_ + own > weight):
            yield portion
            portion, sum_ = [], 0
        portion.append(key)
        sum_ += own
    if portion:
        yield portion


def unseen(first: int, last: int) -> NotFound:
    """What is answered when jobs are named that are not there, or that the caller may not see."""
    which = f"Job {first} was" if first == last else f"Jobs {first}-{last} were"
    return NotFound(
        f"{which} not found, or you may not see {'it' if first == last else 'them'}.", first=first, last=last
    )
