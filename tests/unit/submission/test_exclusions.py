"""What stands between a key and each queue, counted; and the smallest change that would help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.offers import CAUSES, PoolScope
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, compile_requirements, load_resources
from lodesman.decide.submission import find_exclusions, never_text

TAGS = {1: ["a"], 2: ["a", "b"], 3: ["c"], 4: ["a", "b", "c"], 5: []}
REQUIRED = {2: ["b"], 4: ["a", "c"]}
RICH_SITES = "".join(
    f"""
[site.S{n}]
VO = ["lab"]
Platform = "{"el9" if n % 2 else "el8"}"
Disk = {n * 10}
Level = {[5, 7, 7][n % 3]}
Release = "6.{n * 2}"
Exact = "v{n % 2}"
Net = {"true" if n < 4 else "false"}
Free = {n if n < 3 else f'"{"xy"[n % 2]}"'}
Software = {["root", "geant", "gaudi", f"own{n}"][n % 3 :]}
[site.S{n}.ce.c{n}.queue.q]
CPUTime = {n * 1_000}
Memory = {n * 500}
NumberOfProcessors = {n}
Tag = {TAGS[n]}
RequiredTag = {REQUIRED.get(n, [])}
"""
    for n in range(1, 6)
)


def place_of(change):
    """The queue that a change names for instance."""
    return QueueId(change.example.site, change.example.ce, change.example.queue)


def options_of(step):
    """What would do instead, and in how many queues."""
    return tuple((one.value, one.queues) for one in step.options)


TYPES = """[job_description]
Disk = "number"
Level = "number =="
Release = "version"
Exact = "version =="
Net = "boolean"
Software = "list"
"""
SCOPES = {
    "Local": PoolScope(), "Grid": PoolScope(sites=("S1",)), "Far": PoolScope(queues=("S2/c2",)),
    "Wide": PoolScope(sites=("S1",), backends=("moon",)),
}  # fmt: skip
RICH = Policy(
    load_resources([("s.toml", TYPES + RICH_SITES)]),
    submission_pools=SCOPES,
).vo_config("lab")


def names(*choices):
    return st.sets(st.sampled_from(choices), max_size=3).map(lambda found: tuple(sorted(found)))


keys = st.fixed_dictionaries(
    {},
    optional={
        "norm_cpu_seconds": st.integers(1, 7_000),
        "memory_mb": st.integers(0, 3_500),
        "cores": st.integers(1, 7),
        "platforms": names("el8", "el9", "vax"),
        "sites": names("S1", "S2", "S3", "S9"),
        "banned_sites": names("S1", "S2", "S3", "S4", "S5"),
        "grid_ces": names("c1", "c2", "moon"),
        "tags": names("a", "b", "c", "gpu", "ssd"),
        "submission_pools": names("Local", "Nowhere", "Grid", "Far"),
    },
)
requirements = st.fixed_dictionaries(
    {},
    optional={
        "Disk": st.integers(0, 70),
        "Level": st.sampled_from([5, 7, 9, (3, 4)]),
        "Release": st.sampled_from(["6.1", "6.9", "6.10", "7.0", ("7.1", "8.0")]),
        "Exact": st.sampled_from(["v0", "v1", "v2"]),
        "Net": st.booleans(),
        "Free": st.sampled_from([1, 2, 3, "x", "y", "z", "2"]),
        "Software": st.sampled_from(["root", "own1", "fluka", ("fluka", "gaudi")]),
        "Nothing": st.just(1),
    },
)


def is_carried(key, offer):
    """Whether one of the pools that the job names brings pilots there."""
    scopes = [SCOPES[name] for name in key.submission_pools if name in SCOPES]
    return not key.submission_pools or any(one.serves(offer.queue, offer.backend) for one in scopes)


@given(keys, requirements)
def test_a_queue_is_eligible_if_and_only_if_nothing_speaks_against_it(make_key_of, changes, wanted):
    pool = "req1:x" if wanted else ""
    key = make_key_of(submit_pool=pool, **changes)
    found = find_exclusions(key, wanted, RICH)
    mask = RICH.table.eligible_mask(compile_requirements(wanted, RICH.table.types)) if wanted else 0
    offers = [one for one in RICH.offers if not one.reasons(key, mask) and is_carried(key, one)]
    assert found.eligible == sum(1 << one.bit for one in offers)
    assert found.total == 5
    criteria = compile_requirements(wanted, RICH.table.types)
    for offer in RICH.offers:
        against = len(offer.reasons(key, 1 << offer.bit)) + len(RICH.table.reasons(offer.bit, criteria))
        against += not is_carried(key, offer)
        assert sum(mask >> offer.bit & 1 for _, mask in found.planes) == against
    counts = found.counts()
    assert counts == sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    assert all(0 < n <= 5 for _, n in counts)
    assert (never_text(found) == "") == bool(found.eligible)


# A job is not submitted with names that are not configured; to leave them out admits no queue.
WITHOUT_UNKNOWN = ("Site without S9", "SubmitPool without Nowhere")


@given(keys, requirements)
def test_the_smallest_change_is_smallest_and_helps(make_key_of, changes, wanted):
    key = make_key_of(submit_pool="req1:x" if wanted else "", **changes)
    found = find_exclusions(key, wanted, RICH)
    changes = found.job_changes()
    if found.eligible:
        assert changes == []
        return
    fewest = min(sum(mask >> n & 1 for _, mask in found.planes) for n in range(5))
    assert changes
    assert {sum(step.text not in WITHOUT_UNKNOWN for step in one.steps) for one in changes} == {fewest}
    assert [one.queues for one in changes] == sorted((one.queues for one in changes), reverse=True)
    assert found.job_changes(1) == changes[:1]
    for one in changes:
        other_pool = any(step.text.startswith("SubmitPool ->") for step in one.steps)
        assert len(one.example.reasons) == fewest - other_pool
        eased, left = ease(key, wanted, one)
        again = find_exclusions(eased, left, RICH)
        assert again.eligible.bit_count() == one.queues
        assert again.eligible >> RICH.table.bit(place_of(one)) & 1


FIELDS = {
    "CPUTime": "norm_cpu_seconds", "Memory": "memory_mb", "NumberOfProcessors": "cores", "Site": "sites",
    "BannedSite": "banned_sites", "GridCE": "grid_ces", "Platform": "platforms", "Tag": "tags", "RequiredTag": "tags",
    "SubmitPool": "submission_pools",
}  # fmt: skip


def ease(key, wanted, remedy):
    """The job as the remedy would have it, read from its text and held against the value that programs get."""
    changes, left = {}, dict(wanted)
    for step in remedy.steps:
        name, given_value = step.criterion, step.instead
        if name.startswith("Requirements."):
            name = name.removeprefix("Requirements.")
            if given_value is None:
                assert step.text.endswith(" left out")
                del left[name]
            else:
                left[name] = given_value
                values = given_value if isinstance(given_value, tuple) else (given_value,)
                assert step.text.endswith(f" -> {' or '.join(map(str, values))}")
            continue
        before = changes.get(FIELDS[name], getattr(key, FIELDS[name]))
        read = read_text(step.text, before)
        assert read == (() if given_value is None else given_value)
        changes[FIELDS[name]] = read
    return replace(key, **changes, **({} if left else {"submit_pool": ""})), left


def read_text(text, before):
    """The value that the text of a step asks for, where `before` is the value now."""
    words = text.partition(" ")[2]
    if words.startswith("without "):
        return tuple(one for one in before if one not in words.removeprefix("without ").split(", "))
    if words.startswith("with "):
        return tuple(sorted({*before, *words.removeprefix("with ").split(", ")}))
    told = words.rpartition("-> ")[2]
    return int(told) if isinstance(before, int) else tuple(told.split(" or ")) if words != "left out" else ()


SITES = "".join(
    f"""
