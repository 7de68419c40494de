"""Random worlds, held against brute force: whatever is impossible has a smallest change, and it is as good as any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.decide.submission import find_exclusions


def place_of(change):
    """The queue that a change names for instance."""
    return QueueId(change.example.site, change.example.ce, change.example.queue)


def options_of(step):
    """What would do instead, and in how many queues."""
    return tuple((one.value, one.queues) for one in step.options)


TYPES = '[job_description]\nN = "number"\nV = "version"\nE = "number =="\n'
TAGS = ("a", "b", "c")
FIELDS = {
    "CPUTime": "norm_cpu_seconds", "Memory": "memory_mb", "Platform": "platforms", "Tag": "tags", "RequiredTag": "tags",
    "NumberOfProcessors": "cores",
}  # fmt: skip
MAYBE = {
    "N": st.integers(1, 20).map(str),
    "V": st.integers(0, 9).map('"1.{}"'.format),
    "E": st.integers(1, 4).map(str),
    "T": st.integers(1, 20).map('"{}"'.format),
    "M": st.sampled_from(['"3"', "7", "true", '"x"', '[1, "y"]']),
    "Memory": st.sampled_from(["1000", "4000", "9000"]),
    "CPUTime": st.sampled_from(["1000", "4000", "9000"]),
    "Platform": st.sampled_from(['"p0"', '["p0", "p1"]', '["p1", "p2"]']),
}
WANTED = {
    "N": st.sampled_from([5, 15, 30]),
    "V": st.sampled_from(["1.3", "1.8", "2"]),
    "E": st.sampled_from([1, 2, 9]),
    "T": st.sampled_from([5, 15, 25, "7"]),
    "M": st.sampled_from([3, 9, True, "x", "q", False]),
}


@st.composite
def queues(draw, *, tags_within=True):
    params = {name: draw(values) for name, values in MAYBE.items() if draw(st.integers(0, 4))}
    offered = draw(st.sets(st.sampled_from(TAGS)))
    required = draw(st.sets(st.sampled_from(TAGS)))
    params["Tag"] = str(sorted(offered))
    params["RequiredTag"] = str(sorted(required & offered if tags_within else required))
    return params


@st.composite
def jobs(draw):
    wanted = {name: draw(values) for name, values in WANTED.items() if draw(st.integers(0, 4)) < 2}
    key = TaskQueueKey(
        owner="a",
        group="g",
        vo="lab",
        submit_pool="req2:x" if wanted else "",
        norm_cpu_seconds=draw(st.sampled_from([1, 4_000, 9_500])),
        memory_mb=draw(st.sampled_from([0, 4_000, 9_500])),
        tags=tuple(sorted(draw(st.sets(st.sampled_from((*TAGS, "d")), max_size=3)))),
        platforms=tuple(sorted(draw(st.sets(st.sampled_from(["p0", "p1", "p9"]), max_size=2)))),
    )
    return key, wanted


def toml_world(places):
    text = "".join(
        f"[site.S{n}.ce.c.queue.q]\n" + "".join(f"{name} = {value}\n" for name, value in params.items())
        for n, params in enumerate(places)
    )
    return Policy(load_resources([("s.toml", TYPES + text)])).vo_config("lab")


def cfg_world(places):
    """The same in DIRAC's language, where each value is a text, and a tag that is required need not be offered."""
    sites = "".join(
        f"S{n}\n{{\nCEs\n{{\nc\n{{\nQueues\n{{\nq\n{{\n{params}}}\n}}\n}}\n}}\n}}\n"
        for n, params in enumerate(
            "".join(f"{name} = {bare(value)}\n" for name, value in one.items()) for one in places
        )
    )
    types = "Operations\n{\nJobDescription\n{\nN = number\nV = version\nE = number ==\n}\n}\n"
    text = f"{types}Resources\n{{\nSites\n{{\n{sites}}}\n}}\n"
    return Policy(load_resources([("s.cfg", text)], vos=["lab"])).vo_config("lab")


