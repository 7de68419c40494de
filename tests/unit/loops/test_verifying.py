"""The room of the configured script: made once, made anew for another configuration, closed behind what was begun."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from msgspec.structs import replace
from tests.kits.jsv_kit import ACCOUNT, public_folder, shell, write_script

from lodesman.base.errors import InvalidJob, TooOften, Unavailable
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import classes_of
from lodesman.server.reads import verifying
from lodesman.server.reads.verifying import Verifier
from lodesman.wire.jsv import JsvSection, VerifyBody
from lodesman.wire.requests import SubmitBody

NO_CLASSES = classes_of((), Vocabulary())


@pytest.fixture
def section():
    with public_folder() as folder:

        def section(verify: str, name: str = "check", **more) -> JsvSection:
            url = write_script(folder / name, shell(verify)).path
            return JsvSection(server=f"script:{ACCOUNT}{'@' if ACCOUNT else ''}{url}", **more)

        yield section


class Loads:
    """Counts how often the classes were read."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self):
        self.count += 1
        return NO_CLASSES


def asked(section: JsvSection, classes: int | None = 1, **more) -> VerifyBody:
    record = {"Executable": "/bin/true", "JobName": "n", **more}
    return VerifyBody(SubmitBody(jobs=[record]), "ann", ("physics",), section, classes)


def run(*bodies: VerifyBody, loads: Loads | None = None, between=None):
    """The records that come back, one submission after the other."""
    verifier = Verifier(loads or Loads())

    async def go():
        found = []
        for body in bodies:
            found += await verifier.verified(body)
            if between:
                between(verifier)
        return [one.record for one in found]

    try:
        return asyncio.run(go())
    finally:
        verifier.close()


@pytest.mark.slow
def test_classes_are_read_once_for_each_version_and_configuration(section):
    one, loads = section("jsv_accept"), Loads()
    run(asked(one), asked(one), asked(one, classes=2), asked(one, classes=2), loads=loads)
    assert loads.count == 2
    run(
        asked(one, classes=2),
        asked(one, classes=2),
        loads=loads,
        between=lambda verifier: verifier.configured(one),
    )
    assert loads.count == 4
    run(asked(one, classes=None), asked(one, classes=None), loads=loads)
    assert loads.count == 6


@pytest.mark.slow
def test_each_configuration_has_a_room_of_its_own(section):
    first = section("jsv_set_param N first; jsv_correct", name="first")
    second = section("jsv_set_param N second; jsv_correct", name="second")
    found = run(asked(first), asked(second), asked(first), asked(first))
    assert [one["JobName"] for one in found] == ["first", "second", "first", "first"]


def test_what_was_begun_ends_when_another_script_is_configured(section):
    slow = section("sleep 0.5; jsv_set_param N slow; jsv_correct", name="slow", workers=2)
    quick = section("jsv_set_param N quick; jsv_correct", name="quick")
    verifier = Verifier(Loads())

    async def go():
        begun = [asyncio.ensure_future(verifier.verified(asked(slow))) for _ in range(4)]
        await asyncio.sleep(0)  # they are on their way before the other one comes
        await asyncio.sleep(0)
        found = await verifier.verified(asked(quick))
        return [*found, *(one for all_ in await asyncio.gather(*begun) for one in all_)]

    names = [one.record["JobName"] for one in asyncio.run(go())]
    verifier.close()
    assert names == ["quick", *["slow"] * 4]


def test_the_processes_leave_when_there_is_no_script_any_more(section):
    pids: list[int] = []

    def leave(verifier):
        workers = verifier._room._pool._workers
        pids.extend(worker._process._process.pid for worker in workers if worker._process)
        verifier.configured(JsvSection())
        for thread in threading.enumerate():
            if thread.name == "jsv ends":
                thread.join()

    run(asked(section("jsv_accept")), between=leave)
    assert len(pids) == 1
    assert not os.path.exists(f"/proc/{pids[0]}")  # noqa: PTH110


def test_a_script_that_cannot_be_run_refuses_until_it_can(section):
    missing = JsvSection(server=f"script:{ACCOUNT}{'@' if ACCOUNT else ''}/no/such/script")
    with pytest.raises(InvalidJob, match="not a file or not executable"):
        run(asked(missing))
    with pytest.raises(InvalidJob, match="no JSV"):
        run(asked(JsvSection()))


def test_too_many_that_wait_are_refused(section, monkeypatch):
    monkeypatch.setattr(verifying, "_MOST_WAITING", 0)
    with pytest.raises(Unavailable, match="wait for the JSV"):
        run(asked(section("jsv_accept")))


def test_what_the_script_logs_and_its_slowness_are_in_the_log(section, caplog):
    caplog.set_level("INFO")
    run(asked(section("jsv_log_info hello there; jsv_accept", threshold_ms=0)))
    assert "JSV: hello there" in caplog.messages
    assert any("jsv_threshold is 0 ms" in one for one in caplog.messages)


def test_one_user_fills_neither_the_threads_nor_the_queue(section, monkeypatch):
    monkeypatch.setattr(verifying, "_MOST_OF_ONE", 30)
    monkeypatch.setattr(verifying, "_SPARE_THREADS", 1)
    go_on, begun = threading.Event(), []

    def verified(_room, body, _classes):
        begun.append(body.user)
        assert body.user == "bob" or go_on.wait(60)
        return []

    monkeypatch.setattr(verifying.JsvRoom, "verified", verified)
    verifier, body = Verifier(Loads()), asked(section("jsv_accept", workers=2))

    async def everything():
        waiting = [asyncio.ensure_future(verifier.verified(body)) for _ in range(30)]
        await asyncio.sleep(0)
        with pytest.raises(TooOften, match="You have 30 submissions"):
            await verifier.verified(body)
        for _ in range(3):
            assert await verifier.verified(replace(body, user="bob")) == []
        go_on.set()
        await asyncio.gather(*waiting)
        assert await verifier.verified(body) == []

    asyncio.run(everything())
    verifier.close()
    assert begun[:2] == ["ann", "ann"]
    assert begun.index("bob") == 2
    assert verifier._waiting == {}
