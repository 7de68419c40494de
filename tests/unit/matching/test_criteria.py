"""Who may run what. The matrix of the original matcher (reference dirac 1.6), with strictness as decided."""

from dataclasses import fields, replace

import pytest

from lodesman.decide.matching.criteria import CRITERIA, explain
from lodesman.decide.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1", norm_cpu_seconds=1000)
REQUEST = ResourceRequest(
    vo="vo1", site="LCG.One.org", ce="ce1", platforms=("slc6",), memory_mb=4000, norm_cpu_seconds=10_000
)


def key(**changes):
    return replace(KEY, **changes)


def request(**changes):
    return replace(REQUEST, **changes)


def criteria(key_, request_):
    return [reason.criterion for reason in explain(key_, request_)]


def served(keys, request_):
    """The numbers of the keys that fit, from 1 as in the matrix."""
    return [number for number, one in enumerate(keys, 1) if not explain(one, request_)]


def test_a_plain_job_fits_a_plain_resource():
    assert explain(KEY, REQUEST) == ()
    assert not explain(KEY, REQUEST)


# --- the matrix ---------------------------------------------------------------------------------------

PLATFORMS = [
    key(platforms=names)
    for names in (("centos7",), ("ubuntu",), ("centos7", "slc6"), ("debian", "ubuntu"), ())
]


@pytest.mark.parametrize(
    ("platforms", "expected"),
    [
        (("slc6",), [3, 5]),
        (("slc5",), [5]),
        ((ANY,), [1, 2, 3, 4, 5]),
        (("slc6", ANY), [1, 2, 3, 4, 5]),
        (("ubuntu",), [2, 4, 5]),
        (("slc5", "slc6", "ubuntu"), [2, 3, 4, 5]),
        ((), [5]),
    ],
)
def test_platforms(platforms, expected):
    assert served(PLATFORMS, request(platforms=platforms)) == expected


TAGS = [key(tags=tags) for tags in (("MP",), ("SP",), ("MP", "SP"), ("GPU", "MP"), (), ("17P", "MP"))]


@pytest.mark.parametrize(
    ("tags", "required", "expected"),
    [
        ((), (), [5]),
        (("MP",), (), [1, 5]),
        (("MP", "GPU"), (), [1, 4, 5]),
        (("MP",), ("MP",), [1]),
        (("MP", "GPU"), ("MP",), [1, 4]),
        (("MP", "GPU"), ("MP", "GPU"), [4]),
        ((ANY,), (), [1, 2, 3, 4, 5, 6]),
        ((ANY,), ("MP",), [1, 3, 4, 6]),
        (("17P", "MP", "SP"), (), [1, 2, 3, 5, 6]),
    ],
)
def test_tags(tags, required, expected):
    assert served(TAGS, request(tags=tags, required_tags=required)) == expected


BANNED = [key(banned_sites=sites) for sites in (("A", "B"), ("B", "C"))]


@pytest.mark.parametrize(
    ("site", "expected"), [("C", [1]), ("A", [2]), ("B", []), ("", [1, 2]), (ANY, [1, 2])]
)
def test_banned_sites(site, expected):
    assert served(BANNED, request(site=site)) == expected


SITES = [key(sites=sites) for sites in (("A", "B"), ("B",), ())]


@pytest.mark.parametrize(
    ("site", "expected"), [("A", [1, 3]), ("B", [1, 2, 3]), ("C", [3]), ("", [3]), (ANY, [1, 2, 3])]
)
def test_sites(site, expected):
    assert served(SITES, request(site=site)) == expected


# --- one criterion after the other --------------------------------------------------------------------


