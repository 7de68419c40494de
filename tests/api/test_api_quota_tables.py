"""The tables of the quota language through real claims: the seed's example, and what a real Grid Engine did (5.3, 5.4)."""

from __future__ import annotations

import pytest
from tests.api.conftest import resources
from tests.unit.quota.conftest import COMPLEXES, table
from tests.unit.quota.test_quota_text import SEED
from tests.unit.quota.test_quota_vectors import EXAMPLE, LIVE, QUEUES, VOCABULARY, expected

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.gridengine.values import write_value
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.server.store.journal import Change
from lodesman.server.writer.quotas import use_limits

# Without the load of its host it counts as very large.
DYNAMIC = "hosts {*} to slots=$num_proc*2 (2 CPUs)"


@pytest.fixture
def site(house):
    """A server where the users of the tables have jobs run."""
    house.user("eva", "physics", admin=True)
    for name in ("user1", "user2", "user3", "u1", "u2", "u3"):
        house.user(name, "physics")
    return house


def use(site, complexes, text):
    known = Vocabulary(
        complexes=complexes, host_groups=VOCABULARY.host_groups, user_lists=VOCABULARY.user_lists
    )
    site.core.policy = site.policy(resources(), vocabulary=known)
    assert site.do(Change(use_limits, site.core.quotas, known)) is True
    names = [one["name"] for one in site.get("/v1/quotas")["sets"]]
    if names:
        assert site.call("POST", "/v1/quotas/remove", {"names": names}, token="eva").status == 200
    answer = site.call("POST", "/v1/quotas", {"text": text}, token="eva")
    assert answer.status == 200, answer.json


def starts(site, user, pilots, **record):
    """Whether a job runs now at one of the pilots; one that waits is killed, so that it does not start later."""
    number = site.submitted(record, token=user)
    for pilot in pilots:
        if found := site.claim(pilot):
            assert [one["id"] for one in found] == [number]
            return True
    site.control("kill", number, token=user)
    return False


@pytest.mark.parametrize("column", EXAMPLE)
def test_the_example_of_the_seed(site, column):
    # In MB instead of GB: the queues of these tests have 2000 MB.
    use(site, EXAMPLE[column], SEED.replace("=6G", "=6M").replace("=4G", "=4M"))
    classes = "".join(
        f"jcname {one}\nvariant_list default,v1\n" for one in ("app1", "app2", "app3", "other_app")
    )
    assert site.call("POST", "/v1/job-classes", {"text": classes}, token="ann").status == 200
    found = {}
    for row in table("quota-seed.md"):
        name, _, variant = row["class"].replace("-", "").partition(".")
        record = {"JobClass": name, "Variant": variant} if variant else {"JobClass": name} if name else {}
        if row["vf"] != "not requested":
            record["Consumables"] = f"vf={row['vf'].replace('G', 'M')}"
        pilot = site.pilot(node={"cores": 4, "host": row["host"]})
        found[row["#"]] = "start" if starts(site, row["user"], [pilot], **record) else "held"
    assert found == {row["#"]: row[column].split()[0] for row in table("quota-seed.md")}


def record_of(job):
    requests = [
        f"{name}={write_value(COMPLEXES.get(name).kind, value)}" for name, value in job.requests.items()
    ]
    return {"PE": job.pe, "NumberOfProcessors": job.slots, "Consumables": requests} if job.pe else {
        "Consumables": requests
    }  # fmt: skip


@pytest.mark.parametrize("row", table("quota-live.md"), ids=lambda row: row["set"])
def test_what_a_real_grid_engine_did(site, row):
    sites = ["North", "South"] if row["set"] in QUEUES else ["North"]
    states = []
    for text, jobs in LIVE[row["set"]]:
        use(site, COMPLEXES, text)
        pilots = []
        for job in jobs:
            pilots = [site.pilot(name, node={"cores": 4, "cores_total": 2, "host": "lx1"}) for name in sites]
            states.append("r" if starts(site, job.user, pilots, **record_of(job)) else "qw")
        for attempt in site.get("/v1/jobs?all=true&state=Matched,Running", "admin")["jobs"]:
            site.control("kill", attempt["id"], token="admin")
        end_all(site)
    assert states == expected(row["result"])


def end_all(site):
    """All pilots end, so nothing is used any more."""
    for number in list(site.core.sessions):
        lost = {"pilot": number, "state": "Lost", "reason": "test"}
        assert site.call("POST", "/v1/service/ended", lost, token="service").status == 200
    assert site.get("/v1/quotas/use")["uses"] == []


def test_without_a_load_value_a_dynamic_limit_is_very_large(site):
    use(site, STOCK_COMPLEXES, LIVE[DYNAMIC][0][0])
    pilot = site.pilot(node={"cores": 4, "host": "lx1"})
    site.submitted(*[{}] * 5, token="u1")
    assert len(site.claim(pilot, 5)) == 5
