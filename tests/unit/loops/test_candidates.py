"""CE queues as candidates: configuration, loads and own pilots put together."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from lodesman.decide.director.options import PoolOptions
from lodesman.decide.director.queues import OwnPilots
from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.candidates import CandidateMaker, count_own_pilots, find_longest_life
from lodesman.server.loops.list_match import Refusal
from lodesman.wire.nodes import Closing

POOLS = {name: PoolOptions(name=name) for name in ("Local", "SAM")}
SHORT, LONG = QueueId("North", "cn", "short"), QueueId("South", "cs", "long")


class Batch:
    """Has one load for all queues and notes which were asked."""

    def __init__(self, load: BatchLoad) -> None:
        self.answer = load
        self.asked: list[Any] = []

    def load(self, queue):
        self.asked.append(queue)
        return self.answer


@pytest.fixture
def make(policy):
    def made(vos=("lab",), *, load=None, own=(), given_policy=policy):
        batch = Batch(load or BatchLoad(waiting=1, running=2, observed_at=100.0))
        maker = CandidateMaker(
            policy=given_policy, watches={"local": cast("Any", batch)}, pools=POOLS,
            own=count_own_pilots(own), now=150.0,
        )  # fmt: skip
        return {one.queue_id: one for one in maker.make(vos)}, batch

    return made


def test_what_is_configured_and_what_is_seen(make):
    found, batch = make()
    short = found[SHORT]
    assert batch.asked == [SHORT]
    assert (short.load.waiting, short.load.running) == (1, 2)
    assert (short.load.observed_at, short.load.source) == (100.0, "local")
    assert (short.submission_pools, short.slots, short.closed) == (("Local", "SAM"), 2, "")
    assert (short.caps.max_waiting, short.caps.max_total) == (3, 7)
    template = short.templates["lab"]
    assert (template.site, template.platforms, template.cores, template.norm_cpu_seconds) == (
        "North",
        ("el9",),
        4,
        1_000,
    )


def test_without_its_backend_a_queue_takes_none_and_its_load_is_unknown(make):
    long = make()[0][LONG]
    assert (long.no_backend, long.closed) == ("there is no backend 'slurm' here", "")
    assert (long.load.waiting, long.load.running) == (None, None)


@pytest.mark.parametrize(
    ("scopes", "serving", "no_pool"),
    [
        ({"Local": {}, "SAM": {"sites": ("South",)}}, ("Local",), ""),
        ({"Local": {"backends": ("local",)}, "SAM": {"queues": ("North/cn",)}}, ("Local", "SAM"), ""),
        ({"Local": {"queues": ("North/cn/long",)}}, (), "no submission pool serves it (Local)"),
        ({"SAM": {"handled_by": "Grid team"}}, (), "submission pool SAM is handled by Grid team"),
        ({"SAM": {"handled_by": "Grid team"}, "Local": {"handled_by": "Director"}}, ("Local",), ""),
    ],
)
def test_the_pools_of_a_queue_are_those_that_serve_it(policy, scopes, serving, no_pool):
    pools = {name: PoolOptions(name=name, **options) for name, options in scopes.items()}
    batch = cast("Any", Batch(BatchLoad(waiting=1, running=2, observed_at=100.0)))
    maker = CandidateMaker(policy=policy, watches={"local": batch}, pools=pools, own={}, now=150.0)
    found = {one.queue_id: one for one in maker.make(("lab",))}[SHORT]
    assert (found.submission_pools, found.no_pool) == (serving, no_pool)


def test_a_queue_whose_pilots_others_start_needs_no_pool():
    pools = {"SAM": PoolOptions(name="SAM", sites=("South",))}
    maker = CandidateMaker(policy=overlay("Backend = 'manual'"), watches={}, pools=pools, own={}, now=150.0)
    (found,) = maker.make(("a", "b"))
    assert (found.no_backend, found.no_pool) == ("pilots there are started manually", "")


def test_the_credential_of_its_batch_system_shuts_a_queue(make):
    found, _ = make(load=BatchLoad(waiting=1, running=2, observed_at=100.0, credential="it ended"))
    assert (found[SHORT].credential, found[LONG].credential) == ("it ended", "")


def test_a_queue_is_one_candidate_for_all_its_vos_and_is_asked_once(make):
    found, batch = make(("lab", "other"))
    assert set(found) == {SHORT, LONG}
    assert set(found[LONG].templates) == {"lab", "other"}
    assert set(found[SHORT].templates) == {"lab"}
    assert batch.asked == [SHORT]


def test_closed_queues_name_the_author_until_their_end(policy):
    closing = Closing("North", "cn", "", "power", "root", 0.0, 160.0, False)
    found = {}
    for now in (150.0, 160.0):
        maker = CandidateMaker(policy=policy, watches={}, pools={}, own={}, now=now, mask=SiteMask([closing]))
        found[now] = {one.queue_id: one.closed for one in maker.make(("lab", "other"))}
    text = "closed by root since 1970-01-01 00:00 UTC until 1970-01-01 00:02 UTC: power"
    assert found[150.0][SHORT] == text
    assert found[160.0] == dict.fromkeys(found[150.0], "")


def test_no_pilot_is_sent_that_could_outlive_the_beginning_of_a_closing(policy):
    later = Closing("North", "", "", "power", "root", 0.0, 9_000.0, False, 5_000.0)
    vo = policy.vo_config("lab")
    lives = {one.queue: one.life_seconds for one in vo.offers}

    def closed(now):
        maker = CandidateMaker(policy=policy, watches={}, pools={}, own={}, now=now, mask=SiteMask([later]))
        return {one.queue_id: one.closed for one in maker.make(("lab",))}

    assert lives[SHORT] == 0
    assert closed(0.0)[SHORT].startswith("to be closed from 1970-01-01 01:23 UTC")
    assert closed(9_000.0)[SHORT] == ""


@pytest.mark.parametrize(("lives", "longest"), [((600, 900), 900), ((600, 0), 0), ((), 0)])
def test_the_longest_life_is_that_without_a_known_end(policy, lives, longest):
    (offer, *_) = policy.vo_config("lab").offers
    assert find_longest_life(structs.replace(offer, life_seconds=one) for one in lives) == longest


def test_one_queue_alone_is_the_same_candidate(make, policy):
    found, batch = make(own=[("Running", SHORT, 1.0)])
    (offer,) = [one for one in policy.vo_config("lab").offers if one.queue == tuple(SHORT)]
    maker = CandidateMaker(
        policy=policy, watches={"local": cast("Any", batch)}, pools=POOLS,
        own=count_own_pilots([("Running", SHORT, 1.0)]), now=150.0,
    )  # fmt: skip
    assert maker.make_one("lab", offer, ("lab", "other")) == found[SHORT]


def test_own_pilots_are_counted_by_queue_and_against_the_age_of_the_load(make):
    rows = [
        ("Submitted", SHORT, 90.0), ("Submitted", SHORT, 100.0), ("Submitted", SHORT, 101.0),
        ("Prepared", SHORT, 50.0), ("Running", SHORT, 20.0), ("Running", SHORT, 120.0), ("Running", LONG, 1.0),
    ]  # fmt: skip
    found, _ = make(own=rows)
    assert found[SHORT].own == OwnPilots(waiting=4, running=2, since_load=3)
    assert found[LONG].own == OwnPilots(running=1)
    assert count_own_pilots(rows)[SHORT].submitted_at == [90.0, 100.0, 101.0, inf, 20.0, 120.0]


@pytest.mark.parametrize(
    ("told", "slots"), [("Slots = 0", 0), ("Slots = 7", 7), ("Slots = 'ANY'", None), ("", None)]
)
def test_slots_are_counted_where_they_are_declared(make, told, slots):
    text = f"[site.North.ce.cn.queue.short]\nNumberOfProcessors = 4\n{told}\n"
    found, _ = make(given_policy=Policy(load_resources([("s.toml", text)])))
    assert found[SHORT].slots == slots


def test_without_numbers_the_caps_are_the_defaults(make):
    text = "[site.North.ce.cn.queue.short]\nCPUTime = 5\nMaxTotalJobs = 0\n"
    found, _ = make(given_policy=Policy(load_resources([("s.toml", text)])))
    caps = found[SHORT].caps
    assert (caps.max_waiting, caps.max_total, caps.waiting_to_running) == (10, 0, 0.0)


# --- a queue that is another one for each VO -------------------------------------------------------------


def overlay(base, **by_vo):
    """A queue that is open to two VOs, with what it is for each."""
    text = f"[site.North]\nVO = ['a', 'b']\n[site.North.ce.cn.queue.short]\n{base}\n"
    for vo, lines in by_vo.items():
        text += f"[site.North.ce.cn.queue.short.vo.{vo}]\n{lines}\n"
    return Policy(load_resources([("s.toml", text)]))


@pytest.fixture
def views(make):
    """The candidate of the director, and the one that `why` has for each VO."""

    def seen(policy):
        found, batch = make(("a", "b"), given_policy=policy)
        maker = CandidateMaker(
            policy=policy, watches={"local": cast("Any", batch)}, pools=POOLS, own={}, now=150.0,
        )  # fmt: skip
        offers = {vo: one for vo in ("a", "b") for one in policy.vo_config(vo).offers}
        return found[SHORT], {vo: maker.make_one(vo, offer, ("a", "b")) for vo, offer in offers.items()}

    return seen


def test_the_tightest_limit_of_all_vos_holds_for_each_of_them(views):
    lines = "MaxWaitingJobs = {}\nMaxTotalJobs = {}\nWaitingToRunningRatio = {}\nSlots = {}"
    policy = overlay("", a=lines.format(5, 50, 0.5, 9), b=lines.format(6, 40, 0.25, 7))
    found, by_vo = views(policy)
    assert (found.caps.max_waiting, found.caps.max_total, found.caps.waiting_to_running) == (5, 40, 0.25)
    assert found.slots == 7
    assert by_vo == {"a": found, "b": found}


def test_slots_declared_for_one_vo_hold_for_all(views):
    found, _ = views(overlay("", a="Slots = 4"))
    assert found.slots == 4


def test_each_vo_s_pilots_present_what_the_queue_is_for_it(views):
    found, _ = views(overlay("NumberOfProcessors = 1", a="NumberOfProcessors = 8"))
    assert {vo: request.cores for vo, request in found.templates.items()} == {"a": 8, "b": 1}


def test_a_candidate_has_what_its_pilots_ask_for_and_what_is_said_of_it():
    """As each VO has it; equal ones are one."""
    policy = overlay("MaxRAM = 2000", a="NumberOfProcessors = 8")
    said = SimpleNamespace(refusal=lambda shapes: Refusal(never=f"never {len(shapes)}", for_now="now"))
    maker = CandidateMaker(
        policy=policy, watches={"local": cast("Any", Batch(BatchLoad(observed_at=1.0)))}, pools=POOLS, own={},
        now=150.0, list_match=cast("Any", said),
    )  # fmt: skip
    (found,) = maker.make(("a", "b"))
    assert {(one.cores, one.memory_mb) for one in found.shapes} == {(8, 2_000), (1, 2_000)}
    assert (found.never, found.refused) == ("never 2", "now")
    (alone,) = maker.make(("b",))
    assert (len(alone.shapes), alone.never) == (1, "never 1")


def test_generic_pilots_of_one_vo_may_be_unwanted(views):
    found, by_vo = views(overlay("", a="GenericPilots = false"))
    assert (found.private_only, set(found.templates)) == (["a"], {"a", "b"})
    assert by_vo == {"a": found, "b": found}


@pytest.mark.parametrize(
    "never",
    ["MaxTotalJobs = 0", "MaxWaitingJobs = 0", "Slots = 0", "Backend = 'slurm'", "Backend = 'manual'"],
)
@pytest.mark.parametrize("shut", ["a", "b"])
def test_a_queue_that_is_shut_to_one_vo_is_open_to_the_other(views, never, shut):
    """Jobs of the other VO are taken in as possible."""
    (other,) = {"a", "b"} - {shut}
    found, by_vo = views(overlay("", **{shut: never}))
    assert (set(found.templates), found.no_backend) == ({other}, "")
    assert (found.caps.max_waiting, found.caps.max_total) == (10, 10)
    assert by_vo[other] == found
    caps = by_vo[shut].caps
    assert by_vo[shut].no_backend or 0 in (caps.max_waiting, caps.max_total, by_vo[shut].slots)


def test_a_queue_of_two_batch_systems_has_the_load_of_both():
    policy = overlay("", a="Backend = 'slurm'")
    policy.backends = {"local", "slurm"}
    loads = {
        "local": Batch(BatchLoad(waiting=1, running=2, observed_at=100.0)),
        "slurm": Batch(BatchLoad(waiting=3, running=4, observed_at=90.0)),
    }
    maker = CandidateMaker(
        policy=policy, watches=cast("Any", loads), pools=POOLS, own=count_own_pilots([("Submitted", SHORT, 95.0)]),
        now=150.0,
    )  # fmt: skip
    one_of_two = {"Local": PoolOptions(name="Local", backends=("slurm",))}
    (unserved,) = replace(maker, pools=one_of_two).make(("a", "b"))
    assert unserved.submission_pools == ()  # its pilots could go to the other one
    (found,) = maker.make(("a", "b"))
    assert (found.load.waiting, found.load.running) == (4, 6)
    assert (found.load.observed_at, found.load.source) == (90.0, "local, slurm")
    assert found.own.since_load == 1
    loads["slurm"].answer = BatchLoad(waiting=None, running=4, observed_at=90.0)
    (found,) = maker.make(("a", "b"))
    assert (found.load.waiting, found.load.running) == (None, 6)
