"""What differs between two resource configurations, and masks carried from one to the other."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lodesman.decide.masks.bits import bits
from lodesman.decide.matching.policy import Policy
from lodesman.decide.rehearse import resources as plan
from lodesman.decide.resources import QueueId, load_resources


def as_json(found):
    """The answers as they travel."""
    return msgspec.json.decode(msgspec.json.encode(list(found)))


def config(*texts):
    return load_resources([(f"{n}.toml", text) for n, text in enumerate(texts)])


def tree(*places):
    """A configuration with these queues, each `site/ce/queue`, in this order."""
    text = ""
    for place in places:
        site, ce, queue = place.split("/")
        text += f"[site.{site}.ce.{ce}.queue.{queue}]\nCPUTime = 5\n"
    return config(text)


def changes(before, after):
    ticks: list[int] = []
    found = as_json(plan.changed_queues(before, after, lambda: ticks.append(1)))
    assert ticks
    return found


PLACES = st.lists(
    st.tuples(st.sampled_from("AB"), st.sampled_from("cd"), st.sampled_from("pqr")).map("/".join), unique=True
)


@given(PLACES, PLACES, st.data())
def test_a_mask_names_the_same_queues_before_and_after(old, new, data):
    before = Policy(tree(*old))
    after = replace(before, config=tree(*new))
    one, other = before.vo_config("").table, after.vo_config("").table
    here, there = (set(table.queues.values()) for table in (one, other))
    assert {one.queues[bit] for bit in bits(one.full & other.full)} == here & there
    lost = data.draw(st.integers(0, one.full)) & one.full & ~other.full
    assert {one.queues[bit] for bit in bits(lost)} <= here - there
    found = plan.planned_queues(before.config, after.config, 99, lambda: None)
    assert {QueueId(*structs.astuple(place)) for place in found.added.rows} == there - here
    assert {QueueId(*structs.astuple(place)) for place in found.removed.rows} == here - there
    assert (found.before, found.after) == (len(old), len(new))


def test_the_order_of_added_and_removed_queues_is_that_of_the_files():
    old, new = tree("A/c/p", "B/c/p", "A/c/q"), tree("B/c/r", "B/c/q")
    found = plan.planned_queues(old, new, 99, lambda: None)
    assert [one.queue for one in found.added.rows] == ["r", "q"]
    assert [f"{one.site}/{one.queue}" for one in found.removed.rows] == ["A/p", "A/q", "B/p"]


def test_effective_values_count_wherever_they_are_written():
    before = config(
        "[site.A]\nDisk = 5\n[site.A.ce.c.queue.q]\nCPUTime = 5\n[site.A.ce.c.queue.r]\nDisk = 6\n"
    )
    assert changes(before, config("[site.A.ce.c]\ndisk = 5\n[site.A.ce.c.queue.q]\nCPUTime = 5\n"
                                  "[site.A.ce.c.queue.r]\nDisk = 6\n")) == []  # fmt: skip
    after = config(
        "[site.A]\nDisk = 7\n[site.A.ce.c.queue.q]\nCPUTime = 5\n[site.A.ce.c.queue.r]\nDisk = 6\n"
    )
    (found,) = changes(before, after)
    assert found == {
        "site": "A", "ce": "c", "queue": "q", "vo": "", "parameters": {"Disk": {"before": 5, "after": 7}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("Disk = 5", "", {"before": 5, "after": None}),
        ("", 'Disk = "x"', {"before": None, "after": "x"}),
        ("Disk = 1", "Disk = true", {"before": 1, "after": True}),
        ("Disk = [1]", "Disk = [true]", {"before": [1], "after": [True]}),
        ('Disk = ["a"]', 'Disk = ["a", "b"]', {"before": ["a"], "after": ["a", "b"]}),
    ],
)
def test_a_parameter_that_comes_goes_or_changes(old, new, told):
    one, other = (config(f"[site.A.ce.c.queue.q]\nCPUTime = 5\n{line}\n") for line in (old, new))
    (found,) = changes(one, other)
    assert found["parameters"] == {"Disk": told}
    assert changes(one, one) == changes(other, other) == []


def test_a_vo_is_listed_apart_only_where_its_difference_is_another():
    head = "[site.A.ce.c.queue.q]\nCPUTime = 5\n"
    lab = "[site.A.vo.lab]\nDisk = 1\n"
    assert [one["vo"] for one in changes(config(head), config(head + lab))] == ["lab"]
    assert [one["vo"] for one in changes(config(head + lab), config(head))] == ["lab"]
    more = head.replace("5", "6")
    assert [one["vo"] for one in changes(config(head + lab), config(more + lab))] == [""]
    found = changes(config(head), config(more + lab))
    assert [(one["vo"], sorted(one["parameters"])) for one in found] == [
        ("", ["CPUTime"]),
        ("lab", ["CPUTime", "Disk"]),
    ]


def test_a_type_that_merges_changes_the_values_below():
    text = '[site.A]\nSoft = ["a"]\n[site.A.ce.c.queue.q]\nSoft = ["b"]\n'
    before = config('[job_description]\nSoft = "list"\n' + text)
    after = config('[job_description]\nSoft = "list merge"\n' + text)
    (found,) = changes(before, after)
    assert found["parameters"] == {"Soft": {"before": ["b"], "after": ["a", "b"]}}
    (declared,) = as_json(plan.changed_types(before.types, after.types))
    assert (declared["parameter"], declared["change"]) == ("Soft", "changed")
    assert declared["after"].endswith("merge")
    assert not declared["before"].endswith("merge")


def test_declarations_that_come_and_go():
    before, after = (
        config('[job_description]\nDisk = "number GB"\n'),
        config('[job_description]\nSoft = "list"\n'),
    )
    assert [(one["parameter"], one["change"]) for one in as_json(plan.changed_types(before.types, after.types))] == [
        ("Disk", "removed"), ("Soft", "added"),
    ]  # fmt: skip
    assert as_json(plan.changed_types(before.types, before.types)) == []


def test_groups_that_come_go_and_change():
    before = config('[group.a]\nvo = "lab"\n[group.b]\nvo = "lab"\nshare = 5\n')
    after = config('[group.b]\nvo = "lab"\nshare = 6\nbackground = true\n[group.c]\nvo = "x"\n')
    found = {one["group"]: one for one in as_json(plan.changed_groups(before, after))}
    assert {name: one["change"] for name, one in found.items()} == {
        "a": "removed",
        "b": "changed",
        "c": "added",
    }
    assert found["b"]["values"] == {
        "share": {"before": 5, "after": 6}, "background": {"before": False, "after": True},
    }  # fmt: skip
    assert found["c"]["values"]["vo"] == {"before": None, "after": "x"}
    assert as_json(plan.changed_groups(after, after)) == []