def bare(value):
    return value.translate(str.maketrans("", "", "[]\"'"))


def eased(key, wanted, remedy):
    """The job as the remedy would have it, by the values that programs get."""
    values, left = {}, dict(wanted)
    for step in remedy.steps:
        name = step.criterion.removeprefix("Requirements.")
        if name == step.criterion:
            values[FIELDS[name]] = () if step.instead is None else step.instead
        elif step.instead is None:
            del left[name]
        else:
            left[name] = step.instead
    return replace(key, **values, **({} if left else {"submit_pool": ""})), left


def best_single(key, wanted, world):
    """The most queues that any one value instead of a requirement would open, by trying all that there are."""
    best = 0
    for name in wanted:
        found = [world.table.params(bit).get(name.lower()) for bit in world.table.queues]
        values = [one.value for one in found if one is not None]
        for value in values:
            for scalar in value if isinstance(value, tuple) else (value,):
                numbers = [int(scalar)] if str(scalar).isdecimal() else []
                for tried in (scalar, *numbers):
                    left = {**wanted, name: tried}
                    best = max(best, find_exclusions(key, left, world).eligible.bit_count())
    return best


def check(key, wanted, world):
    found = find_exclusions(key, wanted, world)
    changes = found.job_changes()
    if found.eligible:
        assert changes == []
        return
    for one in changes:
        easier, left = eased(key, wanted, one)
        again = find_exclusions(easier, left, world)
        assert again.eligible.bit_count() == one.queues
        assert again.eligible >> world.table.bit(place_of(one)) & 1
    open_to_a_change = [n for n, offer in world.by_bit.items() if not lacks_required(offer.request)]
    fewest = [sum(mask >> n & 1 for _, mask in found.planes) for n in open_to_a_change]
    assert bool(changes) == bool(fewest)
    assert [len(one.steps) for one in changes] == [min(fewest, default=0)] * len(changes)
    if fewest and min(fewest) == 1:
        assert changes[0].queues >= best_single(key, wanted, world)


def lacks_required(request):
    return not set(request.required_tags) <= set(request.tags)


@pytest.mark.slow
@at_most(30)
@given(st.lists(queues(), min_size=1, max_size=6), st.lists(jobs(), min_size=1, max_size=6))
def test_an_impossible_job_always_has_a_smallest_change(places, wishes):
    world = toml_world(places)
    for key, wanted in wishes:
        check(key, wanted, world)


@given(st.lists(queues(tags_within=False), min_size=1, max_size=6), st.lists(jobs(), min_size=1, max_size=6))
def test_it_is_found_behind_queues_that_no_job_could_ever_use(places, wishes):
    """Of DIRAC's language: no job has a tag that a queue requires and does not offer, whatever is changed."""
    world = cfg_world(places)
    for key, wanted in wishes:
        check(key, wanted, world)


def told(world, wanted, **changes):
    key = TaskQueueKey(
        owner="a", group="g", vo="lab", submit_pool="req2:x" if wanted else "", norm_cpu_seconds=1, **changes
    )
    return [(one.text, one.queues) for one in find_exclusions(key, wanted, world).job_changes()]


@pytest.mark.parametrize(
    ("queue", "text"), [({}, "Memory left out"), ({"Memory": "900"}, "Memory 4000 -> 900")]
)
def test_of_a_queue_that_declares_no_memory_none_is_asked(queue, text):
    assert told(toml_world([queue]), {}, memory_mb=4_000) == [(text, 1)]


def test_a_number_spelt_as_text_is_suggested_as_a_number():
    world = cfg_world([{"Scratch": str(n * 100)} for n in range(1, 11)])
    assert told(world, {"Scratch": 5_000}) == [("Requirements.Scratch 5000 -> 100", 10)]
    assert told(world, {"Scratch": [5_000, 6_000]}) == [("Requirements.Scratch 5000 or 6000 -> 100", 10)]
    # Texts on both sides must be equal, and among texts a number is none.
    assert told(world, {"Scratch": "5000"}) == [("Requirements.Scratch 5000 -> 100 or 200 or 300", 3)]


