"""GET /v1/jobs/{job}/description: what was submitted, with SubmitPool (and Site) put in, in any language."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.languages.jobs import read_description, read_job

JDL = """[
  executable = "/bin/echo";
  Arguments = "a  'b c'";
  cputime = 500;
  sites = {"North"};
  requirements = [ slots = "2" ];
  Colour = "red";
]"""


def described(house, job, form="", token="ann"):
    return house.get(f"/v1/jobs/{job}/description" + (f"?form={form}" if form else ""), token)


def record(house, job, form=""):
    told = described(house, job, form)
    return read_description(told["text"], form=told["form"]).record


@pytest.mark.parametrize("form", ["", "jdl", "cfg", "json"])
def test_a_description_as_it_was_given_with_its_pool(house, form):
    job = house.submitted(text=JDL)
    told = described(house, job, form)
    assert (told["id"], told["form"], told["jobs"], told["rebuilt"]) == (job, form or "jdl", 1, False)
    pool = house.get("/v1/submit-pools")["pools"][0]["id"]
    assert record(house, job, form) == {
        "executable": "/bin/echo", "Arguments": "a  'b c'", "cputime": 500, "sites": ["North"],
        "requirements": {"slots": "2"}, "Colour": "red", "SubmitPool": pool,
    }  # fmt: skip


def test_without_requirements_there_is_nothing_to_put_in(house):
    job = house.submitted({"JobName": "plain"})
    assert record(house, job) == {"Executable": "/bin/true", "CPUTime": 500, "JobName": "plain"}


def test_submission_pools_stay_beside_the_pool(house):
    job = house.submitted({"Requirements": {"Slots": 2}, "submitpools": ["Local"]})
    found = record(house, job)
    assert "submitpools" not in found
    assert found["SubmitPool"][0] == "Local"
    assert found["SubmitPool"][1].startswith("req")


def test_sites_are_those_of_the_last_refresh_on_request(house):
    job = house.submitted(
        {"Requirements": {"CPUTime": 100}, "bannedsites": "South", "Sites": ["North", "South"]}
    )
    assert record(house, job)["Sites"] == ["North", "South"]
    house.side.policy.add_eligible_sites = True
    found = record(house, job)
    assert (found["Site"], "Sites" in found) == ("North", False)
    assert house.submitted(text=described(house, job)["text"]) == job + 1


def test_what_is_read_can_be_submitted_and_is_the_same_job(house):
    job = house.submitted(text=JDL)
    for form in ("jdl", "cfg", "json"):
        again = house.submitted(text=described(house, job, form)["text"], form=form)
        assert house.get(f"/v1/jobs/{again}")["task_queue"] == house.get(f"/v1/jobs/{job}")["task_queue"]
        assert record(house, again) == record(house, job)


def test_members_of_an_array_share_theirs(house):
    text = '[ Executable = "/bin/echo"; Arguments = "%s"; CPUTime = 500; Parameters = {"a", "b", "c"}; ]'
    job = house.submitted(text=text)
    told = described(house, job + 2)
    assert (told["jobs"], told["rebuilt"]) == (3, False)
    assert record(house, job + 2)["Parameters"] == ["a", "b", "c"]


def test_odd_jobs_of_a_batch_are_stored_and_the_others_rebuilt(house):
    first = house.submitted({"Arguments": "1"}, {"Arguments": "2", "Colour": "red"}, {"arguments": "3"})
    told = [(described(house, first + k)["rebuilt"], record(house, first + k)) for k in range(3)]
    assert told == [
        (True, {"Executable": "/bin/true", "CPUTime": 500, "Arguments": ["1"], "OwnerGroup": "physics"}),
        (False, {"Executable": "/bin/true", "CPUTime": 500, "Arguments": "2", "Colour": "red"}),
        (True, {"Executable": "/bin/true", "CPUTime": 500, "Arguments": ["3"], "OwnerGroup": "physics"}),
    ]


names = st.sampled_from(["North", "South"])
jobs = st.fixed_dictionaries(
    {"Executable": st.sampled_from(["/bin/true", "x"]), "CPUTime": st.integers(1, 900)},
    optional={
        "JobName": st.sampled_from(["n", "m%n"]),
        "Arguments": st.sampled_from(["a b", ["a b", "%s"], []]),
        "Environment": st.sampled_from([{"A": "1"}, ["B=2"], {}]),
        "StdOutput": st.sampled_from(["out", ""]),
        "OutputSandbox": st.sampled_from([["*.dat"], "x"]),
        "Priority": st.integers(0, 10),
        "project": st.just("p"),
        "Site": st.lists(names, unique=True),
        "Tags": st.just("SSD"),
        "GridCE": st.just("ce.north"),
        "Stations": st.lists(st.sampled_from(["d0", "CDF", 'a "b" \\c']), unique=True),
        "Memory": st.integers(0, 2_000),
        "NumberOfProcessors": st.integers(1, 4),
        "Requirements": st.fixed_dictionaries(
            {}, optional={"Memory": st.sampled_from([5, "1 GB", [3, 4]]), "Software": st.sampled_from(["root", ["geant"]])}
        ),
        "WallTime": st.integers(0, 9),
        "MaxOutput": st.integers(0, 9),
        "MaxAttempts": st.integers(1, 9),
        "Exclusive": st.booleans(),
        "ExpectedTime": st.integers(0, 9),
        "VacatePriority": st.integers(-9, 9),
        "OwnerGroup": st.just("physics"),
    },
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=jobs, form=st.sampled_from(["jdl", "cfg", "json"]))
def test_a_rebuilt_job_of_a_batch_is_the_same_job(house, one, form):
    answer = house.submit(one, one, hold_if_impossible=True)
    assert answer.status == 200, answer.body
    job = answer.json["first"] + 1
    told = described(house, job, form)
    assert told["rebuilt"]
    parsed = read_description(told["text"], form=form)
    again, before = read_job(parsed.record).spec, read_job({"CPUTime": 500, **one}).spec
    alike = {"sites", "tags", "requirements", "stations"}  # sorted, or as their types read them
    for name in before.__struct_fields__:
        if name not in alike:
            assert getattr(again, name) == getattr(before, name), name
    other = house.submitted(text=told["text"], hold_if_impossible=True)
    assert house.get(f"/v1/jobs/{other}")["task_queue"] == house.get(f"/v1/jobs/{job}")["task_queue"]


def test_input_files_have_the_names_that_the_job_sees(house):
    sandbox = house.upload(b"data").json
    boxes = {"in/data": {"sha256": sandbox["sha256"], "size": sandbox["size"]}}
    job = house.submitted(*[{"InputSandbox": ["in/data"]}] * 2, sandboxes=boxes)
    assert record(house, job)["InputSandbox"] == ["data"]


def test_a_description_is_visible_only_with_its_job(house):
    job = house.submitted()
    assert house.call("GET", f"/v1/jobs/{job}/description", token="bob").status == 404
    assert house.call("GET", f"/v1/jobs/{job}/description").status == 401
    assert house.call("GET", "/v1/jobs/99/description", token="ann").status == 404


def test_a_language_that_is_none(house):
    answer = house.call("GET", f"/v1/jobs/{house.submitted()}/description?form=xml", token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")
