"""From the body of a submission to what is stored: checked once per cohort, all or nothing."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.errors import Impossible, InvalidJob, InvalidRequest, LodesmanError, SyntaxFault
from lodesman.resources import load_resources
from lodesman.services.accounts import Principal
from lodesman.services.policy import Policy
from lodesman.services.prepare import prepare

ANN = Principal(kind="user", name="ann", vo="lab", groups=("physics", "open"))


def body(**more):
    empty: dict[str, Any] = {
        "text": None, "texts": None, "jobs": None, "form": "", "group": "", "hold_if_impossible": False,
        "sandboxes": {}, "request_id": None,
    }  # fmt: skip
    return SimpleNamespace(**{**empty, **more})


@pytest.fixture
def ready(policy, base):
    """Prepare a body; answers (what would be stored, notices)."""

    def ready(**more):
        return prepare(body(**more), ANN, policy, base.db)

    return ready


TRUE = {"Executable": "/bin/true", "CPUTime": 10}


def test_one_job_is_one_cohort_of_one(ready):
    found, notices = ready(jobs=[TRUE])
    assert (found.owner, found.group, found.vo, found.count) == ("ann", "physics", "lab", 1)
    (cohort,) = found.cohorts
    assert (cohort.runs, cohort.expand, cohort.held) == (((0, 1),), False, "")
    assert (cohort.key.owner, cohort.key.norm_cpu_seconds) == ("ann", 10)
    assert json.loads(cohort.template)["spec"]["executable"] == "/bin/true"
    assert notices == []
    assert json.loads(found.record) == TRUE


def test_members_alike_are_one_cohort_however_many(ready):
    found, _ = ready(jobs=[{**TRUE, "Parameters": 1_000_000, "Arguments": "%n"}])
    assert found.count == 1_000_000
    (cohort,) = found.cohorts
    assert (cohort.runs, cohort.expand) == (((0, 1_000_000),), True)


def test_members_that_differ_in_what_decides_their_place_are_several(ready):
    job = {"Executable": "x", "CPUTime": "%s", "Parameters": [10, 20, 10, 20, 20]}
    found, _ = ready(jobs=[job])
    runs = {cohort.key.norm_cpu_seconds: cohort.runs for cohort in found.cohorts}
    assert runs == {10: ((0, 1), (2, 3)), 20: ((1, 2), (3, 5))}


def test_a_batch_numbers_its_jobs_one_after_the_other(ready):
    found, _ = ready(jobs=[TRUE, {**TRUE, "CPUTime": 20}, TRUE])
    assert [cohort.runs for cohort in found.cohorts] == [((0, 1),), ((1, 2),), ((2, 3),)]
    assert found.count == 3


@pytest.mark.parametrize("position", [0, 1, 4])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [({"Executable": ""}, InvalidJob), ({"Executable": "x", "CPUTime": 10**9}, Impossible),
     ({"Executable": "x", "Site": "Moon"}, InvalidJob), ({}, InvalidJob)],
)  # fmt: skip
def test_the_bad_job_of_a_batch_is_named(ready, position, bad, kind):
    jobs: list[Any] = [TRUE] * 5
    jobs[position] = bad
    with pytest.raises(kind) as caught:
        ready(jobs=jobs)
    assert caught.value.data["job"] == position
    assert f"Job {position} " in caught.value.message


def test_the_bad_text_of_a_batch_is_named_with_its_place(ready):
    with pytest.raises(SyntaxFault) as caught:
        ready(texts=['[Executable = "x"; CPUTime = 1;]', "[\n  CPUTime = ?; ]"])
    assert (caught.value.data["job"], caught.value.data["line"]) == (1, 2)


def test_members_that_can_never_run_are_named_and_the_others_are_not(ready):
    job = {**TRUE, "Memory": "%s", "Parameters": [100, 10**6, 100, 10**6, 10**6]}
    # The queue in the South tells no limit of memory.
    job["Site"] = "North"
    with pytest.raises(Impossible) as caught:
        ready(jobs=[job])
    assert caught.value.message.startswith(
        "Members 1, 3-4 (3 of 5) can never run: no queue of VO lab can run it: "
    )
    data = caught.value.data
    assert (data["members"], data["jobs"], data["queues"]["eligible"]) == ([[1, 1], [3, 4]], 3, 0)
    found, _ = ready(jobs=[job], hold_if_impossible=True)
    assert {cohort.runs: bool(cohort.held) for cohort in found.cohorts} == {
        ((0, 1), (2, 3)): False, ((1, 2), (3, 5)): True,
    }  # fmt: skip


def test_an_array_of_which_no_member_can_run_is_one_thing(ready):
    with pytest.raises(Impossible) as caught:
        ready(jobs=[{**TRUE, "CPUTime": 10**9, "Parameters": 5}])
    assert caught.value.message.startswith("The job can never run: ")
    assert set(caught.value.data) == {"queues"}


def test_without_a_database_files_are_not_looked_for(policy, base):
    job = {**TRUE, "InputSandbox": ["data"]}
    with pytest.raises(InvalidJob, match="was not uploaded"):
        prepare(body(jobs=[job]), ANN, policy, base.db)
    found, _ = prepare(body(jobs=[job]), ANN, policy, None)
    assert found.count == 1


def test_a_pool_is_made_of_the_requirements_with_its_queues(ready):
    found, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}}])
    (pool,) = found.pools
    assert found.cohorts[0].key.submit_pool == pool.id
    assert pool.queues == (("North", "cn", "short"),)
    again, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}}] * 3)
    assert [one.id for one in again.pools] == [pool.id]


BOTH = {"Executable": "/bin/true", "CPUTime": 10, "Requirements": {"CPUTime": 10}}


@pytest.mark.parametrize(
    ("job", "sites"),
    [
        (BOTH, ["North", "South"]),
        ({**BOTH, "CPUTime": 5_000}, ["South"]),
        ({**BOTH, "BannedSite": "South"}, ["North"]),
        ({**BOTH, "sites": ["North"]}, ["North"]),
        ({**BOTH, "Requirements": {"Slots": 2}}, ["North"]),
        (TRUE, None),
    ],
)
def test_eligible_sites_are_named_in_the_description_and_not_in_the_task_queue(policy, base, job, sites):
    plain, _ = prepare(body(jobs=[job]), ANN, policy, base.db)
    assert json.loads(plain.record) == job
    assert "sites" not in json.loads(plain.cohorts[0].template)
    naming = Policy(policy.config, add_eligible_sites=True)
    found, _ = prepare(body(jobs=[job]), ANN, naming, base.db)
    assert json.loads(found.cohorts[0].template).get("sites") == sites
    assert found.cohorts[0].key == plain.cohorts[0].key
    others = {name: value for name, value in job.items() if name != "sites"}
    assert json.loads(found.record) == (job if sites is None else {**others, "Site": sites})


def test_the_sites_of_an_array_are_those_of_each_cohort_and_of_all(policy, base):
    job = {**BOTH, "CPUTime": "%s", "Parameters": [10, 5_000]}
    found, _ = prepare(body(jobs=[job]), ANN, Policy(policy.config, add_eligible_sites=True), base.db)
    named = [json.loads(cohort.template)["sites"] for cohort in found.cohorts]
    assert sorted(named) == [["North", "South"], ["South"]]
    assert json.loads(found.record)["Site"] == ["North", "South"]


def test_what_is_prepared_tells_which_configuration_judged_it(ready, policy):
    assert ready(jobs=[TRUE])[0].config == policy.digest
    assert policy.digest != Policy(load_resources([("s.toml", "[site.North]\n")])).digest


def test_a_verdict_is_remembered_with_its_words(ready, policy):
    job = {**TRUE, "Memory": 10**6, "NumberOfProcessors": 4}
    words = set()
    for _ in range(2):
        with pytest.raises(Impossible) as caught:
            ready(jobs=[job])
        words.add(caught.value.message)
    assert len(words) == 1
    found, _ = ready(jobs=[job], hold_if_impossible=True)
    assert found.cohorts[0].held in words.pop()


@pytest.mark.parametrize(
    "given_body", [{}, {"text": "[]", "texts": []}, {"text": "[]", "jobs": []}, {"texts": []}, {"jobs": []}]
)
def test_exactly_one_form_is_given(ready, given_body):
    with pytest.raises(InvalidRequest):
        ready(**given_body)


def test_all_jobs_of_a_submission_have_one_group(ready):
    found, _ = ready(jobs=[{**TRUE, "OwnerGroup": "open"}] * 2)
    assert found.group == "open"
    with pytest.raises(InvalidJob, match="OwnerGroup"):
        ready(jobs=[{**TRUE, "OwnerGroup": "open"}, {**TRUE, "OwnerGroup": "physics"}])
    chosen, _ = ready(jobs=[TRUE], group="open")
    assert chosen.group == "open"


def test_notices_of_all_jobs_are_told(ready):
    _, notices = ready(jobs=[{**TRUE, "Colour": 1}, TRUE, {**TRUE, "Size": 2}])
    assert [one.attribute for one in notices] == ["Colour", "Size"]


records = st.dictionaries(
    st.sampled_from(
        ["Executable", "CPUTime", "Arguments", "Site", "Requirements", "Parameters", "Tag", "X", ""]
    )
    | st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=5,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records, min_size=1, max_size=3))
def test_any_record_is_prepared_whole_or_refused(ready, jobs):
    try:
        found, _ = ready(jobs=jobs, hold_if_impossible=True)
    except LodesmanError:
        return
    covered = sorted(
        index for cohort in found.cohorts for start, stop in cohort.runs for index in range(start, stop)
    )
    assert covered == list(range(found.count))
    for cohort in found.cohorts:
        json.loads(cohort.template)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=60) | st.text(alphabet='[]{}=;"\\/*#%() \nExecutable0', max_size=60),
    st.sampled_from(["", "jdl", "cfg", "json"]),
)
def test_any_text_is_prepared_or_refused(ready, text, form):
    with contextlib.suppress(LodesmanError):
        ready(text=text, form=form, hold_if_impossible=True)
