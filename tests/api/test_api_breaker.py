"""POST /v1/queues/breaker: orders of administrators for breakers, and what the director makes of them."""

from __future__ import annotations

import pytest

from lodesman.decide.director.limits import Breaker
from lodesman.server.store.director import breaker_orders, breakers, put_breakers
from lodesman.server.store.journal import Change
from lodesman.wire.call import encode
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import StoredBreaker
from lodesman.wire.vocabulary import BreakerState

pytestmark = pytest.mark.stores

QUEUE = "North/ce.north/short"
PLACE = QueueId("North", "ce.north", "short")
BROKEN = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=1e12, reason="Permission denied")


@pytest.fixture
def director(house, backend):
    house.side.director = house.director(backend)
    return house.side.director


def order(house, word, reason="a new disk", **more):
    return house.call(
        "POST", "/v1/queues/breaker", {"path": QUEUE, "order": word, "reason": reason, **more}, token="admin"
    )


def placed(house, director):
    """The pilots that an iteration places in the queue, and its limits there now."""
    house.now += 1.0
    found = []
    director.launch = lambda decision, _: found.extend(one.queue_id for one in decision.placement.placements)
    director.tick(house.now)
    why = house.get(f"/v1/queues/why?path={QUEUE}", "admin")
    return found.count(PLACE), [step["text"] for step in why["chain"] if step["step"] == "room"]


def test_an_open_breaker_stays_open_until_it_may_move(house, director):
    house.submitted({"CPUTime": 500, "Site": "North"})
    before, _ = placed(house, director)
    assert before > 0
    answer = order(house, "open").json
    assert (answer["before"], answer["now"]["state"], answer["now"]["ordered_by"]) == (None, "open", "admin")
    count, (text,) = placed(house, director)
    assert count == 0
    assert "open by order of admin since" in text
    assert "a new disk" in text
    (step,) = [
        one for one in house.get(f"/v1/queues/why?path={QUEUE}", "admin")["chain"] if one["step"] == "breaker"
    ]
    assert (step["holds"], step["text"].partition(" since")[0]) == (
        False,
        "its breaker is open by order of admin",
    )
    assert order(house, "auto", "").json["before"]["state"] == "open"
    assert placed(house, director)[0] > 0
    assert breaker_orders(house.side.db) == {}


def test_a_closed_breaker_is_not_opened_by_failures(house, director):
    house.submitted({"CPUTime": 500, "Site": "North"})
    director.breakers = {PLACE: BROKEN}
    assert placed(house, director)[0] == 0
    assert order(house, "close").status == 200
    assert placed(house, director)[0] > 0
    assert PLACE not in director.breakers


def test_after_a_repair_the_failures_are_forgotten_by_one_command(house, director):
    """Without it the queue would be tried by one pilot when the breaker says so, which may take an hour."""
    house.submitted({"CPUTime": 500, "Site": "North"})
    director.post = house.post
    director.breakers = {PLACE: BROKEN}
    assert placed(house, director)[0] == 0
    assert breakers(house.side.db) == {PLACE: BROKEN}
    assert order(house, "auto", "").status == 200
    assert breakers(house.side.db) == {}
    assert placed(house, director)[0] > 0
    assert PLACE not in director.breakers


def test_queues_where_pilots_do_not_start_are_in_the_lists(house, director):
    house.do(Change(put_breakers, [StoredBreaker(*PLACE, encode(BROKEN).decode())]))
    (north,) = [one for one in house.get("/v1/sites", "admin")["sites"] if one["failing"]]
    assert north["failing"] == [
        {"site": "North", "ce": "ce.north", "queue": "short", "breaker": "open", "failures": 3, "retry_at": 1e12,
         "reason": "Permission denied", "order": ""},
    ]  # fmt: skip
    failing = {one["queue"]: one.get("failing") for one in house.get("/v1/queues", "admin")["queues"]}
    assert failing["short"] == north["failing"][0]
    assert failing["long"] is None
    order(house, "close")
    (north,) = [one for one in house.get("/v1/sites", "admin")["sites"] if one["failing"]]
    (one,) = north["failing"]
    assert (one["breaker"], one["retry_at"]) == ("closed", None)
    assert one["order"].startswith("closed by order of admin since")


def test_an_order_has_a_reason_and_a_queue(house):
    assert order(house, "open", " ").status == 400
    assert order(house, "open", path="North").status == 404
    assert order(house, "shut").status == 400
    assert order(house, "open", path="Nowhere/ce/q").status == 404


def test_orders_are_in_the_audit_trail(house):
    order(house, "open")
    (row,) = [one for one in house.get("/v1/audit", "admin")["entries"] if one["action"] == "breaker-ordered"]
    assert (row["subject"], row["by"], row["detail"]) == (QUEUE, "admin", "open: a new disk")


def test_a_damaged_row_costs_its_own_queue_alone_and_is_stored_anew(house, director):
    south = QueueId("South", "ce.south", "long")
    house.submitted({"CPUTime": 500, "Site": "North"})
    director.post = house.post
    house.do(
        Change(put_breakers, [StoredBreaker(*PLACE, encode(BROKEN).decode()), StoredBreaker(*south, "{")])
    )
    assert breakers(house.side.db) == {PLACE: BROKEN}
    (north,) = [one for one in house.get("/v1/sites", "admin")["sites"] if one["failing"]]
    assert north["failing"][0]["queue"] == "short"
    house.get("/health")
    assert placed(house, director)[0] == 0
    assert director.breakers == {PLACE: BROKEN}
    assert list(director.left_out.named()) == ["breaker South/ce.south/long"]
    assert placed(house, director)[0] == 0
    assert director.left_out.named() == {}
    house.do(Change(put_breakers, [StoredBreaker(*PLACE, "{")]))
    director.tick(house.now)
    assert breakers(house.side.db) == director.breakers == {PLACE: BROKEN}


def test_a_damaged_row_of_a_breaker_is_named_until_it_is_stored_or_removed(house, director):
    house.do(Change(put_breakers, [StoredBreaker(*PLACE, "{")]))
    director.left_out, director.post = house.side.keeper.left_out, lambda *_: None  # nothing is stored anew
    for _ in range(2):
        director.tick(house.now)
        house.now += 10.0
        house.side.keeper.refresh(house.now)
        why = house.get(f"/v1/queues/why?path={QUEUE}", "admin")
        (text,) = [step["text"] for step in why["chain"] if step["step"] == "server"]
        assert text.startswith(
            "breaker North/ce.north/short is left out of the director: breakers (DecodeError"
        )
    body = {"failing": {}, "left_out": list(director.left_out.named())}
    house.call("POST", "/v1/service/alive", body, token="service")
    (text,) = house.get("/health", token=None)["faults"]
    assert text.endswith("leaves out: a breaker (lode why names it).")
    assert order(house, "auto", "").status == 200
    director.tick(house.now)
    assert director.left_out.named() == {}


def test_whatever_a_damaged_order_was_no_pilot_is_sent_until_it_is_taken_back(house, director):
    house.submitted({"CPUTime": 500, "Site": "North"})
    order(house, "close")
    house._writer.change("UPDATE breaker_order SET state = 'shut'")
    assert placed(house, director)[0] == 0
    (north,) = [one for one in house.get("/v1/sites", "admin")["sites"] if one["failing"]]
    assert "open by order of an administrator" in north["failing"][0]["order"]
    assert "what was ordered cannot be read" in north["failing"][0]["order"]
    assert order(house, "auto", "").status == 200
    assert placed(house, director)[0] > 0
