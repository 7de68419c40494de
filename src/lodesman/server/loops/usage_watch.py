"""What groups and owners used lately, which corrects their shares."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.shares import find_arenas
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store import Reader
from lodesman.server.store.read.upkeep import last_of_portion
from lodesman.server.store.read.usage import used_by_older, used_by_queue
from lodesman.server.store.read.why import last_attempt_before
from lodesman.server.store.task_queues import keys_by_id
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.groups import CorrectionUsage, KnownUsage, ShareSection, SliceUsage, TimeSlice

_READ_SECONDS: Final = 900.0
_OLD_SECONDS: Final = 3 * _READ_SECONDS  # from then on a reading says nothing
_LOOK_SECONDS: Final = 10.0  # between two looks at who has waiting jobs
_AT_ONCE: Final = 50_000
# The longest job whose core-seconds are found if it ended in a time slice.
_LONG_JOB_SECONDS: Final = 604_800.0

_Used = dict[int, list[float]]  # by task queue, what was used in each time slice


@dataclass(slots=True)
class UsageWatch:
    """Keeps the correction of shares true to the attempts; reads nothing without a corrector."""

    db: Reader
    post: Post
    keeper: SnapshotKeeper
    options: ShareSection
    _of: ShareSection = field(default_factory=ShareSection)
    _reading: Iterator[tuple[float, _Used] | None] | None = None
    _keys: dict[int, TaskQueueKey] = field(default_factory=dict)
    # When it was read, and what was.
    _read: tuple[float, _Used] | None = None
    _sent: KnownUsage | None = None
    _looked: float | None = None

    def tick(self, policy: Policy, now: float) -> None:
        """Read a portion if it is time to, and send what changed; after LodesmanError again."""
        options = self.options
        if options != self._of:
            self._of, self._reading, self._read, self._looked = options, None, None, None
        if options.corrector == "none" or self.keeper.at is None:
            self._send(policy, None, 0.0)
            return
        if self._step(options, now) or self._looked is None or not 0.0 <= now - self._looked < _LOOK_SECONDS:
            read, self._looked = self._read, None
            left = 0.0 if read is None else _OLD_SECONDS - max(0.0, now - read[0])
            usage = None if read is None or left <= 0 else self._known(policy, options, *read)
            self._send(policy, usage, left)
            self._looked = now

    def rest(self) -> float:
        """Seconds until it looks again; 0 within a reading. Other options come by waking."""
        if self.options.corrector == "none":
            return _LOOK_SECONDS
        return 0.0 if self._reading is not None or self._looked is None else _LOOK_SECONDS

    def _step(self, options: ShareSection, now: float) -> bool:
        if self._reading is None:
            if self._read is not None and 0.0 <= now - self._read[0] < _READ_SECONDS:
                return False
            self._reading = _read_all(self.db, options, now)
        # Should it fail, the next step begins anew.
        reading, self._reading = self._reading, None
        portion = next(reading)
        if portion is None:
            self._reading = reading
            return False
        keys = {tq_id: key for tq_id, key in self._keys.items() if tq_id in portion[1]}
        self._keys = keys | keys_by_id(self.db, portion[1].keys() - keys.keys(), {})
        self._read = portion
        return True

    def _known(self, policy: Policy, options: ShareSection, at: float, used: _Used) -> KnownUsage:
        by_core = options.currency == "core-seconds"
        sharing = policy.sharing_groups()
        keys = {tq_id: key for tq_id, key in self._keys.items() if any(used[tq_id])}
        rows = [(key, (key.cores if by_core else 1), used[tq_id]) for tq_id, key in keys.items()]
        slices = [
            _slice(slice_, ((key, amounts[place] * times) for key, times, amounts in rows))
            for place, slice_ in enumerate(options.slices)
        ]
        taking_part = [*keys.values(), *(key for _, key, _ in self.keeper.snapshot.waiting)]
        owners: dict[str, set[str]] = defaultdict(set)
        for key in taking_part:
            if key.group not in sharing:
                owners[key.group].add(key.owner)
        return KnownUsage(
            at=at,
            currency=options.currency,
            most=options.most,
            slices=slices,
            arenas=find_arenas(sorted({(key.vo, key.group) for key in taking_part})),
            owners={group: sorted(names) for group, names in sorted(owners.items())},
        )

    def _send(self, policy: Policy, usage: KnownUsage | None, seconds: float) -> None:
        if usage != self._sent:
            self.post(inner_calls.USAGE_FOUND, CorrectionUsage(usage, seconds))
            self._sent = usage
            policy.set_usage(usage)


def _slice(of: TimeSlice, used: Iterable[tuple[TaskQueueKey, float]]) -> SliceUsage:
    groups: dict[str, float] = defaultdict(float)
    owners: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, amount in used:
        if amount > 0:
            groups[key.group] += amount
            owners[key.group][key.owner] += amount
    return SliceUsage(of, dict(groups), {group: dict(some) for group, some in owners.items()})


def _read_all(db: Reader, options: ShareSection, now: float) -> Iterator[tuple[float, _Used] | None]:
    """A portion of the attempts at each step, None until all are read."""
    currency, begins = options.currency, [now - slice_.time_span for slice_ in options.slices]
    used: _Used = {}
    older = _LONG_JOB_SECONDS if currency == "core-seconds" else 0.0
    done = last_attempt_before(db, min(begins) - older)
    if currency == "core-seconds":
        _add(used, used_by_older(db, currency, begins, now, last=done))
    # What is claimed meanwhile is for the next reading.
    newest = last_attempt_before(db, math.inf)
    while done < newest:
        last = min(newest, last_of_portion(db, "attempt", done, _AT_ONCE) or newest)
        _add(used, used_by_queue(db, currency, begins, now, after=done, last=last))
        done = last
        yield None
    yield now, used


def _add(used: _Used, rows: Iterable[Sequence[float]]) -> None:
    for tq_id, *amounts in rows:
        before = used.get(int(tq_id))
        used[int(tq_id)] = (
            amounts if before is None else [a + b for a, b in zip(before, amounts, strict=True)]
        )
