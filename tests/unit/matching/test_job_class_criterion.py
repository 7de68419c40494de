"""jc_list: every cell of the table in the reference, from the configuration to the draw; and what a claim reads for it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.jobclass_kit import rows

from lodesman.decide.masks.cells import Cell
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.criteria import WHERE, explain
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.resources import QueueId, load_resources
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.server.writer.reoffer import Offers
from lodesman.server.writer.sessions import configured_part

KEY = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=60)
QUEUE = QueueId("S", "c", "q")
GROUPS = "group_name @gpu\nhostlist node7\ngroup_name @all\nhostlist @gpu node8\n"
JOBS = {
    "N": KEY,
    "app.default": replace(KEY, job_class="app", variant="default"),
    "app.v1": replace(KEY, job_class="app", variant="v1"),
    "other": replace(KEY, job_class="other", variant="default"),
}
OTHERWISE = {"yes": "NONE", "no": "ANY_JC,NO_JC"}
CELLS = [
    pytest.param(row["jc_list"], job, row[job], id=f"{row['jc_list']}-{job}")
    for row in rows("jc-list")
    for job in JOBS
]


def policy(jc_list):
    text = f"[site.S.ce.c.queue.q]\njc_list = {jc_list!r}\n"
    vocabulary = read_vocabulary({"groups": GROUPS}, faults=[])
    return Policy(load_resources([("s.toml", text)]), vocabulary=vocabulary)


def pilot(jc_list, host):
    """What a pilot on that host of the queue asks with; None: before its host is known."""
    offer = Offers(policy(jc_list))("lab", QUEUE, host)
    return ResourceRequest(vo="lab", **QUEUE._asdict(), **configured_part(offer))


def drawn(key, request):
    """Whether a claim gets a job of that key."""
    matcher = Matcher()
    matcher.index.put(1, key, 1, now=0.0)
    return matcher.choose(request, 1, now=0.0, rng=random.Random(1), undo=[]) == [1]


def test_the_table_has_44_cells():
    assert len(CELLS) == 44


@pytest.mark.parametrize(("jc_list", "job", "answer"), CELLS)
def test_a_cell_of_jc_list(jc_list, job, answer):
    """The list decides wherever it stands: all other places say the opposite."""
    other = OTHERWISE[answer]
    for value in (jc_list, f"{other},[@gpu={jc_list}]", f"{other},[@gpu={other}],[node7={jc_list}]"):
        request = pilot(value, "Node7")
        reasons = [one.criterion for one in explain(JOBS[job], request)]
        assert reasons == ([] if answer == "yes" else ["job_class"]), value
        assert drawn(JOBS[job], request) == (answer == "yes"), value
    # Two groups of one host that differ let nothing in.
    assert not drawn(JOBS[job], pilot(f"ANY_JC,NO_JC,[@gpu={jc_list}],[@all={other}]", "node7"))


@pytest.mark.parametrize(("jc_list", "job", "answer"), CELLS)
def test_a_pilot_may_be_sent_for_what_one_host_takes(jc_list, job, answer):
    """Before its host is known, a queue offers what it takes on any of them: to the director and at submission."""
    for value in (jc_list, f"NONE,[node7={jc_list}]", f"NONE,[@gpu={jc_list}],[node8=NONE]"):
        config = policy(value).vo_config("lab")
        assert bool(config.possible_queues(JOBS[job], 0)) == (answer == "yes"), value
        (offer,) = config.offers
        assert bool(offer.reasons(JOBS[job], 0)) == (answer == "no"), value
        assert drawn(JOBS[job], pilot(value, None)) == (answer == "yes"), value


@pytest.mark.parametrize("job", JOBS)
def test_a_queue_without_a_list_takes_every_job(job):
    config = Policy(load_resources([("s.toml", "[site.S.ce.c.queue.q]\n")])).vo_config("lab")
    assert config.offers[0].request.job_classes is None
    assert config.possible_queues(JOBS[job], 0)


def test_no_job_can_be_changed_for_a_queue_that_lets_nothing_in():
    assert policy("NONE").vo_config("lab").hopeless == 1
    assert policy("NONE,[node7=app]").vo_config("lab").hopeless == 0


NAMES = st.lists(
    st.sampled_from(["ANY_JC", "NO_JC", "app", "app.v1", "app.default", "other", "other.default"]), min_size=1
)


@given(NAMES, st.sampled_from(list(JOBS)))
def test_the_rule(names, job):
    key = JOBS[job]
    named = {"ANY_JC", key.job_class, f"{key.job_class}.{key.variant}"} if key.job_class else {"NO_JC"}
    request = pilot(",".join(names), "node1")
    assert (not explain(key, request)) == bool(named & set(names))


def test_the_sentences():
    app, none = JOBS["app.v1"], JOBS["N"]
    texts = [
        str(*explain(key, pilot(value, "h")))
        for key, value in ((none, "app,ANY_JC"), (app, "other"), (app, "NONE"))
    ]
    assert texts == [
        "jc_list of the queue has ANY_JC, app: it takes no jobs without a class",
        "jc_list of the queue has other: it takes no jobs of class app.v1",
        "jc_list of the queue is empty or ambiguous here: it takes no jobs of class app.v1",
    ]


# --- it decides before the other criteria -----------------------------------------------------------------


class Reads:
    """The masks of values that are read, by the name of their column and the value."""

    def __init__(self, group, monkeypatch):
        self.seen = []
        named = {}
        for criterion, column in zip(WHERE, group._where.columns, strict=True):
            cells = getattr(column, "_by_value", {})
            named |= {id(cell): (criterion.name, value) for value, cell in cells.items()}
        read = Cell.read

        def noted(cell):
            self.seen.append(named.get(id(cell), ("anything", "")))
            return read(cell)

        monkeypatch.setattr(Cell, "read", noted)

    def of_values(self):
        return [one for one in self.seen if one[0] != "anything"]


@pytest.fixture(scope="module")
def crowd():
    """10,000 task queues of 200 classes, 50 of each, at 50 sites."""
    matcher = Matcher()
    for number in range(10_000):
        key = replace(
            KEY,
            job_class=f"app{number % 200}",
            variant="default",
            project=str(number),
            sites=(f"s{number // 200}",),
        )
        matcher.index.put(number, key, 1, now=0.0)
    return matcher


def test_jc_list_is_the_first_criterion():
    assert WHERE[0].name == "job_class"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["app7", "app7.default"])
def test_a_claim_in_a_queue_of_one_class_reads_no_mask_of_another(crowd, monkeypatch, name):
    """The mask of the class comes first; only what is left of it is held against what else the queue is."""
    (group,) = crowd.index.groups_for("lab", ("g",))
    reads = Reads(group, monkeypatch)
    request = ResourceRequest(vo="lab", site="s3", job_classes=(name,), norm_cpu_seconds=100, cores=1)
    (chosen,) = crowd.choose(request, 1, now=0.0, rng=random.Random(5), undo=[])
    assert chosen == 3 * 200 + 7
    crowd.index.add_waiting(chosen, 1, now=0.0)
    assert reads.of_values() == [("job_class", name), ("site", "s3")]
    # The next claim of such a pilot reads none at all: what it may draw from is remembered.
    reads.seen.clear()
    assert crowd.choose(request, 1, now=0.0, rng=random.Random(5), undo=[]) == [chosen]
    crowd.index.add_waiting(chosen, 1, now=0.0)
    assert reads.of_values() == []


@pytest.mark.slow
def test_a_class_that_nothing_waits_for_ends_the_search(crowd, monkeypatch):
    (group,) = crowd.index.groups_for("lab", ("g",))
    reads = Reads(group, monkeypatch)
    request = ResourceRequest(vo="lab", site="s3", job_classes=("rare",), norm_cpu_seconds=100, cores=1)
    assert crowd.choose(request, 1, now=0.0, rng=random.Random(5), undo=[]) == []
    assert reads.of_values() == []


def test_a_task_queue_of_another_class_that_arrives_is_passed_by_with_one_question(crowd, monkeypatch):
    request = ResourceRequest(vo="lab", site="s3", job_classes=("app7",), norm_cpu_seconds=100, cores=1)
    (before,) = crowd.choose(request, 1, now=0.0, rng=random.Random(5), undo=[])
    crowd.index.add_waiting(before, 1, now=0.0)
    asked = []
    holds = tuple(one.relation.holds for one in WHERE)
    counting = [
        lambda wanted, offered, name=one.name, holds=rule: asked.append(name) or holds(wanted, offered)
        for one, rule in zip(WHERE, holds, strict=True)
    ]
    monkeypatch.setattr("lodesman.decide.matching.group_index._HOLDS", tuple(counting))
    crowd.index.put(
        10_000, replace(KEY, job_class="app8", variant="default", project="new", sites=("s3",)), 1, now=0.0
    )
    assert crowd.choose(request, 1, now=0.0, rng=random.Random(5), undo=[]) == [before]
    crowd.index.add_waiting(before, 1, now=0.0)
    crowd.index.remove(10_000)
    assert asked == ["job_class"]