@pytest.mark.parametrize(
    ("offered", "wanted", "text", "queues"),
    [
        (['"3"', "7", '"x"', '[1, "y"]'], 9, "9 -> 1", 3),
        (['"x"', '"x"', "7"], 9, "9 -> x or 7", 3),
        (["5", "7"], "9", "9 -> 5", 2),
        (["5", '"x"', '"x"'], "9", "9 -> x or 5", 3),
        (["true", "true", "3"], 9, "9 -> True", 2),
    ],
)
def test_where_queues_differ_about_an_undeclared_parameter_the_better_is_suggested(
    offered, wanted, text, queues
):
    world = toml_world([{"M": one} for one in offered])
    assert told(world, {"M": wanted}) == [(f"Requirements.M {text}", queues)]


def test_a_tag_that_the_queue_requires_is_not_given_up_with_the_others():
    """Two queues lack b and d, but only a third one, which requires b, has what else is wanted."""
    world = toml_world(
        [{"Tag": "[]", "E": "1"}] * 2
        + [{"Tag": '["b"]', "RequiredTag": '["b"]', "E": "2"}] * 2
        + [{"Tag": '["b"]', "RequiredTag": '["b"]', "E": "3"}]
    )
    found = told(world, {"E": 9}, tags=("b", "d"))
    assert found == [("Tag without d and Requirements.E 9 -> 2", 2)]


MULTI = '"MultiProcessor"'


def test_cores_that_are_given_up_take_their_tag_along_which_a_queue_may_require():
    world = toml_world([{"Tag": f"[{MULTI}]", "RequiredTag": f"[{MULTI}]"}])
    assert told(world, {}, cores=2) == [("NumberOfProcessors 2 -> 1 and Tag with MultiProcessor", 1)]


@st.composite
def queues_with_cores(draw):
    found = draw(queues())
    tags = draw(st.sampled_from(["", MULTI, '"WholeNode"', f'{MULTI}, "4Processors"', '"2Processors"']))
    required = draw(st.sampled_from(["", tags]))
    cores = draw(st.sampled_from([None, "1", "2", "4", "8"]))
    return {
        **{name: value for name, value in found.items() if name in {"Memory", "CPUTime"}},
        "Tag": f"[{tags}]", "RequiredTag": f"[{required}]", **({"NumberOfProcessors": cores} if cores else {}),
    }  # fmt: skip


@pytest.mark.slow
@at_most(100)
@given(
    st.lists(queues_with_cores(), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.sampled_from([(), ("MultiProcessor",), ("WholeNode",), ("d",)]),
    st.sampled_from([0, 4_000, 9_500]),
)
def test_any_job_that_asks_for_cores_is_answered_and_each_change_does_what_it_says(
    places, cores, tags, memory
):
    world = toml_world(places)
    key = TaskQueueKey(owner="a", group="g", vo="lab", cores=cores, tags=tags, memory_mb=memory)
    found = find_exclusions(key, {}, world)
    for one in found.job_changes():
        again = find_exclusions(*eased(key, {}, one), world)
        assert again.eligible.bit_count() == one.queues
        assert again.eligible >> world.table.bit(place_of(one)) & 1
    found.summary()


@pytest.mark.slow
def test_of_two_thousand_queues_maximum_median_and_minimum_are_reported():
    world = toml_world([{"CPUTime": str(n)} for n in range(1, 2_001)])
    key = TaskQueueKey(owner="a", group="g", vo="lab", norm_cpu_seconds=9_999)
    (step,) = find_exclusions(key, {}, world).job_changes()[0].steps
    assert options_of(step) == ((2_000, 1), (1_001, 1_000), (1, 2_000))
