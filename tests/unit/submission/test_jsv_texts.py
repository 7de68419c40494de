"""A job as texts before a script, and what the script made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.unit.submission.test_native import COMPLEXES, NATIVE

from lodesman.decide.submission.jsv_texts import JsvTexts, texts_of, view_of
from lodesman.decide.submission.native_texts import canonical
from lodesman.decide.submission.resolution import JsvView
from lodesman.server.jsv.parameters import is_known

VIEW = JsvView(
    values={
        "CMDNAME": "x", "CMDARG": ("1", "a b"), "v": {"A": "1"}, "N": "n", "pe_range": "4", "t": "1-9:2",
        "l_hard": {"h_rt": "60", "gpu": None}, "ac": {"list": "1,2"}, "o": {":a:b": None},
    },
    job_class="app.v1",
)  # fmt: skip


def test_what_a_script_sees():
    assert texts_of(VIEW) == JsvTexts(
        command="x",
        arguments=("1", "a b"),
        parameters={
            "jc": "app.v1", "N": "n", "pe_min": "4", "pe_max": "4", "t_min": "1", "t_max": "9", "t_step": "2",
            "l_hard": "h_rt=60,gpu", "ac": "list=1,2", "o": ":a:b",
        },
        environment={"A": "1"},
    )  # fmt: skip
    assert all(is_known(name) for name in texts_of(VIEW).parameters)


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"N": "m"}, "N", "m"),
        ({"l_hard": "h_rt=90,b=1"}, "l_hard", {"h_rt": "90", "b": "1"}),
        ({"pe_min": "2", "pe_max": "8"}, "pe_range", "2-8"),
        ({"pe_min": "8"}, "pe_range", "8-4"),
        ({"pe_min": None, "pe_max": None}, "pe_range", ""),
        ({"t_max": "11"}, "t", "1-11:2"),
        ({"t_min": "3", "t_max": None, "t_step": None}, "t", "3-3:1"),
        ({"ac": "list=1"}, "ac", {"list": "1"}),
    ],
)
def test_what_a_script_changes(changes, name, value):
    sent = texts_of(VIEW)
    left = {key: text for key, text in {**sent.parameters, **changes}.items() if text is not None}
    found = view_of(VIEW, sent._replace(parameters=left))
    assert found.values[name] == value
    assert {**found.values, name: None} == {**VIEW.values, name: None}


def test_what_a_script_removes_and_adds():
    sent = texts_of(VIEW)
    found = view_of(VIEW, JsvTexts("y", (), {"P": "p"}, {}))
    kept = {"CMDNAME": "y", "CMDARG": (), "v": {}, "P": "p", "pe_range": "", "t": ""}
    assert found == JsvView(values=kept, job_class="")
    assert canonical(found.values, COMPLEXES)[0] == {"CMDNAME": "y", "P": "p"}
    assert view_of(VIEW, sent._replace(parameters={**sent.parameters, "jc": "b"})).job_class == "b"


def test_a_list_that_cannot_be_read():
    sent = texts_of(VIEW)
    found = view_of(VIEW, sent._replace(parameters={"l_hard": "a=[1"}))
    assert found.rejected == "JSV sets l_hard to a value that cannot be read: a '[' is never closed"


@given(NATIVE)
def test_a_script_that_changes_nothing_leaves_the_job(native):
    view = JsvView(values=canonical(native, COMPLEXES)[0], job_class="app")
    assert view_of(view, texts_of(view)) == view
