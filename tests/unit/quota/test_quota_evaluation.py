"""Which rule counts, what a job is charged, and whether it fits (E1, E2, E8 to E17 of the reference)."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from msgspec.structs import replace
from tests.unit.quota.conftest import COMPLEXES, Cluster, complexes_with, one_set, sets_of, table

from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.quota.evaluation import Bucket, charges, evaluate, find_excesses, limit_value
from lodesman.languages.quota.matching import JobValues, PlaceValues, QuotaJob, QuotaPlace

GIB = 1 << 30
JOB = QuotaJob(user="u1")
PLACE = QuotaPlace(queue="all.q", host="node1", load={"num_proc": 2, "m_core": 3})


def hits(*limits, job=JOB, place=PLACE, complexes=COMPLEXES):
    return evaluate(one_set(*limits, complexes=complexes), job, place, complexes)


def requesting(slots=1, slots_request="", **requests):
    texts = requests | ({"slots": slots_request} if slots_request else {})
    values = {COMPLEXES.get(name).name: COMPLEXES.get(name).value(text) for name, text in texts.items()}
    return replace(JOB, slots=slots, requests=values)


def charged(limits, job, complexes=COMPLEXES):
    (hit,) = hits(f"to {limits}", job=job, complexes=complexes)
    return [(one.resource.name, one.amount, one.limit, one.booked) for one in hit.charges]


def test_the_first_rule_that_matches_counts_and_no_other():
    found = hits("users u2 to slots=1", "name mine users u1 to slots=2", "to slots=3")
    assert [hit.rule.label for hit in found] == ["t/mine"]
    assert hits("users u2 to slots=1", "hosts node2 to slots=1") == ()


def test_a_rule_needs_both_halves():
    found = hits(
        "users u2 hosts node1 to slots=1",
        "users u1 hosts node2 to slots=1",
        "users u1 hosts node1 to slots=1",
    )
    assert [hit.rule.label for hit in found] == ["t/3"]


def test_sets_that_are_off_do_not_count_and_each_other_has_its_rule():
    sets = [
        *one_set("to slots=1", name="a"),
        *one_set("to slots=1", name="b"),
        *one_set("users {*} to mc=1", name="c"),
    ]
    sets[1] = dataclasses.replace(sets[1], enabled=False)
    assert [hit.rule.label for hit in evaluate(sets, JOB, PLACE, COMPLEXES)] == ["a/1", "c/1"]


def test_the_most_restrictive_set_wins():
    sets = [*one_set("to slots=5", name="a"), *one_set("users {*} to slots=1", name="b")]
    cluster = Cluster(sets, [PLACE])
    assert cluster.start(JOB) is None
    (why,) = cluster.start(JOB)
    assert why.sentence == 'exceeds limit "u1/////" in rule "b/1"'
    assert cluster.start(replace(JOB, user="u2")) is None


CHARGES: dict[str, list[tuple[str, QuotaJob, list[tuple[object, ...]]]]] = {
    "slots": [
        ("slots=4", requesting(), [("slots", 1, 4, True)]), ("slots=4", requesting(slots=3), [("slots", 3, 4, True)]),
        ("slots=4", requesting(slots=3, slots_request="1"), [("slots", 3, 4, True)]),
    ],
    "consumable YES": [
        ("mc=4G", requesting(slots=2, mc="1.5G"), [("mc", 3 * GIB, 4 * GIB, True)]), ("mc=4G", requesting(), []),
        ("mc=4G", requesting(mc="0"), []), ("mdef=4G", requesting(slots=2), [("mdef", 2 * GIB, 4 * GIB, True)]),
        ("mdef=4G", requesting(mdef="0"), []), ("lic=1", requesting(lic="0.1"), [("lic", Fraction(1, 10), 1, True)]),
        ("wait=60", requesting(wait="1:0"), [("wait", 60, 60, True)]),
    ],
    "consumable JOB": [
        ("perjob=2", requesting(slots=4, perjob="1"), [("perjob", 1, 2, True)]), ("perjob=2", requesting(slots=4), []),
    ],
    "not consumable (e.g. stock virtual_free, h_rt, arch)": [
        ("vf=4G", requesting(slots=3, vf="3G"), [("virtual_free", 3 * GIB, 4 * GIB, False)]), ("vf=4G", requesting(), []),
        ("h_rt=60", requesting(h_rt="0"), [("h_rt", 0, 60, False)]),
        ("arch=lx*", requesting(arch="lx-amd64"), [("arch", "lx-amd64", "lx*", False)]),
    ],
}  # fmt: skip


def test_every_row_of_what_is_charged_has_vectors():
    assert {row["resource"] for row in table("quota-charges.md")} == CHARGES.keys()


@pytest.mark.parametrize(
    ("key", "number"), [(key, n) for key, rows in CHARGES.items() for n in range(len(rows))]
)
def test_what_is_charged(key, number):
    limits, job, wanted = CHARGES[key][number]
    assert charged(limits, job) == wanted


def test_charges_of_a_rule_are_in_its_order_and_unknown_resources_charge_nothing():
    job = requesting(mc="1G", vf="1G")
    assert [name for name, *_ in charged("vf=2G,slots=1,mc=2G", job)] == ["slots", "mc", "virtual_free"]
    (hit,) = hits("to mc=1G,slots=1", job=job)
    assert [one.resource.name for one in charges(hit.rule, job, PLACE, Complexes(()))] == []


def test_of_several_limits_on_one_resource_the_smallest_holds_and_is_booked_once():
    assert charged("slots=2,slots=1,slots=3", JOB) == [("slots", 1, 1, True)]
    assert len(charged("vf=2G,vf=1G", requesting(vf="1G"))) == 2


@pytest.mark.parametrize(
    ("limits", "used", "fits"),
    [
        ("slots=3", 2, True),
        ("slots=3", 3, False),
        ("slots=0", 0, False),
        ("slots=1", 3, False),
        ("slots=1.5", 0, True),
    ],
)
def test_what_is_used_and_requested_stays_within_the_limit(limits, used, fits):
    found = hits(f"users {{*}} to {limits}")
    assert (find_excesses(found, {(found[0].bucket, "slots"): used}) == []) is fits
    other = found[0].bucket._replace(rule="t/2")
    assert (find_excesses(found, {(other, "slots"): 99}) == []) is (limits != "slots=0")


@pytest.mark.parametrize(
    ("limit", "asked", "fits"),
    [
        ("vf=4G", {"vf": "4G"}, True), ("vf=4G", {"vf": "5G"}, False), ("mem_used=4G", {"mem_used": "3G"}, False),
        ("mem_used=4G", {"mem_used": "4G"}, True), ("num_proc=2", {"num_proc": "2"}, True),
        ("num_proc=2", {"num_proc": "1"}, False), ("h_rt=INFINITY", {"h_rt": "9:0:0"}, True),
        ("h_rt=60", {"h_rt": "INFINITY"}, False), ("arch=lx-amd64", {"arch": "lx*"}, True),
        ("arch=lx-amd64", {"arch": "sol*"}, False), ("hostname=NODE1", {"hostname": "node*"}, True),
    ],
)  # fmt: skip
def test_what_is_not_consumable_is_compared_by_its_relation_and_never_booked(limit, asked, fits):
    found = hits(f"to {limit}", job=requesting(**asked))
    key = (found[0].bucket, found[0].charges[0].resource.name)
    assert (find_excesses(found, {key: 10**18}) == []) is fits


def test_limits_by_load_values():
    ((rule,),) = (
        one.rules for one in one_set("hosts {*} to slots=$num_proc*2+1,mc=$m_core-$num_proc*0.5,perjob=3")
    )
    assert [limit_value(one, PLACE) for one in rule.limits] == [5, 2, 3]
    unknown = replace(PLACE, load={})
    assert limit_value(rule.limits[0], unknown) > 10**18


@pytest.mark.parametrize(
    ("limit", "processors", "amount"),
    [
        ("mc=$num_proc*1073741824", 96, 96 << 30), ("mc=$num_proc*999999999999999999", 3, 2999999999999999997),
        ("mc=$num_proc*0.1+$num_proc*0.2", 10, 3),
        ("mc=$num_proc*123456789012.000000000000000001", 10**18, 123456789012 * 10**18 + 1),
        ("mc=$num_proc*1073741824-1", 2**20, 2**50 - 1), ("slots=$num_proc*1000000000000+1", 7, 7 * 10**12 + 1),
    ],
)  # fmt: skip
def test_weights_of_load_values_are_as_long_as_bytes_need_and_exact(limit, processors, amount):
    ((rule,),) = (one.rules for one in one_set(f"hosts {{*}} to {limit}"))
    assert limit_value(rule.limits[0], replace(PLACE, load={"num_proc": processors})) == amount


def test_a_dynamic_limit_is_that_of_each_host():
    rules = one_set("hosts {*} to slots=$num_proc")
    cluster = Cluster(
        rules, [PLACE, replace(PLACE, host="node2", load={"num_proc": 1}), replace(PLACE, host="x", load={})]
    )
    assert [cluster.start(JOB) is None for _ in range(9)] == [True] * 9
    assert sorted((bucket.place.host, amount) for (bucket, _), amount in cluster.used.items()) == [
        ("node1", 2), ("node2", 1), ("x", 6),
    ]  # fmt: skip


def test_the_reason_is_said_as_grid_engine_says_it_with_its_data():
    """Recorded: `cannot run because it exceeds limit "USER////vm/" in rule "t/1"`."""
    found = hits("users {*} hosts {*} to slots=010", job=replace(JOB, slots=3))
    (why,) = find_excesses(found, {(found[0].bucket, "slots"): 6})
    assert why.sentence == 'exceeds limit "u1////node1/" in rule "t/1"'
    assert why.data == {
        "rule": "t/1", "bucket": "u1////node1/", "resource": "slots", "requested": "3", "used": "6", "limit": "8",
    }  # fmt: skip


def test_a_reason_names_a_job_class_after_what_grid_engine_knows():
    job = replace(requesting(mc="5G"), project="p", pe="smp", job_class="app", variant="v1")
    found = hits("name r users u* projects {*} pes {*} queues {*} jcs {*} to mc=4G,slots=9", job=job)
    (why,) = find_excesses(found, {})
    assert why.sentence == 'exceeds limit "/p/smp/all.q//app/" in rule "t/r"'
    assert (why.data["requested"], why.data["limit"], why.data["used"]) == ("5G", "4G", "0")


def test_all_that_is_exceeded_is_said():
    sets = [*one_set("to slots=0,mc=1G", name="a"), *one_set("to vf=1G", name="b")]
    found = evaluate(sets, requesting(mc="2G", vf="2G"), PLACE, COMPLEXES)
    assert [why.charge.resource.name for why in find_excesses(found, {})] == ["slots", "mc", "virtual_free"]


def test_a_lowered_limit_stops_only_new_jobs_and_a_held_job_blocks_no_other():
    cluster = Cluster(one_set("users {*} to mc=4G"), [PLACE])
    assert cluster.start(requesting(mc="2G")) is None
    assert cluster.start(requesting(mc="3G")) is not None
    assert cluster.start(requesting(mc="1G")) is None
    cluster.sets = one_set("users {*} to mc=1G")
    (why,) = cluster.start(requesting(mc="1G"))
    assert (why.used, why.charge.limit) == (3 * GIB, GIB)


def test_what_is_given_back_leaves_nothing():
    cluster = Cluster(one_set("users {*} to lic=1,slots=9"), [PLACE])
    jobs = [requesting(lic=text) for text in ("0.1", "0.2", "0.7")]
    assert [cluster.start(job) for job in jobs] == [None] * 3
    assert cluster.start(requesting(lic="0.1")) is not None
    for job in reversed(jobs):
        cluster.book(evaluate(cluster.sets, job, PLACE, COMPLEXES), -1)
    assert set(cluster.used.values()) == {0}


def test_variants_of_a_class_share_a_bucket():
    found = [
        hits("jcs {app} to slots=2", job=replace(JOB, job_class="app", variant=one))
        for one in ("default", "v1")
    ]
    assert [hit.bucket for (hit,) in found] == [
        Bucket("t/1", JobValues("", "", "", "app"), PlaceValues("", ""))
    ] * 2


def test_the_default_of_a_complex_is_charged_per_slot_or_once():
    complexes = complexes_with("tok tok INT <= YES JOB 2 0\nmem mem MEMORY <= YES YES 1G 0\n")
    assert charged("tok=3,mem=4G", requesting(slots=3), complexes) == [
        ("tok", 2, 3, True), ("mem", 3 * GIB, 4 * GIB, True),
    ]  # fmt: skip


def test_a_rule_before_a_special_one_makes_it_dead():
    sets = sets_of("name t\nenabled 1\nlimit to slots=2\nlimit users u1 to slots=0\n")
    assert [hit.rule.label for hit in evaluate(sets, JOB, PLACE, COMPLEXES)] == ["t/1"]
