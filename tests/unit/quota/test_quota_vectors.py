"""Jobs that start one after the other: the seed's example by hand, and what a real Grid Engine did (5.3, 5.4)."""

from __future__ import annotations

import re

import pytest
from tests.unit.quota.conftest import COMPLEXES, Cluster, complexes_with, sets_of, table
from tests.unit.quota.test_quota_text import SEED

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.gridengine.vocabulary import HostGroup, UserList, Vocabulary
from lodesman.languages.quota.evaluation import evaluate
from lodesman.languages.quota.matching import QuotaJob, QuotaPlace

VOCABULARY = Vocabulary(
    host_groups={"@lx_host": HostGroup(name="@lx_host", members=("lx1", "LX2"))},
    user_lists={"team": UserList(name="team", users=frozenset({"u1", "u2"}))},
)
HOSTS = {
    host: QuotaPlace(queue="all.q", host=host, host_groups=VOCABULARY.groups_of(host))
    for host in ("lx1", "lx2", "sol1")
}
EXAMPLE = {
    "consumable": complexes_with("virtual_free vf MEMORY <= YES YES 0 0"),
    "fixed": STOCK_COMPLEXES,
}


def job_of(row, complexes):
    name, _, variant = row["class"].replace("-", "").partition(".")
    requests = {} if row["vf"] == "not requested" else {"virtual_free": complexes.get("vf").value(row["vf"])}
    return QuotaJob(user=row["user"], job_class=name, variant=variant, requests=requests)


@pytest.mark.parametrize("column", EXAMPLE)
def test_the_example_of_the_seed(column):
    complexes = EXAMPLE[column]
    sets = sets_of(SEED, complexes)
    clusters = {host: Cluster(sets, [place], complexes) for host, place in HOSTS.items()}
    rows = table("quota-seed.md")
    assert len(rows) == 15
    for cluster in clusters.values():
        cluster.used = clusters["lx1"].used
    for row in rows:
        why = clusters[row["host"]].start(job_of(row, complexes))
        assert ("start" if why is None else "held") == row[column].split()[0], row
        if why is not None and row[column] == "held for ever":
            assert why[0].charge.amount > why[0].charge.limit


@pytest.mark.parametrize("column", EXAMPLE)
@pytest.mark.parametrize("row", table("quota-seed.md"), ids=lambda row: row["#"])
def test_the_rules_and_buckets_of_the_example(column, row):
    complexes = EXAMPLE[column]
    hits = evaluate(sets_of(SEED, complexes), job_of(row, complexes), HOSTS[row["host"]], complexes)
    words = row["rule (bucket)"]
    assert (f"R{hits[0].rule.label[-1]}" if hits else "none") == re.match(r"none|R\d", words)[0]
    named = re.search(r"\((\w+),(\w+),([\w-]+)\)", words)
    if named:
        bucket = hits[0].bucket
        assert (bucket.job.user, bucket.place.host, bucket.job.job_class or "-") == named.groups()


def test_the_example_as_it_is_booked():
    """What the column of buckets says is used after rows 2, 4, 5, 9, 10 and 13."""
    complexes = EXAMPLE["consumable"]
    cluster = Cluster(sets_of(SEED, complexes), [], complexes)
    for row in table("quota-seed.md"):
        cluster.places = [HOSTS[row["host"]]]
        cluster.start(job_of(row, complexes))
    used = {
        (bucket.rule[-1], bucket.job.user, bucket.place.host, bucket.job.job_class): amount >> 30
        for (bucket, _), amount in cluster.used.items()
    }
    assert used == {
        ("1", "user1", "lx1", "app1"): 6, ("1", "user1", "lx2", "app1"): 1, ("1", "user1", "lx1", "app2"): 6,
        ("1", "user2", "lx1", "app1"): 5, ("2", "user1", "lx1", ""): 4, ("2", "user1", "lx1", "other_app"): 1,
    }  # fmt: skip


def by(users, **more):
    """Jobs of users: "u1*2 u2" is two of u1, then one of u2."""
    found = []
    for word in users.split():
        user, _, count = word.partition("*")
        found += [job(user, **more)] * int(count or 1)
    return found


