"""Whether a pilot is known to have run or ended: no copy of its directory may start it then, and no process joins twice."""

from __future__ import annotations

from lodesman.server.store.read.pilots import fate_of


def test_a_pilot_ran_if_it_was_seen_to_or_joined_and_else_it_may_have_ended(house):
    house.prepare_pilot()
    db, stamp = house.side.db, f"stamp{house.pilots}"
    assert fate_of(db, stamp) == ""
    assert fate_of(db, "unknown") == "", "as that of a test job"
    for column, value, fate in (("host", "n1", "ran"), ("joined_at", 1.0, "ran"), ("ended_at", 1.0, "ended")):
        (before,) = db.only(f"SELECT {column} FROM pilot WHERE stamp = ?", (stamp,))
        change = f"UPDATE pilot SET {column} = ? WHERE stamp = ?"
        house._writer.change(change, (value, stamp))
        assert fate_of(db, stamp) == fate
        house._writer.change(change, (before, stamp))
    house.pilot()
    assert fate_of(db, f"stamp{house.pilots}") == "ran"


def test_a_second_process_of_a_pilot_is_refused_and_the_first_goes_on(house):
    body = {"join_token": house.prepare_pilot(), "nonce": "first", "node": {"cores": 4}}
    token = house.call("POST", "/v1/pilots/join", body).json["token"]
    second = house.call("POST", "/v1/pilots/join", {**body, "nonce": "second"})
    assert (second.status, b"used before by another process" in second.body) == (401, True)
    assert house.call("POST", "/v1/pilots/heartbeat", {"jobs": []}, token=token).status == 200
    assert house.get("/v1/pilots")["pilots"][0]["state"] == "Running"
