"""What is odd in quota sets: each notice with its rule and line, and none where nothing is odd."""

from __future__ import annotations

import pytest
from tests.unit.quota.conftest import sets_of
from tests.unit.quota.test_quota_text import SEED

from lodesman.languages.gridengine.vocabulary import HostGroup, Project, UserList, Vocabulary
from lodesman.languages.quota.notices import NoticeKind, find_notices
from lodesman.languages.quota.rules import FilterTag

VOCABULARY = Vocabulary(
    host_groups={"@lx_host": HostGroup(name="@lx_host", members=("lx1",))},
    user_lists={"team": UserList(name="team")},
    projects={"p1": Project(name="p1")},
)


def found(*limits, known=None, vocabulary=VOCABULARY):
    lines = "".join(f"limit {limit}\n" for limit in limits)
    return [
        (one.kind, one.rule, one.line, one.name)
        for one in find_notices(sets_of(f"name t\nenabled TRUE\n{lines}"), vocabulary, known)
    ]


@pytest.mark.parametrize(
    ("first", "shadows"),
    [
        ("", True), ("users *", True), ("users {*} queues {*}", True), ("hosts {*}", True), ("hosts {*,!a}", False),
        ("users u1", False), ("projects *", False), ("pes !*", False), ("jcs *", False), ("users !u1", False),
        ("users {*} projects p1", False),
    ],
)  # fmt: skip
def test_rules_after_one_for_all_jobs(first, shadows):
    wanted = (
        [(NoticeKind.SHADOWED, "t/2", 4, "t/1"), (NoticeKind.SHADOWED, "t/last", 5, "t/1")] if shadows else []
    )
    limits = (f"{first} to slots=1", "users u2 to slots=2", "name last users u3 to slots=1")
    assert [one for one in found(*limits) if one[0] is NoticeKind.SHADOWED] == wanted


def test_limits_that_add_nothing_up():
    assert found("users u to vf=1G,slots=2,h_rt=60,vf=2G", "to slots=1") == [
        (NoticeKind.NOT_CONSUMABLE, "t/1", 3, "virtual_free"),
        (NoticeKind.NOT_CONSUMABLE, "t/1", 3, "h_rt"),
    ]


@pytest.mark.parametrize(
    ("filters", "never"),
    [
        ("projects p1,!*", True), ("pes {*,!*}", True), ("projects !*", False), ("pes {!*}", False), ("jcs app1,!*", False),
        ("jcs !*", False), ("users !*", True), ("queues q,!*", True), ("hosts {!*}", True), ("users *,!u1", False),
    ],
)  # fmt: skip
def test_filters_that_never_match(filters, never):
    kinds = [kind for kind, *_ in found(f"{filters} to slots=1", "to slots=1")]
    assert (NoticeKind.NEVER_MATCHES in kinds) is never


def test_a_filter_that_never_matches_is_shown():
    ((kind, rule, line, name),) = found("projects {p1,!*} to slots=1")
    assert (kind, rule, line, name) == (NoticeKind.NEVER_MATCHES, "t/1", 3, "{p1,!*}")


def test_unknown_names_of_the_vocabulary():
    limits = "users u9,@team,!@ghosts,@te* projects p1,p9,q*,!* hosts lx9,@lx_host,!@sol pes x queues y jcs z to slots=1"
    names = [name for kind, _, _, name in found(limits) if kind is NoticeKind.UNKNOWN_NAME]
    assert sorted(names) == ["@ghosts", "@sol", "p9"]


def test_unknown_names_of_what_the_caller_knows():
    known = {
        FilterTag.USERS: {"u1"}, FilterTag.PES: {"smp"}, FilterTag.QUEUES: {"all.q"},
        FilterTag.HOSTS: {"LX1"}, FilterTag.JCS: {"app1", "app1.v1"},
    }  # fmt: skip
    limits = "users u1,u2,* pes smp,mpi queues all.q,b.q hosts lx1,lx2 jcs app1,!app2,app1.v1,app1.v2,!* to slots=1"
    names = [name for kind, _, _, name in found(limits, known=known) if kind is NoticeKind.UNKNOWN_NAME]
    assert names == ["u2", "mpi", "b.q", "lx2", "app1.v2, app2"]


def test_the_seed_is_odd_in_one_way_and_the_message_says_which():
    messages = [one.message for one in find_notices(sets_of(SEED), VOCABULARY)]
    label = "max_virtual_free_on_lx_hosts_for_app_1_2"
    assert messages == [
        f"Rule {label}/{number}: virtual_free is not consumable, so the limit is on each job's request and not on their sum."
        for number in (1, 2)
    ]


def test_sixty_names_that_are_not_known_are_one_notice_of_their_rule():
    users = ",".join(f"u{number}" for number in range(60))
    (notice,) = find_notices(
        sets_of(f"name t\nenabled TRUE\nlimit users u1,{users} to slots=1"), VOCABULARY, {FilterTag.USERS: ()}
    )
    assert notice.message == "Rule t/1: users names u1, u0, u2, u3, u4 and 55 more, not known here."
    known = {FilterTag.USERS: {"@staff"}}
    names = [name for *_, name in found("users @staff,@ghosts to slots=1", known=known)]
    assert names == ["@ghosts"]  # a group of accounts is a list, too


def test_a_set_without_the_line_enabled_limits_nothing_and_is_said_to():
    text = "{\nname off\nlimit to slots=1\n}\n{\nname meant\nenabled FALSE\nlimit to slots=1\n}\n"
    (notice,) = find_notices(sets_of(text), VOCABULARY)
    assert (notice.kind, notice.rule, notice.line) == (NoticeKind.DISABLED, "off", 1)
    assert notice.message == "Set off: it has no line 'enabled', so it limits nothing. Write: enabled TRUE."


@pytest.mark.parametrize(
    ("limits", "tag"),
    [
        (["projects {p1}"], "projects"), (["projects *"], "projects"), (["projects p1", "projects !*"], ""),
        (["projects p1", "users {*}"], ""), (["projects !p1"], ""), (["pes smp"], "pes"), (["pes {smp,m*}"], "pes"),
        (["pes smp", "pes *"], ""), (["pes *"], ""), (["pes !smp"], ""), (["pes smp", "pes mpi"], "pes"), (["pes !*"], ""),
    ],
)  # fmt: skip
def test_a_filter_that_jobs_leave_by_naming_nothing_is_said_once_for_each_set(limits, tag):
    rules = [f"{one} to slots=1" for one in limits]
    names = [name for kind, _, _, name in found(*rules) if kind is NoticeKind.VOLUNTARY]
    assert names == [tag] * bool(tag)
    enforced = Vocabulary(projects=VOCABULARY.projects, enforce_project=True)
    names = [name for kind, _, _, name in found(*rules, vocabulary=enforced) if kind is NoticeKind.VOLUNTARY]
    assert names == [tag] * (tag == "pes")


def test_projects_that_nobody_configured_are_said_instead_of_each_name():
    text = "name t\nenabled TRUE\nlimit projects {p8} to slots=1\nlimit projects p9 to slots=0"
    (notice,) = find_notices(sets_of(text), Vocabulary())
    assert notice.message == (
        "Rule t/1: no project is configured, so JobGroup is free and the filter projects binds who writes such a name; "
        "put projects into the files of [gridengine]."
    )
