"""What pilots held by day: cores from when they joined to their end, what payloads used of them, and what is not known."""

import pytest

from lodesman.wire import inner_calls
from lodesman.wire.service import PilotSeen, PurgeOrder

pytestmark = pytest.mark.stores

DAY = 86_400
MIDNIGHT = 12 * DAY
SUMS = ("held_core_seconds", "used_core_seconds", "idle_core_seconds")


def hours(house, by="site", query="", token="admin"):
    found = house.get(f"/v1/usage/pilots?by={by}{query}", token)
    return {one["name"]: tuple(int(one[name]) for name in SUMS) for one in found["rows"]}


def row(house, query=""):
    (found,) = house.get(f"/v1/usage/pilots?{query}", "admin")["rows"]
    return found


def end(house, pilot, state="Done"):
    number = int(str(pilot).removeprefix("pilot"))
    ended = {"pilot": number, "state": state, "reason": "it left"}
    assert house.call("POST", "/v1/service/ended", ended, token="service").status == 200


def run(house, pilot, seconds):
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running", started=house.now)
    house.now += seconds
    house.report(pilot, job, "Done", started=house.now - seconds, ended=house.now, wall_seconds=seconds)


def test_used_and_idle_are_what_was_held(house):
    house.submitted({"NumberOfProcessors": 2}, {"NumberOfProcessors": 2})
    pilot = house.pilot()
    house.now += 10
    run(house, pilot, 100)
    assert hours(house) == {"North": (4 * 110, 200, 240)}
    run(house, pilot, 50.5)
    house.now += 9.5
    end(house, pilot)
    house.now += 1_000
    assert hours(house) == {"North": (4 * 170, 301, 379)}
    found = row(house)
    assert (found["used_core_seconds"], found["idle_core_seconds"]) == (301.0, 379.0)
    assert (found["pilots"], found["live"], found["vo"]) == (1, 0, "")


def test_what_lives_counts_until_now_and_its_payload_too(house):
    house.submitted({"NumberOfProcessors": 3})
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.now += 5
    assert hours(house) == {"North": (20, 0, 20)}, "what is not reported as Running holds nothing yet"
    house.report(pilot, job, "Running", started=house.now)
    house.now += 20
    assert hours(house) == {"North": (100, 60, 40)}
    assert row(house)["live"] == 1


def test_hours_belong_to_the_days_in_which_they_were(house):
    house.submitted({"NumberOfProcessors": 1})
    house.now = MIDNIGHT - 100.0
    pilot = house.pilot()
    run(house, pilot, 150)
    end(house, pilot)
    assert hours(house) == {"North": (600, 150, 450)}
    assert hours(house, query=f"&until={MIDNIGHT - 1}") == {"North": (400, 100, 300)}
    assert hours(house, query=f"&since={MIDNIGHT}") == {"North": (200, 50, 150)}
    assert hours(house, query=f"&since={MIDNIGHT + DAY}&until={MIDNIGHT + DAY}") == {}
    assert hours(house, query=f"&since={MIDNIGHT - 2 * DAY}&until={MIDNIGHT - 2 * DAY}") == {}


def test_rows_by_queue_site_group_and_vo_within_ones_vo(house):
    house.user("olaf", "guests", vo="other")
    for site, cores, group in (("North", 4, ""), ("South", 1, "bio"), ("North", 2, "bio")):
        token = house.prepare_pilot(site, group=group, cores=cores)
        body = {"join_token": token, "nonce": "n", "node": {"cores": cores}}
        assert house.call("POST", "/v1/pilots/join", body, token="").status == 200
    house.now += 10
    assert {name: one[0] for name, one in hours(house, "queue").items()} == {
        "North/ce.north/short": 60, "South/ce.south/long": 10,
    }  # fmt: skip
    assert {name: one[0] for name, one in hours(house, "group", token="ann").items()} == {"": 40, "bio": 30}
    assert hours(house, "vo") == {"lab": (70, 0, 70)}
    assert hours(house, "vo", token="olaf") == {}
    assert house.call("GET", "/v1/usage/pilots?by=user", token="ann").status == 400


def test_a_pilot_of_which_start_or_end_is_not_known_says_so(house):
    for _ in range(3):
        house.prepare_pilot()
    house.post(inner_calls.PILOTS_SEEN, {2: PilotSeen("wn2", None, house.now)})
    lost = house.pilot()
    house.now += 100
    end(house, 2, "Aborted")
    end(house, 3, "Aborted")
    end(house, lost, "Lost")
    found = row(house)
    assert (found["pilots"], found["live"], found["unknown_starts"], found["unknown_ends"]) == (2, 0, 1, 1)
    assert found["held_core_seconds"] == 400.0, (
        "one ran for 100 s and never joined; the other was last heard at once"
    )


def test_pilots_that_are_purged_are_said_to_be_missing(house):
    pilot = house.pilot()
    house.now += 100
    end(house, pilot)
    before = house.get("/v1/usage/pilots", "admin")
    assert (before["purged"], len(before["rows"])) == (0.0, 1)
    house.now += 10 * DAY
    house.post(inner_calls.PURGE, PurgeOrder(before=house.now - 5 * DAY, pilots=[1]))
    after = house.get("/v1/usage/pilots?since=1", "admin")
    assert (after["purged"], after["rows"]) == (house.now - 5 * DAY, [])
