"""Attributes of other systems: refused with what to use instead, unless the user keeps them."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs.attributes import BY_SPELLING, PARAMETERS
from lodesman.languages.jobs.description import read_description, read_job
from lodesman.languages.jobs.foreign import _INSTEAD, _TABLE, instead_of

NAMES = [name for names in _TABLE for name in names.split()]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Dependencies", "give AfterOk"),
        ("Hold", "lode hold"),
        ("StartTime", "when it shall run"),
        ("begin", "when it shall run"),
        ("Nodes", "NumberOfProcessors"),
        ("ntasks-per-node", "NumberOfProcessors"),
        ("InputData", "InputSandbox"),
        ("OutputData", "OutputSandbox"),
        ("OutputSE", "OutputSandbox"),
        ("NotifyEmail", "No mail"),
        ("mail_user", "No mail"),
        ("MinNumberOfProcessors", "NumberOfProcessors"),
        ("WholeNode", "NumberOfProcessors"),
        ("request_memory", "Memory in MB"),
        ("+MaxRuntime", "WallTime"),
        ("ShallowRetryCount", "MaxAttempts"),
        ("REQUEST_GPUS", "Tag"),
        ("station_name", "Stations"),
        ("JobRequirements", "CPUTime, NumberOfProcessors"),
        ("ParametricInputData", "InputSandbox with %s"),
        ("ParametricInputSandbox", "InputSandbox with %s"),
        ("SoftwarePackages", "a Tag"),
        ("ExecutionEnvironment", "Give Environment"),
        ("SubmitTo", "GridCE"),
        ("DefaultNodeRetryCount", "MaxAttempts"),
    ],
)
def test_what_would_change_the_job_is_refused_with_what_to_use_instead(name, words):
    record = {"Executable": "x", name: 5}
    with pytest.raises(InvalidJob, match="is an attribute of other systems") as caught:
        read_job(record)
    assert words in caught.value.hint
    assert "--ignore-unknown" in caught.value.hint
    assert caught.value.data["attribute"] == name
    kept = read_job(record, ignore_unknown=True)
    assert kept.spec.extra == {name: 5}
    assert [one.attribute for one in kept.warnings] == [name]


@pytest.mark.parametrize(("value", "words"), [("Collection", "Parameters"), ("dag", "AfterOk")])
def test_a_description_of_several_jobs_of_glite_is_refused(value, words):
    record = {"Executable": "x", "Type": value}
    with pytest.raises(InvalidJob, match="Type is an attribute of other systems") as caught:
        read_job(record)
    assert words in caught.value.hint
    assert read_job(record, ignore_unknown=True).spec.extra == {"Type": value}
    assert read_job(record | {"Type": "Job"}).spec.extra == {"Type": "Job"}


def test_attributes_of_dirac_are_refused_in_a_text_of_its_own():
    text = '[ Executable = "x"; JobRequirements = [ CPUTime = 5; ]; ]'
    with pytest.raises(InvalidJob, match="JobRequirements is an attribute of other systems"):
        read_job(read_description(text).record)


def test_the_error_names_the_place():
    parsed = read_description("Executable = x\nnotify_email = me@here\n")
    with pytest.raises(InvalidJob, match=r"line 2, column 1") as caught:
        read_job(parsed.record, parsed.positions)
    assert (caught.value.data["line"], caught.value.data["column"]) == (2, 1)


def test_each_name_stands_once_and_none_is_ours():
    assert len(_INSTEAD) == len(NAMES)
    ours = {spelling.lower() for spelling in (*BY_SPELLING, *PARAMETERS)}
    assert not ours & set(_INSTEAD)


def test_other_unknown_attributes_are_kept_with_a_warning():
    found = read_job({"Executable": "x", "Colour": "red", "MyInputData": 1})
    assert found.spec.extra == {"Colour": "red", "MyInputData": 1}
    assert not instead_of("Colour")
