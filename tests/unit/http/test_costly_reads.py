"""Costly reads: in a thread, one at a time, shared, and used for a while."""

from __future__ import annotations

import asyncio
import threading

import apsw
import pytest

from lodesman.server.http.read_side import _KEPT_RESULTS, _MOST_SECONDS, _REST, CostlyReads

PATIENCE = 20.0


class Reads:
    """Each read costs what the test says; it can be held up."""

    def __init__(self, database, *, cost=0.0, patience=0.2):
        self.now, self.cost, self.reads, self.at_once, self.most = 0.0, cost, 0, 0, 0
        self.hold = threading.Event()
        self.hold.set()
        self.begun = threading.Event()
        self.threads = set()
        self.lock = threading.Lock()
        self.shared = CostlyReads(database, patience=patience, ticks=lambda: self.now)

    def read(self, db):
        with self.lock:
            self.reads += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            number = self.reads
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.hold.wait(PATIENCE)
        assert db.execute("SELECT count(*) FROM job").fetchone() == (0,)
        with self.lock:
            self.now += self.cost
            self.at_once -= 1
        return number

    async def get(self, key="all"):
        return await self.shared.get(key, self.read)


def run(what):
    async def main():
        async with asyncio.timeout(PATIENCE):
            return await what()

    return asyncio.run(main())


def test_a_cheap_read_is_made_for_each_caller(database):
    reads = Reads(database, cost=0.01)

    async def ask():
        return [await reads.get() for _ in range(3)]

    assert run(ask) == [1, 2, 3]


def test_a_costly_read_is_used_for_a_while(database):
    reads = Reads(database, cost=0.5)

    async def ask():
        assert [await reads.get() for _ in range(3)] == [1, 1, 1]
        reads.now = 0.5 * _REST * 0.2 - 0.01
        assert await reads.get() == 1
        reads.now = 0.5 * _REST * 0.2 + 0.01
        assert await reads.get() == 2

    run(ask)


def test_no_read_is_used_for_ever(database):
    reads = Reads(database, cost=1_000.0)

    async def ask():
        assert await reads.get() == 1
        reads.now = _MOST_SECONDS + 1.0
        assert await reads.get() == 2

    run(ask)


def test_without_patience_every_read_is_new(database):
    reads = Reads(database, cost=5.0, patience=0.0)

    async def ask():
        return [await reads.get() for _ in range(2)]

    assert run(ask) == [1, 2]


def test_a_crowd_costs_two_reads(database):
    """The one that had begun, which may miss what they just did, and one for all of them."""
    reads = Reads(database)

    async def ask():
        reads.hold.clear()
        first = asyncio.create_task(reads.get())
        assert await asyncio.to_thread(reads.begun.wait, PATIENCE)
        reads.now += 0.001
        crowd = [asyncio.create_task(reads.get()) for _ in range(50)]
        await asyncio.sleep(0)
        reads.now += 0.001
        reads.hold.set()
        return [await first, *[await one for one in crowd]]

    assert run(ask) == [1] + [2] * 50
    assert reads.most == 1


def test_the_event_loop_goes_on_meanwhile(database):
    reads = Reads(database)

    async def ask():
        reads.hold.clear()
        task = asyncio.create_task(reads.get())
        assert await asyncio.to_thread(reads.begun.wait, PATIENCE)
        assert not task.done()
        reads.hold.set()
        return await task

    assert run(ask) == 1
    assert all(name.startswith("read") for name in reads.threads)


def test_one_key_does_not_wait_for_another(database):
    reads = Reads(database)

    async def ask():
        reads.hold.clear()
        slow = asyncio.create_task(reads.get())
        assert await asyncio.to_thread(reads.begun.wait, PATIENCE)
        found = await reads.shared.get("other", lambda _: "quick")
        reads.hold.set()
        await slow
        return found

    assert run(ask) == "quick"


def test_a_read_that_fails_is_made_again(database):
    reads = Reads(database, cost=5.0)

    def broken(_):
        raise apsw.IOError("disk")

    async def ask():
        with pytest.raises(apsw.IOError):
            await reads.shared.get("all", broken)
        return await reads.get()

    assert run(ask) == 1


def test_the_cache_has_a_maximum_size(database):
    reads = Reads(database, cost=5.0)

    async def ask():
        for number in range(_KEPT_RESULTS + 5):
            await reads.shared.get(number, lambda _: None)
        assert len(reads.shared._kept) == _KEPT_RESULTS

    run(ask)
