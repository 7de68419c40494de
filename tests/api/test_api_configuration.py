"""Where values come from, and what became of the configuration: /v1/resources, /v1/configuration, /health."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from lodesman.decide.resources import load_resources
from lodesman.wire.server import ConfigurationState

FAULT = {"message": "CPUTime: no", "source": "sites.toml", "section": "site.S", "line": 3}
REFUSED = ConfigurationState(
    files=("lode.toml", "sites.toml"),
    loaded_at=999_000.0,
    reloads=2,
    refusals=1,
    refused_at=999_990.0,
    faults=(FAULT,),
)


def test_a_queue_with_the_origin_of_each_value(house):
    found = house.get("/v1/resources?path=" + quote("North/ce.north/short", safe=""), "admin")
    assert (found["kind"], found["vo"], found["allowed"]) == ("Queue", "lab", True)
    told = {one["name"]: one for one in found["parameters"]}
    assert (told["Platform"]["value"], told["Platform"]["level"]) == (["el9"], "site")
    assert told["Platform"]["file"] == "sites.toml"
    assert told["CPUTime"]["line"] > told["Platform"]["line"] > 0
    assert told["MaxTotalJobs"]["level"] == "built-in"


def test_a_site_with_all_below(house):
    found = house.get("/v1/resources?path=South")
    assert [(ce["ce"], [queue["queue"] for queue in ce["below"]]) for ce in found["below"]] == [
        ("ce.south", ["long"])
    ]


def test_exact_names_and_another_vo(house):
    found = house.get("/v1/resources?site=North&ce=ce.north&queue=short&vo=other", "admin")
    assert (found["vo"], found["allowed"]) == ("other", False)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("path=West", 404),
        ("path=", 404),
        ("", 404),
        ("site=North&queue=short", 404),
        ("path=North&vo=nobody", 404),
    ],
)
def test_what_is_not_there(house, query, status):
    assert house.call("GET", f"/v1/resources?{query}", token="ann").status == status


def test_a_path_of_two_meanings(house):
    text = '[site."A/B".ce.C.queue.D]\n[site.A.ce."B/C".queue.D]\n'
    house.side.policy = house.policy(load_resources([("f.toml", text)]))
    answer = house.call("GET", "/v1/resources?path=A/B/C/D", token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert house.get("/v1/resources?site=A/B&ce=C&queue=D")["site"] == "A/B"


def test_lists_of_queues_show_files_and_lines_on_request(house):
    (short, _long) = house.get("/v1/queues")["queues"]
    assert set(short["parameters"]["CPUTime"]) == {"value", "level"}
    (short, _long) = house.get("/v1/queues?origin=true", "admin")["queues"]
    assert short["parameters"]["CPUTime"]["file"] == "sites.toml"
    assert short["parameters"]["QueueName"]["line"] == 0


def test_the_configuration_in_use(house):
    house.side.configuration = lambda: REFUSED
    found = house.get("/v1/configuration", "admin")
    assert (found["loaded_at"], found["refused_at"], found["age_seconds"]) == (999_000.0, 999_990.0, 1_000.0)
    assert (found["files"], found["faults"]) == (["lode.toml", "sites.toml"], [FAULT])
    assert (found["reloads"], found["refusals"], found["notices"], found["at_next_start"]) == (2, 1, [], [])


@pytest.mark.parametrize("path", ["/v1/configuration", "/v1/resources?path=North"])
def test_strangers_and_pilots_get_no_configuration(house, path):
    assert house.call("GET", path).status == 401
    assert house.call("GET", path, token=house.pilot()).status == 403


def test_health_has_the_age_of_the_configuration_and_not_its_content(house):
    house.core.configuration = lambda: REFUSED
    answer = house.call("GET", "/health")
    assert answer.status == 200
    assert answer.json["configuration"] == {
        "loaded_at": 999_000.0, "age_seconds": 1_000.0, "refused_at": 999_990.0, "faults": 1,
    }  # fmt: skip


def test_metrics_of_the_configuration(house):
    house.core.configuration = lambda: REFUSED
    told = house.get("/v1/service/metrics", "service")
    assert told["configuration_loaded_timestamp_seconds"] == 999_000.0
    assert (told["configuration_refused"], told["configuration_refusals_total"]) == (1, 1)
    house.core.configuration = ConfigurationState
    assert house.get("/v1/service/metrics", "service")["configuration_refused"] == 0
