"""Placeholders: what is filled, with what, and what stays as it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.members import Scope
from lodesman.languages.jobs.record import text_of
from lodesman.languages.jobs.spec import ParametricMembers, ValueSequence
from lodesman.languages.jobs.values import Mistake

MEMBERS = ParametricMembers(
    count=100,
    start=10,
    step=5,
    named={
        "X": ValueSequence(values=tuple(f"x{index}" for index in range(100))),
        "mem": ValueSequence(start=1000, step=100),
        "half": ValueSequence(step=0.5),
        "flag": ValueSequence(values=(True, False) * 50),
        "tricky": ValueSequence(values=("%s %(X)s %%",) * 100),
    },
)


def filled(value, index=7, job_id=4321, members=MEMBERS, **options):
    scope = Scope(members)
    compiled = scope.compile(value, **options)
    if compiled is None:
        return value
    return compiled.fill(scope.member(index, job_id, compiled.tokens))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("%s", "45"),
        ("%n", "007"),
        ("%j", "4321"),
        ("%(FirstJob)s", "4314"),
        ("%(X)s", "x7"),
        ("%(mem)s", "1700"),
        ("%(half)s", "4.5"),
        ("%(flag)s", "false"),
        ("%%", "%"),
        ("%%s", "%s"),
        ("%%%s", "%45"),
        ("a%sb%nc%(X)sd%je", "a45b007cx7d4321e"),
        ("%s%s", "4545"),
        ("%(tricky)s", "%s %(X)s %%"),
        ("100%", "100%"),
        ("100% of %s", "100% of 45"),
        ("%d %S %(X)d %(X %() %", "%d %S %(X)d %(X %() %"),
        ("date +%Y-%m", "date +%Y-%m"),
        ("", ""),
        ("no percent", "no percent"),
        ("%(X)s%", "x7%"),
        ("{%s} %(X)s {}", "{45} x7 {}"),
    ],
)
def test_texts(text, result):
    assert filled(text) == result


def test_lists_and_records_are_filled_inside():
    value = {"A": "%s", "B": ["%n", 5, True], "%s": "name stays", "C": 1.5, "D": ("%j",)}
    assert filled(value) == {"A": "45", "B": ["007", 5, True], "%s": "name stays", "C": 1.5, "D": ("4321",)}


def test_what_is_nested_deeper_than_any_attribute_stays():
    assert filled({"A": [["%s"]]}) == {"A": [["45"]]}
    assert filled([[[["%s"]]]]) == [[[["%s"]]]]


def test_a_value_without_placeholders_is_not_compiled():
    scope = Scope(MEMBERS)
    for value in ("abc", "100%", 5, None, [], {}, ["a", 1], {"A": ["%d"]}):
        assert scope.compile(value) is None


def test_a_type_is_kept_only_where_it_is_asked_for():
    value = {
        "M": "%(mem)s",
        "H": "%(half)s",
        "F": ["%(flag)s"],
        "T": "%(mem)s MB",
        "N": "%n",
        "J": "%j",
        "S": "%s",
    }
    assert filled(value, keep_type=True) == {
        "M": 1700,
        "H": 4.5,
        "F": [False],
        "T": "1700 MB",
        "N": "007",
        "J": "4321",
        "S": 45,
    }
    assert filled(value)["M"] == "1700"


def test_an_unknown_sequence_is_a_mistake_that_names_the_known_ones():
    with pytest.raises(Mistake, match=r"has %\(Y\)s, which no sequence stands for") as caught:
        filled("%(Y)s")
    assert "%(X)s, %(mem)s" in str(caught.value)
    with pytest.raises(Mistake, match="known: none"):
        filled("%(x)s", members=ParametricMembers(count=1))


def test_without_a_plain_parameters_percent_s_stays():
    members = ParametricMembers(count=2, named={"X": ValueSequence(values=("a", "b"))}, unnamed=False)
    assert filled("+%s %(X)s %n %%", index=1, members=members) == "+%s b 1 %"
    assert Scope(members).compile("+%s") is None


@pytest.mark.parametrize(
    ("count", "index", "text"), [(1, 0, "0"), (9, 8, "8"), (10, 9, "09"), (1_000_000, 5, "0000005")]
)
def test_the_number_is_as_wide_as_the_count(count, index, text):
    assert filled("%n", index=index, members=ParametricMembers(count=count)) == text


@pytest.mark.parametrize("index", [-1, 100, 10**9])
def test_there_is_no_member_outside(index):
    with pytest.raises(InvalidRequest, match="they are 0 to 99") as caught:
        filled("%s", index=index)
    assert caught.value.data == {"count": 100}


@pytest.mark.parametrize(
    ("value", "text"),
    [("a b", "a b"), (5, "5"), (-0.5, "-0.5"), (1e16, "1e+16"), (True, "true"), (False, "false")],
)
def test_values_as_text(value, text):
    assert text_of(value) == text


def by_hand(text, index, job_id):
    """Filling as the rule says it, one placeholder after the other."""

    def one(match):
        if match[2]:
            return text_of([f"x{index}", 1000 + 100 * index][match[2] == "mem"])
        return {"%": "%", "s": str(10 + 5 * index), "n": f"{index:03}", "j": str(job_id)}[match[1]]

    return re.sub(r"%(?:([%snj])|\(([A-Za-z0-9_.-]{1,255})\)s)", one, text)


PIECES = st.lists(
    st.sampled_from(["%s", "%n", "%j", "%%", "%", "%(X)s", "%(mem)s", "a", "(", ")s", "{}", " ", "é"])
)


@given(PIECES.map("".join), st.integers(0, 99), st.integers(1, 10**12))
def test_filling_is_one_pass_over_the_text(text, index, job_id):
    assert filled(text, index, job_id) == by_hand(text, index, job_id)
