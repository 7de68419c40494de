"""Private or generic, and what each presents to the matcher."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions, PoolOptions
from lodesman.decide.director.orders import (
    TypeReason,
    choose_identity,
    presented,
    private_pools,
    wants_private,
)
from lodesman.decide.matching.offers import gets_private


def identity(demand, seed=1, **options):
    return choose_identity(demand, options=PoolOptions(name="Local", **options), rng=random.Random(seed))


def private_share(demand, count=4000, **options) -> float:
    rng = random.Random(99)
    pool = PoolOptions(name="Local", **options)
    return sum(choose_identity(demand, options=pool, rng=rng).private for _ in range(count)) / count


# --- the decision -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.8])
def test_the_fraction_is_that_of_private_pilots(demand, fraction):
    # Four standard errors of 4000 draws.
    bound = 4 * (fraction * (1 - fraction) / 4000) ** 0.5
    assert private_share(demand(), private_fraction=fraction) == pytest.approx(fraction, abs=bound)


@pytest.mark.parametrize("fraction", [0.1, 0.8])
def test_the_legacy_switch_gives_the_complement_as_the_page_wrote_it(demand, fraction):
    share = private_share(demand(), private_fraction=fraction, legacy_fraction=True)
    assert share == pytest.approx(1 - fraction, abs=0.03)


def test_without_a_setting_only_private_task_queues_get_private_pilots(demand):
    assert private_share(demand()) == 0.0
    assert private_share(demand(pilot_type="private")) == 1.0


def test_zero_and_one_are_never_and_always(demand):
    assert private_share(demand(), private_fraction=0.0) == 0.0
    assert private_share(demand(), private_fraction=1.0) == 1.0


@pytest.mark.parametrize(
    ("fraction", "draw", "ours", "legacy"),
    [
        (0.0, 0.0, False, False),
        (1.0, 0.999, True, False),
        (0.3, 0.2, True, False),
        (0.3, 0.4, False, True),
        (0.5, 0.5, False, False),
    ],
)
def test_the_two_inequalities(fraction, draw, ours, legacy):
    assert wants_private(fraction, draw) is ours
    assert wants_private(fraction, draw, legacy=True) is legacy


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_the_legacy_test_is_never_true_together_with_ours(fraction, draw):
    assert not (wants_private(fraction, draw) and wants_private(fraction, draw, legacy=True))


@pytest.mark.parametrize("spelling", ["private", "Private", "PRIVATE"])
def test_a_private_task_queue_always_gets_private_pilots(demand, spelling):
    chosen = identity(demand(pilot_type=spelling), private_fraction=0.0)
    assert chosen.private
    assert chosen.pilot_type == "private"
    assert chosen.reason is TypeReason.TASK_QUEUE
    assert chosen.draw is None


@pytest.mark.parametrize("legacy", [False, True])
def test_a_task_queue_that_asks_for_generic_pilots_gets_no_others(demand, legacy):
    for fraction in (0.0, 0.5, 1.0):
        chosen = identity(demand(force_generic=True), private_fraction=fraction, legacy_fraction=legacy)
        assert (chosen.private, chosen.pilot_type, chosen.draw) == (False, "", None)
        assert chosen.reason is TypeReason.FORCED


def test_as_in_the_seed_generic_goes_before_private(demand):
    """No description has both."""
    assert not identity(demand(force_generic=True, pilot_type="private")).private


@given(
    st.sampled_from([(), ("A",), ("B",), ("A", "B")]), st.sampled_from(["", "private"]), st.booleans(),
    st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.sampled_from([("A",), ("B",), ("A", "B")]),
)  # fmt: skip
def test_private_pilots_are_drawn_exactly_for_the_keys_that_may_get_some(
    demand, named, kind, forced, fraction, legacy, default
):
    wanted = demand(submission_pools=named, pilot_type=kind, force_generic=forced)
    drawing = PoolOptions(name="A", private_fraction=fraction, legacy_fraction=legacy)
    pools = {"A": drawing, "B": PoolOptions(name="B")}
    options = DirectorOptions(submission_pools=("A", "B"), default_submission_pools=default, pools=pools)
    rng = random.Random(3)
    drawn = {
        choose_identity(wanted, options=pools[name], rng=rng).private
        for name in named or default
        for _ in range(40)
    }
    assert gets_private(wanted.key, private_pools(options)) == (True in drawn)


def test_the_draw_is_recorded(demand):
    chosen = identity(demand(), private_fraction=0.5)
    assert chosen.reason is TypeReason.DRAWN
    assert chosen.draw is not None
    assert chosen.private == (chosen.draw < 0.5)


# --- the identity -------------------------------------------------------------------------------------


def test_a_generic_pilot_runs_as_the_generic_identity_of_its_pool(demand):
    chosen = identity(demand(), private_fraction=0.0, generic_owner="/CN=pilot", generic_group="lab_pilot")
    assert (chosen.owner, chosen.group) == ("/CN=pilot", "lab_pilot")
    assert (chosen.serves_owner, chosen.serves_group, chosen.pilot_type) == ("", None, "")


def test_a_private_pilot_runs_as_the_owner_and_serves_only_the_owner(demand):
    chosen = identity(demand(owner="bob", group="theory"), private_fraction=1.0)
    assert (chosen.owner, chosen.group) == ("bob", "theory")
    assert (chosen.serves_owner, chosen.serves_group) == ("bob", "theory")
    assert chosen.pilot_type == ""


def test_with_job_sharing_a_private_pilot_serves_the_whole_group(demand):
    chosen = identity(demand(owner="bob", group="theory", job_sharing=True), private_fraction=1.0)
    assert (chosen.owner, chosen.serves_owner, chosen.serves_group) == ("bob", "", "theory")


# --- what it presents ---------------------------------------------------------------------------------


def test_a_generic_pilot_presents_the_template_and_its_pool(demand, request_of):
    template = request_of(groups=None)
    shown = presented(template, identity(demand(), private_fraction=0.0), submission_pool="gLite")
    assert shown == request_of(groups=None, submission_pool="gLite")


def test_a_private_pilot_presents_its_owner_and_group(demand, request_of):
    chosen = identity(demand(pilot_type="private"))
    shown = presented(request_of(), chosen, submission_pool="Local")
    assert (shown.owner, shown.groups, shown.pilot_type) == ("ann", ("users",), "private")


def test_a_queue_for_some_groups_stays_closed_to_others(demand, request_of):
    template = request_of(groups=("theory", "users"))
    inside = presented(template, identity(demand(), private_fraction=1.0), submission_pool="Local")
    outside = presented(
        template, identity(demand(group="students"), private_fraction=1.0), submission_pool="Local"
    )
    generic = presented(template, identity(demand(), private_fraction=0.0), submission_pool="Local")
    assert inside.groups == ("users",)
    assert outside.groups == ()
    assert generic.groups == ("theory", "users")


@given(st.booleans(), st.booleans(), st.floats(0, 1), st.integers(0, 2**32))
def test_a_pilot_can_always_run_the_jobs_it_was_submitted_for(
    demand, request_of, explain, is_private, shares, fraction, seed
):
    wanted = demand(pilot_type="private" if is_private else "", job_sharing=shares)
    chosen = identity(wanted, seed=seed, private_fraction=fraction)
    shown = presented(request_of(), chosen, submission_pool="Local")
    assert not explain(wanted.key, shown)
