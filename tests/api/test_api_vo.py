"""One rule at every door: one's own VO, and everything for administrators and for our own background process."""

from __future__ import annotations

import msgspec
import pytest

from lodesman.answers.accounts import SCOPES, Principal
from lodesman.answers.vocabulary import MainReason
from lodesman.api.auth import own_vo, sees_all, vo_of
from lodesman.errors import NotFound

FAR = "a secret of the other VO"


ANN = Principal(kind="user", name="ann", vo="lab", scopes=frozenset({"jobs:read"}))
ADMIN = Principal(kind="user", name="root", vo="lab", admin=True, scopes=frozenset(SCOPES))
SERVICE = Principal(kind="service")


def test_administrators_see_all_vos():
    assert sees_all(ADMIN)
    assert sees_all(SERVICE)
    assert not sees_all(ANN)
    assert not sees_all(Principal(kind="pilot", pilot_id=7, admin=True))
    lesser = Principal(kind="user", name="root", vo="lab", admin=True, scopes=frozenset({"jobs:read"}))
    assert not sees_all(lesser), "the token, not the person"
    assert [own_vo(who) for who in (ADMIN, SERVICE, ANN, lesser)] == ["", "", "lab", "lab"]


def test_which_vo_may_be_asked_about():
    assert vo_of("", ANN, usual="lab") == vo_of("lab", ANN, usual="lab") == "lab"
    assert vo_of("other", ADMIN, usual="lab") == "other"
    assert vo_of("", ADMIN, usual="") == ""
    assert vo_of("other", ADMIN, usual="lab", known={"other"}) == "other"
    for asked, who, known in [("other", ANN, {"other"}), ("moon", ADMIN, {"other"})]:
        with pytest.raises(NotFound):
            vo_of(asked, who, usual="lab", known=known)


class Regroup:
    """What a configuration of another day let happen."""

    def apply(self, tx):
        tx.write("UPDATE submission SET grp = 'open' WHERE id = 3")


@pytest.fixture
def two(house):
    """Jobs and failures of two VOs; a group `open`, which shares its jobs, once was of both."""
    house.user("dora", "open")
    house.user("olaf", "guests", vo="other")
    house.submitted({"Parameters": 3}, token="dora", group="open")
    house.submitted({"Parameters": 2, "Requirements": {"Software": "root"}}, token="ann")
    huge = {"CPUTime": 10**7}
    house.submitted(huge, {**huge, "JobName": "b"}, token="olaf", hold_if_impossible=True)
    house.submitted({"Site": "Far"}, token="olaf")
    house.control("kill", 8, reason=FAR, token="olaf")
    house.user("root", vo="lab", admin=True)
    house.do(Regroup())
    return house


def test_counts_do_not_leak_between_groups_of_one_name(two):
    counts = two.get("/v1/jobs/counts", "dora")["counts"]
    assert {(row["owner"], row["jobs"]) for row in counts} == {("dora", 3)}
    everybody = two.get("/v1/jobs/counts", "root")["counts"]
    assert {row["owner"] for row in everybody} == {"ann", "dora", "olaf"}
    assert {row["owner"] for row in two.get("/v1/jobs/counts", "olaf")["counts"]} == {"olaf"}


def test_task_queues_are_those_of_one_s_vo(two):
    def owners(name, query=""):
        return {row["owner"] for row in two.get(f"/v1/task-queues{query}", name)["task_queues"]}

    assert owners("ann") == owners("dora") == {"ann", "dora"}
    assert owners("olaf") == {"olaf"}
    assert owners("root") == {"ann", "dora", "olaf"}
    assert len(two.get("/v1/task-queues?limit=1", "olaf")["task_queues"]) == 1


def test_main_reasons_are_those_of_one_s_vo(two):
    rows = two.get("/v1/task-queues", "root")["task_queues"]
    two.call("POST", "/v1/service/reasons", token="service", body={
        "facts_at": 1.0,
        "changed": {str(row["id"]): [MainReason.PILOT_EXPECTED, row["vo"]] for row in rows if not row["held"]},
    })  # fmt: skip

    def told(name):
        return {one["detail"] for one in two.get("/v1/task-queues/reasons", name)["reasons"] if one["detail"]}

    assert "other" not in told("ann")
    assert "lab" in told("ann")
    assert "lab" not in told("olaf")
    assert "lab" in told("root")


