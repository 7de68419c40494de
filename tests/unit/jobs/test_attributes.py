"""The table of attributes agrees with JobSpec, with itself and with the words of the field."""

from __future__ import annotations

from dataclasses import fields

import pytest

from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.jobs.attributes import (
    ATTRIBUTES,
    BY_SPELLING,
    KEY_FIELDS,
    PARAMETERS,
    PLAIN_TEXT,
    by_name,
)
from lodesman.languages.jobs.spec import JobSpec

SPEC_FIELDS = set(JobSpec.__struct_fields__)


def test_every_field_of_a_job_has_one_attribute():
    named = [attribute.field for attribute in ATTRIBUTES]
    assert len(named) == len(set(named))
    assert SPEC_FIELDS - {"extra", "deferred"} <= set(named)
    assert set(named) - SPEC_FIELDS == {"group", "owner", "vo"}


def test_no_spelling_stands_for_two_attributes():
    spellings = [
        spelling.lower() for attribute in ATTRIBUTES for spelling in (attribute.name, *attribute.aliases)
    ]
    assert len(spellings) == len(set(spellings))
    assert not {name.lower() for name in PARAMETERS} & set(spellings)


def test_key_attributes_are_those_of_the_task_queue_key():
    of_the_key = {field.name for field in fields(TaskQueueKey)}
    assert KEY_FIELDS - {"requirements", "stations"} == of_the_key - {
        "owner",
        "group",
        "vo",
        "submit_pool",
        "waits_for_jobs",
        "at_most",
        "submission",
    }


def test_every_attribute_says_what_would_be_right():
    for attribute in ATTRIBUTES:
        assert attribute.right
        assert not attribute.right.endswith(".")


@pytest.mark.parametrize("spelling", ["CPUTime", "cputime", "CPUTIME", "cpuTime"])
def test_names_do_not_depend_on_case(spelling):
    attribute = by_name(spelling)
    assert attribute is not None
    assert attribute.name == "CPUTime"


@pytest.mark.parametrize(
    ("alias", "name"),
    [("Sites", "Site"), ("BannedSites", "BannedSite"), ("GridCEs", "GridCE"), ("Platforms", "Platform"),
     ("PilotTypes", "PilotType"), ("SubmitPools", "SubmitPool"), ("Tags", "Tag"), ("MaxRAM", "Memory"),
     ("UserPriority", "Priority"), ("Project", "JobGroup"), ("VirtualOrganization", "VO"), ("OwnerName", "Owner")],
)  # fmt: skip
def test_aliases(alias, name):
    assert BY_SPELLING[alias] is BY_SPELLING[name]
    assert BY_SPELLING[alias.lower()] is BY_SPELLING[name]


def test_defaults_of_readers_are_defaults_of_the_spec():
    spec = JobSpec(executable="x")
    for name in ("JobName", "StdInput", "StdOutput", "StdError", "JobType", "JobGroup", "PilotType"):
        attribute = BY_SPELLING[name]
        assert attribute.read("") == getattr(spec, attribute.field)
    for name in (
        "Site",
        "BannedSite",
        "GridCE",
        "Stations",
        "Platform",
        "Tag",
        "SubmitPool",
        "InputSandbox",
        "OutputSandbox",
    ):
        attribute = BY_SPELLING[name]
        assert attribute.read([]) == getattr(spec, attribute.field) == ()


def test_texts_that_cfg_reads_as_they_stand():
    assert {"arguments", "jobname", "executable", "environment", "stdoutput", "project"} <= PLAIN_TEXT
    assert not {"site", "sites", "tag", "cputime", "requirements", "inputsandbox"} & PLAIN_TEXT


def test_an_unknown_name_has_no_attribute():
    assert by_name("Memry") is None
