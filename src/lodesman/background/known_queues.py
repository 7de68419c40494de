"""The task queues with waiting jobs, kept between iterations of the director: read once, then only what changed.

An id is never given out again, and keys change only when declared types do, which is counted: so only those that come
have to be read, and only those that come or go change the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Lock

import msgspec

from lodesman.matching import ResourceRequest, TaskQueueKey, key_from_json
from lodesman.matching.tables import KeyTable
from lodesman.store.engine import Reader, only_row
from lodesman.why.facts import Waiting
from lodesman.why.survey import ALL, Survey, WaitingTaskQueues

REKEYED = "SELECT rekeyed FROM submit_pool_state"
WAITING = "SELECT tq_id, waiting FROM queue_waiting WHERE waiting > 0"
KEYS = "SELECT id, key FROM task_queue WHERE id IN (SELECT value FROM json_each(?))"


class KnownQueues:
    """Holds a read connection, so one thread looks. `table` is as of the last `look`, and that thread's; any thread
    may ask for a `survey`.
    """

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._keys: dict[int, TaskQueueKey] = {}
        self._waiting: Mapping[int, int] = {}
        self._rekeyed: int | None = None
        self._changing = Lock()
        self.table = KeyTable()

    def look(self) -> list[Waiting]:
        """(id, key, waiting) of every task queue with waiting jobs now, by id."""
        with self._db:  # one moment: a task queue may be joined to another between two
            rekeyed: int = only_row(self._db, REKEYED)[0]
            waiting: dict[int, int] = dict(self._db.execute(WAITING))
            known = self._keys.keys() if rekeyed == self._rekeyed else set[int]()
            come = sorted(waiting.keys() - known)
            text = msgspec.json.encode(come).decode()
            rows = list(self._db.execute(KEYS, (text,))) if come else []
        keys = {tq_id: key_from_json(key) for tq_id, key in rows}
        with self._changing:
            self._rekeyed = rekeyed
            for tq_id in self._keys.keys() - (waiting.keys() & known):
                del self._keys[tq_id]
                self.table.drop(tq_id)
            for tq_id, key in keys.items():
                self._keys[tq_id] = key
                self.table.put(tq_id, key)
            self._waiting = waiting
        return [(tq_id, self._keys[tq_id], count) for tq_id, count in sorted(waiting.items())]

    def survey(self, request: ResourceRequest, criteria: Collection[str] = ALL) -> Survey:
        """All of them, as of the last look, held against a resource."""
        with self._changing:
            queues = WaitingTaskQueues(table=self.table, keys=self._keys, waiting=self._waiting)
            return queues.survey(request, criteria)
