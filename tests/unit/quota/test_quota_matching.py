"""Which jobs and places a rule is about, and what is counted by itself (E3 to E9 of the reference)."""

from __future__ import annotations

import pytest
from tests.unit.quota.conftest import one_set, table

from lodesman.languages.gridengine.vocabulary import HostGroup, UserList, Vocabulary
from lodesman.languages.quota.matching import (
    JobValues,
    PlaceValues,
    QuotaJob,
    QuotaPlace,
    job_side,
    place_side,
)

PLACE = QuotaPlace(queue="all.q", host="node1")
TEAM = Vocabulary(
    host_groups={
        "@lx_host": HostGroup(name="@lx_host", members=("@lx_new", "Node1")),
        "@lx_new": HostGroup(name="@lx_new", members=("node2",)),
    },
    user_lists={"team": UserList(name="team", users=frozenset({"u1"}), groups=frozenset({"staff"}))},
)


def rule_of(filters):
    """The rule with these filters, as text."""
    ((found,),) = (one.rules for one in one_set(f"{filters} to slots=1"))
    return found


def of_job(filters, **facts):
    return job_side(rule_of(filters), QuotaJob(**{"user": "u1"} | facts))


def of_place(filters, queue="all.q", host="node1"):
    place = QuotaPlace(queue=queue, host=host, host_groups=TEAM.groups_of(host))
    return place_side(rule_of(filters), place)


def class_of(text):
    name, _, variant = text.partition(".")
    return {} if text == "none" else {"job_class": name, "variant": variant}


@pytest.mark.parametrize("tag", ["projects", "pes"])
@pytest.mark.parametrize("row", table("quota-absent.md"), ids=lambda row: row["filter"])
@pytest.mark.parametrize("value", ["absent", "p1", "p2"])
@pytest.mark.parametrize("braces", [False, True])
def test_optional_things_that_are_absent(tag, row, value, braces):
    names = row["filter"].strip("`")
    text = "" if names == "(none)" else f"{tag} {{{names}}}" if braces else f"{tag} {names}"
    fact = {"projects": "project", "pes": "pe"}[tag]
    matches = of_job(text, **({} if value == "absent" else {fact: value})) is not None
    assert matches is (row[value].lower() == "match")


@pytest.mark.parametrize("row", table("quota-jcs.md"), ids=lambda row: row["jcs"])
@pytest.mark.parametrize("value", ["none", "app1", "app1.v1", "app2"])
@pytest.mark.parametrize("braces", [False, True])
def test_job_classes(row, value, braces):
    names = row["jcs"]
    text = "" if names == "(absent)" else f"jcs {{{names}}}" if braces else f"jcs {names}"
    assert (of_job(text, **class_of(value)) is not None) is (row[value] == "y")


@pytest.mark.parametrize(
    ("names", "job_class", "matches"),
    [
        ("app1.default", "app1", True), ("app1.default", "app1.v1", False), ("app*", "app2.v1", True),
        ("*.v1", "app2.v1", True), ("*.v1", "app2", False), ("!app1.v1", "app1", True), ("!app1.v1", "app1.v1", False),
        ("!app1.v1", "none", True), ("other_app,!*", "none", True), ("other_app,!*", "app1", False),
        ("app1,!app1.v1,!*", "app1", True), ("app1,!app1.v1,!*", "app1.v1", False), ("app1,!app1.v1,!*", "none", True),
        ("*,!*", "none", True), ("*,!*", "app1", True), ("*,!app1", "none", False),
    ],
)  # fmt: skip
def test_variants_of_job_classes(names, job_class, matches):
    assert (of_job(f"jcs {{{names}}}", **class_of(job_class)) is not None) is matches


@pytest.mark.parametrize(
    ("names", "user", "lists", "matches"),
    [
        ("u1", "u1", "", True), ("u1", "u2", "", False), ("u*", "u22", "", True), ("u?", "u22", "", False),
        ("u1,!u1", "u1", "", False), ("!u1,u1", "u1", "", False), ("!u1", "u2", "", True), ("u[12]", "u2", "", True),
        ("*,!u3", "u3", "", False), ("@team", "u1", "team", True), ("@team", "u2", "", False), ("team", "u1", "team", False),
        ("@te*", "u1", "team", True), ("*m", "u1", "team", False), ("*,!@team", "u1", "team", False),
        ("*,!@team", "u2", "", True), ("u9,@team", "u1", "team", True), ("U1", "u1", "", False), ("!*", "u1", "", False),
    ],
)  # fmt: skip
def test_users(names, user, lists, matches):
    found = of_job(f"users {{{names}}}", user=user, user_lists=frozenset(lists.split()))
    assert found == (JobValues(user, "", "", "") if matches else None)


