"""The key of a task queue, and its text."""

from dataclasses import asdict, dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.task_queue import TaskQueueKey, key_from_json, key_of, key_to_json
from lodesman.languages.jobs.spec import JobSpec

words = st.text(max_size=8)
lists = st.sets(words, max_size=4).map(lambda s: tuple(sorted(s)))
keys = st.builds(
    TaskQueueKey,
    owner=words,
    group=words,
    vo=words,
    job_class=words,
    project=words,
    user_priority=st.integers(0, 10),
    sites=lists,
    banned_sites=lists,
    tags=lists,
    platforms=lists,
    submission_pools=lists,
    submit_pool=words,
    cores=st.integers(1, 64),
    memory_mb=st.integers(0, 10**6),
    norm_cpu_seconds=st.integers(0, 10**7),
    force_generic=st.booleans(),
)

PLAIN = TaskQueueKey(owner="alice", group="bio", vo="vo1")


@given(keys)
def test_the_text_gives_the_key_back(key):
    again = key_from_json(key_to_json(key))
    assert again == key
    assert hash(again) == hash(key)


@given(keys, keys)
def test_texts_are_equal_for_equal_keys_only(one, other):
    assert (key_to_json(one) == key_to_json(other)) == (one == other)


def test_the_text_is_canonical_json_of_what_is_not_at_its_default():
    text = key_to_json(replace(PLAIN, sites=("A", "B"), cores=1))
    assert text == '{"group":"bio","owner":"alice","sites":["A","B"],"vo":"vo1"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownKey(TaskQueueKey):
    """A key with one more field."""

    one_more: bool = False


@given(keys)
def test_a_field_that_is_added_changes_no_stored_key(key):
    grown = GrownKey(**asdict(key))
    assert key_to_json(grown) == key_to_json(key)
    assert key_to_json(replace(grown, one_more=True)) != key_to_json(key)


def test_names_are_shared_between_keys():
    """Thousands of keys list the same sites: each name is in memory once."""
    text = key_to_json(replace(PLAIN, sites=("LCG.CERN.cern", "LCG.CNAF.it")))
    one, other = key_from_json(text), key_from_json(text)
    assert all(a is b for a, b in zip(one.sites, other.sites, strict=True))
    assert one.owner is other.owner


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"owner":"a"}',
        '{"owner":"a","group":"b","vo":"c","colour":"red"}',
        '{"sites":[1]}',
    ],
)
def test_a_text_that_is_no_key_is_refused(text):
    with pytest.raises(ValueError, match="not a task-queue key"):
        key_from_json(text)


def test_the_key_of_a_job_is_canonical():
    spec = JobSpec(
        executable="/bin/true",
        sites=("B", "A", "B"),
        banned_sites=("D", "C"),
        grid_ces=("c2", "c1"),
        platforms=("y", "x", "x"),
        tags=("t", "s"),
        submission_pools=("p2", "p1"),
        cores=4,
        memory_mb=2000,
        norm_cpu_seconds=7200,
        user_priority=5,
        job_type="MC",
        pilot_type="private",
        force_generic=True,
        job_class="app",
        variant="v",
        project="p",
    )
    assert key_of(spec, owner="alice", group="bio", vo="vo1", submit_pool="cafe") == TaskQueueKey(
        owner="alice",
        group="bio",
        vo="vo1",
        job_class="app",
        variant="v",
        project="p",
        job_type="MC",
        user_priority=5,
        sites=("A", "B"),
        banned_sites=("C", "D"),
        grid_ces=("c1", "c2"),
        platforms=("x", "y"),
        tags=("s", "t"),
        pilot_type="private",
        force_generic=True,
        submission_pools=("p1", "p2"),
        submit_pool="cafe",
        cores=4,
        memory_mb=2000,
        norm_cpu_seconds=7200,
    )


def test_two_spellings_of_a_job_have_one_key():
    one = JobSpec(executable="a", sites=("A", "B"))
    other = JobSpec(executable="b", sites=("B", "A", "A"), std_output="elsewhere")
    assert key_of(one, owner="o", group="g", vo="v") == key_of(other, owner="o", group="g", vo="v")
