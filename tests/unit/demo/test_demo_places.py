"""Where the shipped jobs can run at the shipped sites: the README and the matcher say the same."""

from __future__ import annotations

import re

import pytest
from examples.demo.engines import KINDS, Engine, sites_on
from examples.demo.workload import EXAMPLES, describe, load_workload

from lodesman.decide.matching.offers import offers_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import LOCAL, QueueTable, load_resources
from lodesman.decide.submission import JobDraft, optimize

WORKLOAD = load_workload(EXAMPLES / "workload" / "workload.toml")
NAMES = {"North": "LCG.North.local", "South": "LCG.South.local", "East": "HPC.East.local"}
WEST = "LCG.West.local"
ROW = re.compile(r"^\| `([a-z]+/[a-z-]+\.jdl)` \| (\d+) \| .* \| ([^|]+) \|$", re.MULTILINE)


@pytest.fixture(
    scope="module",
    params=[(), KINDS[:1], KINDS[:2], KINDS[:3], KINDS],
    ids=lambda kinds: f"on {len(kinds)} batch systems",
)
def kinds(request):
    """The batch systems of the demo; none: this machine."""
    return request.param


@pytest.fixture(scope="module")
def sites(kinds):
    engines = [Engine(kind=kind, queue=f"of-{kind}", section={}, is_ours=True) for kind in kinds]
    text = sites_on(engines) if engines else (EXAMPLES / "three-sites.toml").read_text()
    return load_resources([("three-sites.toml", text)])


@pytest.fixture(scope="module")
def world(sites, kinds):
    table = QueueTable(sites, vo=WORKLOAD.vo)
    return VOConfig(
        vo=WORKLOAD.vo,
        offers=offers_of(table, WORKLOAD.vo),
        table=table,
        backends={LOCAL, *kinds},
    )


@pytest.fixture(scope="module")
def promised():
    readme = (EXAMPLES / "workload" / "README.md").read_text()
    rows = {name: (int(jobs), where) for name, jobs, where in ROW.findall(readme)}
    assert len(rows) == len(WORKLOAD.submissions)
    return rows


def places(submission, world) -> set[str]:
    spec = describe(submission).spec
    draft = optimize(JobDraft(spec=spec, owner="ada", group=submission.group, vo=world.vo), world)
    assert draft.key is not None
    found = {one.queue.site for one in world.offers if not one.reasons(draft.key, draft.pool_mask)}
    assert bool(found) == (not draft.never)
    return found


@pytest.mark.parametrize(
    "submission", WORKLOAD.submissions, ids=lambda one: f"{one.path.parent.name}/{one.path.name}"
)
def test_each_description_runs_where_the_readme_says_and_nowhere_else(submission, world, promised):
    jobs, where = promised[f"{submission.path.parent.name}/{submission.path.name}"]
    named = {site for short, site in NAMES.items() if short in where}
    expected = set(NAMES.values()) if where.startswith("all sites") else named
    assert jobs == submission.jobs
    found = places(submission, world)
    assert found - {WEST} == expected
    # The site of a fourth batch system is like North, but for its system.
    like_north = NAMES["North"] in found and submission.path.name != "words-platform.jdl"
    assert (WEST in found) == (WEST in world.sites and like_north)
    assert bool(expected) != submission.hold_if_impossible


def test_some_jobs_can_run_at_one_site_only_and_each_site_has_such(world):
    alone = [found for one in WORKLOAD.submissions if len(found := places(one, world)) == 1]
    assert set().union(*alone) == set(NAMES.values())


def test_each_batch_system_has_a_site_and_each_site_one_batch_system(world, kinds):
    found = {(offer.queue.site, offer.backend, offer.queue.queue) for offer in world.offers}
    if not kinds:
        assert {backend for _, backend, _ in found} == {LOCAL}
        return
    assert {backend for _, backend, _ in found} == set(kinds)
    assert {queue for *_, queue in found} == {f"of-{kind}" for kind in kinds}
    assert len(found) == len(world.sites) == max(3, len(kinds))


def test_pilots_are_small_and_of_no_queue_too_many(world, kinds):
    for offer in world.offers if kinds else ():
        assert (offer.request.cores, offer.settings.memory_mb, offer.settings.slots) == (1, 1_000, None)
        assert offer.settings.max_total_jobs


def test_the_groups_of_the_workload_have_shares_three_to_one(sites):
    shares = {name: sites.groups[name].share for name in WORKLOAD.groups}
    assert shares == {"physics": 3000, "bio": 1000}
    assert {sites.groups[name].vo for name in WORKLOAD.groups} == {WORKLOAD.vo}