def test_members_of_a_list_come_from_the_vocabulary():
    assert of_job("users @team", user="u7", user_lists=TEAM.lists_of("u7", ["staff"])) is not None
    assert of_job("users @team", user="u7", user_lists=TEAM.lists_of("u7")) is None


@pytest.mark.parametrize(
    ("names", "host", "matches"),
    [
        ("node1", "NODE1", True), ("NODE1", "node1", True), ("node*", "node2", True), ("@lx_host", "node2", True),
        ("@lx_new", "node1", False), ("@lx_*", "node1", True), ("@lx_host,!@lx_new", "node2", False),
        ("@lx_host,!node2", "node1", True), ("@LX_host", "node1", False), ("!@lx_host", "node3", True),
        ("lx_*", "node1", False),
    ],
)  # fmt: skip
def test_hosts_have_no_case_and_are_in_groups(names, host, matches):
    found = of_place(f"hosts {{{names}}}", host=host)
    assert found == (PlaceValues("", host.lower()) if matches else None)


@pytest.mark.parametrize(
    ("tag", "names", "value", "matches"),
    [
        ("pes", "smp", "s*", True), ("pes", "s*", "smp", True), ("pes", "make", "s*", False), ("pes", "!smp", "s*", False),
        ("projects", "p1", "p?", True), ("queues", "all.q", "a*", True), ("queues", "a*", "all.q", True),
        ("queues", "b.q", "all.q", False), ("queues", "!a*", "all.q", False),
    ],
)  # fmt: skip
def test_names_of_projects_pes_and_queues_may_be_patterns_on_either_side(tag, names, value, matches):
    text = f"{tag} {names}"
    fact = {"projects": "project", "pes": "pe"}.get(tag)
    found = of_job(text, **{fact: value}) if fact else of_place(text, queue=value)
    assert (found is not None) is matches


@pytest.mark.parametrize(
    ("filters", "values"),
    [
        ("", ("", "", "", "")), ("users *", ("", "", "", "")), ("users {*}", ("u1", "", "", "")),
        ("users {@team} projects p*", ("u1", "", "", "")), ("projects {*} pes {smp}", ("", "p1", "smp", "")),
        ("jcs {*}", ("", "", "", "app")), ("jcs {app.v1}", ("", "", "", "app")), ("jcs app", ("", "", "", "")),
        ("users {u1} projects {p1} pes {*} jcs {!x}", ("u1", "p1", "smp", "app")),
    ],
)  # fmt: skip
def test_what_is_counted_by_itself_of_a_job(filters, values):
    facts = {
        "project": "p1",
        "pe": "smp",
        "job_class": "app",
        "variant": "v1",
        "user_lists": frozenset({"team"}),
    }
    assert of_job(filters, **facts) == JobValues(*values)


def test_what_is_absent_has_a_bucket_of_its_own():
    assert of_job("projects {!p1} pes {!*} jcs {app,!*}") == JobValues("", "", "", "")


def test_what_is_counted_by_itself_of_a_place():
    assert of_place("queues {*} hosts {@lx_host}", host="Node1") == PlaceValues("all.q", "node1")
    assert of_place("queues * hosts @lx_host") == PlaceValues("", "")


def test_each_half_knows_only_its_own_filters():
    rule = rule_of("users u1 projects p1 pes smp queues q hosts h jcs app")
    job = QuotaJob(user="u1", project="p1", pe="smp", job_class="app")
    assert job_side(rule, job) is not None
    assert place_side(rule, PLACE) is None
    assert place_side(rule, QuotaPlace(queue="q", host="h")) is not None
    for other in ({"user": "u2"}, {"project": "p2"}, {"pe": "make"}, {"job_class": "b"}):
        facts = {"user": "u1", "project": "p1", "pe": "smp", "job_class": "app"} | other
        assert job_side(rule, QuotaJob(**facts)) is None
