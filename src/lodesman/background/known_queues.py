"""The task queues with waiting jobs, kept between iterations of the director: read once, then only what changed.

An id is never given out again, and keys change only when declared types do, which is counted: so only those that come
have to be read, and only those that come or go change the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Lock

from lodesman.matching import ResourceRequest, TaskQueueKey
from lodesman.matching.tables import KeyTable
from lodesman.store import Reader
from lodesman.store.read.task_queues import keys_by_id, keys_version, waiting_by_queue
from lodesman.why.facts import Waiting
from lodesman.why.survey import ALL, Survey, WaitingTaskQueues


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
            rekeyed, waiting = keys_version(self._db), waiting_by_queue(self._db)
            known = self._keys.keys() if rekeyed == self._rekeyed else set[int]()
            come = sorted(waiting.keys() - known)
            keys = keys_by_id(self._db, come) if come else {}
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
