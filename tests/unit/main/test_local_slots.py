"""How many pilots each queue of the local backend runs at once, from the configuration as it is written."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueSettings, load_resources
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops import candidates as module
from lodesman.server.loops.candidates import CandidateMaker, find_local_slots
from lodesman.server.loops.candidates import _slots_of as slots_of

SITES = """
[site.S.ce.here.queue.written]
Slots = 1
[site.S.ce.here.queue.folded]
sLOTS = 2
[site.S.ce.here.queue.total]
maxtotaljobs = 3
[site.S.ce.here.queue.cores]
numberofprocessors = 4
[site.S.ce.there]
backend = "elsewhere"
[site.S.ce.there.queue.q]
slots = 9
[site.S.ce.type]
cetype = "Elsewhere"
[site.S.ce.type.queue.q]
slots = 9
[site.S.ce.named]
BACKEND = "Local"
[site.S.ce.named.queue.q]
slots = 5
"""
Q = ("W", "c", "q")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """It has 16 cores."""
    monkeypatch.setattr(module.os, "cpu_count", lambda: 16)


def policy(text):
    return Policy(load_resources([("sites.toml", text)]))


def queue(base, **by_vo):
    """A queue that is open to two VOs, with what it is for each."""
    text = f"[site.W]\nVO = ['a', 'b']\n[site.W.ce.c.queue.q]\n{base}\n"
    text += "".join(f"[site.W.ce.c.queue.q.vo.{vo}]\n{lines}\n" for vo, lines in by_vo.items())
    return policy(text + "".join(f"[group.{vo}]\nvo = '{vo}'\n" for vo in "ab"))


def test_letter_case_in_names_does_not_matter():
    found = {name: count for (_, ce, name), count in find_local_slots(policy(SITES)).items() if ce == "here"}
    assert found == {"written": 1, "folded": 2, "total": 3, "cores": 4}


def test_only_queues_of_the_local_backend_have_local_slots():
    slots = find_local_slots(policy(SITES))
    assert {ce for _, ce, _ in slots} == {"here", "named"}
    assert slots["S", "named", "q"] == 5


@pytest.mark.parametrize("name", ["Slots", "MaxTotalJobs", "NumberOfProcessors"])
def test_any_is_not_configured(name):
    text = f"[site.W.ce.c.queue.q]\n{name} = 'ANY'\n"
    assert find_local_slots(policy(text)) == find_local_slots(policy("[site.W.ce.c.queue.q]\n")) == {Q: 16}


def test_any_leaves_the_word_to_the_next_one():
    assert find_local_slots(queue("Slots = 'ANY'\nMaxTotalJobs = 3")) == {Q: 3}
    assert find_local_slots(queue("MaxTotalJobs = 'ANY'\nNumberOfProcessors = 8")) == {Q: 2}


def test_the_lowest_value_of_any_vo_counts_for_all():
    assert find_local_slots(queue("Slots = 4", a="Slots = 1")) == {Q: 1}
    assert find_local_slots(queue("Slots = 4", a="Slots = 9", b="Slots = 7")) == {Q: 7}
    assert find_local_slots(queue("", b="Slots = 4")) == {Q: 4}
    assert find_local_slots(queue("", a="MaxTotalJobs = 5", b="MaxTotalJobs = 6")) == {Q: 5}
    assert find_local_slots(queue("NumberOfProcessors = 2", a="NumberOfProcessors = 8")) == {Q: 2}


@pytest.mark.parametrize(
    "never", ["Slots = 0", "MaxTotalJobs = 0", "Backend = 'slurm'", "Backend = 'manual'"]
)
def test_a_vo_to_which_none_is_sent_leaves_the_queue_to_the_other(never):
    assert find_local_slots(queue("Slots = 4", a=never)) == {Q: 4}
    assert find_local_slots(queue(f"{never}\n", b="Backend = 'local'\nSlots = 3\nMaxTotalJobs = 9")) == {Q: 3}


def test_a_queue_that_is_local_for_one_vo_only_is_local():
    assert find_local_slots(queue("Backend = 'slurm'\nSlots = 2", a="Backend = 'local'")) == {Q: 2}
    assert find_local_slots(queue("Backend = 'slurm'\nSlots = 2", a="Backend = 'manual'")) == {}


def test_pilots_that_wait_still_start_where_no_more_are_sent():
    assert find_local_slots(queue("Slots = 4\nMaxTotalJobs = 0")) == {Q: 4}
    closed = queue("Backend = 'slurm'\nSlots = 4", a="Backend = 'local'\nMaxTotalJobs = 0")
    assert find_local_slots(closed) == {Q: 4}
    assert find_local_slots(queue("Slots = 0")) == {Q: 0}


def test_vos_that_are_not_configured_get_the_common_value():
    assert find_local_slots(policy("[site.W]\nVO = ['ghost']\n[site.W.ce.c.queue.q]\nSlots = 3\n")) == {Q: 3}
    text = "[site.W]\nVO = ['ghost']\n[site.W.ce.c.queue.q]\nSlots = 3\n[group.a]\nvo = 'a'\n"
    assert find_local_slots(policy(text)) == {Q: 3}


lines = st.lists(
    st.sampled_from(["Slots = 2", "Slots = 5", "Backend = 'local'", "Backend = 'slurm'", "MaxTotalJobs = 0"]),
    max_size=3, unique_by=lambda line: line.split()[0],
).map("\n".join)  # fmt: skip


@given(lines, lines, lines)
def test_the_backend_starts_what_the_director_counts_on(base, a, b):
    """The same rule: the director fills free slots first, which are to be there."""

    class Batch:
        def load(self, _):
            return BatchLoad(waiting=0, running=0, observed_at=0.0)

    found = queue(base, a=a, b=b)
    maker = CandidateMaker(
        policy=found, watches={"local": cast("Any", Batch())}, pools={}, own={}, now=0.0
    )  # fmt: skip
    (candidate,) = maker.make(found.config.vos)
    if not candidate.no_backend:
        slots = find_local_slots(found)[Q]
        assert candidate.slots in (None, slots) or 0 in (candidate.caps.max_total, candidate.slots)


def test_the_capacity_of_the_machine():
    def with_cores(processors):
        return slots_of([QueueSettings(processors=processors)], 8)

    assert [with_cores(cores) for cores in (None, 1, 4, 16)] == [8, 8, 2, 1]


@given(st.integers(1, 1_024), st.none() | st.integers(1, 2_048))
def test_one_slot_at_least(cpus, cores):
    assert 1 <= slots_of([QueueSettings(processors=cores)], cpus) <= cpus
