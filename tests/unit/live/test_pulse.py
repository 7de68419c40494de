"""Whether the background process gives a sign of life, against a process that a test scripts on a Unix socket."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.live import pulse as module
from lodesman.server.live.pulse import BackgroundHealth, Pulse, work_of
from lodesman.wire.service import BackgroundState

IDLE = ("S", 100)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """The times that a test would wait for."""
    for name, seconds in (("FIRST", 0.01), ("AGAIN", 0.01), ("SIGN", 0.02), ("SILENT_SIGN", 0.02)):
        monkeypatch.setattr(module, f"_{name}_SECONDS", seconds)


class Process:
    """It gives signs while `lives` is set; `work` is what the kernel says of it."""

    def __init__(self, path):
        self.path = path
        self.lives = asyncio.Event()
        self.asked = 0
        self.asks, self.looks = asyncio.Queue(), asyncio.Queue()
        self.now = 100.0
        self.work = [IDLE]
        self.health = BackgroundHealth(at=90.0)
        self.health.reported(95.0, BackgroundState({}))
        self.pulse = Pulse(path, self.health, lambda: self.now, lambda: 17, lambda _: self._work())

    def _work(self):
        self.looks.put_nowait(None)
        return self.work.pop(0) if len(self.work) > 1 else self.work[0]

    async def serve(self, reader, writer):
        self.asked += 1
        self.asks.put_nowait(None)
        await reader.readuntil(b"\r\n\r\n")
        await self.lives.wait()
        writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
        writer.close()


@asynccontextmanager
async def process(tmp_path):
    found = Process(tmp_path / "reads.sock")
    server = await asyncio.start_unix_server(found.serve, path=str(found.path))
    try:
        yield found
    finally:
        found.lives.set()
        server.close()


def test_a_request_waits_for_a_process_that_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)

    async def story():
        async with process(tmp_path) as it:
            it.path.rename(tmp_path / "aside")
            looks = []

            def starts():
                looks.append(it.now)
                if len(looks) == 3:
                    (tmp_path / "aside").rename(it.path)
                return 17

            it.pulse.pid = starts
            it.lives.set()
            reader, writer = await it.pulse.connect(limit=1000)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 404")
            writer.close()
            assert len(looks) == 3

    asyncio.run(story())


@pytest.mark.parametrize("why", ["there is none", "it ends again and again", "it takes too long"])
def test_no_request_waits_in_vain_for_a_process_that_starts(tmp_path, monkeypatch, why):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    it, looks = Process(tmp_path / "reads.sock"), []

    def pid():
        looks.append(it.now)
        it.now += 2.0 if why == "it takes too long" else 0.0
        return None if why == "there is none" else 17

    it.pulse.pid = pid
    for _ in range(3 if why == "it ends again and again" else 0):
        it.health.ended(it.now)
    with pytest.raises(OSError, match=r"reads\.sock|No such file"):
        asyncio.run(it.pulse.connect(limit=1000))
    assert len(looks) == (4 if why == "it takes too long" else 1)


async def never():
    await asyncio.Event().wait()


def test_an_answer_in_time_asks_for_no_sign(tmp_path):
    async def story():
        async with process(tmp_path) as it:
            assert await it.pulse.watch(asyncio.sleep(0, "answer")) == "answer"
            assert it.asked == 0

    asyncio.run(story())


def test_who_waits_for_a_process_that_lives_gets_the_answer(tmp_path):
    async def story():
        async with process(tmp_path) as it:
            it.lives.set()
            answer = asyncio.get_running_loop().create_future()
            waits = asyncio.ensure_future(it.pulse.watch(answer))
            for _ in range(3):
                await it.asks.get()
            answer.set_result("late")
            assert await waits == "late"
            assert it.health.standing(it.now) == "ok"

    asyncio.run(story())


def test_a_process_that_does_nothing_is_silent_and_all_are_refused_until_it_gives_a_sign(tmp_path, caplog):
    async def story():
        async with process(tmp_path) as it:
            it.now = 275.0
            with pytest.raises(Unavailable) as caught:
                await it.pulse.watch(never())
            assert (
                "its background process 17 does not answer: it has been silent for 3 min"
                in caught.value.message
            )
            assert "Jobs run, and those without files are accepted; files, " in caught.value.message
            assert caught.value.data["silent_seconds"] == 180.0
            assert (it.health.standing(it.now), it.health.is_well(it.now)) == ("silent", False)
            assert [(one.levelname, one.pid) for one in caplog.records] == [("ERROR", 17)]
            with pytest.raises(Unavailable):
                await it.pulse.watch(never())
            it.lives.set()
            assert await it.pulse.watch(asyncio.sleep(0.001, "answer")) == "answer"
            it.health.reported(it.now, BackgroundState({}))
            await it.pulse.look()
            assert it.health.standing(it.now) == "ok"
            assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]

    asyncio.run(story())


def test_many_who_wait_share_one_question(tmp_path):
    async def story():
        async with process(tmp_path) as it:
            waits = (it.pulse.watch(never()) for _ in range(200))
            found = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(one, Unavailable) for one in found)
            assert it.asked == 1

    asyncio.run(story())


@pytest.mark.parametrize("work", [[("S", 100), ("S", 101), ("S", 103)], [("R", 100)], [("D", 100)]])
def test_a_process_that_works_or_waits_for_a_cpu_has_longer(tmp_path, work):
    """A machine under load is no reason to refuse anybody."""

    async def story():
        async with process(tmp_path) as it:
            it.work = [*work]
            answer = asyncio.get_running_loop().create_future()
            waits = asyncio.ensure_future(it.pulse.watch(answer))
            for _ in range(3):
                await it.looks.get()
            answer.set_result("late")
            it.lives.set()
            assert await waits == "late"

    asyncio.run(story())


def test_a_process_that_works_and_never_answers_is_silent_in_the_end(tmp_path):
    async def story():
        async with process(tmp_path) as it:
            it.work = [("R", 100)]
            waits = asyncio.ensure_future(it.pulse.watch(never()))
            await it.asks.get()
            it.now += 16.0
            with pytest.raises(Unavailable):
                await waits

    asyncio.run(story())


def test_a_process_that_is_gone_is_no_silent_one(tmp_path):
    """The request finds out by itself: its connection ends."""

    async def story():
        it = Process(tmp_path / "reads.sock")
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, answer.set_exception, ConnectionError("it ended"))
        with pytest.raises(ConnectionError):
            await it.pulse.watch(answer)
        assert not it.health.mute

    asyncio.run(story())


def test_its_silence_is_noticed_without_requests_and_said_once(caplog):
    async def story():
        it = Process("/nowhere")
        await it.pulse.look()
        it.now = 126.0
        await it.pulse.look()
        await it.pulse.look()
        it.health.reported(127.0, BackgroundState({}))
        await it.pulse.look()

    asyncio.run(story())
    assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]


def test_one_that_is_started_again_is_no_longer_mute():
    health = BackgroundHealth(at=0.0)
    health.mute = True
    assert health.standing(1.0) == "silent"
    health.ended(1.0)
    assert health.standing(1.0) == "starting"


def test_the_kernel_says_what_a_process_does():
    state, ticks = work_of(os.getpid())
    assert state in "RSD"
    assert ticks > 0
    assert work_of(2**22 + 1) is None
