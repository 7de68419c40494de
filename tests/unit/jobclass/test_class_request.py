"""What a request makes of the values of a class, and what each verb needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.kits.jobclass_kit import WORDS, canonical, classes

from lodesman.languages.jobclass import ClearAttribute, EditEntry, Give, check, entries_of, merge
from lodesman.languages.jobclass.request import EntryVerb
from lodesman.languages.jobclass.specifiers import ClassScalar

ADD, MODIFY, CLEAR = EntryVerb


def give(attribute, value):
    return Give(attribute=attribute, value=value)


def edit(verb, attribute, key, value=None):
    return EditEntry(verb=verb, attribute=attribute, key=key, value=value)


CLASS = {"N": "S", "l_hard": {"slots": "2", "a": "1"}, "CMDARG": ("x", "y")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], CLASS),
        ([give("N", "X")], {**CLASS, "N": "X"}),
        ([give("N", "")], {"l_hard": CLASS["l_hard"], "CMDARG": CLASS["CMDARG"]}),
        ([give("P", "p"), give("P", "q")], {**CLASS, "P": "q"}),
        ([give("l_hard", {"s": "3", "b": None})], {**CLASS, "l_hard": {"slots": "3", "a": "1", "b": None}}),
        ([give("l_hard", "a=2,c")], {**CLASS, "l_hard": {"slots": "2", "a": "2", "c": None}}),
        ([give("q_hard", {"all.q": None})], {**CLASS, "q_hard": {"all.q": None}}),
        ([give("CMDARG", ("z",))], {**CLASS, "CMDARG": ("z", "y")}),
        ([give("CMDARG", ("z", "y", "w"))], {**CLASS, "CMDARG": ("z", "y", "w")}),
        ([edit(ADD, "l_hard", "b", "1")], {**CLASS, "l_hard": {"slots": "2", "a": "1", "b": "1"}}),
        ([edit(ADD, "l_hard", "s", "9")], {**CLASS, "l_hard": {"slots": "9", "a": "1"}}),
        ([edit(MODIFY, "l_hard", "s", "9")], {**CLASS, "l_hard": {"slots": "9", "a": "1"}}),
        ([edit(CLEAR, "l_hard", "s")], {**CLASS, "l_hard": {"a": "1"}}),
        ([edit(CLEAR, "l_hard", "s"), edit(CLEAR, "l_hard", "a")], {"N": "S", "CMDARG": ("x", "y")}),
        ([edit(ADD, "CMDARG", "2", "z")], {**CLASS, "CMDARG": ("x", "y", "z")}),
        ([edit(MODIFY, "CMDARG", "0", "z")], {**CLASS, "CMDARG": ("z", "y")}),
        ([edit(CLEAR, "CMDARG", "0")], {**CLASS, "CMDARG": ("y",)}),
        ([ClearAttribute(attribute="l_hard")], {"N": "S", "CMDARG": ("x", "y")}),
        ([ClearAttribute(attribute="P")], CLASS),
        (
            [ClearAttribute(attribute="l_hard"), edit(ADD, "l_hard", "b", "1")],
            {**CLASS, "l_hard": {"b": "1"}},
        ),
    ],
)
def test_what_comes_of_a_request(changes, expected):
    merged = merge(CLASS, changes, canonical)
    assert merged.faults == ()
    assert merged.values == expected
    assert list(merged.values.get("l_hard", ())) == list(expected.get("l_hard", ()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(ADD, "N", "a", "1"), "-adds N a: N is no list."),
        (edit(ADD, "nonsense", "a", "1"), "-adds nonsense a: nonsense is unknown."),
        (edit(MODIFY, "l_hard", "b", "1"), "-mods l_hard b: l_hard has no such entry."),
        (edit(CLEAR, "l_hard", "b"), "-clears l_hard b: l_hard has no such entry."),
        (edit(CLEAR, "q_hard", "b"), "-clears q_hard b: q_hard has no such entry."),
        (edit(ADD, "CMDARG", "3", "z"), "-adds CMDARG 3: CMDARG goes on with position 2."),
        (edit(MODIFY, "CMDARG", "x", "z"), "-mods CMDARG x: CMDARG has no such entry."),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_is_said(change, message):
    merged = merge(CLASS, [change, give("P", "p"), change], canonical)
    assert merged.values == {**CLASS, "P": "p"}
    assert [fault.message for fault in merged.faults] == [message] * 2
    assert merged.faults[0].data == {"attribute": change.attribute, "key": change.key}


def test_a_request_without_a_class():
    changes = [give("l_hard", {"a": "1"}), edit(ADD, "l_hard", "b", "2"), edit(CLEAR, "l_hard", "a")]
    assert merge({}, changes, canonical).values == {"l_hard": {"b": "2"}}


def test_the_values_of_the_class_are_not_touched():
    values = {"l_hard": {"a": "1"}}
    merge(values, [give("l_hard", {"a": "2"}), edit(CLEAR, "l_hard", "a")], canonical)
    assert values == {"l_hard": {"a": "1"}}


# --- which verb needs what ------------------------------------------------------------------------


def allowed(snapshot, change):
    merged = merge(snapshot.values, [change], canonical)
    assert merged.faults == ()
    return check(snapshot, merged.values, canonical) == ()


LISTS = ("l_hard", "q_hard", "CMDARG")


@given(classes(), st.sampled_from(LISTS), WORDS, st.sampled_from(["1", "2"]))
def test_verbs_need_what_the_table_says(job_class, name, key, value):
    """-adds: `+`; -mods: `~`; -clears: `-`; -clearp: `-` everywhere; a switch: as -adds or -mods."""
    snapshot = job_class.snapshot("default")
    held = job_class.value(name, "default")
    entries = held.entries or ()
    new = str(len(entries)) if name == "CMDARG" else key
    if all(canonical(name, entry.key) != canonical(name, new) for entry in entries):
        assert allowed(snapshot, edit(ADD, name, new, value)) == ("+" in held.grants)
        if name != "CMDARG":
            assert allowed(snapshot, give(name, {new: value})) == ("+" in held.grants)
    for entry in entries:
        letters = entry.grants + held.grants
        if entry.value != value:
            assert allowed(snapshot, edit(MODIFY, name, entry.key, value)) == ("~" in letters)
            if name != "CMDARG":
                assert allowed(snapshot, give(name, {entry.key: value})) == ("~" in letters)
        # Without an argument all behind it move: they are changed.
        if name != "CMDARG" or entry is entries[-1]:
            assert allowed(snapshot, edit(CLEAR, name, entry.key)) == ("-" in letters)
    everywhere = all("-" in entry.grants + held.grants for entry in entries)
    assert allowed(snapshot, ClearAttribute(attribute=name)) == everywhere


@pytest.mark.slow
@at_most(30)
@given(classes(), st.sampled_from(["N", "pe_range", "umask"]))
def test_scalars_need_what_the_table_says(job_class, name):
    snapshot = job_class.snapshot("default")
    held = job_class.value(name, "default")
    assert isinstance(held, ClassScalar)
    needed = "~" in held.grants or (held.text is None and "+" in held.grants)
    assert allowed(snapshot, give(name, "another value")) == needed
    assert allowed(snapshot, ClearAttribute(attribute=name)) == (held.text is None or "-" in held.grants)


@pytest.mark.slow
@at_most(30)
@given(classes())
def test_entries_keep_their_order(job_class):
    values = job_class.values("default")
    merged = merge(values, [give("l_hard", {"zz": "1"})], canonical).values
    assert list(merged["l_hard"]) == [*entries_of("l_hard", values.get("l_hard")), "zz"]
