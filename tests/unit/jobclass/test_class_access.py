"""Access specifiers: laws that hold for every class and every job, and what a violation says."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import at_most
from tests.kits.jobclass_kit import ATTRIBUTES, VARIANTS, canonical, class_of, classes, jobs, snapshot_of

from lodesman.languages.jobclass import (
    check,
    check_template,
    entries_of,
    fresh_template,
    new_class,
    refusal_sentence,
)
from lodesman.languages.jobclass.access import Deed
from lodesman.languages.jobclass.specifiers import ClassList, ClassScalar, join_grants


def sentences(snapshot, job):
    return [violation.sentence for violation in check(snapshot, job, canonical)]


def test_all_violations_are_named():
    snapshot = snapshot_of(
        "v1", "default,v1", N="Fixed", l_hard="{~}a=1,{-}h_rt=60,c", CMDARG="60,x", P="UNSPECIFIED", j="y"
    )
    job = {"N": "Own", "l_hard": {"a": "2", "h_rt": "90", "d": None}, "CMDARG": ("60",), "P": "p"}
    found = check(snapshot, job, canonical)
    assert {(one.attribute, one.key, one.deed, one.specifier, one.given, one.allowed) for one in found} == {
        ("N", None, Deed.CHANGED, "", "Own", "Fixed"),
        ("l_hard", "h_rt", Deed.CHANGED, "-", "90", "60"),
        ("l_hard", "c", Deed.REMOVED, "", None, None),
        ("l_hard", "d", Deed.ADDED, "", None, None),
        ("CMDARG", "1", Deed.REMOVED, "", None, "x"),
        ("P", None, Deed.SET, "", "p", None),
        ("j", None, Deed.CHANGED, "", "n", "y"),
    }
    assert refusal_sentence(snapshot, found[:3]) == (
        'job class "app.v1" does not allow: CMDARG: 1 may not be removed; j may not be changed; '
        "l_hard: h_rt may not be changed"
    )


def test_keys_are_compared_by_their_canonical_names():
    snapshot = snapshot_of(l_hard="s=2,{~}virtual_free=1G", q_hard="s")
    assert sentences(snapshot, {"l_hard": {"slots": "2", "vf": "2G"}, "q_hard": {"s": None}}) == []
    assert sentences(snapshot, {"l_hard": {"slots": "3", "vf": "2G"}, "q_hard": {"slots": None}}) == [
        "l_hard: s may not be changed",
        "q_hard: s may not be removed",
        "q_hard: slots may not be added",
    ]


def test_a_key_with_an_empty_value_is_not_a_key_without_value():
    assert sentences(snapshot_of(v="A"), {"v": {"A": ""}}) == ["v: A may not be changed"]


def test_arguments_are_compared_by_position():
    snapshot = snapshot_of(CMDARG="{~}a,b")
    assert sentences(snapshot, {"CMDARG": ("x", "b")}) == []
    assert sentences(snapshot, {"CMDARG": ("b", "a")}) == ["CMDARG: 1 may not be changed"]
    assert sentences(snapshot, {"CMDARG": ("b",)}) == ["CMDARG: 1 may not be removed"]
    assert sentences(snapshot, {"CMDARG": ("a", "b", "c")}) == ["CMDARG: 2 may not be added"]


@pytest.mark.parametrize(
    ("value", "job", "fine"),
    [
        ("y", "yes", True),
        ("y", "TRUE", True),
        ("y", "n", False),
        ("y", None, False),
        ("{-}y", None, True),
        ("{-}y", "n", True),
        ("{~}y", "n", True),
        ("{~}y", None, True),
        ("n", None, True),
        ("n", "y", False),
        ("{-}n", "y", False),
        ("{~}n", "y", True),
        ("UNSPECIFIED", None, True),
        ("UNSPECIFIED", "n", True),
        ("UNSPECIFIED", "y", False),
        ("{+}UNSPECIFIED", "y", True),
        ("maybe", "maybe", True),
    ],
)
def test_a_truth_value_that_is_unset_has_its_default(value, job, fine):
    """-j is n by default, and -shell is y: there everything is the other way round."""
    given_job = {} if job is None else {"j": job}
    assert (check(snapshot_of(j=value), given_job, canonical) == ()) == fine
    swap = {"y": "n", "n": "y", "yes": "no", "TRUE": "FALSE"}
    mirrored = "".join(
        swap.get(part, part) for part in [value[: value.find("}") + 1], value[value.find("}") + 1 :]]
    )
    job = {} if job is None else {"shell": swap.get(job, job)}
    assert (check(snapshot_of(shell=mirrored), job, canonical) == ()) == fine


def test_a_list_of_a_job_may_be_a_text():
    assert sentences(snapshot_of(l_hard="a=1,b"), {"l_hard": "b, a=1"}) == []


def test_an_empty_list_of_a_class_stays_empty():
    assert sentences(snapshot_of(l_hard="NONE"), {}) == []
    assert sentences(snapshot_of(l_hard="NONE"), {"l_hard": {"a": "1"}}) == ["l_hard: a may not be added"]
    assert sentences(snapshot_of(l_hard="{+}NONE"), {"l_hard": {"a": "1"}}) == []


@pytest.mark.slow
@at_most(30)
@given(classes(), st.sampled_from(VARIANTS))
def test_a_class_allows_its_own_values(job_class, variant):
    assert check(job_class.snapshot(variant), job_class.values(variant), canonical) == ()


def widened(draw, value):
    """The same value with one specifier more, where it can be written."""
    letters = draw(st.sampled_from("+-~"))
    if isinstance(value, ClassScalar):
        return (
            value
            if letters == "+" and value.text is not None
            else replace(value, grants=join_grants(value.grants, letters))
        )
    if not value.entries or letters == "+" or draw(st.booleans()):
        return replace(value, grants=join_grants(value.grants, letters))
    at = draw(st.integers(0, len(value.entries) - 1))
    entries = list(value.entries)
    entries[at] = replace(entries[at], grants=join_grants(entries[at].grants, letters))
    return ClassList(entries=tuple(entries), grants=value.grants)


@pytest.mark.slow
@at_most(30)
@given(classes(), jobs(), st.data())
def test_one_specifier_more_never_brings_a_violation(job_class, job, data):
    snapshot = job_class.snapshot("default")
    before = {(one.attribute, one.key, one.deed) for one in check(snapshot, job, canonical)}
    name = data.draw(st.sampled_from(ATTRIBUTES))
    value = widened(data.draw, job_class.value(name, "default"))
    wide = replace(snapshot, attributes={**snapshot.attributes, name: value})
    assert {(one.attribute, one.key, one.deed) for one in check(wide, job, canonical)} <= before


def letters_at(snapshot, violation):
    held = snapshot.attributes[violation.attribute]
    entries = () if isinstance(held, ClassScalar) else held.entries or ()
    return held.grants + "".join(entry.grants for entry in entries if entry.key == violation.key)


@pytest.mark.slow
@at_most(30)
@given(classes(), jobs())
def test_a_violation_says_which_letter_is_missing(job_class, job):
    snapshot = job_class.snapshot("default")
    for one in check(snapshot, job, canonical):
        letters = letters_at(snapshot, one)
        assert set(one.specifier) == set(letters)
        assert {"changed": "~", "removed": "-", "added": "+", "set": "+"}[one.deed] not in letters


@given(classes())
def test_a_class_that_starts_from_a_template_keeps_to_it(template):
    assert check_template(template, new_class(template, "x", "joe"), canonical).get("default", ()) == ()
    assert check_template(fresh_template(), template, canonical) == {}


@pytest.mark.slow
@at_most(40)
@given(classes(), st.data())
def test_what_a_class_allows_its_template_allows(template, data):
    """A class that keeps to the template cannot open what the template shuts. One thing can be written that it does not see:
    a list that jobs may add to, from which the class took an entry that may go, may get that entry with another value.
    """
    job_class = data.draw(classes(start=template))
    snapshot, forced = job_class.snapshot("default"), template.snapshot("default")
    assume("default" not in check_template(template, job_class, canonical))
    name = data.draw(st.sampled_from(ATTRIBUTES))
    job = {**snapshot.values, **data.draw(jobs(name))}
    assume(not check(snapshot, job, canonical))
    for one in check(forced, job, canonical):
        kept = {canonical(name, key) for key in entries_of(name, snapshot.values.get(name))}
        assert (one.deed, canonical(name, one.key) in kept) == (Deed.CHANGED, False), one


def test_a_class_without_an_attribute_leaves_it_free():
    assert class_of().value("umask", "default") == ClassScalar(text=None, grants="+")
    assert check(snapshot_of(), {"umask": "7", "nonsense": "1"}, canonical) == ()
