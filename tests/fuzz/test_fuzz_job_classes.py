"""Random and hostile texts of job classes and of jc_list: a value, or faults that can be printed, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kits.jobclass_kit import canonical, classes

from lodesman.base.errors import TooLarge
from lodesman.languages.gridengine.jclist import read_jc_list
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import check, classes_of, read_class, snapshot_from_json, write_class
from lodesman.languages.jobclass.editing import Author, edit_classes, one_error

SECONDS = 10.0


def survive(text):
    started = time.process_time()
    try:
        found = read_class(text, canonical=canonical, source="x.jc")
    except TooLarge:
        return
    lines = text.count("\n") + 1
    for fault in found.faults:
        str(fault).encode()
        assert len(str(fault)) < 1_000
        assert 1 <= fault.data["line"] <= lines
        assert fault.data["source"] == "x.jc"
    for notice in found.notices:
        assert len(notice.message.encode()) < 1_000
    assert (found.job_class is None) == bool(found.faults)
    if found.job_class:
        again = read_class(write_class(found.job_class), canonical=canonical)
        assert again.job_class == found.job_class
        for variant in found.job_class.variants[:3]:
            snapshot = found.job_class.snapshot(variant)
            assert snapshot_from_json(snapshot.to_json()) == snapshot
            assert check(snapshot, snapshot.values, canonical) == ()
    assert time.process_time() - started < SECONDS


TOKENS = st.sampled_from(
    ["{", "}", "{+}", "{~}", "{-~}", "{+~}", "[", "]", ",", "=", "\\\n", "\n", " ", "\t", "#", "UNSPECIFIED", "NONE", "a",
     "b=1", "v=", "[v=", "default", "N ", "\nN ", "\nl_hard ", "\nCMDARG ", "\nvariant_list default,v", "\nowner ", "\nx ",
     "\0", "\ud800", "\ufeff", "é", "\u2028", "\x85", "\r", "\\", "\u3000"]
)  # fmt: skip


@given(st.text(max_size=200))
def test_any_text_of_a_class(text):
    survive(text)
    survive(f"jcname a\nN {text}")


PARTS = st.sampled_from(
    ["\njcname a\n", "jcname", "\njcname b", "\njcname template\n", "\njcname old\n", "user_lists x\n"]
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(TOKENS | PARTS, max_size=40).map("".join), st.sampled_from(["add", "change", "either"]))
def test_any_text_of_several_classes(text, how):
    old = read_class("jcname old\nowner ann\n", canonical=canonical).job_class
    before = classes_of([old], Vocabulary())
    found = edit_classes(before, text, Author(name="ann"), how)
    lines = text.count("\n") + 1
    for fault in found.faults:
        str(fault).encode()
        assert len(str(fault)) < 1_000
        assert 1 <= fault.data["line"] <= lines
        assert type(one_error(found.faults).as_dict()["message"]) is str
    assert bool(found.faults) != bool(found.changed)
    assert found.texts.keys() == found.changed.keys()
    for name, one in found.changed.items():
        again = read_class(found.texts[name], canonical=canonical).job_class
        assert replace(again, revision=one.revision, conflicts=one.conflicts) == one
        assert found.after.by_name[name] == one


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(TOKENS, max_size=40).map("".join))
def test_any_row_of_tokens_of_a_class(text):
    survive(f"jcname a\nvariant_list default,v\n{text}")


@given(classes().map(write_class), st.data())
def test_damaged_classes(text, data):
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(TOKENS | st.just("")) + text[stop:]
    survive(text)


@example("ANY_JC,\ud800")
@given(
    st.text(max_size=60)
    | st.lists(TOKENS | st.sampled_from(["ANY_JC", "NO_JC", "app.v1", "[@g="]), max_size=15).map("".join)
)
def test_any_text_of_jc_list(text):
    found = read_jc_list(text)
    assert (found.lists is None) == bool(found.faults)
    if found.lists:
        assert read_jc_list(str(found.lists)).lists == found.lists
    for sentence in (*found.faults, *found.warnings):
        assert len(sentence.encode()) < 1_000


HOSTILE = {
    "brackets": "jcname a\nN " + "[" * 1_000_000,
    "closed brackets": "jcname a\nN x" + ",[v=x]" * 150_000,
    "variants": "jcname a\nvariant_list default," + ",".join(f"v{at}" for at in range(50_000))
    + "\nN x" + "".join(f",[v{at}=x]" for at in range(50_000)),
    "entries": "jcname a\nl_hard " + ",".join(f"a{at}=1" for at in range(100_000)),
    "same entries": "jcname a\nl_hard " + "a=1," * 250_000,
    "braces": "jcname a\nl_hard " + "{" * 1_000_000,
    "specifiers": "jcname a\nl_hard " + "{~}" * 300_000,
    "commas": "jcname a\nl_hard " + "," * 1_000_000,
    "joined lines": "jcname a\nN x" + "\\\n" * 500_000,
    "lines": "jcname a\n" + "".join(f"x{at} 1\n" for at in range(90_000)),
    "comments": "#\n" * 500_000,
    "blanks": " " * 1_000_000,
    "name": "jcname " + "a" * 1_000_000,
    "odd name": "jcname a" + "." * 1_000_000,
    "owners": "jcname a\nowner " + "a," * 500_000,
    "too large": "#" * 2_000_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_classes_are_answered_in_bounded_time(name):
    survive(HOSTILE[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["a," * 300_000, "[" * 500_000, "a" + ",[h=a]" * 90_000, ",".join(f"a{at}" for at in range(90_000)),
     "ANY_JC," + ",".join(f"a{at}.v" for at in range(90_000)), "a" * 900_000, "NONE," * 100_000],
)  # fmt: skip
def test_hostile_jc_lists_are_answered_in_bounded_time(text):
    started = time.process_time()
    read_jc_list(text)
    assert time.process_time() - started < SECONDS
