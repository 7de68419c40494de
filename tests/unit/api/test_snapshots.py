"""Costly looks: in a thread, one at a time, shared, and used for a while."""

from __future__ import annotations

import asyncio
import threading

import apsw
import pytest

from lodesman.api.snapshots import KEEP, MOST_SECONDS, REST, Snapshots
from lodesman.store import open_writer

PATIENCE = 20.0


class Looks:
    """Each look costs what the test says; it can be held up."""

    def __init__(self, path, *, cost=0.0, patience=0.2):
        self.now, self.cost, self.looks, self.at_once, self.most = 0.0, cost, 0, 0, 0
        self.hold = threading.Event()
        self.hold.set()
        self.begun = threading.Event()
        self.threads = set()
        self.lock = threading.Lock()
        self.snapshots = Snapshots(path, patience=patience, ticks=lambda: self.now)

    def look(self, db):
        with self.lock:
            self.looks += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            number = self.looks
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.hold.wait(PATIENCE)
        assert db.execute("SELECT count(*) FROM job").fetchone() == (0,)
        with self.lock:
            self.now += self.cost
            self.at_once -= 1
        return number

    async def get(self, key="all"):
        return await self.snapshots.get(key, self.look)


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "lode.db"
    open_writer(found).close()
    return found


def run(what):
    async def main():
        async with asyncio.timeout(PATIENCE):
            return await what()

    return asyncio.run(main())


def test_a_cheap_look_is_made_for_each_who_asks(path):
    looks = Looks(path, cost=0.01)

    async def ask():
        return [await looks.get() for _ in range(3)]

    assert run(ask) == [1, 2, 3]


def test_a_costly_look_is_used_for_a_while(path):
    looks = Looks(path, cost=0.5)

    async def ask():
        assert [await looks.get() for _ in range(3)] == [1, 1, 1]
        looks.now = 0.5 * REST * 0.2 - 0.01
        assert await looks.get() == 1
        looks.now = 0.5 * REST * 0.2 + 0.01
        assert await looks.get() == 2

    run(ask)


def test_no_look_is_used_for_ever(path):
    looks = Looks(path, cost=1_000.0)

    async def ask():
        assert await looks.get() == 1
        looks.now = MOST_SECONDS + 1.0
        assert await looks.get() == 2

    run(ask)


def test_without_patience_every_look_is_new(path):
    looks = Looks(path, cost=5.0, patience=0.0)

    async def ask():
        return [await looks.get() for _ in range(2)]

    assert run(ask) == [1, 2]


def test_a_crowd_costs_two_looks(path):
    """The one that had begun, which may miss what they just did, and one for all of them."""
    looks = Looks(path)

    async def ask():
        looks.hold.clear()
        first = asyncio.create_task(looks.get())
        assert await asyncio.to_thread(looks.begun.wait, PATIENCE)
        looks.now += 0.001
        crowd = [asyncio.create_task(looks.get()) for _ in range(50)]
        await asyncio.sleep(0)
        looks.now += 0.001
        looks.hold.set()
        return [await first, *[await one for one in crowd]]

    assert run(ask) == [1] + [2] * 50
    assert looks.most == 1


def test_the_event_loop_goes_on_meanwhile(path):
    looks = Looks(path)

    async def ask():
        looks.hold.clear()
        task = asyncio.create_task(looks.get())
        assert await asyncio.to_thread(looks.begun.wait, PATIENCE)
        assert not task.done()
        looks.hold.set()
        return await task

    assert run(ask) == 1
    assert all(name.startswith("look") for name in looks.threads)


def test_one_key_does_not_wait_for_another(path):
    looks = Looks(path)

    async def ask():
        looks.hold.clear()
        slow = asyncio.create_task(looks.get())
        assert await asyncio.to_thread(looks.begun.wait, PATIENCE)
        found = await looks.snapshots.get("other", lambda _: "quick")
        looks.hold.set()
        await slow
        return found

    assert run(ask) == "quick"


def test_a_look_that_fails_is_made_again(path):
    looks = Looks(path, cost=5.0)

    def broken(_):
        raise apsw.IOError("disk")

    async def ask():
        with pytest.raises(apsw.IOError):
            await looks.snapshots.get("all", broken)
        return await looks.get()

    assert run(ask) == 1


def test_only_so_many_are_kept(path):
    looks = Looks(path, cost=5.0)

    async def ask():
        for number in range(KEEP + 5):
            await looks.snapshots.get(number, lambda _: None)
        assert len(looks.snapshots._looks) == KEEP

    run(ask)