REASONS = [
    (key(vo="atlas"), request(vo="lhcb"), "vo", "the resource serves VO lhcb, not atlas"),
    (
        key(),
        request(groups=("chem", "phys")),
        "group",
        "the resource takes jobs of chem, phys, not of group bio",
    ),
    (
        key(job_class="app", variant="v1"),
        request(job_classes=("NO_JC", "app.v2")),
        "job_class",
        "jc_list of the queue has NO_JC, app.v2: it takes no jobs of class app.v1",
    ),
    (key(), request(groups=()), "group", "the resource takes jobs of nothing, not of group bio"),
    (key(), request(owner="bob"), "owner", "the pilot runs only jobs of bob, not of alice"),
    (
        key(pilot_type=PRIVATE),
        request(),
        "pilot_type",
        "the job needs a private pilot, this one is generic",
    ),
    (key(sites=("X", "Y")), request(site=""), "site", "the job runs only at X, Y, not at an unnamed site"),
    (
        key(sites=tuple(f"S{n}" for n in range(500))),
        request(site="X"),
        "site",
        "the job runs only at S0, S1, S2, S3, S4 and 495 more, not at X",
    ),
    (key(banned_sites=("Z",)), request(site="Z"), "banned_site", "the job bans site Z"),
    (key(grid_ces=("c",)), request(ce=""), "ce", "the job runs only on CE c, not on an unnamed CE"),
    (
        key(platforms=("p",)),
        request(platforms=()),
        "platform",
        "the job needs platform p and the resource declares none",
    ),
    (key(platforms=("p",)), request(), "platform", "the job needs platform p, the resource has slc6"),
    (key(tags=("a", "b")), request(tags=("b",)), "tag", "the resource lacks tag a"),
    (
        key(tags=("b",)),
        request(tags=("a", "b"), required_tags=("a", "b")),
        "required_tag",
        "the resource takes only jobs with tag a",
    ),
    (
        key(job_type="MC"),
        request(job_types=("User",)),
        "job_type",
        "the resource takes jobs of type User, not MC",
    ),
    (key(cores=8), request(), "cores", "the job needs 8 cores, the resource has 1"),
    (key(memory_mb=4001), request(), "memory", "the job needs 4001 MB of memory, the resource has 4000"),
    (
        key(memory_mb=1),
        request(memory_mb=0),
        "memory",
        "the job needs 1 MB of memory, the resource declares none",
    ),
    (
        key(norm_cpu_seconds=10_001),
        request(),
        "cpu_time",
        "the job needs 10001 s of normalised CPU time, the resource has 10000",
    ),
    (
        key(submit_pool="0123456789abcdef"),
        request(submit_pools=("beef",)),
        "submit_pool",
        "the queue does not meet the job's Requirements (SubmitPool 0123456789ab)",
    ),
    (
        key(submission_pools=("gLite",)),
        request(submission_pool=""),
        "submission_pool",
        "the job wants a pilot of submission pool gLite, this one came through none",
    ),
]


@pytest.mark.parametrize(("key_", "request_", "criterion", "sentence"), REASONS)
def test_each_reason_and_its_sentence(key_, request_, criterion, sentence):
    (reason,) = explain(key_, request_)
    assert (reason.criterion, str(reason)) == (criterion, sentence)
    assert explain(key_, request_)


def test_every_criterion_has_its_row_above():
    assert {row[2] for row in REASONS} == {one.name for one in CRITERIA}


@pytest.mark.parametrize(
    ("key_", "request_"),
    [
        (key(cores=8, memory_mb=4000), request(cores=8)),
        (key(norm_cpu_seconds=10_000), request()),
        (key(memory_mb=0, norm_cpu_seconds=0), request(memory_mb=0, norm_cpu_seconds=0)),
        (key(grid_ces=("ce1", "ce2")), request()),
        (key(grid_ces=("ce1",)), request(ce=ANY)),
        (key(submit_pool="cafe"), request(submit_pools=("beef", "cafe"))),
        (key(submission_pools=("SAM", "gLite")), request(submission_pool="SAM")),
        (key(), request(submission_pool="SAM", submit_pools=("beef",))),
        (key(job_type="MC"), request(job_types=None)),
        (key(job_class="app", variant="v1"), request(job_classes=("NO_JC", "app.v1"))),
        (key(job_class="app", variant="v1"), request()),
        (key(job_type="MC"), request(job_types=("Test", ANY))),
        (key(job_type="MC"), request(job_types=("MC", "Test"))),
        (key(), request(groups=("chem", "bio"))),
    ],
)
def test_what_fits(key_, request_):
    assert explain(key_, request_) == ()


