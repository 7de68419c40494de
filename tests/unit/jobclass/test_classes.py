"""All classes together: what a change of some makes of the others, and texts with several classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import at_most
from tests.kits.jobclass_kit import class_of, classes

from lodesman.base.errors import (
    Conflict,
    Forbidden,
    InvalidConfig,
    InvalidRequest,
    NotFound,
    SyntaxFault,
    TooLarge,
)
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import ClassRefusal, check_template, classes_of, fresh_template, write_class
from lodesman.languages.jobclass.editing import Author, edit_classes, error_of, one_error
from lodesman.languages.jobclass.language import split_classes
from lodesman.languages.jobclass.rights import RefusalReason
from lodesman.wire.job_classes import JobClassSection

MANAGER = Author(name="root", is_manager=True)
EMPTY = classes_of([], Vocabulary())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", [(1, "")]),
        ("N S\n", [(1, "")]),
        ("jcname a\nN S\n", [(1, "a")]),
        ("# one\nN S\njcname a\n\njcname  b c\n# end\njcname d", [(1, "a"), (5, "b c"), (7, "d")]),
        ("jcname a\nN \\\njcname b\njcname c\n", [(1, "a"), (4, "c")]),
        ("jcname a\n# jcname b\nunjcname x\n", [(1, "a")]),
        ("jcname\n\\\njcname \\\n  b\n", [(1, ""), (2, "b")]),
        ("\ufeffjcname a\r\njcname b\r\n", [(1, "a"), (2, "b")]),
    ],
)
def test_a_text_is_split_at_the_names_of_its_classes(text, wanted):
    assert [(piece.line, piece.name) for piece in split_classes(text)] == wanted


@given(st.text("jcname ab\\\n#", max_size=80))
def test_the_pieces_are_the_whole_text(text):
    assert "\n".join(piece.text for piece in split_classes(text)) == text


@pytest.mark.slow
@at_most(30)
@given(st.lists(classes(), max_size=4), classes())
def test_what_is_in_conflict_is_what_goes_against_the_template(found, template):
    found = [replace(one, name=f"c{n}") for n, one in enumerate(found)]
    template = replace(template, name="template")
    before = classes_of(found, Vocabulary())
    after = before.with_changes({"template": template})
    assert after == replace(classes_of([template, *found], Vocabulary()), version=1)
    for one in found:
        wrong = check_template(template, one, after.canonical)
        assert after.by_name[one.name].conflicts == wrong.keys()
        assert after.conflicts_of(one.name).keys() == wrong.keys()
    back = after.with_changes({"template": before.template})
    assert back.by_name == before.by_name
    assert after.template.conflicts == frozenset()


@pytest.mark.slow
@at_most(30)
@given(st.lists(classes(), min_size=1, max_size=3))
def test_what_is_written_is_read_as_the_same_classes(found):
    found = [replace(one, name=f"c{n}", owner=("ann",)) for n, one in enumerate(found)]
    edit = edit_classes(EMPTY, "".join(map(write_class, found)), Author(name="ann"), "add")
    assert edit.faults == ()
    assert list(edit.changed.values()) == [replace(one, revision=1) for one in found]
    assert edit.after.by_name == {"template": fresh_template(), **edit.changed}


def test_a_change_leaves_what_it_is_not_about():
    before = classes_of([class_of("a"), class_of("b", N="S")], Vocabulary())
    after = before.with_changes({"a": None, "c": class_of("c")})
    assert after.by_name.keys() == {"b", "c", "template"}
    assert after.by_name["b"] is before.by_name["b"]
    assert (before.version, after.version) == (0, 1)
    assert before.by_name.keys() == {"a", "b", "template"}


def test_a_new_configuration_judges_by_its_resources():
    template = class_of("template", l_hard="vf=1G")
    before = classes_of([template, class_of("a", l_hard="virtual_free=1G")], Vocabulary())
    assert before.by_name["a"].conflicts == frozenset()
    after = before.under(Vocabulary(complexes=Complexes(())), JobClassSection("a", enforce_jc=True))
    assert after.by_name["a"].conflicts == {"default"}
    assert (after.default_jc, after.enforce_jc, after.version) == ("a", True, 1)
    assert after.under(before.vocabulary, JobClassSection()).by_name == before.by_name


def test_keys_of_resources_have_second_names_and_no_others():
    assert EMPTY.canonical("l_hard", "vf") == EMPTY.canonical("l_soft", "virtual_free") == "virtual_free"
    assert EMPTY.canonical("l_hard", "of_ours") == "of_ours"
    assert EMPTY.canonical("v", "vf") == "vf"


@pytest.mark.parametrize(
    ("wanted", "variants"),
    [
        ("a", {"default", "v"}),
        ("a.v", {"v"}),
        ("a.default", {"default"}),
        ("a.x", None),
        ("b", None),
        ("a.", None),
    ],
)
def test_what_a_name_means(wanted, variants):
    found = classes_of([class_of("a", variants="default,v")], Vocabulary()).find(wanted)
    if variants is None:
        assert isinstance(found, ClassRefusal)
    else:
        assert (found[0].name, found[1]) == ("a", variants)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("not-owner", Forbidden), ("not-allowed", Forbidden), ("unknown", NotFound), ("name", InvalidRequest),
     ("no-class", InvalidRequest), ("exists", Conflict), ("disabled", Conflict), ("conflict", Conflict),
     ("referenced", Conflict), ("template", Conflict)],
)  # fmt: skip
def test_refusals_as_errors(reason, kind):
    error = error_of(ClassRefusal(reason=RefusalReason(reason), sentence="No."), job_class="a")
    assert (type(error), error.message, error.data) == (kind, "No.", {"reason": reason, "job_class": "a"})
    error = error_of(ClassRefusal(reason=RefusalReason(reason), sentence="No."), line=3)
    assert (error.message, error.data["line"]) == ("line 3, column 1: No.", 3)


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        ([Conflict("a.")], Conflict),
        ([Forbidden("a."), Forbidden("b.")], Forbidden),
        ([Forbidden("a."), Conflict("b.")], InvalidConfig),
        ([SyntaxFault("a.", line=1, column=1)], InvalidConfig),
    ],
)
def test_one_error_says_all_faults(faults, kind):
    error = one_error(faults)
    assert type(error) is kind
    assert error.data["faults"] == [fault.as_dict() for fault in faults]
    assert str(faults[0]) in error.message
    assert error.hint == "Nothing was changed."


def test_managers_own_what_they_add_unless_the_text_says_otherwise():
    edit = edit_classes(EMPTY, "jcname a\njcname b\nowner NONE\n", MANAGER, "add")
    assert [one.owner for one in edit.changed.values()] == [("root",), ()]


@pytest.mark.slow
def test_no_more_than_a_hundred_faults_and_notices():
    text = "".join(f"jcname c{n}\nodd x\nuser_lists gone\n" for n in range(120))
    assert len(edit_classes(EMPTY, text, MANAGER, "add").notices) == 100
    assert len(edit_classes(EMPTY, text.replace("odd x", "N {x}S"), MANAGER, "add").faults) == 100


def test_a_fault_names_the_variants_that_have_it_and_not_more_than_three():
    before = classes_of([class_of("template", N="S", h="n")], Vocabulary())
    names = "default,a,b,c,d"
    text = f"jcname x\nvariant_list {names}\nN T,[default=S]\nh y\n"
    edit = edit_classes(before, text, MANAGER, "add")
    assert [fault.message.partition(": ")[2] for fault in edit.faults] == [
        "The template does not allow this of x.a, x.b, x.c and 1 more: N may not be changed.",
        "The template does not allow this of x: h may not be changed.",
    ]
    assert [fault.data["variants"] for fault in edit.faults] == [["a", "b", "c", "d"], names.split(",")]
    assert (edit.changed, edit.after) == ({}, before)


def test_what_is_stored_can_be_read_again_whoever_added_it():
    text = "jcname a\nowner bob\nodd x\n"
    room = (1 << 20) - len(edit_classes(EMPTY, text, Author(name="bob"), "add").texts["a"])
    text = text.replace("x", "x" * room)
    assert edit_classes(EMPTY, text, Author(name="bob"), "add").faults == ()
    with pytest.raises(TooLarge):
        edit_classes(EMPTY, text, Author(name="ann" * 20), "add")
    edit = edit_classes(EMPTY, "jcname a\nowner bob\njcname b\n", Author(name="NONE"), "add")
    assert [one.owner for one in edit.changed.values()] == [("bob",), ()]
