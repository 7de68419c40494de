"""A backup is restored while a pilot from before lives: nothing of it reaches the jobs that come after."""

from __future__ import annotations

import contextlib
import shutil

import apsw
import pytest
from tests.e2e.conftest import wait_until

AT_BENCH = {"Site": "Bench", "CPUTime": 60}


@pytest.mark.sqlite
def test_a_pilot_from_before_cannot_touch_what_comes_after(make_server):
    server = make_server(**{"pilots.lease_seconds": 600}).start()
    server.user("ann", "physics")
    server.user("bob", "bio")
    old = server.fake_pilot()
    waiting = server.submit(AT_BENCH)
    (taken,) = old.claim()
    assert taken["id"] == waiting
    database = str(server.data / "lode.db")
    with contextlib.closing(apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)) as db:
        db.execute("VACUUM INTO ?", (str(server.home / "backup.db"),))
    lost = server.submit(AT_BENCH)
    (later,) = old.claim()
    assert later["id"] == lost
    wait_until(lambda: list(server.data.glob("lode.seen-*")), "the note")
    assert server.stop() == 0
    shutil.copy(server.home / "backup.db", server.data / "lode.db")

    server.start()
    new = server.submit(AT_BENCH, token="bob")
    assert new > lost
    wait_until(lambda: server.states(waiting, waiting)[waiting] == "Waiting", "the job of the backup")
    for name, body in (
        ("heartbeat", {"jobs": []}),
        ("report", {"reports": []}),
        ("claim", {"claim_token": "t"}),
    ):
        refused = old.ask(name, body)
        assert refused.status == 401, name
        assert "has to end its payloads" in refused.json["error"]["hint"]
    fresh = server.fake_pilot()
    claimed = {job["id"]: job["attempt"] for job in fresh.claim(count=2)}
    assert set(claimed) == {waiting, new}
    assert "restored, copied or is older" in server.log.read_text()
    assert server.stop() == 0
