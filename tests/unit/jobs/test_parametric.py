"""Parametric templates: members that come out as DIRAC would write them, and checks before anything is stored."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob, InvalidRequest
from lodesman.languages.jobs import (
    JobSpec,
    ParametricMembers,
    Template,
    cohorts,
    read_description,
    read_job,
    spec_from_json,
    spec_to_json,
)


def expand(spec, members, index, job_id):
    return Template(spec, members).expand(index, job_id)


def described(**attributes):
    return read_job({"Executable": "x", **{n.replace("__", "."): v for n, v in attributes.items()}})


def member(description, index, job_id=1000):
    return expand(description.spec, description.members, index, job_id)


def wrong(**attributes):
    with pytest.raises(InvalidJob) as caught:
        described(**attributes)
    assert caught.value.hint
    return caught.value


def test_a_scan_as_dirac_describes_it():
    parsed = read_description(
        """[ JobName = "scan_%n"; Executable = "simulate.sh"; Arguments = "--energy %s --seed %j";
             Parameters = 12; ParameterStart = 100; ParameterStep = 25;
             StdOutput = "scan_%n.log"; OutputSandbox = {"scan_%n.log", "energy_%s.root"}; ]"""
    )
    description = read_job(parsed.record, parsed.positions)
    assert description.members == ParametricMembers(count=12, start=100, step=25)
    assert description.warnings == ()
    assert member(description, 3, 77) == JobSpec(
        name="scan_03",
        executable="simulate.sh",
        arguments=("--energy", "175", "--seed", "77"),
        std_output="scan_03.log",
        output_sandbox=("scan_03.log", "energy_175.root"),
    )


def test_every_text_field_is_filled():
    description = described(
        Executable="run_%(X)s",
        Arguments=["%s", "%%", "a b %n"],
        JobName="%n",
        StdInput="in_%n",
        StdOutput="out_%n",
        StdError="err_%n",
        InputSandbox=["in_%s.dat"],
        OutputSandbox="o_%n",
        Environment={"SEED": "%j", "PLAIN": "5", "X": "%(X)s"},
        Parameters=["p", "q"],
        Parameters__X=["v", "w"],
    )
    assert member(description, 1, 9) == JobSpec(
        executable="run_w",
        arguments=("q", "%", "a b 1"),
        name="1",
        std_input="in_1",
        std_output="out_1",
        std_error="err_1",
        input_sandbox=("in_q.dat",),
        output_sandbox=("o_1",),
        environment={"SEED": "9", "PLAIN": "5", "X": "w"},
    )


def test_numbers_and_keys_wait_in_deferred_until_they_are_filled():
    description = described(
        Parameters=3,
        ParameterStart=1000,
        ParameterStep=500,
        Parameters__site=["A", "B", "A"],
        Memory="%s",
        Site="%(site)s",
        WallTime="%s0",
        CPUTime=600,
        Requirements={"Disk": "%s", "Tag": ["T%n", "all"], "Label": "%s GB"},
        Exclusive="%(flag)s",
        VacatePriority="-%n",
        Parameters__flag=[True, False, True],
    )
    spec = description.spec
    assert set(spec.deferred) == {"Memory", "Site", "WallTime", "Requirements", "Exclusive", "VacatePriority"}
    assert (spec.memory_mb, spec.sites, spec.wall_seconds, spec.norm_cpu_seconds) == (0, (), 0, 600)
    second = member(description, 1)
    assert second.memory_mb == 1500
    assert second.sites == ("B",)
    assert second.wall_seconds == 15_000
    assert second.exclusive is False
    assert second.vacate_priority == -1
    # A requirement that is one placeholder keeps the type of its parameter.
    assert second.requirements == {"Disk": 1500, "Tag": ("T1", "all"), "Label": "1500 GB"}
    assert second.deferred == {}


def test_a_template_goes_through_storage():
    description = described(Parameters=5, ParameterStep=1, Memory="%s00", JobName="j%n", Site=["A", "S%s"])
    stored = spec_from_json(spec_to_json(description.spec))
    assert stored == description.spec
    for index in range(5):
        assert expand(stored, description.members, index, index) == member(description, index, index)


def test_members_that_are_alike_share_one_spec():
    description = described(Parameters=1_000_000)
    template = Template(description.spec, description.members)
    assert not template.varies
    assert template.expand(0, 1) is template.expand(999_999, 2) is description.spec
    for name in ("%n", "100%%"):
        description = described(Parameters=2, JobName=name)
        assert Template(description.spec, description.members).varies


def test_a_member_that_is_not_there():
    with pytest.raises(InvalidRequest, match="no member 5"):
        member(described(Parameters=5, JobName="%n"), 5)


# --- Arguments: split after filling, as DIRAC does -----------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "values", "expected"),
    [
        ("-f %s", ["a"], ("-f", "a")),
        ("-f %s", ["a b"], ("-f", "a", "b")),
        ("-f '%s'", ["a b"], ("-f", "a b")),
        ('-f "%s"', ['a\\"b'], ("-f", 'a"b')),
        ("-f %s -g", [""], ("-f", "-g")),
        ("-f '%s' -g", [""], ("-f", "", "-g")),
        ("%s", ["-a 1 'b c'"], ("-a", "1", "b c")),
        ("%s%s", ["x "], ("x", "x")),
        ("a\\%s", ["b"], ("ab",)),
        ("-f %s", ["a\nb"], ("-f", "a", "b")),
        (["-f", "%s"], ["a b"], ("-f", "a b")),
        (["-f", "%s"], [""], ("-f", "")),
        (["-f", "'%s"], ["'"], ("-f", "''")),
    ],
)
def test_arguments_of_one_text_are_split_after_filling_and_lists_never(arguments, values, expected):
    description = described(Arguments=arguments, Parameters=values)
    assert member(description, 0).arguments == expected


HOSTILE = st.text(st.sampled_from("ab %s'\"\\\n$;é"), max_size=6)


@given(
    st.lists(HOSTILE, min_size=1, max_size=4),
    st.sampled_from(["-f %s x", "'%s'", '"%s"', "%s", "a%sb", "%n %s"]),
)
def test_splitting_gives_what_filling_and_then_a_shell_gives(values, form):
    try:
        description = described(Arguments=form, Parameters=values)
    except InvalidJob as error:
        index = error.data["member"]
        with pytest.raises(ValueError, match="No"):
            shlex.split(form.replace("%n", str(index), 1).replace("%s", values[index], 1))
        return
    for index, value in enumerate(values):
        text = form.replace("%n", str(index), 1).replace("%s", value, 1)
        assert list(member(description, index).arguments) == shlex.split(text)


def test_harmless_values_are_split_once_and_others_wait():
    assert described(Arguments="-n %s", Parameters=5).spec.deferred == {}
    assert described(Arguments="-n %s", Parameters=["a", "b/c.d", "x=1:2"]).spec.deferred == {}
    assert described(Arguments="-n %s", Parameters=["a", "b c"]).spec.deferred == {"Arguments": "-n %s"}


# --- checks of members -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "attribute", "member_", "words"),
    [
        ({"Arguments": "-f %s", "Parameters": ["a", "b", "it's"]}, "Arguments", 2, "never closed"),
        ({"OutputSandbox": "%s", "Parameters": ["a", "../b"]}, "OutputSandbox", 1, "leaves its directory"),
        ({"OutputSandbox": ["x", "%s/y"], "Parameters": ["a", ""]}, "OutputSandbox", 1, "absolute"),
        ({"StdOutput": "%s", "Parameters": ["a", "/b"]}, "StdOutput", 1, "absolute"),
        ({"StdOutput": "d/%s", "Parameters": ["a", ".."]}, "StdOutput", 1, "leaves its directory"),
        ({"InputSandbox": ["a", "%s"], "Parameters": ["b", "x/a"]}, "InputSandbox", 1, "two files named 'a'"),
        ({"JobName": "%s", "Parameters": ["a", "é"]}, "JobName", 1, "ASCII"),
        ({"Executable": "%s", "Parameters": ["a", " "]}, "Executable", 1, "is empty"),
        ({"WallTime": "%s", "Parameters": [5, "x"]}, "WallTime", 1, "not a number"),
        (
            {"WallTime": "%s", "Parameters": 5, "ParameterStart": 2, "ParameterStep": -1},
            "WallTime",
            3,
            "negative",
        ),
        ({"Exclusive": "%s", "Parameters": ["yes", "oui"]}, "Exclusive", 1, "neither true nor false"),
        ({"Environment": {"A": "%s"}, "Parameters": ["x", "y\0"]}, "Environment", 1, "NUL"),
    ],
)
def test_a_member_that_would_be_wrong_is_found_before_anything_is_stored(
    attributes, attribute, member_, words
):
    error = wrong(**attributes)
    assert error.data["attribute"] == attribute
    assert error.data["member"] == member_
    assert f"{attribute} of member {member_} " in error.message
    assert words in error.message


@pytest.mark.parametrize(
    ("attributes", "attribute", "words"),
    [
        (
            {"JobName": "%(Y)s", "Parameters": 2},
            "JobName",
            "has %(Y)s, which no sequence stands for (known: none)",
        ),
        ({"Site": "%(y)s", "Parameters__Y": ["a"]}, "Site", "known: %(Y)s"),
        ({"Site": "S%j", "Parameters": 2}, "Site", "has %j"),
        ({"WallTime": "%j", "Parameters": 2}, "WallTime", "has %j"),
        ({"InputSandbox": ["a", "in_%j.dat"], "Parameters": 2}, "InputSandbox", "has %j"),
        (
            {"InputSandbox": "%(FirstJob)s", "Parameters": 2},
            "InputSandbox",
            "has %(FirstJob)s, but a job has its number",
        ),
        ({"Memory": "%(FirstJob)s", "Parameters": 2}, "Memory", "has %(FirstJob)s, but a job has its number"),
        ({"MaxAttempts": "%s", "Parameters": 2}, "MaxAttempts", "is the same for all members"),
        ({"OwnerGroup": "%s", "Parameters": 2}, "OwnerGroup", "is the same for all members"),
        ({"Arguments": "'%s", "Parameters": 2}, "Arguments", "never closed"),
        ({"JobName": "x" * 240 + "%s", "Parameters": 2, "ParameterStart": 10**18}, "JobName", "at most 255"),
        ({"JobName": "x%s", "Parameters": ["y" * 255, "z"]}, "JobName", "at most 255"),
        ({"OutputSandbox": "../%s", "Parameters": 2}, "OutputSandbox", "leaves its directory"),
        ({"Environment": ["%s=1"], "Parameters": 2}, "Environment", "names no variable"),
        ({"Owner": "%s", "Parameters": 2}, "Owner", "same for all members"),
    ],
)
def test_a_template_that_is_wrong_for_all(attributes, attribute, words):
    error = wrong(**attributes)
    assert error.data["attribute"] == attribute
    assert words in error.message
    assert "member" not in error.data


def test_a_stored_template_that_is_wrong_after_all_names_the_member():
    spec = JobSpec(executable="x", deferred={"WallTime": "%s"})
    members = ParametricMembers(count=2, values=("5", "x"))
    assert expand(spec, members, 0, 1).wall_seconds == 5
    with pytest.raises(InvalidJob, match="WallTime of member 1 is the text 'x'") as caught:
        expand(spec, members, 1, 1)
    assert caught.value.data == {"attribute": "WallTime", "member": 1}


def test_a_placeholder_in_a_single_job_is_no_number():
    assert "is the text '%s', not a number" in wrong(CPUTime="%s").message


def test_warnings_for_sequences_that_nothing_uses():
    parsed = read_description(
        'Executable = "x"; Arguments = "+%s %(A)s";\nParameters.A = {1,2};\nParameters.B = {1,2};', form="jdl"
    )
    description = read_job(parsed.record, parsed.positions)
    unused, verbatim = description.warnings
    assert (unused.attribute, unused.line, unused.message) == ("Parameters.B", 3, "%(B)s is used nowhere.")
    assert verbatim.attribute == "Arguments"
    assert member(description, 1).arguments == ("+%s", "2")


# --- size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attributes",
    [
        {"Arguments": "-n %s -j %j", "JobName": "t%n", "Parameters": 1_000_000},
        {"Arguments": "-n %s", "OutputSandbox": "o_%s.png", "Parameters": [f"v{i}" for i in range(200_000)]},
        {"Arguments": "-n %s", "Parameters": [f"{i} {i}" for i in range(200_000)]},
    ],
)
def test_a_million_members_are_checked_without_expanding_them(attributes):
    started = time.process_time()
    description = described(**attributes)
    assert len(cohorts(description)) == 1
    assert time.process_time() - started < 30
    last = description.members.count - 1
    assert member(description, last).arguments[0] == "-n"


TEXTS = st.text("ab%/. snj(X)é'", max_size=8)


@given(
    st.dictionaries(
        st.sampled_from(["Arguments", "JobName", "OutputSandbox", "StdOutput", "Executable"]), TEXTS
    ),
    st.lists(TEXTS, min_size=1, max_size=3),
    st.booleans(),
)
def test_no_member_of_an_accepted_description_is_ever_wrong(attributes, values, named):
    parameters = {"Parameters": values, **({"Parameters.X": values} if named else {})}
    try:
        description = read_job({"Executable": "x", **attributes, **parameters})
    except InvalidJob:
        return
    for index in range(len(values)):
        spec = member(description, index)
        assert spec.executable.strip()
        assert len(spec.name) <= 255
        assert spec.name.isascii()
        for path in (*spec.output_sandbox, spec.std_output):
            assert not path.startswith("/")
            assert ".." not in path.split("/")