def job(user="u1", *, pe="", slots=1, **requests):
    values = {COMPLEXES.get(name).name: COMPLEXES.get(name).value(text) for name, text in requests.items()}
    return QuotaJob(user=user, user_lists=VOCABULARY.lists_of(user), pe=pe, slots=slots, requests=values)


def quota(*limits, name="t"):
    return "\n".join([f"name {name}", "enabled TRUE", *(f"limit {limit}" for limit in limits), ""])


def each(name, *values):
    return [job(**({name: value} if value else {})) for value in values]


# Sets and jobs by the first cell of a row; several pairs where the row has several.
LIVE = {
    "users griduser1 to slots=3; to slots=2": [(quota("users u1 to slots=3", "to slots=2"), by("u1*4 u2*2 u3"))],
    "users u1,u2 to slots=3 (no braces)": [(quota("users u1,u2 to slots=3"), by("u1*2 u2*2 u3"))],
    "users {u1,u2} to slots=2": [(quota("users {u1,u2} to slots=2"), by("u1*3 u2*3 u3*3"))],
    "users {*,!u3} to slots=1": [(quota("users {*,!u3} to slots=1"), by("u1*2 u3*2"))],
    "users u1,!u1 to slots=0": [(quota("users u1,!u1 to slots=0"), by("u1 u2"))],
    "users @team to slots=2 / {@team}": [
        (quota("users @team to slots=2"), by("u1*2 u2")),
        (quota("users {@team} to slots=2"), by("u1*3 u2*3")),
    ],
    "pes * to slots=3; pes !* to slots=1": [
        (quota("pes * to slots=3", "pes !* to slots=1"),
         [job(pe="smp", slots=2), job(pe="make"), job(pe="smp"), job(), job()])
    ],
    "queues {*} to slots=1 (two queues)": [(quota("queues {*} to slots=1"), by("u1*3"))],
    "hosts {*} to slots=$num_proc*2 (2 CPUs)": [(quota("hosts {*} to slots=$num_proc*2"), by("u1*5"))],
    "t: users {*} slots=3; t2: to slots=4": [
        (quota("users {*} to slots=3") + quota("to slots=4", name="t2"), by("u1*4 u2*2"))
    ],
    "users {*} to slots=3,mc=2G": [(quota("users {*} to slots=3,mc=2G"), each("mc", "1G", "1G", "1G", "", "", ""))],
    "mdef default 1G: users {*} to mdef=2G": [(quota("users {*} to mdef=2G"), each("mdef", "", "", "", "0"))],
    "users {*} to mc=4G": [
        (quota("users {*} to mc=4G"), [job(pe="smp", slots=4, mc="1G"), job(pe="smp", slots=1, mc="1G")])
    ],
    "users {*} to perjob=2 (JOB consumable)": [
        (quota("users {*} to perjob=2"), [job(pe="smp", slots=4, perjob="1")] * 2 + [job(perjob="1")])
    ],
    "users {*} to vf=4G (stock virtual_free)": [
        (quota("users {*} to vf=4G"), each("vf", "3G", "3G", "4G", "5G", ""))
    ],
}  # fmt: skip
QUEUES = {"queues {*} to slots=1 (two queues)": ["a.q", "b.q"]}


def expected(cell):
    """The states in the words of the table: "r r qw", "4 r, 1 qw", "one in each queue, third qw"."""
    cell = re.sub(r"\(.*\)", "", cell).replace("one in each queue, third", "r r")
    found = re.findall(r"(?:\b(\d) )?\b(r|qw)\b", cell)
    return [state for count, state in found for _ in range(int(count or 1))]


def test_every_live_row_has_its_sets_and_jobs():
    assert [row["set"] for row in table("quota-live.md")] == list(LIVE)


@pytest.mark.parametrize("row", table("quota-live.md"), ids=lambda row: row["set"])
def test_what_a_real_grid_engine_did(row):
    states = []
    for text, jobs in LIVE[row["set"]]:
        queues = QUEUES.get(row["set"], ["all.q"])
        places = [QuotaPlace(queue=queue, host="lx1", load={"num_proc": 2}) for queue in queues]
        cluster = Cluster(sets_of(text), places)
        states += ["r" if cluster.start(one) is None else "qw" for one in jobs]
    assert states == expected(row["result"])