[site.S{n}]
VO = ["lab"]
Platform = "{"el9" if n % 2 else "el8"}"
Disk = {n * 10}
[site.S{n}.ce.c.queue.q]
CPUTime = {n * 1_000}
Memory = {n * 500}
NumberOfProcessors = {n}
"""
    for n in range(1, 6)
)
WORLD = Policy(load_resources([("s.toml", '[job_description]\nDisk = "number"\n' + SITES)])).vo_config("lab")


@pytest.fixture(scope="module")
def make_key_of():
    def make(**changes):
        return TaskQueueKey(**{"owner": "a", "group": "g", "vo": "lab", "norm_cpu_seconds": 1, **changes})

    return make


def test_the_best_change_gains_most_queues_and_has_the_value(make_key_of):
    found = find_exclusions(make_key_of(norm_cpu_seconds=9_000, platforms=("el9",)), {}, WORLD)
    best = found.job_changes()[0]
    assert (best.text, best.queues, best.steps[0].instead) == ("CPUTime 9000 -> 1000", 3, 1_000)
    assert options_of(best.steps[0]) == ((5_000, 1), (3_000, 2), (1_000, 3))
    assert never_text(found) == (
        "no queue of VO lab can run it: CPUTime excludes 5 of 5, Platform excludes 2 of 5; "
        "suggestion: CPUTime 9000 -> 1000 (3 of 5 queues)"
    )


def test_requirements_are_counted_one_by_one(make_key_of):
    found = find_exclusions(make_key_of(submit_pool="req1:x"), {"Disk": 30, "Nothing": 1}, WORLD)
    assert dict(found.counts()) == {"Requirements.Disk": 2, "Requirements.Nothing": 5}
    assert [one.text for one in found.job_changes()] == ["Requirements.Nothing left out"]


@pytest.mark.parametrize(
    ("changes", "wanted", "text"),
    [
        ({"sites": ("S9",)}, {}, "Site -> S1 or S2 or S3"),
        ({"banned_sites": ("S1", "S2", "S3", "S4", "S5")}, {}, "BannedSite without S1, S2, S3"),
        ({"grid_ces": ("moon",)}, {}, "GridCE -> c"),
        ({"platforms": ("vax",)}, {}, "Platform -> el9 or el8"),
        ({"tags": ("gpu", "ssd")}, {}, "Tag without gpu, ssd"),
        ({"cores": 9}, {}, "NumberOfProcessors 9 -> 1"),
        ({}, {"Disk": 70}, "Requirements.Disk 70 -> 10"),
        (
            {"sites": ("S1",), "cores": 2},
            {"Disk": 70},
            "Site -> S2 or S3 or S4 and Requirements.Disk 70 -> 20",
        ),
    ],
)
def test_each_criterion_says_what_would_do(make_key_of, changes, wanted, text):
    key = make_key_of(submit_pool="req1:x" if wanted else "", **changes)
    assert find_exclusions(key, wanted, WORLD).job_changes()[0].text == text


def test_unreadable_requirements_exclude_everything(make_key_of):
    found = find_exclusions(make_key_of(submit_pool="req1:x"), {"Disk": "many"}, WORLD)
    assert dict(found.counts()) == {"Requirements.Disk": 5}
    assert found.eligible == 0
    (remedy,) = found.job_changes()
    assert (remedy.text, remedy.queues) == ("Requirements.Disk left out", 5)
    assert remedy.example.reasons == ["Requirement 'Disk': a number is expected: 'many' is not a number"]


def test_what_cannot_be_read_hides_nothing_of_the_rest(make_key_of):
    wanted = {"Nothing": 1, "Disk": "many", "Platform": "el9"}
    found = find_exclusions(make_key_of(submit_pool="req1:x", cores=9), wanted, WORLD)
    assert dict(found.counts()) == {
        "NumberOfProcessors": 5, "Requirements.Disk": 5, "Requirements.Nothing": 5, "Requirements.Platform": 2,
    }  # fmt: skip
    (remedy,) = found.job_changes()
    assert {step.criterion: (step.text, step.instead) for step in remedy.steps} == {
        "NumberOfProcessors": ("NumberOfProcessors 9 -> 1", 1),
        "Requirements.Disk": ("Requirements.Disk left out", None),
        "Requirements.Nothing": ("Requirements.Nothing left out", None),
    }
    assert remedy.queues == 3
    reasons = found.reasons(WORLD.table.bit(place_of(remedy)))
    assert list(reasons) == remedy.example.reasons
    assert len(reasons) == 3
    assert "'many' is not a number" in reasons[-1]
    assert find_exclusions(make_key_of(), {"Disk": 10}, WORLD).reasons(0) == ()


def test_a_vo_without_queues_has_no_remedy(make_key_of):
    config = load_resources([("s.toml", SITES)])
    found = find_exclusions(make_key_of(vo="lone"), {}, Policy(config).vo_config("lone"))
    assert never_text(found) == "no queue is configured for VO lone"
    assert found.job_changes() == []


@pytest.mark.slow
def test_two_thousand_queues_are_counted(make_key_of):
    text = "".join(
        f'[site.S{n}.ce.c.queue.q]\nVO = ["lab"]\nCPUTime = {n + 1}\nSoftware = ["v{n % 50}"]\n'
        for n in range(2_000)
    )
    world = Policy(load_resources([("s.toml", text)])).vo_config("lab")
    key = make_key_of(norm_cpu_seconds=1_999, submit_pool="req1:x")
    found = find_exclusions(key, {"Software": "v7"}, world)
    assert dict(found.counts()) == {"CPUTime": 1_998, "Requirements.Software": 1_960}
    assert found.job_changes()[0].queues == 40


def world_of(*queues, types=""):
    """A queue at a site of its own for each text of parameters."""
    text = "".join(f"[site.S{n}.ce.c.queue.q]\n{one}\n" for n, one in enumerate(queues))
    return Policy(load_resources([("s.toml", types + text)])).vo_config("lab")


def told(world, key, wanted=()):
    return [(one.text, one.queues) for one in find_exclusions(key, dict(wanted), world).job_changes()]


def test_of_tags_the_whole_set_that_gains_most_is_suggested(make_key_of):
    world = world_of('Tag = ["x"]', 'Tag = ["x"]', 'Tag = ["x", "e"]', "", 'Tag = ["x", "d", "e"]')
    key = make_key_of(tags=("a", "b", "c", "d", "e", "x"))
    assert told(world, key) == [("Tag without a, b, c, d, e, x", 5)]
    key = make_key_of(tags=("a", "b", "c", "d", "e"))
    assert told(world, key) == [("Tag without a, b, c, d, e", 5)]
    world = world_of(*['Tag = ["a"]'] * 3, *['Tag = ["b", "c"]'] * 2)
    assert told(world, make_key_of(tags=("a", "b", "c"))) == [("Tag without b, c", 3)]
    (step,) = find_exclusions(make_key_of(tags=("a", "b", "c")), {}, world).job_changes()[0].steps
    assert (options_of(step), step.instead) == ((("b, c", 3), ("a", 2)), ("a",))


def test_of_required_tags_too(make_key_of):
    world = world_of(
        'Tag = ["a", "b", "c", "d"]\nRequiredTag = ["a", "b", "c", "d"]', 'Tag = ["x"]\nRequiredTag = ["x"]'
    )
    assert told(world, make_key_of()) == [("Tag with x", 1)]
    (step,) = find_exclusions(make_key_of(), {}, world).job_changes()[0].steps
    assert options_of(step) == (("x", 1), ("a, b, c, d", 1))


def test_of_values_that_must_be_equal_the_commonest_is_suggested(make_key_of):
    world = world_of("N = 5", "N = 6", "N = 6", "N = 7", types='[job_description]\nN = "number =="\n')
    key = make_key_of(submit_pool="req1:x")
    assert told(world, key, {"N": 9}) == [("Requirements.N 9 -> 6", 2)]
    assert told(world, key, {"N": [1, 2]}) == [("Requirements.N 1 or 2 -> 6", 2)]


def test_of_versions_what_all_have(make_key_of):
    world = world_of('V = "6.9"', 'V = "6.10"', 'V = "6.2"', types='[job_description]\nV = "version"\n')
    key = make_key_of(submit_pool="req1:x")
    found = find_exclusions(key, {"V": "7.1"}, world).job_changes()[0]
    assert (found.text, found.queues) == ("Requirements.V 7.1 -> 6.2", 3)
    assert options_of(found.steps[0]) == (("6.10", 1), ("6.9", 2), ("6.2", 3))


def test_of_truth_values_the_other_one(make_key_of):
    world = world_of("On = true", "On = true", "", types='[job_description]\nOn = "boolean"\n')
    key = make_key_of(submit_pool="req1:x")
    assert told(world, key, {"On": False}) == [("Requirements.On False -> True", 2)]


def test_of_names_only_the_given_ones_count(make_key_of):
    world = world_of(*[f'Platform = "p{n}"' for n in range(5)])
    assert told(world, make_key_of(platforms=("vax",))) == [("Platform -> p0 or p1 or p2", 3)]
    assert told(world, make_key_of(sites=("Moon",))) == [("Site -> S0 or S1 or S2", 3)]
    banned = make_key_of(banned_sites=tuple(f"S{n}" for n in range(5)))
    assert told(world, banned) == [("BannedSite without S0, S1, S2", 3)]


def test_the_change_that_gains_most_comes_first_though_fewer_fail_by_it(make_key_of):
    """Five queues fail by five platforms, three of them reported; four by one amount of memory."""
    world = world_of(
        *[f'Platform = "p{n}"\nMemory = 100' for n in range(5)], *['Platform = "el9"\nMemory = 5'] * 4
    )
    key = make_key_of(platforms=("el9",), memory_mb=50)
    assert told(world, key) == [("Memory 50 -> 5", 4), ("Platform -> p0 or p1 or p2", 3)]
    assert find_exclusions(key, {}, world).job_changes(1)[0].text == "Memory 50 -> 5"


def test_unconfigured_submission_pools_exclude_everything(make_key_of):
    found = find_exclusions(make_key_of(submission_pools=("Nowhere",)), {}, RICH)
    assert dict(found.counts())["SubmitPool"] == 5
    assert found.job_changes()[0].text == "SubmitPool -> Local or Grid or Wide"
    assert find_exclusions(make_key_of(submission_pools=("Local", "Nowhere")), {}, RICH).eligible
    assert find_exclusions(
        make_key_of(submission_pools=("Nowhere",)), {}, WORLD
    ).eligible  # no pools are configured


# --- queues to which no pilot is ever sent ---------------------------------------------------------------

CLOSED = """
[site.A]
VO = ["lab"]
CPUTime = 1000
[site.A.ce.c.queue.open]
[site.A.ce.c.queue.manual]
Backend = "manual"
[site.A.ce.c.queue.moon]
Backend = "moon"
[site.A.ce.c.queue.shut]
MaxTotalJobs = 0
[site.A.ce.c.queue.dammed]
MaxWaitingJobs = 0
[site.A.ce.c.queue.slotless]
Slots = 0
[site.A.ce.c.queue.flowing]
MaxWaitingJobs = 0
WaitingToRunningRatio = 0.5
"""
NAMES = ("open", "manual", "moon", "shut", "dammed", "slotless", "flowing")
NEVER = {"moon": "Backend", "shut": "MaxTotalJobs", "dammed": "MaxWaitingJobs", "slotless": "Slots"}


def closed_world(*alive):
    there = frozenset(pilot(name) for name in alive)
    return Policy(load_resources([("s.toml", CLOSED)]), inhabited=among(there)).vo_config("lab")


def pilot(queue, **more):
    """What a pilot of the queue presents."""
    return ResourceRequest(
        **{"vo": "lab", "site": "A", "ce": "c", "queue": queue, "norm_cpu_seconds": 1_000} | more
    )


def among(there):
    """Live pilots, by the queues that are asked about."""
    return lambda queues: frozenset(one for one in there if (one.site, one.ce, one.queue) in queues)


def named(world, mask):
    return {world.table.queues[ordinal].queue for ordinal in range(len(NAMES)) if mask >> ordinal & 1}


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 2_000))
def test_one_predicate_excludes_queues_without_pilots(make_key_of, alive, cpu):
    """What nothing is sent to counts only while a pilot lives there, for submission, refresh and explanation alike."""
    world, key = closed_world(*alive), make_key_of(norm_cpu_seconds=cpu)
    found = find_exclusions(key, {}, world)
    assert world.possible_queues(key, 0) == found.eligible
    expected = set() if cpu > 1_000 else set(NAMES) - (NEVER.keys() - alive)
    assert named(world, found.eligible) == expected
    planes = {name: named(world, mask) for name, mask in found.planes if name in CAUSES}
    no_use = NEVER.keys() if cpu > 1_000 else NEVER.keys() - alive
    assert planes == {NEVER[name]: {name} for name in no_use}
    with_pool = replace(key, submit_pool="req1:x")
    assert world.possible_queues(with_pool, world.table.open_to_vo) == found.eligible


def test_changes_by_sites_are_attributed_to_the_sites(make_key_of):
    text = '[site.A]\nVO = ["lab"]\nBackend = "moon"\n[site.A.ce.c.queue.q]\nCPUTime = 1000\n'
    world = Policy(load_resources([("s.toml", text)])).vo_config("lab")
    found = find_exclusions(make_key_of(), {}, world)
    (remedy,) = found.job_changes()
    assert remedy.text == "Backend of the queues, by the site administrator (there is no backend 'moon' here)"
    assert remedy.example.reasons == ["there is no backend 'moon' here"]
    assert never_text(found) == (
        f"no queue of VO lab can run it: Backend excludes 1 of 1; suggestion: {remedy.text} (1 of 1 queue)"
    )
    both = find_exclusions(make_key_of(norm_cpu_seconds=9_000), {}, world).job_changes()[0]
    assert "CPUTime 9000 -> 1000" in both.text
    assert "by the site administrator" in both.text
    assert len(both.example.reasons) == 2


def test_unknown_requirements_open_no_queue(make_key_of):
    found = find_exclusions(make_key_of(submit_pool="req1:x"), None, WORLD)
    assert (found.eligible, dict(found.counts())) == (0, {"Requirements": 5})
    assert found.job_changes()[0].text == "Requirements left out"
    assert found.reasons(0) == ("its Requirements are not known any more",)


def test_a_world_is_made_anew_only_when_pilots_come_or_go_where_none_is_sent():
    alive = [frozenset()]
    policy = Policy(load_resources([("s.toml", CLOSED)]), inhabited=lambda queues: among(alive[0])(queues))
    first = policy.vo_config("lab")
    policy.verdicts["any"], _ = "no", first.places
    alive[0] = frozenset({pilot("open"), pilot("shut", site="Elsewhere")})
    assert policy.vo_config("lab") is first
    assert policy.verdicts
    alive[0] = frozenset({pilot("shut")})
    second = policy.vo_config("lab")
    assert second is not first
    assert policy.verdicts == {}  # what was judged in the world before
    assert policy.vo_config("lab") is second
    assert (second.places is first.places, second.residents.requests) == (True, alive[0])


@pytest.mark.parametrize("other", [
    {"vo": "other"}, {"groups": ("others",)}, {"owner": "bob"}, {"norm_cpu_seconds": 10}, {"cores": 0},
])  # fmt: skip
def test_a_pilot_that_may_not_take_the_job_makes_no_queue_possible(make_key_of, other):
    """Nor is a change suggested that leads to its queue."""
    policy = Policy(load_resources([("s.toml", CLOSED)]), inhabited=among({pilot("shut", **other)}))
    world, key = policy.vo_config("lab"), make_key_of(norm_cpu_seconds=100, submit_pool="req1:x")
    shut = 1 << world.table.bit(QueueId("A", "c", "shut"))
    assert not world.possible_queues(key, shut)
    found = find_exclusions(key, {"Software": "root"}, world)
    assert dict(found.planes)["MaxTotalJobs"] == shut
    assert all(change.example.queue != "shut" for change in found.job_changes())
    vars(policy)["inhabited"] = among({pilot("shut")})
    assert policy.vo_config("lab").possible_queues(key, shut) == shut
