"""One evaluation of all SubmitPools and task queues: what differs from what is stored, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements, submit_pool_id
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.decide.submission import JobDraft, optimize
from lodesman.languages.jobs import JobSpec
from lodesman.server.loops import refresh
from lodesman.server.loops.refresh import RefreshInput, difference, evaluate, judge, read_refresh_input
from lodesman.server.loops.settled import Settled
from lodesman.server.store.submit_pools import PassRequests, PassRow, PoolRow
from lodesman.server.store.task_queues import JudgedQueue
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission, Submit

SHORT, LONG = ("North", "cn", "short"), ("South", "cs", "long")
POLICY = Policy(
    load_resources(
        [
            (
                "sites.toml",
                """
[job_description]
Software = "list"
[site.North]
VO = ["lab"]
[site.North.ce.cn.queue.short]
CPUTime = 1000
Memory = 2000
Software = ["root"]
[site.South]
VO = ["lab", "other"]
[site.South.ce.cs.queue.long]
CPUTime = 100000
NumberOfProcessors = 8
Software = ["root", "geant"]
[site.South.ce.cs.queue.long.vo.other]
Software = ["gate"]
""",
            )
        ]
    )
)
TYPES = POLICY.config.types


NO_PASS, NOTHING_ASKED = PassRow(), PassRequests(0, 0, 0)


def pool(requirements, *, vo="lab", queues=0):
    number = submit_pool_id(compile_requirements(requirements, TYPES), vo)
    return PoolRow(
        number, vo, spelled_requirements(compile_requirements(requirements, TYPES)), queues, 0.0, None
    )


def stored(*pools, queues=None, last=NO_PASS, state=NOTHING_ASKED):
    return RefreshInput(last=last, state=state, pools=list(pools), queues=queues or [])


def draft(vo="lab", **fields):
    spec = JobSpec(executable="x", **fields)
    return optimize(JobDraft(spec=spec, owner="ann", group="g", vo=vo), POLICY.vo_config(vo))


@pytest.mark.parametrize(
    ("requirements", "vo", "mask"),
    [
        ({"Software": "root"}, "lab", 0b11),
        ({"Software": "geant"}, "lab", 0b10),
        ({"Software": ["gate", "geant"]}, "other", 0b10),
        ({"Software": "geant"}, "other", 0),
        ({"Software": "root"}, "nobody", 0),
        ({"Nothing": 1}, "lab", 0),
    ],
)
def test_pools_are_evaluated_for_their_vo(requirements, vo, mask):
    found = pool(requirements, vo=vo)
    assert evaluate(POLICY, [found]) == {found.id: mask}


def test_one_set_of_two_vos_is_two_pools():
    assert pool({"Software": "root"}).id != pool({"Software": "root"}, vo="other").id


def test_requirements_that_the_declared_types_can_no_longer_read_have_no_queue():
    row = PoolRow("req1:x", "lab", json.dumps({"memory": ["number", ">=", "", ["many"]]}), 3, 0.0, None)
    assert evaluate(POLICY, [row]) == {"req1:x": 0}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"a": 1', '{"a": 1}', '{"a": ["number", [1]]}'])
def test_a_text_that_is_no_set_of_requirements_has_no_queue(text):
    assert evaluate(POLICY, [PoolRow("req1:x", "lab", text, 3, 0.0, None)]) == {"req1:x": 0}


def test_sets_are_evaluated_alike_one_by_one_and_together():
    sets = [{"Software": "root"}, {"Software": "geant", "NumberOfProcessors": 4}, {"NumberOfProcessors": 4},
            {"CPUTime": 10, "Software": "geant"}, {"CPUTime": 10, "Nothing": 1}]  # fmt: skip
    rows = [pool(wanted) for wanted in sets]
    table = POLICY.vo_config("lab").table
    assert list(evaluate(POLICY, rows).values()) == [
        table.eligible_mask(compile_requirements(wanted, table.types)) for wanted in sets
    ]


def test_only_changes_are_sent():
    same, other = pool({"Software": "root"}, queues=0b11), pool({"Software": "geant"}, queues=0b11)
    now = stored(same, other, last=PassRow(7, 5.0, "c"), state=PassRequests(3, 1, 9))
    found = difference(POLICY, now, evaluate(POLICY, [same, other]), cause="interval")
    assert found.masks == {other.id: "2"}
    assert (found.previous, found.answers, found.pools, found.cause) == (7, 3, 2, "interval")
    assert found.config == POLICY.digest


def test_masks_have_the_stored_bits():
    before = stored(pool({"Software": "geant"}))
    numbered = replace(POLICY, bits={("Old", "c", "q"): 0, SHORT: 5, LONG: 3})
    found = difference(numbered, before, evaluate(numbered, before.pools), cause="x")
    assert list(found.masks.values()) == ["8"]


def row(found, *, number=1, jobs=3, held=None):
    return JudgedQueue(number, found.key, found.requirements.text, jobs, held)


def judged(*rows):
    pools = {
        r.key.submit_pool: PoolRow(r.key.submit_pool, r.key.vo, r.requirements, 0, 0.0, None) for r in rows
    }
    pools.pop("", None)
    now = stored(*pools.values(), queues=rows)
    return judge(POLICY, now, evaluate(POLICY, now.pools))


def test_a_task_queue_that_nothing_can_run_is_held_with_the_words_of_submission():
    impossible = draft(cores=64)
    assert judged(row(impossible)) == ([(1, impossible.never)], [])
    wanting = draft(requirements={"Software": "none"})
    assert judged(row(wanting)) == ([(1, wanting.never)], [])


def test_a_task_queue_that_can_run_is_left_alone_or_released():
    possible = draft(requirements={"Software": "root"}, norm_cpu_seconds=10)
    assert judged(row(possible)) == ([], [])
    hold, release = judged(row(possible, held="once"))
    assert (hold, release) == ([], [(1, "North/cn/short can run it now (2 of 2 queues)")])


def test_a_hold_is_written_again_only_if_its_text_changes():
    impossible = draft(cores=64)
    assert judged(row(impossible, held=impossible.never)) == ([], [])
    assert judged(row(impossible, held="older words")) == ([(1, impossible.never)], [])


def test_a_held_task_queue_without_jobs_is_let_go():
    assert judged(row(draft(cores=64), jobs=0, held="x")) == ([], [(1, "")])


specs = st.fixed_dictionaries(
    {
        "cores": st.sampled_from([1, 8, 64]),
        "norm_cpu_seconds": st.sampled_from([10, 5_000, 10**9]),
        "memory_mb": st.sampled_from([0, 1_000, 3_000]),
        "sites": st.sampled_from([(), ("North",), ("South",)]),
        "requirements": st.sampled_from(
            [{}, {"Software": "root"}, {"Software": "geant"}, {"Software": "none"}]
        ),
    }
)


@given(specs)
def test_a_refresh_judges_as_submission_does(fields):
    found = draft(**fields)
    assert judged(row(found)) == ([(1, found.never)] if found.never else [], [])
    assert judged(row(found, held=found.never or "x"))[1] == (
        [] if found.never else judged(row(found, held="x"))[1]
    )


def test_a_task_queue_whose_pool_is_gone_is_judged_by_its_own_requirements():
    possible, wanting = (draft(requirements={"Software": name}) for name in ("root", "none"))
    found = judge(POLICY, stored(queues=[row(possible), row(wanting, number=2)]), {})
    assert found == ([(2, wanting.never)], [])
    unknown = JudgedQueue(3, possible.key, "", 3, None)
    assert judge(POLICY, stored(queues=[unknown]), {}) == ([], [])


def test_a_task_queue_is_judged_while_a_job_may_return_to_it():
    impossible = draft(cores=64)
    empty = row(impossible, jobs=0)._replace(may_return=1)
    assert judged(empty) == ([(1, impossible.never)], [])
    assert judged(empty._replace(held=impossible.never)) == ([], [])
    assert judged(empty._replace(may_return=0)) == ([], [])


def test_pools_with_unknown_queues_are_sent_even_if_no_queue_fulfils_them():
    made_again = pool({"Software": "none"})._replace(is_evaluated=False)
    now = stored(made_again, pool({"Software": "none", "Memory": 1}))
    assert difference(POLICY, now, evaluate(POLICY, now.pools), cause="x").masks == {made_again.id: "0"}


def test_the_input_is_of_one_moment(base):
    found = draft(requirements={"Software": "geant"})
    new = NewPool(id=found.requirements.pool, requirements=found.requirements.text, vo="lab", queues=0b10)
    cohort = PreparedCohort(key=found.key, template="{}", expand=False, max_attempts=1, runs=((0, 4),))
    assert read_refresh_input(base.db) == stored()
    base.do(Submit(base.live, PreparedSubmission(
        owner="ann", group="g", vo="lab", name="", form="json", record="", members=None, count=4,
        cohorts=(cohort,), pools=(new,), config="another",
    )))  # fmt: skip
    seen = read_refresh_input(base.db)
    assert [(p.id, p.vo, p.requirements, p.queues) for p in seen.pools] == [
        (new.id, "lab", new.requirements, 0b10)
    ]
    assert seen.queues == [JudgedQueue(1, found.key, new.requirements, 4, None)]
    assert seen.state.is_due
    assert read_refresh_input(base.db).queues[0].key is seen.queues[0].key


# --- what a pass leaves as it was ----------------------------------------------------------------------------


def test_what_is_settled_is_not_judged_again(monkeypatch):
    """A third of a million judgements an hour, else, with 100,000 task queues."""
    impossible, possible = draft(cores=64), draft(norm_cpu_seconds=10)
    now = stored(queues=[row(impossible, held=impossible.never), row(possible, number=2)])
    settled = Settled()
    settled.begin(POLICY, now.queues, "told")
    assert judge(POLICY, now, {}, settled=settled) == ([], [])
    monkeypatch.setattr(refresh, "runnable", None)  # it is not asked
    settled.begin(POLICY, now.queues, "told")
    assert judge(POLICY, now, {}, settled=settled) == ([], [])
    settled.begin(POLICY, now.queues, "of other classes")
    with pytest.raises(TypeError):
        judge(POLICY, now, {}, settled=settled)


@pytest.mark.parametrize("seed", range(8))
def test_passes_find_the_same_with_and_without_what_is_settled(seed):
    rng, settled, told = Random(seed), Settled(), 0
    names = ("root", "geant", "none")
    drafts = [draft(cores=cores, requirements={"Software": name} if name else {}, vo=vo)
              for cores in (1, 64) for name in ("", *names) for vo in ("lab", "other")]  # fmt: skip
    other = Policy(POLICY.config)
    queues = [row(found, number=number, jobs=1) for number, found in enumerate(drafts)]
    masks = {queue.key.submit_pool: 0b11 for queue in queues if queue.key.submit_pool}
    policy = POLICY
    for _ in range(60):
        change, place = (
            rng.choice("jobs held mask gone told policy away back nothing".split()),
            rng.randrange(len(queues)),
        )
        queue = queues[place]
        if change == "jobs":
            queues[place] = queue._replace(jobs=1 - queue.jobs)
        elif change == "held":
            queues[place] = queue._replace(held=rng.choice([None, "once", drafts[place].never or None]))
        elif change == "mask" and masks:
            masks[rng.choice(sorted(masks))] = rng.choice([0, 0b01, 0b11])
        elif change == "gone":
            masks.pop(queue.key.submit_pool, None)
        elif change == "told":
            told += 1
        elif change == "policy":
            policy = other if policy is POLICY else POLICY
        seen = [queue for queue in queues if change != "away" or rng.random() < 0.5]
        now = stored(queues=seen)
        settled.begin(policy, seen, told)
        assert judge(policy, now, masks, settled=settled) == judge(policy, now, masks)
        if rng.random() < 0.5:  # the writer does as it is told
            held = dict(judge(policy, now, masks)[0])
            queues = [queue._replace(held=held.get(queue.id, queue.held)) for queue in queues]
