"""Host groups, user lists and projects out of recorded and written files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.lines import logical_lines
from lodesman.languages.gridengine.vocabulary import HostGroup, Project, UserList, Vocabulary

DATA = Path(__file__).parents[2] / "data" / "gridengine"
RECORDED = ("qconf-sc-site.txt", "qconf-shgrp.txt", "qconf-su.txt", "qconf-sprj.txt")


def read(*texts, **named):
    faults = []
    given_texts = {str(number): text for number, text in enumerate(texts, 1)} | named
    return read_vocabulary(given_texts, faults=faults), faults


@pytest.fixture(scope="module")
def recorded():
    found, faults = read(**{name: (DATA / name).read_text(encoding="utf-8") for name in RECORDED})
    assert faults == []
    return found


def test_recorded_host_groups_are_nested(recorded):
    assert recorded.host_groups["@lx_host"] == HostGroup(name="@lx_host", members=("vm", "@gpu"))
    assert recorded.hosts_of("@gpu") == {"vm"}
    assert recorded.hosts_of("@empty") == frozenset()
    assert recorded.groups_of("vm") == {"@gpu", "@lx_host"}


def test_recorded_user_lists_go_over_several_lines(recorded):
    assert list(recorded.user_lists) == ["team", "others", "long", "arusers"]
    team = recorded.user_lists["team"]
    assert (team.users, team.kinds) == ({"user1", "user2"}, ("ACL",))
    assert len(team.groups) == 1
    assert recorded.user_lists["long"].users == {
        f"user_with_a_long_name_{letter}" for letter in "abcdefghijklmnop"
    }
    assert recorded.user_lists["arusers"] == UserList(name="arusers")


def test_recorded_projects(recorded):
    assert recorded.projects == {
        "p1": Project(name="p1"),
        "p2": Project(name="p2", acl=("team", "others"), xacl=("long",), oticket=5, fshare=100),
    }


def test_recorded_complexes_replace_those_of_the_stock(recorded):
    assert recorded.complexes.canonical("pj") == "perjob"
    assert read("")[0].complexes is STOCK_COMPLEXES


def test_all_in_one_file_is_the_same(recorded):
    text = "".join((DATA / name).read_text(encoding="utf-8") for name in reversed(RECORDED))
    assert read(text) == (recorded, [])


def test_users_are_on_lists_by_name_or_by_group():
    found, faults = read("name a\ntype ACL DEPT\nentries u1,@g1\nname b\nentries u2 , u1\n")
    assert faults == []
    assert found.user_lists["a"].kinds == ("ACL", "DEPT")
    assert found.lists_of("u1") == {"a", "b"}
    assert found.lists_of("u2") == {"b"}
    assert found.lists_of("u3", ["g1", "g2"]) == {"a"}
    assert found.lists_of("g1") == found.lists_of("u3", ["u1"]) == frozenset()


def test_lists_with_accounts_have_the_members_of_their_groups_and_groups_are_lists():
    found, _ = read("name a\ntype ACL\nentries u1,@g1\nname g2\ntype ACL\nentries u9\n")
    known = found.with_accounts({"u2": ["g1", "g3"], "u3": ["g2"], "u4": []})
    assert [known.lists_of(user) for user in ("u1", "u2", "u3", "u9")] == [
        {"a"},
        {"a", "g1", "g3"},
        set(),
        {"g2"},
    ]
    assert found.lists_of("u2") == set()


def test_a_project_is_for_who_is_on_its_lists_and_none_is_a_project_too_where_that_is_enforced():
    text = "name t\ntype ACL\nentries u1,@g\nname x\ntype ACL\nentries u1\nname p\nacl t\nxacl x\nname q\nacl NONE\n"
    found, faults = read(text)
    assert faults == []
    problems = [
        found.project_problem("p", user, groups) for user, groups in (("u1", ()), ("u2", ["g"]), ("u3", ()))
    ]
    assert [bool(one) for one in problems] == [True, False, True]
    assert found.projects_of("u3") == ["q"]
    assert not found.project_problem("", "u1")
    assert replace(found, enforce_project=True).project_problem("", "u1")
    assert not Vocabulary().project_problem("any", "u1")


def test_names_of_hosts_have_no_case_and_groups_may_come_later():
    found, faults = read(
        "group_name @all\nhostlist @a N9\n", "group_name @a\nhostlist Node1 node2 \\\n  NODE1\n"
    )
    assert faults == []
    assert found.hosts_of("@all") == {"node1", "node2", "n9"}
    assert found.groups_of("NODE1") == {"@a", "@all"}
    assert found.groups_of("n10") == found.hosts_of("@none") == frozenset()


FAULTS = {
    "unknown word": ("hostlist a\n", [(1, 1, "hostlist belongs to no object")]),
    "first word": ("gruop_name @a\n", [(1, 1, "gruop_name starts no line")]),
    "no value": ("group_name\n", [(1, 1, "group_name has no value")]),
    "blanks": ("name a b\n", [(1, 8, "the name after name has blanks")]),
    "no sign": ("group_name gpu\nhostlist a\n", [(1, 12, "gpu does not start with @")]),
    "twice": (
        "group_name @a\nhostlist x\ngroup_name @a\nhostlist y\n",
        [(3, 12, "given twice, first in 1, line 1")],
    ),
    "list twice": ("name a\nentries x\nentries y\n", [(3, 1, "entries is given twice, first at line 2")]),
    "mixed": ("name a\nentries x\nacl b\n", [(3, 1, "acl is no word of the user list a")]),
    "host group with tickets": (
        "group_name @a\nfshare 0\n",
        [(2, 1, "fshare is no word of the host group @a")],
    ),
    "number": ("name p\nacl NONE\nfshare much\n", [(3, 8, "fshare is much")]),
    "unknown group": (
        "group_name @a\nhostlist h, @b\n",
        [(2, 13, "@a names the host group @b, which no file")],
    ),
    "unknown list": (
        "name p\nacl a\nxacl NONE\n",
        [(2, 5, "p names the user list a, which no file defines")],
    ),
    "itself": ("group_name @a\nhostlist h @a\n", [(2, 12, "@a is in itself: @a > @a")]),
    "cycle": (
        "group_name @a\nhostlist @b h1\ngroup_name @b\nhostlist @c\ngroup_name @c\nhostlist h2 @b\n",
        [(4, 10, "@b is in itself: @b > @c > @b")],
    ),
    "continued": ("group_name @a\nhostlist h1 \\\n   h2 \\\n   @b\n", [(4, 4, "names the host group @b")]),
    "several": (
        "name\nacl\n\n# no\nfoo x\n",
        [(1, 1, "name has"), (2, 1, "acl has"), (5, 1, "foo starts no")],
    ),
    "a row": (
        "x x INT <= YES NO 0 0\nx y INT <= YES NO 0 0\n",
        [(2, 1, "x is given twice, first in 1, line 1")],
    ),
    "control": ("name a\x01\n", [(1, 7, "U+0001")]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_have_file_line_and_column(name):
    text, wanted = FAULTS[name]
    _, faults = read(text)
    assert [(fault.data["line"], fault.data["column"]) for fault in faults] == [place[:2] for place in wanted]
    for fault, (_, _, words) in zip(faults, wanted, strict=True):
        assert words in fault.message
        assert fault.data["source"] == "1"


def test_a_group_in_a_cycle_still_has_its_hosts():
    found, faults = read("group_name @a\nhostlist @b h1\ngroup_name @b\nhostlist @a h2\n")
    assert len(faults) == 1
    assert found.hosts_of("@a") == found.hosts_of("@b") == {"h1", "h2"}


def test_two_cycles_are_two_faults():
    groups = {"a": "@b", "b": "@a", "c": "@d @a", "d": "@c", "e": "@a h"}
    _, faults = read("".join(f"group_name @{name}\nhostlist {hosts}\n" for name, hosts in groups.items()))
    assert [fault.message.split("itself: ")[1] for fault in faults] == ["@a > @b > @a.", "@c > @d > @c."]


@given(st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=4), max_size=7))
def test_groups_resolve_as_walking_by_hand_and_cycles_are_found(nested):
    """Group n holds host hn, and groups."""
    known = {name: [one for one in others if one in nested] for name, others in nested.items()}
    text = "".join(
        f"group_name @{name}\nhostlist H{name} {' '.join(f'@{one}' for one in others)}\n"
        for name, others in known.items()
    )
    found, faults = read(text)

    def reached(name, seen):
        for one in known[name]:
            if one not in seen:
                reached(one, seen | {one})
                seen |= {one} | reached(one, seen | {one})
        return seen

    for name in known:
        assert found.hosts_of(f"@{name}") == {f"h{one}" for one in reached(name, set()) | {name}}
    cyclic = any(name in reached(name, set()) for name in known)
    assert bool(faults) is cyclic
    for name in known:
        assert found.groups_of(f"h{name}") == {
            f"@{one}" for one in known if name in reached(one, set()) | {one}
        }


def test_a_vocabulary_may_be_made_of_values():
    groups = {
        "@a": HostGroup(name="@a", members=("x", "@b", "@missing")),
        "@b": HostGroup(name="@b", members=("y",)),
    }
    found = Vocabulary(host_groups=groups)
    assert found.hosts_of("@a") == {"x", "y"}
    assert found.groups_of("Y") == {"@a", "@b"}
    assert found.complexes is STOCK_COMPLEXES


def test_lines_know_where_each_piece_came_from():
    faults = []
    text = "\ufeffone two \\\n  three, \\\n# a comment\n   four\n  five\nsix \\"
    lines = list(logical_lines(text, faults=faults, source="f"))
    assert [line.text for line in lines] == ["one two three,four", "five", "six"]
    assert [lines[0].place(lines[0].text.index(word)) for word in ("one", "two", "three", "four")] == [
        (1, 1), (1, 5), (2, 3), (4, 4),
    ]  # fmt: skip
    assert lines[1].words() == [(0, "five")]
    assert (lines[1].line, lines[1].place(0)) == (5, (5, 3))
    assert faults == []
