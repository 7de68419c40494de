"""Cohorts: members sorted by what decides where they run, each kind checked once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import Template, cohorts, read_description, read_job
from lodesman.languages.jobs.attributes import KEY_FIELDS


def expand(spec, members, index, job_id):
    return Template(spec, members).expand(index, job_id)


def described(**attributes):
    return read_job({"Executable": "x", **{n.replace("__", "."): v for n, v in attributes.items()}})


def runs(found):
    return [cohort.runs for cohort in found]


def test_a_single_job_is_one_cohort_of_one():
    description = described(Site="A")
    (cohort,) = cohorts(description)
    assert cohort.runs == ((0, 1),)
    assert cohort.spec is description.spec


def test_members_that_differ_in_text_only_are_one_cohort():
    description = described(Parameters=1_000_000, JobName="%n", Arguments="%s", Site="A")
    started = time.process_time()
    (cohort,) = cohorts(description)
    assert time.process_time() - started < 1
    assert cohort.runs == ((0, 1_000_000),)
    assert cohort.spec is description.spec


def test_members_are_sorted_by_their_key_values_in_order_of_appearance():
    description = described(
        Parameters__site=["A", "A", "B", "A", "C", "C"], Site="%(site)s", Arguments="%n", CPUTime=60
    )
    found = cohorts(description)
    assert runs(found) == [((0, 2), (3, 4)), ((2, 3),), ((4, 6),)]
    assert [cohort.spec.sites for cohort in found] == [("A",), ("B",), ("C",)]
    assert all(cohort.spec.deferred == {} for cohort in found)
    assert all(cohort.spec.arguments == ("%n",) for cohort in found)
    assert all(cohort.spec.norm_cpu_seconds == 60 for cohort in found)


def test_all_values_together_identify_a_cohort():
    description = described(
        Parameters__a=[1, 1, 2, 2],
        Parameters__b=["x", "y", "x", "x"],
        Tag=["t%(a)s", "%(b)s"],
        Priority="%(a)s",
    )
    found = cohorts(description)
    assert runs(found) == [((0, 1),), ((1, 2),), ((2, 4),)]
    assert [(cohort.spec.tags, cohort.spec.user_priority) for cohort in found] == [
        (("t1", "x"), 1),
        (("t1", "y"), 1),
        (("t2", "x"), 2),
    ]


def test_closed_sequences_and_numbers_split_too():
    description = described(Parameters=4, ParameterStart=100, ParameterStep=100, CPUTime="%s")
    assert [cohort.spec.norm_cpu_seconds for cohort in cohorts(description)] == [100, 200, 300, 400]
    description = described(Parameters=12, JobGroup="g%n")
    assert [cohort.spec.project for cohort in cohorts(description)][::11] == ["g00", "g11"]
    description = described(Parameters=1_000, Memory="%s000")
    assert runs(cohorts(description)) == [((0, 1_000),)]


def test_values_that_read_alike_are_one_cohort():
    description = described(Parameters=["100", 100, "200", 100.0, "1e2"], CPUTime="%s")
    found = cohorts(description)
    assert runs(found) == [((0, 2), (3, 5)), ((2, 3),)]
    description = described(Parameters=["ANY", "A", "any", ""], Site="%s")
    assert runs(cohorts(description)) == [((0, 1), (2, 4)), ((1, 2),)]


def test_a_requirement_distinguishes_number_and_text():
    description = described(Parameters=[1, "1", 1.0, True, 1], Requirements={"R": "%s"})
    found = cohorts(description)
    assert [repr(cohort.spec.requirements["R"]) for cohort in found] == ["1", "'1'", "1.0", "True"]
    assert runs(found)[0] == ((0, 1), (4, 5))


def test_a_percent_sign_alone_makes_no_cohorts():
    (cohort,) = cohorts(described(Parameters=10, JobGroup="100%%"))
    assert cohort.spec.project == "100%"
    assert cohort.spec.deferred == {}


def test_what_a_key_brings_in_is_never_filled_again():
    description = described(Parameters=["%n", "%j"], JobGroup="%s", JobName="%n")
    found = cohorts(description)
    assert [cohort.spec.project for cohort in found] == ["%n", "%j"]
    assert [expand(c.spec, description.members, i, 5).project for i, c in enumerate(found)] == ["%n", "%j"]


def test_deferred_values_that_are_no_keys_stay_deferred():
    description = described(Parameters=["1 2", "3"], Arguments="%s", WallTime="5%n", Site="S%n")
    found = cohorts(description)
    assert [cohort.spec.deferred for cohort in found] == [{"Arguments": "%s", "WallTime": "5%n"}] * 2
    assert expand(found[0].spec, description.members, 0, 1).arguments == ("1", "2")
    assert expand(found[1].spec, description.members, 1, 1).wall_seconds == 51


@pytest.mark.parametrize(
    ("attributes", "attribute", "member", "words"),
    [
        ({"Parameters": ["10", "-5"], "CPUTime": "%s"}, "CPUTime", 1, "is negative"),
        ({"Parameters": ["A", "é"], "Platform": "%s"}, "Platform", 1, "ASCII"),
        ({"Parameters": ["A", "A", "B,C"], "Tag": ["%s"]}, "Tag", 2, "comma"),
        ({"Parameters": [1, -1], "Requirements": {"M": "%s"}}, "Requirements", 1, "is negative"),
        ({"Parameters": ["private", "x"], "PilotType": "%s"}, "PilotType", 1, "unknown"),
        ({"Parameters": 13, "ParameterStep": 1, "Priority": "%s"}, "Priority", 10, "too large"),
        (
            {"Parameters": ["", "private"], "PilotType": "%s", "ForceGeneric": 1},
            "ForceGeneric",
            1,
            "PilotType",
        ),
        (
            {"Parameters": [0, 1], "PilotType": "private", "ForceGeneric": "%s"},
            "ForceGeneric",
            1,
            "PilotType",
        ),
    ],
)
def test_a_cohort_that_is_wrong_is_named_by_its_first_member(attributes, attribute, member, words):
    with pytest.raises(InvalidJob) as caught:
        cohorts(described(**attributes))
    error = caught.value
    assert (error.data["attribute"], error.data["member"]) == (attribute, member)
    assert f"of member {member}" in error.message
    assert words in error.message


@pytest.mark.parametrize("more", [{}, {"Parameters": 3}, {"Parameters": 3, "Site": "S%n"}])
def test_private_and_generic_pilots_at_once_are_refused(more):
    with pytest.raises(InvalidJob) as caught:
        cohorts(described(PilotType="Private", ForceGeneric=True, **more))
    assert "asks for generic pilots, PilotType = private for the others." in caught.value.message
    assert caught.value.hint == "Give one of the two."
    for one in ({"PilotType": "private", "ForceGeneric": "no"}, {"ForceGeneric": True}):
        (cohort,) = cohorts(described(**one))
        assert cohort.spec.force_generic == (one["ForceGeneric"] is True)


def test_the_position_is_reported_if_it_is_known():
    parsed = read_description('Executable = "x"; Parameters = {"5", "x"};\n CPUTime = "%s"', form="jdl")
    with pytest.raises(InvalidJob) as caught:
        cohorts(read_job(parsed.record, parsed.positions), places=parsed.positions)
    assert (caught.value.data["line"], caught.value.data["column"]) == (2, 2)


@pytest.mark.parametrize("name", ["cputime", "CPUTIME", "CPUTime"])
def test_the_position_is_reported_whatever_the_spelling(name):
    parsed = read_description(f'Executable = "x"; Parameters = {{"5", "x"}};\n {name} = "%s"', form="jdl")
    with pytest.raises(InvalidJob) as caught:
        cohorts(read_job(parsed.record, parsed.positions), places=parsed.positions)
    assert (caught.value.data["attribute"], caught.value.data["line"]) == ("CPUTime", 2)


def test_members_whose_sites_are_all_banned_are_cohorts_as_any_other():
    found = cohorts(described(Parameters=["A", "B"], Site="%s", BannedSite="B"))
    assert {cohort.spec.sites: cohort.runs for cohort in found} == {("A",): ((0, 1),), ("B",): ((1, 2),)}


@pytest.mark.slow
def test_the_number_of_cohorts_is_limited_and_found_out_early():
    description = described(Parameters=1_000_000, ParameterStep=1, CPUTime="1%s", Tag="t%n")
    started = time.process_time()
    with pytest.raises(InvalidJob) as caught:
        cohorts(description)
    assert time.process_time() - started < 10
    assert caught.value.data == {"attribute": "CPUTime", "limit": 10_000}
    assert "more than 10000 kinds of job" in caught.value.message
    assert len(cohorts(described(Parameters=10_000, Tag="t%n"))) == 10_000
    with pytest.raises(InvalidJob):
        cohorts(described(Parameters=10_001, Tag="t%n"))


WORDS = st.sampled_from(["A", "B", "C", "1", "2", "ANY"])


@given(st.lists(st.tuples(WORDS, st.integers(1, 3)), min_size=1, max_size=12), st.booleans())
def test_every_member_is_in_one_cohort_with_its_own_key(rows, both):
    sites, numbers = [row[0] for row in rows], [row[1] for row in rows]
    description = described(
        Parameters__site=sites,
        Parameters__number=numbers,
        Site="%(site)s",
        CPUTime="%(number)s0" if both else 10,
        Requirements={"N": "%(number)s"} if both else {},
        JobName="%n",
    )
    found = cohorts(description)
    seen = []
    for cohort in found:
        assert list(cohort.runs) == sorted(cohort.runs)
        for start, stop in cohort.runs:
            assert start < stop
            for index in range(start, stop):
                seen.append(index)
                alone = expand(description.spec, description.members, index, index)
                assert {f: getattr(alone, f) for f in KEY_FIELDS} == {
                    f: getattr(cohort.spec, f) for f in KEY_FIELDS
                }
                assert expand(cohort.spec, description.members, index, index) == alone
    assert sorted(seen) == list(range(len(rows)))
    keys = [repr(replace(cohort.spec, name="")) for cohort in found]
    assert len(keys) == len(set(keys))
