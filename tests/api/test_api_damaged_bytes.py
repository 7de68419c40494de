"""Bytes that are no UTF-8 in a text of the database cost what their row belongs to: each text of each table, in turn."""

from __future__ import annotations

import gc
from functools import partial
from itertools import repeat

import pytest
from tests.api.test_api_damaged_rows import LEFT_OUT, Rows, lost_by

BYTES = b'"a\xff'
OF_ALL = (
    "/v1/jobs/counts", "/v1/submissions", "/v1/task-queues", "/v1/task-queues/reasons", "/v1/submit-pools", "/v1/sites/ads",
    "/v1/hosts", "/v1/quotas", "/v1/job-classes", "/v1/usage", "/v1/usage/days", "/v1/usage/pilots", "/v1/director",
    "/v1/tokens", "/v1/groups", "/v1/pilots/2", "/v1/pilots/2/why", "/v1/queues/why?path=North/ce.north/short",
    "/v1/sites/gate?site=North", "/v1/me",
)  # fmt: skip
OF_ADMINS = ("/v1/users", "/v1/audit")
# What is empty in a test: what is deleted as soon as it is read, or has no text.
EMPTY = {
    "task_queue_event", "submission_reader", "submit_pool_pass", "id_mark", "small_output", "usage_open", "reason_pass",
    "task_queue_reason", "quick_failure", "submit_pool_bits",
}  # fmt: skip


class MoreRows(Rows):
    """More that is asked, and something in nearly all tables."""

    def steps(self):
        keeper, steps = super().steps()
        asked = [(path, who) for path in OF_ALL for who in ("admin", "bob")]
        asked += [(path, "admin") for path in OF_ADMINS]
        return keeper, steps | {f"{path} {who}": partial(self.house.get, path, who) for path, who in asked}


@pytest.mark.slow
def test_bytes_that_are_no_text_cost_what_their_row_belongs_to(house, backend, database_kind):
    if database_kind != "sqlite":
        pytest.skip("its texts are UTF-8")
    rows = MoreRows(house, backend)
    rows.fill()
    empty = {table for table in rows.db.tables() if not rows.db.only(f"SELECT count(*) FROM {table}")[0]}
    assert empty <= EMPTY
    wrong, tried = lost_by(rows, rows.columns("TEXT"), repeat((BYTES,)), LEFT_OUT)
    assert wrong == []
    assert tried > 100


@pytest.mark.parametrize("column", ["last_seen", "joined_at", "native_seen", "created_at"])
def test_a_time_that_is_none_costs_its_pilot_alone(house, backend, database_kind, column):
    """All pilots were gone from the snapshot, so that no job had any."""
    if database_kind != "sqlite":
        pytest.skip("its columns take no foreign values")
    rows = Rows(house, backend)
    rows.db.change(f"UPDATE pilot SET {column} = '{{' WHERE id = 1")
    failed, named = rows.lost()
    assert failed == {}
    assert named == {"pilot 1"}


@pytest.mark.parametrize("node", ["{", "null", "[]"])
def test_why_says_that_what_is_stored_of_a_node_is_damaged(house, backend, node):
    rows = Rows(house, backend)
    rows.db.change("UPDATE pilot SET node = ? WHERE id = 1", (node,))
    assert "What is stored of its node is damaged." in house.get("/v1/pilots/1/why", "admin")["summary"]
    assert house.get("/v1/pilots/1", "admin")["node"] == {}
    rows.db.change("UPDATE pilot SET ended_at = 1.0 WHERE id = 1")
    assert "What is stored of its node is damaged." in house.get("/v1/pilots/1/why", "admin")["summary"]


def test_a_damaged_pilot_says_so(house, backend, database_kind):
    if database_kind != "sqlite":
        pytest.skip("its columns take no foreign values")
    rows = Rows(house, backend)
    rows.db.change("UPDATE pilot SET state = CAST(? AS TEXT) WHERE id = 1", (BYTES,))
    for path in ("/v1/pilots/1", "/v1/pilots/1/why"):
        answer = house.call("GET", path, token="admin")
        assert answer.status == 500
        assert "What is stored of pilot 1 is damaged" in answer.json["error"]["message"]


@pytest.fixture
def uncollected():
    """Nothing is freed for being in a circle: what keeps a fault keeps it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("state", [b"Done\xff", b"Xyz"])
def test_a_job_in_no_state_costs_itself_and_shows_nobody_the_past(house, database_kind, uncollected, state):
    """A query that was left half read kept its connection at that moment, and all users saw it again and again."""
    if database_kind != "sqlite":
        pytest.skip("its columns take no foreign values")
    house.made_up = True
    first, second, third = (house.submitted() for _ in range(3))
    assert house.control("kill", first, third).status == 200
    house._writer.change("UPDATE job SET state = CAST(? AS TEXT) WHERE id = ?", (state, second))
    refused = house.call("GET", f"/v1/jobs/{second}", token="ann")
    assert refused.status == 500
    assert f"What is stored of job {second} is damaged" in refused.json["error"]["message"]
    for newest in ("false", "true"):
        shown = [job["id"] for job in house.get(f"/v1/jobs?newest={newest}&limit=2")["jobs"]]
        assert sorted(shown) == [first, third], "a page is full without it"
    states = [row["states"] for row in house.get("/v1/submissions")["submissions"]]
    assert states == [{"Killed": 1}, {"Killed": 1}]
    new = house.submitted()
    assert [job["id"] for job in house.get("/v1/jobs")["jobs"]] == [first, third, new]
