"""jc_list: its language, host groups that contradict each other, and names without effect."""

from __future__ import annotations

import pytest

from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.jclist import AmbiguousJcList, QueueJcLists, offered_classes, read_jc_list


def lists_of(text):
    found = read_jc_list(text)
    assert found.faults == ()
    return found.lists


def test_a_whole_value():
    lists = lists_of(" NO_JC , app.v1,[@gpu=ANY_JC, NO_JC], [Node7=app], [node8=NONE]")
    assert str(lists) == "NO_JC,app.v1,[node7=app],[node8=NONE],[@gpu=ANY_JC,NO_JC]"
    assert lists_of(str(lists)) == lists
    assert [
        offered_classes(lists.on(host, groups))
        for host, groups in (
            ("node1", []),
            ("node1", ["@cpu"]),
            ("node1", ["@gpu"]),
            ("NODE7", ["@gpu"]),
            ("node8", []),
        )
    ] == [("NO_JC", "app.v1"), ("NO_JC", "app.v1"), None, ("app",), ()]
    assert lists.anywhere == {"NO_JC", "ANY_JC", "app", "app.v1"}
    assert lists.classes() == ["app", "app.v1"]


def test_a_queue_without_a_list_takes_every_job():
    assert QueueJcLists() == lists_of("ANY_JC,NO_JC")
    assert offered_classes(QueueJcLists().on("h")) is None


def test_host_groups_that_differ_shut_the_queue_on_their_hosts():
    lists = lists_of("ANY_JC,[@a=app,NO_JC],[@b=NO_JC,app,app],[@c=app],[node7=app]")
    assert lists.on("node1", ["@a", "@b"]) == {"app", "NO_JC"}
    shut = lists.on("node1", ["@c", "@a", "@z"])
    assert shut == AmbiguousJcList(host="node1", groups=("@a", "@c"))
    assert shut.sentence.startswith("jc_list is ambiguous on node1: @a and @c differ")
    assert lists.on("node7", ["@a", "@c"]) == {"app"}


def test_the_hosts_on_which_known_host_groups_make_it_ambiguous():
    text = """group_name @a
hostlist node1 node2 node7
group_name @c
hostlist @b node3
group_name @b
hostlist Node2 node7
"""
    vocabulary = read_vocabulary({"groups": text}, faults=[])
    lists = lists_of("ANY_JC,[@a=app,NO_JC],[@c=app],[node7=app],[@unknown=NONE]")
    assert [one.host for one in lists.ambiguous(vocabulary)] == ["node2"]
    assert not list(lists_of("ANY_JC,[@a=app],[@c=app]").ambiguous(vocabulary))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("app,", "is empty"),
        ("[node7=app]", "is empty"),
        ("NONE,app", "NONE stands alone"),
        ("!app", "contains '!'"),
        ("app*", "contains '*'"),
        ("*", "contains '*'"),
        ("app.", "is empty"),
        ("app.v1.x", "contains '.'"),
        ("app,[node7]", "no [host=list]"),
        ("app,[=app]", "no [host=list]"),
        ("app,[@=app]", "no [host=list]"),
        ("app,[a,b=app]", "no [host=list]"),
        ("app,[a=app]x", "no [host=list]"),
        ("app,[a=[app]]", "no [host=list]"),
        ("app,[a=app],other", "no [host=list]"),
        ("app,[a=app", "never closed"),
        ("app]", "closes nothing"),
        ("app,[a=app],[A=other]", "'a' has two brackets"),
    ],
)
def test_a_value_that_is_refused_in_jc_list(text, words):
    found = read_jc_list(text)
    assert found.lists is None
    (fault,) = found.faults
    assert words in fault
    assert fault.startswith("jc_list")


def test_all_faults_of_a_value_at_once():
    found = read_jc_list("no*thing,app.v9.x,!x,[a=no thing],[@g=NONE,app]")
    assert len(found.faults) == 5


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("ANY_JC,NO_JC", []),
        ("app,app", []),
        ("NO_JC,app", []),
        (
            "ANY_JC,app,other.default",
            [
                "jc_list: app has no effect beside ANY_JC.",
                "jc_list: other.default has no effect beside ANY_JC.",
            ],
        ),
        ("app,app.v1", ["jc_list: app.v1 has no effect beside app."]),
        ("app,[node7=ANY_JC,app]", ["jc_list on 'node7': app has no effect beside ANY_JC."]),
    ],
)
def test_names_without_effect_are_accepted_with_a_warning(text, warnings):
    assert list(read_jc_list(text).warnings) == warnings
    assert lists_of(text)


def test_what_names_a_class():
    lists = lists_of("NO_JC,[a=app.v1],[@g=other]")
    named = {name: lists.names_class(name) for name in ("app", "other", "v1", "ap", "NO_JC")}
    assert named == {"app": True, "other": True, "v1": False, "ap": False, "NO_JC": False}
