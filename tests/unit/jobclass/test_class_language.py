"""The text of a job class: read without loss, every fault at once with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.jobclass_kit import canonical, class_of, classes, read

from lodesman.base.errors import InvalidRequest, TooLarge
from lodesman.languages.jobclass import fresh_template, read_class, snapshot_from_json, write_class
from lodesman.languages.jobclass.attributes import (
    BOOLEAN_DEFAULTS,
    FIRST_ATTRIBUTES,
    KINDS,
    AttributeKind,
    read_list,
)
from lodesman.languages.jobclass.language import _MAX_BYTES, _MAX_FAULTS

SLEEPER = r"""# Sleeps.
jcname          sleeper
variant_list    default, short,\
                long
owner           joe,ann
user_lists      staff,%sue
xuser_lists     NONE

CMDNAME         /bin/sleep
CMDARG          {~}60, \
                [short=5], \
                [long=3600]
   # another comment
N               {~}My Sleep,[short=Short]
l_hard          {+}{~}a=1,{-}b,c=x[1,2]
pe_range        1-4,8,[long=2,4]
q_hard          all.q@@linux
o               NONE
v               A=,B
M               UNSPECIFIED
color           blue # green
"""


def faults_of(text, **more):
    """Line, attribute and text of each fault."""
    found = read_class(text, canonical=canonical, **more)
    assert (found.job_class is None) == bool(found.faults)
    return [(fault.data["line"], fault.data["attribute"], fault.message) for fault in found.faults]


def test_a_whole_class():
    sleeper = read(SLEEPER)
    assert sleeper.name == "sleeper"
    assert sleeper.variants == ("default", "short", "long")
    assert (sleeper.owner, sleeper.user_lists, sleeper.xuser_lists) == (("joe", "ann"), ("staff", "%sue"), ())
    assert sleeper.values("default") == {
        "CMDNAME": "/bin/sleep",
        "CMDARG": ("60",),
        "N": "My Sleep",
        "l_hard": {"a": "1", "b": None, "c": "x[1,2]"},
        "pe_range": "1-4,8",
        "q_hard": {"all.q@@linux": None},
        "v": {"A": "", "B": None},
    }
    assert sleeper.values("long")["pe_range"] == "2,4"
    assert sleeper.values("long")["CMDARG"] == ("3600",)
    assert set(sleeper.attributes) == set(FIRST_ATTRIBUTES)


def test_what_is_unknown_is_kept_and_named():
    found = read_class(SLEEPER, canonical=canonical)
    (notice,) = found.notices
    assert (notice.attribute, notice.line) == ("color", 21)
    assert "kept" in notice.message
    assert found.job_class.unknown == {"color": "blue # green"}
    assert "color           blue # green\n" in write_class(found.job_class)


def test_the_canonical_text():
    text = write_class(read(SLEEPER))
    assert text.startswith(
        "jcname          sleeper\nvariant_list    default,short,long\nowner           joe,ann\n"
        "user_lists      staff,%sue\nxuser_lists     NONE\nA               {+}UNSPECIFIED\n"
    )
    assert "CMDARG          {~}60,[short=5],[long=3600]\n" in text
    assert "l_hard          {+}{~}a=1,{-}b,c=x[1,2]\n" in text
    assert "o               NONE\n" in text
    assert "v               A=,B\n" in text
    assert write_class(read(text)) == text


def test_a_fresh_template_has_the_attributes_of_version_8_1():
    text = write_class(fresh_template())
    lines = [line.split() for line in text.splitlines()]
    assert lines[:5] == [
        ["jcname", "template"],
        *([name, "NONE"] for name in ("variant_list", "owner", "user_lists", "xuser_lists")),
    ]
    assert len(lines) == 5 + 43
    assert {value for _, value in lines[5:]} == {"{+}UNSPECIFIED"}
    assert read(text) == fresh_template()


def test_kinds():
    keyed = {name for name, kind in KINDS.items() if kind is AttributeKind.KEYED}
    assert keyed == set(
        "ac e hold_jid hold_jid_ad i l_hard l_soft M masterl masterq o q_hard q_soft S v".split()
    )
    assert [name for name, kind in KINDS.items() if kind is AttributeKind.POSITIONAL] == ["CMDARG"]
    assert BOOLEAN_DEFAULTS.keys() <= KINDS.keys()


@given(classes())
def test_what_is_written_reads_as_an_equal_class(job_class):
    text = write_class(job_class)
    again = read(text)
    assert again == job_class
    assert write_class(again) == text


@given(classes(), st.sampled_from(["default", "large", "v-1"]))
def test_a_snapshot_is_stored_without_loss(job_class, variant):
    snapshot = job_class.snapshot(variant)
    stored = snapshot.to_json()
    assert snapshot_from_json(stored) == snapshot
    assert snapshot_from_json(stored).to_json() == stored
    assert len(fresh_template().snapshot("default").to_json()) < 80


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"class":"a"}',
        '{"attributes":{"N":"{x}"},"class":"a","revision":1,"variant":"v"}',
        "[" * 100_000,
    ],
)
def test_a_snapshot_that_is_none_is_refused(text):
    with pytest.raises(InvalidRequest, match="stored job class"):
        snapshot_from_json(text)


def test_a_specifier_of_a_list_without_plus_is_that_of_its_entries():
    """In a bracket it can be written; it means the same as one at each entry, and is written so."""
    job_class = class_of(variants="default,v", l_hard="UNSPECIFIED,[{~}v={-}a=1,b=2]")
    assert "UNSPECIFIED,[v={-~}a=1,{~}b=2]" in write_class(job_class)
    empty = class_of(
        variants="default,v", l_hard="UNSPECIFIED,[{~}v=UNSPECIFIED]", q_hard="UNSPECIFIED,[{-}v=NONE]"
    )
    assert "UNSPECIFIED,[v=UNSPECIFIED]" in write_class(empty)
    assert "UNSPECIFIED,[v=NONE]" in write_class(empty)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("N", "a value is missing"),
        ("N {~}", "a value is missing"),
        ("N [short=S]", "a value is missing"),
        ("N {}S", "{} is no access specifier"),
        ("N {~ S", "a '{' is never closed"),
        ("N {+~}S", "for UNSPECIFIED only"),
        ("N S,[short=T", "a '[' is never closed"),
        ("N S],[short=T]", "a ']' closes nothing"),
        ("N S,[short=T]x", "goes on behind its bracket"),
        ("N S,[short=T][long=U]", "a ']' closes nothing"),
        ("N S,[short=T],U", "stands behind the brackets"),
        ("N S,[short=T],[short=U]", "two brackets"),
        ("N S,[=T]", "not in variant_list"),
        ("N S,[short={~}T]", "two access specifiers"),
        ("N S,[short=[T]]", "inside two brackets"),
        ("N S\\ ,[short=T]", "ends with a backslash"),
        ("l_hard a=1,,b=2", "a value is missing"),
        ("l_hard =1", "no key"),
        ("l_hard a=1,a=2", "a is given twice"),
        ("l_hard s=1,slots=2", "s and slots are two names of one key"),
        ("l_hard a=1,[short=s=1,slots=2]", "s and slots are two names of one key"),
        ("l_hard a=1,NONE", "NONE stands alone"),
        ("l_hard {~}UNSPECIFIED", "UNSPECIFIED stands alone"),
        ("CMDARG a,{+}b", "+ is for the whole list"),
        ("owner joe,joe", "given twice"),
        ("owner joe ann", "without blanks"),
        ("owner joe,NONE", "NONE stands alone"),
        ("user_lists a,,b", "names stand between commas"),
        ("N a\0b", "U+0000"),
        ("3x y", "no name of an attribute"),
        ("jcname again", "given twice, first at line 1"),
    ],
)
def test_a_line_that_is_refused(line, words):
    ((number, attribute, message),) = faults_of(f"jcname app\nvariant_list default,short,long\n{line}\n")
    assert (number, attribute) == (3, line.split()[0])
    assert words in message


def test_all_faults_at_once_each_in_its_line():
    text = "jcname a.b\nvariant_list c,d\nN {x}S\nl_hard a=1,{+}b=2,\\\n  {y}c,[z=1]\n\nP p\nP q\n"
    assert [(line, name) for line, name, _ in faults_of(text)] == [
        (1, "jcname"),
        (2, "variant_list"),
        (3, "N"),
        *[(4, "l_hard")] * 3,
        (8, "P"),
    ]


def test_a_class_without_a_name():
    assert [(line, name) for line, name, _ in faults_of("N S")] == [(1, "jcname")]


@pytest.mark.slow
def test_faults_are_limited():
    assert len(faults_of("jcname a\n" + "x y\n" * 5_000)) == _MAX_FAULTS


def test_the_size_is_limited():
    with pytest.raises(TooLarge) as caught:
        read_class("#" * (_MAX_BYTES + 1), canonical=canonical, source="big.jc")
    assert caught.value.data == {"limit": _MAX_BYTES, "size": _MAX_BYTES + 1, "source": "big.jc"}


@pytest.mark.parametrize(
    "text",
    [
        "jcname a\\",
        "jcname \\\na",
        "jcname\\\n\\\n  a\n",
        "\ufeffjcname\ta\r\n",
        "  jcname a",
        "jcname a\\ \n",
    ],
)
def test_lines_are_joined(text):
    assert read(text).name == "a"


def test_a_blank_stands_for_the_end_of_a_joined_line():
    assert read("jcname a\nN one\\\n   two").values("default") == {"N": "one two"}


def test_what_a_text_does_not_have_is_taken_from_the_template():
    template = read(
        "jcname template\nvariant_list default,v\nuser_lists staff\nN T,[v=V],[default=D]\ncolor red\numask 7"
    )
    job_class = read("jcname a\nvariant_list default\nP p\n", template=template)
    assert (job_class.user_lists, job_class.unknown) == (("staff",), {"color": "red"})
    assert job_class.values("default") == {"N": "D", "P": "p", "umask": "7"}
    assert "[v=" not in write_class(job_class)


def test_lists_behind_switches():
    assert read_list(AttributeKind.KEYED, "a=1, b ,c=x[1,2],") == {"a": "1", "b": None, "c": "x[1,2]"}
    assert read_list(AttributeKind.POSITIONAL, "a=1, b") == ("a=1", "b")


@given(st.text("jcname vl_hrdNS=,[]{}+-~\\\n#UNSPECIFIED", max_size=80))
def test_what_can_be_read_can_be_written(value):
    found = read_class(f"jcname a\nvariant_list default,v\nN {value}\nl_hard {value}", canonical=canonical)
    if found.job_class:
        assert read(write_class(found.job_class)) == found.job_class
    for fault in found.faults:
        assert fault.data["line"] >= 1
