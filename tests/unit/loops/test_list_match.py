"""List-match: whom the batch systems are asked about, how often, and what their answers close."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.base.errors import BackendFault
from lodesman.decide.director.options import read_options
from lodesman.decide.matching.offers import PilotShape, offers_of
from lodesman.decide.resources import QueueId, QueueTable, load_resources
from lodesman.server.engines.backend import Check
from lodesman.server.loops import list_match
from lodesman.server.loops.list_match import ListMatch

BIG = "Requested node configuration is not available"
NEVER, YES, SILENT = (
    Check(possible=False, detail=BIG, final=True), Check(possible=True), Check(possible=None, detail="?"),
)  # fmt: skip
PASSING = Check(possible=False, detail=BIG)
TIMES = "(since 1970-01-01 00:16 UTC, it is asked again after 00:21:40 UTC)"
ON = read_options({})
MINUTE = 60.0


def shape(queue="q", **more: Any) -> PilotShape:
    base: dict[str, Any] = {"cores": 1, "memory_mb": 0, "wall_seconds": 0, "options": ()}
    return PilotShape(**({"backend": "slurm", "queue": QueueId("S", "c", queue)} | base | more))


class Slurm:
    """A watch whose batch system answers as the test says, by queue; `asked`: the queues in order."""

    def __init__(self, name="slurm") -> None:
        self.name = name
        self.backend: Any = self
        self.options: tuple[str, ...] = ()
        self.answers: dict[str, Check | None] = {}
        self.specs: list[Any] = []

    def check(self, spec):
        self.specs.append(spec)
        answer = self.answers.get(spec.queue.queue, YES)
        if answer is None:
            raise BackendFault("no answer", transient=True)
        return answer

    @property
    def asked(self):
        return [spec.queue.queue for spec in self.specs]


class World:
    """A list-match, a batch system, and iterations that want pilots."""

    def __init__(self) -> None:
        self.match, self.slurm, self.now = ListMatch(), Slurm(), 1_000.0

    def want(self, *shapes, options=ON, placed=(), wanted=None, closed=(), pools=("Local",)):
        """An iteration. `placed`: queues that get a pilot each; `wanted`: how many pilots could come to each queue."""
        by_queue: dict[QueueId, list[PilotShape]] = {}
        for one in shapes:
            by_queue.setdefault(one.queue, []).append(one)
        queues = [
            SimpleNamespace(
                queue_id=queue, shapes=tuple(found), submission_pools=pools,
                closed="closed" if queue.queue in closed else "",
            )
            for queue, found in by_queue.items()
        ]  # fmt: skip
        counts = wanted or {}
        placement = SimpleNamespace(
            rooms={one: SimpleNamespace(wanted=counts.get(one.queue, 1)) for one in by_queue},
            placements=[SimpleNamespace(queue_id=one, count=1) for one in by_queue if one.queue in placed],
            places=SimpleNamespace(queues=dict(enumerate(queues))),
        )
        self.match.want(cast("Any", placement), options, self.now)

    def tick(self, after=0.0, watch=None):
        """The queues that one tick asks about."""
        self.now += after
        watch = watch or self.slurm
        before = len(watch.specs)
        assert self.match.tick(cast("Any", watch), self.now) == len(watch.specs) - before
        return watch.asked[before:]

    def says(self, *shapes):
        return self.match.refusal(shapes).never

    def now_says(self, *shapes):
        return self.match.refusal(shapes).for_now


@pytest.fixture
def world():
    return World()


# --- the answers --------------------------------------------------------------------------------------


def test_never_is_said_in_the_words_of_the_batch_system(world):
    big = shape(cores=64, memory_mb=512_000, wall_seconds=60, options=("--qos=x", "-A", "y"))
    world.slurm.answers["q"] = NEVER
    world.want(big)
    assert world.says(big) == "", "unknown closes nothing"
    assert world.tick() == ["q"]
    assert world.says(big) == (
        f"slurm says that it never runs pilots of 64 cores, 512000 MB, 60 s with --qos=x -A y there: {BIG} {TIMES}"
    )


@pytest.mark.parametrize("answer", [YES, SILENT, Check(possible=True, detail="it starts next year")])
def test_all_other_answers_close_nothing(world, answer):
    world.slurm.answers["q"] = answer
    world.want(shape())
    world.tick()
    assert world.says(shape()) == ""


def test_an_answer_without_words_and_one_with_too_many(world):
    world.slurm.answers = {
        "a": Check(possible=False, final=True),
        "b": Check(possible=False, detail="x \n y\t" * 500, final=True),
    }
    world.want(shape("a"), shape("b"))
    world.tick()
    assert world.says(shape("a")).endswith(f"pilots of 1 core there: it gives no reason {TIMES}")
    text = world.says(shape("b"))
    assert "x y x y" in text
    assert len(text) < 550


def test_a_queue_is_closed_only_if_the_pilots_of_none_of_its_vos_would_run(world):
    small, large = shape(), shape(cores=64)
    world.slurm.check = lambda spec: NEVER if spec.cores > 1 else YES
    world.want(small, large)
    world.match.tick(cast("Any", world.slurm), world.now)
    assert world.says(large)
    assert world.says(small, large) == world.says(large, small) == world.says() == ""


def test_a_check_asks_with_what_a_submission_would_have(world):
    world.slurm.options = ("--account=grid",)
    text = "[site.S.ce.c.queue.q]\nBackend = 'slurm'\nMaxRAM = 900\nMemory = 2000\nNumberOfProcessors = 8\n"
    text += "WallTime = 7200\nSubmitOptions = '-p \"x y\"'\n"
    (offer,) = offers_of(QueueTable(load_resources([("s.toml", text)]), "lab"), "lab")
    world.want(offer.shape)
    world.tick()
    (spec,) = world.slurm.specs
    assert (spec.queue, spec.count, spec.cores, spec.memory_mb, spec.wall_seconds, spec.options) == (
        QueueId("S", "c", "q"), 1, 8, 900, 7200, ("--account=grid", "-p", "x y"),
    )  # fmt: skip
    assert spec.pilot_file == b""


def test_an_undeclared_queue_asks_for_one_core_alone():
    (offer,) = offers_of(QueueTable(load_resources([("s.toml", "[site.S.ce.c.queue.q]\n")]), "lab"), "lab")
    assert offer.shape == shape(backend="local")
    assert str(offer.shape) == "1 core"


# --- how long they are kept ---------------------------------------------------------------------------


def test_an_answer_is_kept_for_the_delay_and_asked_for_again(world):
    world.slurm.answers["q"] = NEVER
    world.want(shape())
    assert [world.tick(), world.tick(MINUTE), world.tick(3.9 * MINUTE)] == [["q"], [], []]
    assert world.says(shape())
    world.slurm.answers["q"] = YES
    assert world.tick(0.2 * MINUTE) == ["q"]
    assert world.says(shape()) == ""
    assert world.tick(4 * MINUTE) == []


def test_without_a_delay_it_is_asked_about_at_each_poll_and_stands_until_then(world):
    world.slurm.answers["q"] = NEVER
    world.want(shape(), options=read_options({"ListMatchDelay": 0}))
    assert [world.tick(), world.tick(), world.tick(30.0)] == [["q"]] * 3
    assert world.says(shape())


def test_a_clock_that_goes_back_keeps_nothing_for_ever(world):
    world.want(shape())
    world.tick()
    assert world.tick(-1e6) == ["q"]


@pytest.mark.parametrize("answer", [None, SILENT])
def test_a_failure_is_not_kept_and_closes_nothing(world, answer):
    world.slurm.answers["q"] = NEVER
    world.want(shape())
    world.tick()
    world.slurm.answers["q"] = answer
    for _ in range(3):
        world.now += 5 * MINUTE
        if answer is None:
            with pytest.raises(BackendFault):
                world.match.tick(cast("Any", world.slurm), world.now)
        else:
            assert world.tick() == ["q"]
        assert world.says(shape()) == ""
    world.slurm.answers["q"] = NEVER
    assert world.tick(30.0) == ["q"]
    assert world.says(shape())


def test_a_batch_system_that_does_not_answer_is_asked_once_a_poll_and_about_another_queue_then(world):
    world.slurm.answers = {"a": None}
    world.want(shape("a"), shape("b"), shape("c"))
    with pytest.raises(BackendFault):
        world.tick()
    assert world.slurm.asked == ["a"]
    world.slurm.answers = {}
    assert world.tick(30.0) == ["b", "c", "a"]


def test_another_configuration_is_asked_about_anew(world):
    world.slurm.answers["q"] = NEVER
    world.want(shape())
    world.tick()
    world.slurm.options = ("--qos=better",)
    assert world.tick(1.0) == ["q"]
    world.slurm.backend = SimpleNamespace(check=lambda _: YES)
    assert world.match.tick(cast("Any", world.slurm), world.now) == 1
    assert world.says(shape()) == ""
    other = shape(cores=2)
    world.want(other)
    assert world.says(other) == ""


# --- what may pass ------------------------------------------------------------------------------------


def test_a_node_that_was_down_for_a_second_shuts_its_queue_until_the_next_question_and_is_no_never(world):
    world.slurm.answers["q"] = PASSING
    world.want(shape())
    world.tick()
    assert world.says(shape()) == ""
    assert world.now_says(shape()) == (
        f"slurm refuses pilots of 1 core there, which may pass: {BIG} "
        "(since 1970-01-01 00:16 UTC, it is asked again after 00:16:55 UTC)"
    )
    world.slurm.answers["q"] = YES
    assert world.tick(list_match._AGAIN_SECONDS) == ["q"]
    assert world.match.refusal([shape()]) == list_match.Refusal()
    assert world.tick(4 * MINUTE) == [], "that it runs them is kept as before"


@pytest.mark.parametrize("delay", [5.0, 0.5, 0.0, 60.0])
def test_what_stays_refused_is_asked_about_more_and_more_rarely_and_is_never_after_two_minutes(world, delay):
    world.slurm.answers["q"] = PASSING
    world.want(shape(), options=read_options({"ListMatchDelay": delay}), wanted={"q": 1})
    begun, asked, since_when = world.now, [], None
    for second in range(600):
        world.now = begun + second
        world.want(shape(), options=read_options({"ListMatchDelay": delay}))
        asked += [second] * len(world.tick())
        assert bool(world.says(shape())) != bool(world.now_says(shape())), "shut at any moment"
        if world.says(shape()) and since_when is None:
            since_when = second
    assert since_when == 120
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps == sorted(gaps)
    if delay >= 5.0:
        assert asked[:6] == [0, 15, 30, 60, 120, 240]
    assert max(gaps) <= max(1, 60 * delay)


@pytest.mark.parametrize("between", [YES, SILENT, None])
def test_only_refusals_in_a_row_are_never(world, between):
    world.want(shape())
    for answer in (PASSING, PASSING, PASSING, between, PASSING, PASSING):
        world.slurm.answers["q"] = answer
        world.now += 5 * MINUTE  # also a yes is out of date
        world.want(shape())
        try:
            world.match.tick(cast("Any", world.slurm), world.now)
        except BackendFault:
            assert answer is None
        if answer is between:
            assert world.match.refusal([shape()]) == list_match.Refusal()
    assert world.now_says(shape())
    assert not world.says(shape()), "two answers since"


def test_two_answers_far_apart_are_not_several(world):
    world.slurm.answers["q"] = PASSING
    for _ in range(2):
        world.want(shape())
        world.tick(4 * MINUTE)
    assert world.now_says(shape())


def test_a_queue_whose_vos_are_refused_in_both_ways_may_pass(world):
    small, large = shape(), shape(cores=64)
    world.slurm.check = lambda spec: NEVER if spec.cores > 1 else PASSING
    world.want(small, large)
    world.match.tick(cast("Any", world.slurm), world.now)
    assert world.says(large)
    assert world.now_says(small, large) == world.now_says(large, small) == world.now_says(small) != ""
    assert world.says(small, large) == ""


# --- whom it is asked about ---------------------------------------------------------------------------


def test_nobody_is_asked_about_what_nobody_wants(world):
    world.want(shape("a"), shape("b"), wanted={"a": 0, "b": 1})
    assert world.tick() == ["b"]
    assert World().tick() == []


def test_queues_that_get_pilots_come_first_and_then_those_that_could_get_most(world):
    wanted = {"a": 1, "b": 9, "c": 3, "d": 2}
    world.want(*map(shape, "abcd"), wanted=wanted, placed=("d", "a"))
    assert set(world.tick()[:2]) == {"d", "a"}
    assert world.slurm.asked[2:] == ["b", "c"]


def test_what_was_wanted_lately_is_still_asked_about_and_forgotten_later(world):
    world.slurm.answers["q"] = NEVER
    world.want(shape())
    world.tick()
    for _ in range(2):  # the draw of an iteration may ask for none
        world.now += 5 * MINUTE - 1
        world.want(shape(), wanted={"q": 0})
        assert world.says(shape())
    assert world.tick(1) == ["q"]
    world.now += 2 * MINUTE
    world.want(shape(), wanted={"q": 0})
    assert world.says(shape()) == ""
    assert world.tick(10 * MINUTE) == []


def test_a_closed_queue_and_one_that_is_gone_are_not_asked_about(world):
    world.want(shape("a"), shape("b"))
    world.want(shape("a"), closed=("a",))
    assert world.tick() == []


def test_each_batch_system_is_asked_about_its_own_queues(world):
    here, there, arc = shape("a"), shape("b", backend="arc"), Slurm("arc")
    arc.answers["b"] = NEVER
    world.want(here, there)
    assert world.tick() == ["a"]
    assert world.tick(watch=arc) == ["b"]
    assert world.says(there).startswith("arc says")
    assert [world.tick(), world.tick(watch=arc)] == [[], []]


OFF = read_options({"EnableListMatch": "no"})
TWO = {"SubmitPools": "A, B", "EnableListMatch": "no"}


def test_switched_off_no_batch_system_is_asked_and_nothing_is_closed(world):
    world.want(shape(), options=OFF)
    assert world.tick() == []
    world.slurm.answers["q"] = NEVER
    world.want(shape())
    world.tick()
    assert world.says(shape())
    world.want(shape(), options=OFF)
    assert world.says(shape()) == "", "at once"
    assert world.tick(10 * MINUTE) == []


@pytest.mark.parametrize(
    ("sections", "pools", "seconds"),
    [
        ({}, ("A", "B"), None),
        ({"A": {"EnableListMatch": "yes"}}, ("A", "B"), 300.0),
        ({"A": {"EnableListMatch": "yes"}}, ("B",), None),
        ({"A": {"EnableListMatch": "yes"}, "B": {"EnableListMatch": "yes", "ListMatchDelay": 0.5}}, ("A", "B"), 30.0),
        ({"A": {"EnableListMatch": "yes"}, "B": {"ListMatchDelay": 0.5}}, ("A", "B"), 300.0),
        ({"A": {"EnableListMatch": "yes"}}, ("Gone",), None),
        ({"A": {"EnableListMatch": "yes"}}, (), None),
    ],
)  # fmt: skip
def test_where_pools_differ_the_most_eager_of_those_that_serve_a_queue_decides(
    world, sections, pools, seconds
):
    options = read_options(TWO | sections)
    assert options.list_match_seconds(pools) == seconds
    world.want(shape(), options=options, pools=pools)
    assert world.tick() == ([] if seconds is None else ["q"])
    assert world.tick((seconds or MINUTE) - 1.0) == []


# --- not too many -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_thousand_queues_are_asked_about_a_few_at_a_time_and_each_in_its_turn(world):
    shapes = [shape(f"q{number}") for number in range(2_000)]
    world.want(*shapes)
    for _ in range(100):
        world.want(*shapes, wanted={})
        assert len(world.tick(30.0)) == list_match._MOST_AT_ONCE
    assert set(Counter(world.slurm.asked).values()) == {1}


@pytest.mark.slow
def test_what_is_closed_is_asked_about_first_so_that_it_stays_closed(world):
    shapes = [shape(f"q{number}") for number in range(400)]
    shut = [one for number, one in enumerate(shapes) if number % 40 == 0]
    world.slurm.answers = {one.queue.queue: NEVER for one in shut}
    for _ in range(20):  # by then the first ones are asked about for the second time
        world.want(*shapes)
        world.tick(30.0)
    for _ in range(40):  # twenty minutes
        world.want(*shapes)
        world.tick(30.0)
        assert all(map(world.says, shut))


def test_a_slow_batch_system_is_asked_about_fewer(world, monkeypatch):
    ticks = iter(range(0, 1_000, 4))
    monkeypatch.setattr(list_match.time, "monotonic", lambda: float(next(ticks)))
    world.want(*(shape(f"q{number}") for number in range(9)))
    assert len(world.tick()) == 3
    monkeypatch.setattr(list_match.time, "monotonic", lambda: float(next(ticks)) * 100)
    assert len(world.tick()) == 1, "at least one, or it would never be known"


ANSWERS = st.sampled_from([NEVER, NEVER, YES, SILENT, None])
STEP = st.tuples(
    st.lists(ANSWERS, min_size=4, max_size=4),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.floats(0.0, 400.0),
    st.sampled_from([ON, ON, ON, OFF]),
)


@given(st.lists(STEP, max_size=12))
def test_only_what_was_said_lately_closes_a_queue(steps):
    """Whatever is wanted, answered and refused, in whatever order."""
    world, said = World(), dict[str, tuple[float, Check | None]]()
    shapes = [shape(name) for name in "abcd"]
    for answers, wanted, seconds, options in steps:
        world.slurm.answers = dict(zip("abcd", answers, strict=True))
        world.want(*shapes, wanted=dict(zip("abcd", wanted, strict=True)), options=options)
        world.now += seconds
        before = len(world.slurm.specs)
        try:
            world.match.tick(cast("Any", world.slurm), world.now)
        except BackendFault:
            assert None in answers
        asked = world.slurm.asked[before:]
        assert len(asked) == len(set(asked))
        assert options is ON or not asked
        said |= {name: (world.now, world.slurm.answers[name]) for name in asked}
        for one in shapes:
            at, answer = said.get(one.queue.queue, (0.0, None))
            if world.says(one):
                assert answer is NEVER
                assert world.now - at < 300.0
                assert options is ON
        if options is ON and None not in answers:
            for name, count in zip("abcd", wanted, strict=True):
                at, answer = said.get(name, (0.0, None))
                closing = count and answer is NEVER and world.now - at < 300.0
                assert not closing or world.says(shape(name))


def test_shapes_are_told_apart_by_all_that_is_asked_for():
    changes = ({"cores": 2}, {"memory_mb": 1}, {"wall_seconds": 1}, {"options": ("x",)}, {"backend": "arc"})
    found = {shape(), shape("other"), *(replace(shape(), **one) for one in changes)}  # type: ignore[arg-type]
    assert len(found) == 7
