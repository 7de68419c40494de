"""GET /v1/pilots/{pilot}/logs: the end of what a pilot wrote, from the batch system that it was submitted to."""

from __future__ import annotations

import pytest

from lodesman.base.errors import BackendFault


class Kept:
    """A batch system that keeps outputs."""

    def __init__(self):
        self.backend, self.texts, self.away = self, {}, False

    def output(self, stamp, native_id):
        if self.away:
            raise BackendFault("The batch system does not answer.", transient=True)
        return self.texts.get((stamp, native_id))


@pytest.fixture
def kept(house):
    found = Kept()
    house.side.director = house.director(found)
    return found


def test_the_log_of_a_pilot_by_number_and_by_stamp(house, kept):
    house.pilot()
    kept.texts["stamp1", "native-stamp1"] = b"{}\nlast \xff line\n"
    for name in ("1", "stamp1"):
        answer = house.get(f"/v1/pilots/{name}/logs", "admin")
        assert (answer["pilot"], answer["backend"], answer["native_id"]) == (1, "local", "native-stamp1")
        assert answer["text"] == "{}\nlast \N{REPLACEMENT CHARACTER} line\n"


def test_a_log_that_is_not_kept(house, kept):
    house.pilot()
    answer = house.call("GET", "/v1/pilots/1/logs", token="admin")
    assert (answer.status, answer.json["error"]["message"]) == (
        404,
        "The batch system local keeps nothing of pilot 1.",
    )


def test_a_batch_system_that_is_configured_no_more(house, kept):
    house.pilot()
    house.side.director.watches = {}
    answer = house.call("GET", "/v1/pilots/1/logs", token="admin")
    assert answer.status == 404
    assert "configured no more" in answer.json["error"]["message"]


def test_a_batch_system_that_does_not_answer(house, kept):
    house.pilot()
    kept.away = True
    answer = house.call("GET", "/v1/pilots/1/logs", token="admin")
    assert (answer.status, answer.code) == (502, "backend")


def test_another_vo_s_pilots_are_not_there(house, kept):
    house.pilot()
    house.user("olaf", "guests", vo="other")
    assert house.call("GET", "/v1/pilots/1/logs", token="olaf").status == 404
    assert house.call("GET", "/v1/pilots/99/logs", token="admin").status == 404


def stored(house, change):
    with house._writer:
        house._writer.change(f"UPDATE pilot SET {change}")


def test_a_pilot_that_never_started_has_written_nothing_and_it_is_said_why(house, kept):
    def said():
        answer = house.call("GET", "/v1/pilots/1/logs", token="admin")
        assert answer.status == 404
        return answer.json["error"]["message"]

    house.prepare_pilot()
    waits = "it waits at the batch system local as native-stamp1."
    assert said() == f"Pilot 1 has written nothing: {waits}"
    stored(house, "native_id = NULL, reason = 'sbatch: invalid account'")
    no = "the batch system local has not accepted it (sbatch: invalid account)."
    assert said() == f"Pilot 1 has written nothing: {no}"
    stored(house, "backend = 'manual'")
    assert said() == "A person started pilot 1, or will: its output is where that was done."
