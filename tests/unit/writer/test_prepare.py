"""From the body of a submission to what is stored: checked once per cohort, all or nothing."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.base.errors import Forbidden, Impossible, InvalidJob, InvalidRequest, LodesmanError, SyntaxFault
from lodesman.decide.matching import submit_pool
from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.decide.submission import exclusions
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import classes_of
from lodesman.server.writer.prepare import prepare
from lodesman.wire.accounts import Principal

NO_CLASSES = PreparedClasses(classes_of([], Vocabulary()))
ANN = Principal(kind="user", name="ann", vo="lab", groups=("physics", "open"))


def body(**more):
    empty: dict[str, Any] = {
        "text": None, "texts": None, "jobs": None, "form": "", "group": "", "hold": False, "hold_if_impossible": False,
        "ignore_unknown": False, "client_jsv": {}, "edits": [], "usual_name": False, "sandboxes": {}, "request_id": None,
    }  # fmt: skip
    return SimpleNamespace(**{**empty, **more})


@pytest.fixture
def ready(policy, base):
    """Prepare a body; answers (what would be stored, notices)."""

    def ready(**more):
        return prepare(body(**more), ANN, policy, base.db, NO_CLASSES)

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
    # The queue in the South declares no memory.
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
    assert set(caught.value.data) == {"queues", "attribute"}
    assert caught.value.data["attribute"] == "CPUTime"


def test_without_a_database_files_are_not_checked(policy, base):
    job = {**TRUE, "InputSandbox": ["data"]}
    with pytest.raises(InvalidJob, match="was not uploaded"):
        prepare(body(jobs=[job]), ANN, policy, base.db, NO_CLASSES)
    found, _ = prepare(body(jobs=[job]), ANN, policy, None, NO_CLASSES)
    assert found.count == 1


def test_a_pool_is_made_of_the_requirements_with_its_queues(ready):
    found, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}}])
    (pool,) = found.pools
    assert found.cohorts[0].key.submit_pool == pool.id
    assert pool.queues == 0b1
    again, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}}] * 3)
    assert [one.id for one in again.pools] == [pool.id]


@pytest.mark.parametrize("slots", [2, 10**6], ids=["accepted", "refused"])
def test_requirements_are_compiled_once(ready, monkeypatch, slots):
    asked = []

    def compiled(wanted, *more):
        asked.append(wanted)
        return compile_requirements(wanted, *more)

    for module in (submit_pool, exclusions):
        monkeypatch.setattr(module, "compile_requirements", compiled)
    with contextlib.suppress(Impossible):
        ready(jobs=[{**TRUE, "Requirements": {"Slots": slots}}])
    assert asked == [{"Slots": slots}]


def test_the_description_is_stored_as_it_was_given(policy, base):
    job = {"executable": "/bin/true", "cputime": 10, "sites": ["North"], "Requirements": {"slots": "2"}}
    naming = Policy(policy.config, add_eligible_sites=True)
    for one in (policy, naming):
        found, _ = prepare(body(jobs=[job]), ANN, one, base.db, NO_CLASSES)
        assert json.loads(found.record) == job
        assert "sites" not in json.loads(found.cohorts[0].template)


@pytest.mark.parametrize(
    ("form", "text"),
    [("jdl", '[ Executable = "x"; CPUTime = 5; ]'), ("cfg", "Executable = x\nCPUTime = 5\n"),
     ("json", '{"Executable": "x", "CPUTime": 5}')],
)  # fmt: skip
def test_the_language_is_stored(ready, form, text):
    assert ready(text=text)[0].form == ready(text=text, form=form)[0].form == form
    assert ready(texts=[text])[0].form == form


def test_of_a_batch_only_odd_descriptions_are_stored(ready):
    odd = {**TRUE, "Colour": 1}
    assert ready(jobs=[TRUE, TRUE])[0].record == ""
    assert json.loads(ready(jobs=[TRUE, odd, TRUE])[0].record) == {"1": odd}


def test_a_prepared_submission_names_its_configuration(ready, policy):
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


def test_jobs_alike_are_judged_once_in_a_configuration(ready, policy):
    keys = [ready(jobs=[{**TRUE, "Arguments": word}])[0].cohorts[0].key for word in "ab"]
    assert keys[0] is keys[1]
    assert len(policy.verdicts) == 1
    assert ready(jobs=[{**TRUE, "CPUTime": 7}])[0].cohorts[0].key.norm_cpu_seconds == 7


def test_a_name_that_one_job_may_wait_for_is_refused_to_the_next(ready):
    job = {**TRUE, "Site": "Atlantis"}
    assert ready(jobs=[job], hold_if_impossible=True)[0].cohorts[0].held
    with pytest.raises(InvalidJob, match="Atlantis"):
        ready(jobs=[job])


def test_a_verdict_on_very_many_names_is_not_kept(ready, policy):
    found, _ = ready(jobs=[{**TRUE, "GridCE": [f"ce{n}" for n in range(3_000)]}], hold_if_impossible=True)
    assert found.cohorts[0].held
    assert not policy.verdicts


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


def test_notices_of_all_jobs_are_reported(ready):
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


@pytest.mark.slow
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


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=60) | st.text(alphabet='[]{}=;"\\/*#%() \nExecutable0', max_size=60),
    st.sampled_from(["", "jdl", "cfg", "json"]),
)
def test_any_text_is_prepared_or_refused(ready, text, form):
    with contextlib.suppress(LodesmanError):
        ready(text=text, form=form, hold_if_impossible=True)


# --- where it is wrong ----------------------------------------------------------------------------------

WRONG = [
    ('Site = "Nroth"', "Site", InvalidJob, "Did you mean North?"),
    ('sites = "Nroth"', "Site", InvalidJob, "Did you mean North?"),
    ('ownername = "bob"', "Owner", InvalidJob, "Leave it out"),
    ('vo = "other"', "VO", InvalidJob, "Leave it out"),
    ('submitpools = "Gird"', "SubmitPool", InvalidJob, "Did you mean Grid?"),
    ('SubmitPool = "Zzz"', "SubmitPool", InvalidJob, "There are Grid, Local."),
    ('Requirements = [ Memory = "lots" ]', "Requirements.Memory", InvalidJob, "Give a number (MB"),
    ('REQUIREMENTS = [ memory = {"1", "x"} ]', "Requirements.memory", InvalidJob, "Give a number (MB"),
    ('inputsandbox = "data"', "InputSandbox", InvalidJob, "lode submit uploads"),
    ('memory = 1000000; BannedSite = "South"', "Memory", Impossible, "Change it"),
    ('Site = "North"; bannedsites = "North"', "BannedSite", Impossible, "Change it"),
    ("Requirements = [ disk = 5 ]", "Requirements.disk", Impossible, "Change it"),
    ('tag = "gpu"', "Tag", Impossible, "Change it"),
]


@pytest.mark.parametrize(("line", "attribute", "kind", "hint"), WRONG)
@pytest.mark.parametrize("batch", [False, True])
def test_what_is_wrong_has_attribute_place_and_remedy(policy, base, batch, line, attribute, kind, hint):
    here = Policy(
        policy.config,
        submission_pools=dict.fromkeys(("Local", "Grid"), PoolScope()),
    )
    text = f'[\n  Executable = "x"; CPUTime = 10;\n   {line};\n]'
    given_body = body(texts=[text.replace(line, ""), text]) if batch else body(text=text)
    with pytest.raises(kind) as caught:
        prepare(given_body, ANN, here, base.db, NO_CLASSES)
    error = caught.value
    where = "Site" if kind is Impossible and "bannedsites" in line else attribute
    assert error.data["attribute"] in (attribute, where)
    assert (error.data["line"], error.data.get("job")) == (3, 1 if batch else None)
    name = error.data["attribute"].removeprefix("Requirements.").lower()
    assert text.split("\n")[2][error.data["column"] - 1 :].lower().startswith(name[:3])
    assert hint in error.hint
    if kind is InvalidJob:
        assert f" (line 3, column {error.data['column']})." in error.message


def test_a_group_that_is_not_ones_own_is_placed(policy, base):
    with pytest.raises(Forbidden) as caught:
        prepare(body(text='Executable = "x";\n ownergroup = "chemistry";'), ANN, policy, base.db, NO_CLASSES)
    assert caught.value.data == {"attribute": "OwnerGroup", "line": 2, "column": 2}


def test_the_group_of_the_call_has_no_place_in_the_text(policy, base):
    with pytest.raises(Forbidden) as caught:
        prepare(
            body(text='Executable = "x"; OwnerGroup = "open";', group="chemistry"),
            ANN,
            policy,
            base.db,
            NO_CLASSES,
        )
    assert "line" not in caught.value.data


def test_the_second_group_of_a_batch_is_placed(policy, base):
    texts = ['Executable = "x"; CPUTime = 1;', 'Executable = "x"; CPUTime = 1;\n ownergroup = "open";']
    with pytest.raises(InvalidJob) as caught:
        prepare(body(texts=texts), ANN, policy, base.db, NO_CLASSES)
    assert (caught.value.data["line"], caught.value.data["column"]) == (2, 2)
    assert caught.value.hint == "Give physics as all others, or submit it apart."


# --- what is not there may come -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"Site": "Atlantis"}, "Site excludes 2 of 2"),
        ({"Site": "North", "BannedSite": "North"}, "BannedSite excludes 1 of 2, Site excludes 1 of 2"),
        (
            {"SubmitPool": "Nowhere"},
            "suggestion: SubmitPool -> Grid or Local",
        ),
    ],
)
def test_sites_and_pools_that_are_not_there_are_held_if_that_is_wanted(policy, base, more, words):
    here = Policy(
        policy.config,
        submission_pools=dict.fromkeys(("Local", "Grid"), PoolScope()),
    )
    for job in (
        {**TRUE, **more},
        {**TRUE, **dict.fromkeys(more, "%s"), "Parameters": [*more.values()][:1]},
    ):
        with pytest.raises((InvalidJob, Impossible)):
            prepare(body(jobs=[job]), ANN, here, base.db, NO_CLASSES)
        found, _ = prepare(body(jobs=[job], hold_if_impossible=True), ANN, here, base.db, NO_CLASSES)
        assert words in found.cohorts[0].held


@pytest.mark.parametrize("more", [{"Site": ["North", "Atlantis"]}, {"SubmitPool": ["Local", "Nowhere"]}])
def test_one_name_of_several_is_enough_to_wait_for(policy, base, more):
    here = Policy(policy.config, submission_pools=dict.fromkeys(("Local",), PoolScope()))
    found, _ = prepare(body(jobs=[{**TRUE, **more}], hold_if_impossible=True), ANN, here, base.db, NO_CLASSES)
    assert found.cohorts[0].held == ""
    with pytest.raises(InvalidJob):
        prepare(body(jobs=[{**TRUE, **more}]), ANN, here, base.db, NO_CLASSES)


def test_a_ban_of_a_site_that_is_not_there_is_kept_with_a_warning(ready):
    text = '[ Executable = "x"; CPUTime = 10;\n Bannedsites = {"Nroth", "%s"}; Parameters = {"Nroth", "South"}; ]'
    found, notices = ready(text=text)
    assert [cohort.key.banned_sites for cohort in found.cohorts] == [("Nroth",), ("Nroth", "South")]
    (notice,) = notices
    assert (notice.attribute, notice.line, notice.column) == ("BannedSite", 2, 2)
    assert "there is no site 'Nroth'" in notice.message
    assert "Did you mean North?" in notice.message


def test_who_it_is_for_may_be_said_if_it_is_true(ready):
    found, notices = ready(text='Owner = "ann"; VO = "lab"; Executable = "x"; CPUTime = 10;')
    assert (found.owner, notices) == ("ann", [])
    with pytest.raises(InvalidJob, match="Owner: bob is not yours; by your token it is ann"):
        ready(text='Owner = "bob"; Executable = "x"; CPUTime = 10;')


def test_the_identifier_of_a_submit_pool_is_no_submission_pool(ready, policy):
    first, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}}])
    again, _ = ready(jobs=[{**TRUE, "Requirements": {"Slots": 2}, "SubmitPool": first.pools[0].id}])
    assert again.cohorts[0].key == first.cohorts[0].key


@pytest.mark.parametrize("count", [1, 101, 200, 1_000])
def test_requirements_may_be_many(ready, count):
    found, _ = ready(
        jobs=[{**TRUE, "Requirements": {f"P{n}": n for n in range(count)}}], hold_if_impossible=True
    )
    assert len(json.loads(found.pools[0].requirements)) == count
    with pytest.raises(InvalidJob, match="1001 entries"):
        ready(jobs=[{**TRUE, "Requirements": {f"P{n}": n for n in range(1_001)}}], hold_if_impossible=True)


@pytest.mark.slow
def test_all_task_queues_of_a_submission_have_a_limit_together(ready):
    tags = ",".join(f"t{n}" for n in range(8_000)) + ",%n"
    wanted = {**TRUE, "Tag": tags}
    assert ready(jobs=[wanted | {"Parameters": 3}], hold_if_impossible=True)[0].count == 3
    with pytest.raises(InvalidJob, match="more than 32 MB in all"):
        ready(jobs=[wanted | {"Parameters": 10_000}], hold_if_impossible=True)


def test_attributes_of_other_systems_are_refused_unless_asked_for(ready):
    for one in (
        {"jobs": [{**TRUE, "Dependencies": 5}]},
        {"text": "Executable = x\nCPUTime = 10\nDependencies = 5\n"},
    ):
        with pytest.raises(InvalidJob, match="Dependencies is an attribute of other systems"):
            ready(**one)
        _, (notice,) = ready(**one, ignore_unknown=True)
        assert "Dependencies is not an attribute that the program knows; it is kept" in notice.message
