"""jc_list: its language, host groups that contradict each other, and names without effect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.jobclass import JcList, QueueJcLists, allows, read_jc_list
from lodesman.jobclass.jclist import AmbiguousJcList, JcListAnswer

CLASSES = {"app": ("default", "v1"), "other": ("default",)}


def lists_of(text, classes=None):
    found = read_jc_list(text, classes)
    assert found.faults == ()
    return found.lists


def test_a_whole_value():
    lists = lists_of(" NO_JC , app.v1,[@gpu=ANY_JC, NO_JC], [node7=app], [node8=NONE]", CLASSES)
    assert str(lists) == "NO_JC,app.v1,[node7=app],[node8=NONE],[@gpu=ANY_JC,NO_JC]"
    assert lists_of(str(lists)) == lists
    assert [
        str(lists.on(host, groups))
        for host, groups in (
            ("node1", []),
            ("node1", ["@cpu"]),
            ("node1", ["@gpu"]),
            ("node7", ["@gpu"]),
            ("node8", []),
        )
    ] == ["NO_JC,app.v1", "NO_JC,app.v1", "ANY_JC,NO_JC", "app", "NONE"]


def test_a_queue_without_a_list_takes_every_job():
    assert QueueJcLists() == lists_of("ANY_JC,NO_JC")
    assert allows(QueueJcLists().on("h"), None).allowed
    assert allows(QueueJcLists().on("h"), "app", "v1").allowed


def test_host_groups_that_differ_shut_the_queue_on_their_hosts():
    lists = lists_of("ANY_JC,[@a=app,NO_JC],[@b=NO_JC,app,app],[@c=app],[node7=app]")
    assert isinstance(lists.on("node1", ["@a", "@b"]), JcList)
    shut = lists.on("node1", ["@c", "@a", "@z"])
    assert shut == AmbiguousJcList(host="node1", groups=("@a", "@c"))
    assert shut.sentence.startswith("jc_list is ambiguous on node1: @a and @c differ.")
    assert allows(shut, "app") is JcListAnswer.AMBIGUOUS
    assert isinstance(lists.on("node7", ["@a", "@c"]), JcList)


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
        ("nothing", "No job class or job class variant 'nothing'"),
        ("app.v9", "No job class or job class variant 'app.v9'"),
        ("app,[node7=nothing]", "on node7: No job class"),
        ("app,[node7]", "no [host=list]"),
        ("app,[=app]", "no [host=list]"),
        ("app,[@=app]", "no [host=list]"),
        ("app,[a,b=app]", "no [host=list]"),
        ("app,[a=app]x", "no [host=list]"),
        ("app,[a=[app]]", "no [host=list]"),
        ("app,[a=app],other", "no [host=list]"),
        ("app,[a=app", "never closed"),
        ("app]", "closes nothing"),
        ("app,[a=app],[a=other]", "a has two brackets"),
    ],
)
def test_a_value_that_is_refused_in_jc_list(text, words):
    found = read_jc_list(text, CLASSES)
    assert found.lists is None
    (fault,) = found.faults
    assert words in fault
    assert fault.startswith("jc_list")


def test_all_faults_of_a_value_at_once():
    found = read_jc_list("nothing,app.v9,!x,[a=nothing],[@g=NONE,app]", CLASSES)
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
        ("app,[node7=ANY_JC,app]", ["jc_list on node7: app has no effect beside ANY_JC."]),
    ],
)
def test_names_without_effect_are_accepted_with_a_warning(text, warnings):
    assert list(read_jc_list(text, CLASSES).warnings) == warnings
    assert lists_of(text, CLASSES)


def test_what_names_a_class():
    lists = lists_of("NO_JC,[a=app.v1],[@g=other]")
    assert [lists.names_class(name) for name in ("app", "other", "v1", "ap", "NO_JC")] == [
        True,
        True,
        False,
        False,
        True,
    ]


NAMES = st.sampled_from(["ANY_JC", "NO_JC", "app", "app.v1", "app.default", "other", "other.default"])


@given(
    st.lists(NAMES, min_size=1),
    st.sampled_from([None, ("app", "default"), ("app", "v1"), ("other", "default")]),
)
def test_the_rule(names, job):
    jc_list = lists_of(",".join(names)).on("h")
    admission = allows(jc_list, *(job or (None,)))
    expected = "NO_JC" in names if job is None else bool({"ANY_JC", job[0], ".".join(job)} & set(names))
    assert admission.allowed == expected
    assert ("NO_JC" in admission or "without" in admission) == (job is None)
