"""The payload that a pilot gets."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from lodesman.languages.jobs import JobSpec
from lodesman.server.writer.templates import Upload, make_payload

SHA = "ab" * 32


def test_a_job_without_limits_has_zeros():
    told = to_builtins(make_payload(JobSpec(executable="x", norm_cpu_seconds=60), {}))
    assert told["limits"] == {
        "norm_cpu_seconds": 60, "cpu_seconds": 0, "wall_seconds": 0, "memory_mb": 0, "output_mb": 0
    }  # fmt: skip
    assert told["input"] == []
    assert told["exclusive"] is False


def test_what_decides_the_place_of_a_job_is_not_the_pilot_s_business():
    told = to_builtins(
        make_payload(JobSpec(executable="x", sites=("A",), tags=("GPU",), requirements={"A": 1}), {})
    )
    assert set(told["spec"]) == {
        "name", "executable", "arguments", "environment", "std_input", "std_output", "std_error",
        "output_sandbox", "cores", "memory_mb",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["data.txt", "/home/ann/data.txt", "deep/in/data.txt"])
def test_an_input_file_arrives_under_its_plain_name(name):
    told = to_builtins(make_payload(JobSpec(executable="x", input_sandbox=(name,)), {name: Upload(SHA, 7)}))
    assert told["input"] == [
        {"name": "data.txt", "url": f"/v1/sandboxes/{SHA}", "sha256": SHA, "size": 7, "unpack": False}
    ]


def test_a_file_that_is_named_twice_is_fetched_once():
    names = ("a/x", "./a/x", "b/", "b/")
    files = make_payload(
        JobSpec(executable="x", input_sandbox=names), dict.fromkeys(names, Upload("0" * 64, 1))
    ).input
    assert [one.name for one in files] == ["x", "b/"]


def test_a_file_arrives_as_it_was_where_it_came_from():
    uploads = {
        "run": Upload(SHA, 7, executable=True, modified=1_000),
        "data/": Upload(SHA, 7, modified=1_000),
    }
    told = to_builtins(make_payload(JobSpec(executable="x", input_sandbox=("run", "data/")), uploads))[
        "input"
    ]
    assert [(one.get("executable"), one.get("modified")) for one in told] == [(True, 1_000), (None, None)]


def test_an_input_file_without_an_upload_is_a_mistake_of_ours():
    with pytest.raises(KeyError):
        make_payload(JobSpec(executable="x", input_sandbox=("a",)), {})


def test_a_folder_is_unpacked_on_the_node():
    spec = JobSpec(executable="x", input_sandbox=("../a/data/", "b/one"))
    files = make_payload(
        spec, {"../a/data/": Upload("0" * 64, 1), "b/one": Upload("1" * 64, 2, executable=True)}
    ).input
    assert [(one.name, one.unpack) for one in files] == [("data/", True), ("one", False)]
