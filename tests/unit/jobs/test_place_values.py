"""Names of sites and CEs: administrators choose them, commas and other scripts included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import is_plain_name, read_description, read_job, values, write_description
from lodesman.languages.jobs.values import Mistake

PLACES = values.names("ANY", of_places=True)
ODD = "S/ one, é"
FIELDS = {"Site": "sites", "BannedSite": "banned_sites", "GridCE": "grid_ces"}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ([ODD], (ODD,)),
        ((ODD, "B"), (ODD, "B")),
        (ODD, ("S/ one", "é")),
        ("A, B,", ("A", "B")),
        ("é", ("é",)),
        (["", "A"], ("A",)),
        ("", ()),
        ("any", ()),
        (["A", "Any"], ()),
        (["x" * 255], ("x" * 255,)),
    ],
)
def test_items_of_a_list_keep_their_commas_and_a_text_is_parted(value, names):
    assert PLACES(value) == names


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1], "is a number, not text"),
        (5, "is a number, not a list of texts"),
        (["é\n"], "not printable"),
        (["\u202eX"], "not printable"),
        (["é" * 256], "has 256 characters"),
        (["A"] * 10_001, "has 10001 items"),
        (None, "is null"),
    ],
)
def test_what_names_no_place(value, words):
    with pytest.raises(Mistake) as caught:
        PLACES(value)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_other_names_stay_plain():
    for attribute in ("Tag", "Platform", "SubmitPool"):
        for value in (["A,B"], "é"):
            with pytest.raises(InvalidJob, match=attribute):
                read_job({"Executable": "x", attribute: value})
    with pytest.raises(InvalidJob, match="ASCII"):
        read_job({"Executable": "x", "Requirements": {"é": 1}})
    assert (is_plain_name("a b"), is_plain_name("a,b"), is_plain_name("é")) == (True, False, False)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("jdl", '[ Executable = "x"; Site = {"S/ one, é", "B"}; ]'),
        ("cfg", 'Executable = x\nSite = "S/ one, é", B\n'),
        ("json", '{"Executable": "x", "Site": ["S/ one, é", "B"]}'),
    ],
)
def test_each_language_can_name_them(form, text):
    parsed = read_description(text, form=form)
    assert read_job(parsed.record, parsed.positions).spec.sites == (ODD, "B")


texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=8)
written = st.lists(
    texts.filter(str.isprintable).filter(lambda text: text.upper() != "ANY"), min_size=1, max_size=3
)


@given(written, st.sampled_from(["jdl", "cfg", "json"]), st.sampled_from(sorted(FIELDS)))
def test_a_list_is_the_same_in_every_language(names, form, attribute):
    text = write_description({"Executable": "x", attribute: names}, form)
    spec = read_job(read_description(text, form=form).record).spec
    assert getattr(spec, FIELDS[attribute]) == tuple(names)
