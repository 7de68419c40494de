"""One rule at every door: one's own VO, and everything for administrators and for our own background process."""

from __future__ import annotations

import base64

import msgspec
import pytest
from tests.api.conftest import RESOURCES

from lodesman.base.errors import NotFound
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.http.auth import own_vo, sees_all, vo_of
from lodesman.server.store.statement import ANY
from lodesman.server.writer.pilots import hash_token
from lodesman.wire.accounts import SCOPES, Principal
from lodesman.wire.server import ConfigurationState
from lodesman.wire.vocabulary import MainReason

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
        tx.write("UPDATE submission SET grp = 'open' WHERE id = 3", rows=ANY)


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
        "rooms": {"a/b/c": {"wanted": 3}, "Far/ce.far/q": {"wanted": 2}},
    }
    two.call("POST", "/v1/service/iteration", {"plan": plan}, token="service")
    assert two.get("/v1/director", "root") == {"iteration": 1, "at": two.now, "plan": plan}
    mine = {row["id"] for row in rows if row["owner"] == "olaf"}
    seen = two.get("/v1/director", "olaf")["plan"]
    assert {row[1] for row in seen["rows"]} == {one["tq_id"] for one in seen["asks"]} == mine
    assert {one["tq_id"] for one in seen["no_pool"]} == {one[0] for one in seen["placements"]} == mine
    assert set(seen["borrowed"]) == {str(tq_id) for tq_id in mine}
    assert (seen["now"], seen["rooms"]) == (5.0, {"Far/ce.far/q": {"wanted": 2}})
    assert "ann" not in str(seen)


def test_an_iteration_is_kept_as_it_came(house):
    house.made_up = True
    body = b'{"plan": {"b": 1.50,  "a": "\\u00e9\xc3\xa9"}}'
    assert house.call("POST", "/v1/service/iteration", body, token="service").status == 200
    stored = house.side.db.only("SELECT plan FROM director_iteration")[0]
    assert stored == '{"b": 1.50,  "a": "\\u00e9é"}'
    assert house.get("/v1/director", "admin")["plan"] == {"b": 1.5, "a": "éé"}
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


FAR_QUEUE = "Far/ce.far/q"


@pytest.fixture
def far(house):
    """A queue that admits another VO alone, with a pilot of that VO; and a queue that both may use."""
    house.user("olaf", "guests", vo="other")
    shared = '[site.Both]\n[site.Both.ce.c.queue.q]\n[site.Both.ce.c.queue.far]\nVO = ["other"]\n'
    house.core.policy = house.side.policy = Policy(load_resources([("s.toml", RESOURCES + shared)]))
    rows = [
        {"stamp": f"far{k}", "vo": "other", "site": site, "ce": ce, "queue": queue, "request": {"vo": "other"},
         "join_hash": base64.b64encode(hash_token(f"join-far{k}")).decode()}
        for k, (site, ce, queue) in enumerate([FAR_QUEUE.split("/"), ("Both", "c", "q")])
    ]  # fmt: skip
    assert house.call("POST", "/v1/service/pilots", rows, token="service").status == 200
    return house


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/queues/why?path={FAR_QUEUE}", "/v1/queues/why?site=Far&ce=ce.far&queue=q",
        "/v1/queues/why?path=Both/c/far", f"/v1/jobs/1/why?queue={FAR_QUEUE}", "/v1/pilots/1/why",
        "/v1/pilots/far0/why", "/v1/pilots/2/why", "/v1/resources?path=Far", f"/v1/resources?path={FAR_QUEUE}",
        "/v1/resources?site=Far&ce=ce.far", "/v1/resources?path=Both/c/far",
    ],
)  # fmt: skip
def test_what_does_not_admit_one_s_vo_is_not_there(far, path):
    far.submitted()
    for name, status in (("ann", 404), ("olaf", 404 if "jobs/1" in path else 200), ("admin", 200)):
        assert far.call("GET", path, token=name).status == status, name
    refusal = str(far.call("GET", path, token="ann").json["error"].get("hint"))
    assert "ce.far" not in refusal


def test_lists_of_sites_show_what_admits_one_s_vo(far):
    def sites(name):
        return {one["site"]: one for one in far.get("/v1/sites", name)["sites"]}

    far.call("POST", "/v1/sites/close", {"site": "Far", "reason": FAR}, token="admin")
    assert (set(sites("ann")), set(sites("olaf"))) == ({"North", "South", "Both"}, {"Far", "Both"})
    assert (sites("ann")["Both"]["queues"], sites("olaf")["Both"]["queues"]) == (1, 2)
    assert (sites("ann")["Both"]["pilots"], sites("olaf")["Both"]["pilots"]) == ({}, {"Prepared": 1})
    assert FAR not in str(far.get("/v1/sites", "ann"))
    both = far.get("/v1/resources?path=Both", "ann")
    assert [one["queue"] for one in both["below"][0]["below"]] == ["q"]
    shared = [one for one in far.get("/v1/queues", "ann")["queues"] if one["site"] == "Both"]
    assert [one["pilots"] for one in shared] == [{}]


def test_pilots_of_other_vos_are_not_named_by_a_shared_queue(far):
    for name, count in (("ann", 0), ("olaf", 1), ("admin", 1)):
        found = far.get("/v1/queues/why?path=Both/c/q", name)
        assert (len(found["lately"]), sum(found["pilots"].values())) == (count, count)


def test_files_and_lines_are_for_administrators(far):
    far.side.configuration = lambda: ConfigurationState(
        files=("s.toml",), faults=({"message": "in s.toml", "source": "s.toml", "section": "", "line": 3},)
    )
    for path in (
        "/v1/resources?path=North/ce.north/short", "/v1/queues?origin=true", "/v1/configuration",
        "/v1/queues/why?path=North/ce.north/short",
    ):  # fmt: skip
        assert "s.toml" not in str(far.get(path, "ann"))
        assert "s.toml" in str(far.get(path, "admin"))
