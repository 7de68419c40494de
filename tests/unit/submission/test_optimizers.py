"""The optimizers in their order: sites, SubmitPool, key; then whether the job is possible at all."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.decide.matching.offers import PoolScope, offers_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import QueueTable, load_resources
from lodesman.decide.submission import JobDraft, ban_of_nothing, optimize
from lodesman.languages.jobs import JobSpec, cohorts, read_description, read_job

TEXT = """
[job_description]
Software = "list"
[site.North]
VO = ["lab"]
[site.North.ce.cn.queue.short]
CPUTime = 1000
Memory = 2000
Software = ["root"]
[site.South]
VO = ["lab"]
[site.South.ce.cs.queue.long]
CPUTime = 100000
Memory = 8000
"""


def make_world(text=TEXT, vo="lab"):
    config = load_resources([("s.toml", text)])
    table = QueueTable(config, vo)
    offers = offers_of(table, vo)
    return VOConfig(vo=vo, offers=offers, table=table)


WORLD = make_world()


def draft(**spec):
    return JobDraft(
        spec=JobSpec(**{"executable": "x", "norm_cpu_seconds": 10, **spec}), owner="ann", group="g", vo="lab"
    )


def test_the_key_holds_what_decides_and_the_identity_of_the_token():
    done = optimize(draft(tags=("B", "A", "A"), sites=("South",)), WORLD)
    assert (done.key.owner, done.key.group, done.key.vo) == ("ann", "g", "lab")
    assert (done.key.tags, done.key.sites) == (("A", "B"), ("South",))


def test_jobs_that_are_alike_share_a_key_whatever_they_run():
    one = optimize(draft(arguments=("1",), name="a"), WORLD)
    other = optimize(draft(arguments=("2",), name="b"), WORLD)
    assert one.key == other.key
    assert optimize(draft(memory_mb=1), WORLD).key != one.key


def test_an_unconfigured_site_is_refused():
    with pytest.raises(InvalidJob) as caught:
        optimize(draft(sites=("Nroth",)), WORLD)
    assert caught.value.data["attribute"] == "Site"
    assert "North" in caught.value.hint
    with pytest.raises(InvalidJob) as caught:
        optimize(draft(sites=("Atlantis",)), WORLD)
    assert "lode site ls" in caught.value.hint


def test_what_is_not_there_may_be_waited_for():
    done = optimize(msgspec.structs.replace(draft(sites=("Nroth",)), hold=True), WORLD)
    assert "Site excludes 2 of 2" in done.never
    done = optimize(msgspec.structs.replace(draft(sites=("Nroth", "North")), hold=True), WORLD)
    assert done.never == ""


def test_an_unconfigured_site_may_be_banned():
    assert optimize(draft(banned_sites=("Nroth",)), WORLD).never == ""
    assert ban_of_nothing("North", WORLD) == ""
    assert ban_of_nothing("Nroth", WORLD).endswith("'Nroth' for VO lab; the ban is kept. Did you mean North?")
    assert ban_of_nothing("Atlantis", WORLD).endswith("'Atlantis' for VO lab; the ban is kept.")


def test_an_unconfigured_submission_pool_is_refused_or_its_job_held():
    world = replace(
        WORLD,
        pools=dict.fromkeys(("Local", "Grid"), PoolScope()),
    )
    with pytest.raises(InvalidJob) as caught:
        optimize(draft(submission_pools=("Local", "Gird")), world)
    assert caught.value.data["attribute"] == "SubmitPool"
    assert caught.value.hint.startswith("Did you mean Grid? ")
    assert optimize(draft(submission_pools=("Local",)), world).never == ""
    held = optimize(msgspec.structs.replace(draft(submission_pools=("Gird",)), hold=True), world)
    assert "SubmitPool excludes 2 of 2" in held.never
    assert optimize(draft(submission_pools=("Gird",)), WORLD).never == ""  # no pools are configured


def test_a_site_that_is_banned_leaves_nothing():
    done = optimize(draft(sites=("North",), banned_sites=("North",)), WORLD)
    assert "BannedSite excludes 1 of 2, Site excludes 1 of 2" in done.never


def test_requirements_become_a_pool_of_queues_and_their_order_does_not_matter():
    one = optimize(draft(requirements={"Software": "root", "Memory": 100}), WORLD)
    other = optimize(draft(requirements={"Memory": 100, "Software": ["root"]}), WORLD)
    assert one.requirements.pool == other.requirements.pool == one.key.submit_pool
    assert one.requirements.pool.startswith("req")
    assert one.pool_mask.bit_count() == 1
    assert optimize(draft(), WORLD).requirements.pool == ""


def test_what_no_queue_fulfils_says_why():
    done = optimize(draft(requirements={"Software": "fluka"}), WORLD)
    assert "Software excludes 2 of 2" in done.never
    done = optimize(draft(memory_mb=10**6), WORLD)
    assert "2 of 2" in done.never
    done = optimize(draft(), make_world("", "lab"))
    assert "no queue is configured" in done.never


specs = st.fixed_dictionaries(
    {},
    optional={
        "memory_mb": st.sampled_from([0, 2_000, 2_001, 8_001]),
        "norm_cpu_seconds": st.sampled_from([1, 1_000, 1_001, 100_001]),
        "sites": st.sampled_from([(), ("North",), ("South",)]),
        "tags": st.sampled_from([(), ("GPU",)]),
        "requirements": st.sampled_from([{}, {"Software": "root"}, {"Software": "x"}, {"Memory": 5_000}]),
    },
)


@given(specs)
def test_never_means_that_no_offer_is_eligible(spec):
    done = optimize(draft(**spec), WORLD)
    assert done.key is not None
    eligible = [one for one in WORLD.offers if not one.reasons(done.key, done.pool_mask)]
    assert bool(done.never) == (not eligible)
    if done.never:
        assert "VO lab" in done.never


MANY = tuple(f"station-{n}" for n in range(50))


@pytest.mark.parametrize(
    ("spec", "attribute", "words"),
    [
        ({"stations": MANY}, "", ""),
        ({"stations": tuple(f"{n:0250}" for n in range(9))}, "Stations", "at most 4,096"),
        (
            {"stations": MANY, "requirements": {"constraint": " && ".join(f"CE{n}" for n in range(60))}},
            "Stations", "an expression of more than 250 parts",
        ),
        ({"stations": MANY, "requirements": {"Constraint": "CE <"}}, "Requirements.Constraint", "line 1, column 5"),
    ],
)  # fmt: skip
def test_stations_that_make_too_long_an_expression_are_refused_by_their_name(spec, attribute, words):
    if not attribute:
        assert optimize(draft(**spec), WORLD).pool_mask.bit_count() == 2
        return
    with pytest.raises(InvalidJob, match=words) as caught:
        optimize(draft(**spec), WORLD)
    assert caught.value.data["attribute"] == attribute


@pytest.mark.parametrize(
    ("spec", "longest"),
    [
        ({"tags": tuple(f"{n:0250}" for n in range(300)), "grid_ces": ("x",)}, "Tag"),
        ({"grid_ces": tuple(f"s{n}" for n in range(9_999))}, "GridCE"),
        ({"requirements": {"Software": tuple(f"s{n}" for n in range(9_999))}}, "Requirements"),
    ],
)
def test_what_decides_where_a_job_can_run_has_at_most_64_kb(spec, longest):
    with pytest.raises(InvalidJob, match="at most 65536") as caught:
        optimize(msgspec.structs.replace(draft(**spec), hold=True), WORLD)
    assert caught.value.data["attribute"] == longest


def test_a_hundred_names_of_the_longest_are_no_large_key():
    names = tuple(f"{n:0255}" for n in range(200))
    assert optimize(msgspec.structs.replace(draft(grid_ces=names), hold=True), WORLD).key.grid_ces == names


VERSIONS = TEXT.replace("[site.North]", 'Python = "version"\n[site.North]', 1) + 'Python = "3.9"\n'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("jdl", 'Executable = "x"; Requirements = [ Python = 3.10 ];'),
        ("jdl", 'Executable = "x"; Requirements = [ Python = {"3.9", 3.10} ];'),
        ("json", '{"Executable": "x", "Requirements": {"Python": 3.10}}'),
        ("cfg", "Executable = x\nRequirements\n{\n  Python = 3.9\n}"),
        ("jdl", 'Executable = "x"; Parameters = {3.10}; Requirements = [ Python = "%s" ];'),
    ],
)
def test_a_version_that_is_a_number_is_refused(form, text):
    """3.10 as a number is 3.1, and such a job once ran where Python was too old."""
    description = read_job(read_description(text, form=form).record)
    (cohort,) = cohorts(description)
    job = msgspec.structs.replace(draft(), spec=msgspec.structs.replace(cohort.spec, norm_cpu_seconds=10))
    with pytest.raises(InvalidJob, match="put it in quotes") as caught:
        optimize(job, make_world(VERSIONS))
    assert caught.value.data["attribute"] == "Requirements.Python"


@pytest.mark.parametrize("wanted", ["3.9", "3.10", 3, ("3.8", 4)])
def test_a_version_in_quotes_or_a_whole_number_is_one(wanted):
    found = optimize(draft(requirements={"Python": wanted}), make_world(VERSIONS))
    assert bool(found.never) == (wanted == "3.10")
