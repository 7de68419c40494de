"""A running server takes a changed sites' file to the pilots that are there (ADR 0024)."""

from __future__ import annotations

import threading

import pytest
from tests.e2e.conftest import PATIENCE, SITES, wait_until

from lodesman.decide.resources.settings import without_processor_tags

# The pilots of these tests say nothing while a server starts, however long that takes.
NO_PILOTS = {"director.pilotsPerIteration": 0, "pilots.lease_seconds": 600}
GPU = {"Tags": ["gpu"]}


def with_gpu(*sites):
    """The sites; these have a tag."""
    text = SITES
    for site in sites:
        text = text.replace(f"[site.{site}]\n", f'[site.{site}]\nTag = ["gpu"]\n')
    return text


def offer_of(server, pilot):
    return server.get(f"/v1/pilots/{pilot.id}/why", token="admin")["offer"]


def tags_of(server, pilot):
    """But for those that follow from its cores."""
    return without_processor_tags(offer_of(server, pilot)["tags"])


@pytest.fixture
def server(make_server):
    found = make_server(**NO_PILOTS)
    (found.home / "sites.toml").write_text(with_gpu("North", "Bench"))
    found.start()
    found.user("ann", "physics")
    return found


def test_a_pilot_claims_by_what_its_queue_is_now(server):
    pilot = server.fake_pilot()
    first, second = server.submit(GPU), server.submit(GPU)
    assert [one["id"] for one in pilot.claim()] == [first]
    server.configure(with_gpu("North"))
    wait_until(lambda: tags_of(server, pilot) == (), "the pilot to lose its tag")
    assert pilot.claim() == []

    got = []

    def ask():
        while not got:
            got.extend(pilot.claim(wait=40.0))

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    wait_until(
        lambda: server.get(f"/v1/pilots/{pilot.id}/why", token="admin")["asked"]["waits_seconds"] is not None,
        "the pilot to wait",
    )
    server.configure(with_gpu("North", "Bench"))
    asks.join(PATIENCE)
    assert [one["id"] for one in got] == [second]


def test_a_change_while_the_server_was_down_counts_as_well(server):
    pilot = server.fake_pilot()
    server.submit(GPU)
    server.stop()
    server.configure(with_gpu("North"))
    server.start()
    assert pilot.claim() == []
    assert tags_of(server, pilot) == ()


def test_a_pilot_of_a_queue_that_is_gone_is_shut_out(server):
    pilot = server.fake_pilot()
    server.submit({})
    text = with_gpu("North")
    server.configure(text[: text.index("[site.Bench]")] + text[text.index("[group") :])
    wait_until(lambda: offer_of(server, pilot)["cores"] == 0, "the pilot to be shut out")
    assert pilot.claim() == []
    assert server.get(f"/v1/pilots/{pilot.id}/why", token="admin")["verdict"] == "not configured"
