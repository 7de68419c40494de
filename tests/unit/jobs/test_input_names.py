"""The names of the input files of all members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import Template, input_names, list_programs, read_job


def described(*names, **more):
    return read_job({"Executable": "x", "InputSandbox": list(names), **more})


def names_of(description, runs=None):
    return input_names(description.spec, description.members, runs)


@pytest.mark.parametrize(
    ("names", "more", "found"),
    [
        (("a", "b"), {}, ("a", "b")),
        (("100%%", "%n"), {}, ("100%%", "%n")),  # of a single job percent signs mean nothing
        (("a", "b"), {"Parameters": 3}, ("a", "b")),
        (("100%",), {"Parameters": 3}, ("100%",)),
        (("100%%",), {"Parameters": 3}, ("100%",)),
        (("f%s",), {"Parameters": ["x", "y", "x"]}, ("fx", "fy")),
        (("f%n", "all"), {"Parameters": 2}, ("f0", "all", "f1")),
        (("%(A)s/%(B)s",), {"Parameters.A": ["p", "q"], "Parameters.B": ["r", "s"]}, ("p/r", "q/s")),
    ],
)
def test_each_name_once_in_the_order_of_the_members(names, more, found):
    assert names_of(described(*names, **more)) == found


def test_only_those_of_some_members():
    description = described("f%s", "all", Parameters=["a", "b", "c", "d"])
    assert names_of(description, ((1, 2), (3, 4))) == ("fb", "all", "fd")


@pytest.mark.slow
def test_names_vary_for_ten_thousand_members_at_most():
    assert len(names_of(described("f%n", Parameters=10_000))) == 10_000
    with pytest.raises(InvalidJob) as caught:
        names_of(described("f%n", Parameters=10_001))
    assert caught.value.data["attribute"] == "InputSandbox"
    assert names_of(described("100%%", Parameters=1_000_000)) == ("100%",)


@given(
    st.lists(st.sampled_from(["a", "b%%", "c%", "d%s", "e%n", "f%(X)s"]), max_size=3, unique=True),
    st.booleans(),
)
def test_they_are_the_files_of_the_members(names, varies):
    more = {"Arguments": "%n"} if varies else {}
    description = described(*names, Parameters=["p", "q"], **{"Parameters.X": ["r", "s"]}, **more)
    spec, members = description.spec, description.members
    template = Template(spec, members)
    looked_up = {name for index in range(2) for name in template.expand(index, 0).input_sandbox}
    assert set(names_of(description)) == looked_up


@pytest.mark.parametrize(
    ("program", "more", "found"),
    [
        ("./run.sh", {}, {"run.sh"}),
        ("bin//%s.sh", {}, {"bin/%s.sh"}),  # of a single job percent signs mean nothing
        ("%s.sh", {"Parameters": ["a", "./b"]}, {"a.sh", "b.sh"}),
        ("x%j%n", {"Parameters": 2}, {"x00", "x01"}),
        ("100%%", {"Parameters": 2}, {"100%"}),
        ("/bin/sh", {"Parameters": 1_000_000, "Arguments": "%n"}, {"/bin/sh"}),
    ],
)
def test_programs_of_all_members(program, more, found):
    description = read_job({"Executable": program, **more})
    assert list_programs(description.spec, description.members) == found


def test_programs_of_the_first_of_many_members():
    description = read_job({"Executable": "run%n", "Parameters": 1_000_000})
    assert len(list_programs(description.spec, description.members)) == 10_000
