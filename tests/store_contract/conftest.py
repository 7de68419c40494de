"""A store without any service: another database has to fulfil it, too."""

from __future__ import annotations

import pytest

from lodesman.server.store.claim_log import ClaimLog, claims_at, replay
from lodesman.server.store.fronts import Fronts
from lodesman.server.store.ids import Ids
from lodesman.server.store.journal import Journal


class Store:
    """A database with its writer: `do` makes a change in a batch of its own, `db` reads."""

    def __init__(self, database):
        self.now = 1_000.0
        self.writer = database.writer()
        self.start()
        self.db = database.reader()

    def start(self):
        """As a server starts, also after a crash: nothing is known but what is stored."""
        replay(self.writer)
        self.ids = Ids(self.writer)
        self.claims = ClaimLog(claims_at(self.writer))
        self.fronts = Fronts(self.claims)
        self.journal = Journal(self.writer, clock=lambda: self.now)
        self.journal.start()

    def do(self, change, *values, **named):
        return self.journal.call(_Change(lambda tx: change(tx, *values, **named)), 10.0)

    def stop(self):
        self.journal.close()

    def close(self):
        self.stop()
        self.db.close()
        self.writer.close()


class _Change:
    def __init__(self, apply):
        self.apply = apply


@pytest.fixture
def store(database):
    found = Store(database)
    yield found
    found.close()