def test_what_a_resource_does_not_declare_is_missing():
    asks = key(
        sites=("A",), platforms=("p",), grid_ces=("c",), tags=("t",), submit_pool="x", submission_pools=("s",),
        memory_mb=1, norm_cpu_seconds=1,
    )  # fmt: skip
    assert criteria(asks, ResourceRequest(vo="vo1")) == [
        "site", "platform", "tag", "submit_pool", "ce",
        "submission_pool", "memory", "cpu_time",
    ]  # fmt: skip


def test_any_is_a_wildcard_only_where_the_resource_says_so():
    assert criteria(key(sites=(ANY,)), request()) == ["site"]
    assert criteria(key(submit_pool="x"), request(submit_pools=(ANY,))) == ["submit_pool"]


def test_an_offer_of_no_job_type_takes_none():
    assert criteria(key(), request(job_types=())) == ["job_type"]


# --- private and generic pilots (seed taskqueue-director) --------------------------------------------


@pytest.mark.parametrize(
    ("key_changes", "request_changes", "expected"),
    [
        ({}, {"groups": ("bio",), "owner": "alice"}, []),
        ({"pilot_type": PRIVATE}, {"groups": ("bio",), "owner": "alice"}, []),
        ({"pilot_type": PRIVATE}, {"groups": ("bio",), "owner": "bob"}, ["owner"]),
        ({"pilot_type": PRIVATE}, {"groups": ("chem",), "owner": "alice"}, ["group"]),
        ({"pilot_type": PRIVATE}, {"groups": ("bio",)}, []),
        ({}, {"groups": ("bio",)}, []),
        ({}, {"groups": None}, ["group"]),
        ({"vo": "vo2"}, {"groups": ("bio",), "owner": "alice"}, ["vo"]),
    ],
)
def test_a_private_pilot_takes_only_what_is_of_its_owner_and_group(key_changes, request_changes, expected):
    assert criteria(key(**key_changes), request(pilot_type=PRIVATE, **request_changes)) == expected


def test_a_generic_pilot_takes_any_group_of_its_vo_but_nothing_private():
    assert criteria(key(group="chem", owner="bob"), request()) == []
    assert criteria(key(pilot_type=PRIVATE), request()) == ["pilot_type"]
    assert criteria(key(vo="vo2"), request()) == ["vo"]


# --- the set of criteria ------------------------------------------------------------------------------


def test_every_attribute_of_a_key_that_limits_where_it_runs_has_a_criterion():
    """A new attribute of the key must be put on one side or the other."""
    decide = {
        "vo", "group", "owner", "pilot_type", "sites", "banned_sites", "grid_ces", "platforms", "submit_pool",
        "submission_pools", "job_type", "tags", "cores", "memory_mb", "norm_cpu_seconds", "job_class", "variant",
    }  # fmt: skip
    tell_apart = {
        "project",
        "user_priority",
        "force_generic",
        "pe",
        "consumables",
        "expected_seconds",
        "waits_for_jobs",
        "at_most",
        "submission",
    }
    assert {field.name for field in fields(TaskQueueKey)} == decide | tell_apart
    assert len(CRITERIA) == len(decide)  # tags count twice, class and variant once
    assert len({criterion.name for criterion in CRITERIA}) == len(CRITERIA)


def test_all_reasons_are_reported_not_only_the_first():
    worst = key(vo="vo2", sites=("X",), cores=64, tags=("gpu",))
    assert criteria(worst, request()) == ["vo", "site", "tag", "cores"]