def test_usage_is_limited_to_the_vo_of_the_user(two):
    two.pilot()
    two.claim("pilot1", 4)
    ann, olaf, root = (two.get("/v1/usage", name) for name in ("ann", "olaf", "root"))
    assert ann["states"] == {"Matched": 4, "Waiting": 1}
    assert sum(olaf["states"].values()) == 3
    assert sum(root["states"].values()) == sum(ann["states"].values()) + sum(olaf["states"].values())
    assert {row["group"] for row in ann["groups"]} == {"open", "physics"}
    assert olaf["groups"] == olaf["claims"] == olaf["pilots"] == []
    assert ann["pilots"] == root["pilots"] != []
    assert (ann["attempts"]["all"], olaf["attempts"]["all"], root["attempts"]["all"]) == (4, 0, 4)
    assert FAR not in str(two.call("GET", "/v1/usage", token="dora").body)


def test_pilots_are_those_of_one_s_vo(two):
    two.pilot()
    assert two.get("/v1/pilots?all=true", "olaf") == {"pilots": [], "more": False, "cursor": ""}
    assert two.get("/v1/pilots", "olaf") == {"pilots": [], "more": False, "cursor": ""}
    assert len(two.get("/v1/pilots", "ann")["pilots"]) == len(two.get("/v1/pilots", "root")["pilots"]) == 1


def test_the_director_record_is_limited_to_the_vo_of_the_user(two):
    two.made_up = True
    rows = two.get("/v1/task-queues", "root")["task_queues"]
    plan = {
        "now": 5.0,
        "row_fields": ["owner", "tq_id"],
        "rows": [[row["owner"], row["id"]] for row in rows],
        "asks": [{"tq_id": row["id"], "owner": row["owner"]} for row in rows],
        "no_pool": [{"tq_id": row["id"], "tries": []} for row in rows],
        "placements": [[row["id"], "a/b/c", 1] for row in rows],
        "borrowed": {str(row["id"]): 1 for row in rows},
        "rooms": {"a/b/c": {"wanted": 3}},
    }
    two.call("POST", "/v1/service/iteration", {"plan": plan}, token="service")
    assert two.get("/v1/director", "root") == {"at": two.now, "plan": plan}
    mine = {row["id"] for row in rows if row["owner"] == "olaf"}
    seen = two.get("/v1/director", "olaf")["plan"]
    assert {row[1] for row in seen["rows"]} == {one["tq_id"] for one in seen["asks"]} == mine
    assert {one["tq_id"] for one in seen["no_pool"]} == {one[0] for one in seen["placements"]} == mine
    assert set(seen["borrowed"]) == {str(tq_id) for tq_id in mine}
    assert (seen["now"], seen["rooms"]) == (5.0, plan["rooms"])
    assert "ann" not in str(seen)


def test_an_iteration_is_kept_as_it_came(house):
    house.made_up = True
    body = b'{"plan": {"b": 1.50,  "a": "\\u00e9\xc3\xa9"}}'
    assert house.call("POST", "/v1/service/iteration", body, token="service").status == 200
    stored = house.side.db.execute("SELECT plan FROM director_iteration").get
    assert stored == '{"b": 1.50,  "a": "\\u00e9é"}'
    assert house.get("/v1/director", "service")["plan"] == {"b": 1.5, "a": "éé"}
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(stored + "}")
    assert house.call("POST", "/v1/service/iteration", b'{"plan": {"b": }}', token="service").status == 400


@pytest.mark.parametrize(
    "path", ["/v1/queues?", "/v1/resources?path=North&", "/v1/queues/why?path=North/ce.north/short&"]
)
def test_queues_of_another_vo_are_for_administrators(house, path):
    assert house.call("GET", f"{path}vo=other", token="ann").code == "not-found"
    assert house.call("GET", f"{path}vo=lab", token="ann").status == 200
    assert house.call("GET", f"{path}vo=other", token="admin").status == 200
    assert house.call("GET", f"{path}vo=moon", token="admin").code == "not-found"
