"""The bit table agrees with the single predicate, and knows the nearest miss."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.vocabulary import Kind
from lodesman.errors import InvalidJob
from lodesman.resources import (
    AccessDenied,
    Change,
    ComputingElement,
    MissingParameter,
    ParameterType,
    Queue,
    QueueId,
    QueueTable,
    ResourceConfig,
    Resources,
    ResourceTree,
    Site,
    TooSmall,
    TypeTable,
    bits,
    load_toml,
    refusals,
)
from lodesman.resources.values import typed_value

TYPES = TypeTable(
    [
        ParameterType(name="Number", kind=Kind.NUMBER, unit="MB"),
        ParameterType(name="Exact", kind=Kind.NUMBER, operator="=="),
        ParameterType(name="Text", kind=Kind.STRING),
        ParameterType(name="List", kind=Kind.LIST, merge=True),
        ParameterType(name="Version", kind=Kind.VERSION),
        ParameterType(name="Release", kind=Kind.VERSION, operator="=="),
        ParameterType(name="Flag", kind=Kind.BOOLEAN),
    ]
)

numbers = st.sampled_from([0, 1, 2, 2.5, "1", "2.0", "2 GB"])
plain_numbers = st.sampled_from([0, 1, 2, 2.5, "1", "2.0"])
texts = st.sampled_from(["a", "A", "b", "1", 1, 2.0, True])
versions = st.sampled_from(["1", "1.0", "1.2", "1.10", "1.2rc1", "2", 2])
flags = st.sampled_from([True, False, "yes", "off", 1])
mixed = st.sampled_from(["a", "1", "2.5", "true", "False", "4 GB", 0, 1, 2.5, True, False])
VALUES = {
    "Number": numbers,
    "Exact": plain_numbers,
    "Text": texts,
    "List": texts,
    "Version": versions,
    "Release": versions,
    "Flag": flags,
    "Free": mixed,
    "Other": mixed,
}


def some_of(values):
    return st.one_of(values, st.lists(values, min_size=1, max_size=3))


@st.composite
def layers(draw):
    """The parameters of one node, as a loaded tree has them."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=3))
    out = {}
    for name in names:
        raw = draw(st.one_of(st.just("ANY"), some_of(VALUES[name]), some_of(VALUES[name])))
        out[name] = typed_value(raw, TYPES.get(name))
    if draw(st.integers(0, 3)) == 0:
        out["VO"] = draw(st.sampled_from([("vo",), ("other",), ("ANY",), ()]))
    return out


@st.composite
def nodes(draw):
    overlays = {"vo": draw(layers())} if draw(st.booleans()) else {}
    return {"params": draw(layers()), "overlays": overlays}


@st.composite
def worlds(draw):
    sites = {}
    for s in range(draw(st.integers(0, 2))):
        ces = {}
        for c in range(draw(st.integers(1, 2))):
            queues = {f"q{q}": Queue(name=f"q{q}", **draw(nodes())) for q in range(draw(st.integers(1, 2)))}
            ces[f"c{c}"] = ComputingElement(name=f"c{c}", queues=queues, **draw(nodes()))
        sites[f"s{s}"] = Site(name=f"s{s}", ces=ces, **draw(nodes()))
    return ResourceConfig(tree=ResourceTree(sites=sites), types=TYPES)


@st.composite
def requirement_sets(draw):
    names = draw(st.lists(st.sampled_from([*sorted(VALUES), "Site", "Unknown"]), unique=True, max_size=5))
    return {name: draw(some_of(VALUES.get(name, st.sampled_from(["s0", "s1"])))) for name in names}


@given(worlds(), requirement_sets(), st.sampled_from(["vo", "other", ""]))
def test_a_bit_is_set_exactly_if_no_reason_is_found(config, requirements, vo):
    table = QueueTable(config, vo)
    mask = table.eligible_mask(requirements)
    verdicts = Resources(config, vo=vo).explain_nodes("Queue", None, requirements)
    assert [QueueId(verdict.site, verdict.ce, verdict.queue) for verdict in verdicts] == list(table.queues)
    for ordinal, verdict in enumerate(verdicts):
        assert bool(mask >> ordinal & 1) == verdict.eligible
    assert mask <= table.full


@given(worlds(), requirement_sets(), st.sampled_from(["vo", ""]))
def test_the_assessment_tells_the_same_reasons(config, requirements, vo):
    table = QueueTable(config, vo)
    assessment = table.assess(requirements)
    assert assessment.eligible == table.eligible_mask(requirements)
    verdicts = Resources(config, vo=vo).explain_nodes("Queue", None, requirements)
    assert list(assessment.verdicts()) == verdicts
    counted = Counter(reason.parameter for verdict in verdicts for reason in verdict.reasons)
    assert dict(assessment.counts()) == dict(counted)
    for criterion, missing in zip(assessment.criteria, assessment.missing, strict=True):
        lacking = {
            ordinal
            for ordinal, verdict in enumerate(verdicts)
            for reason in verdict.reasons
            if isinstance(reason, MissingParameter) and reason.parameter == criterion.parameter
        }
        assert set(bits(missing)) == lacking


@given(worlds(), requirement_sets())
def test_the_nearest_miss_against_counting(config, requirements):
    table = QueueTable(config, "vo")
    assessment = table.assess(requirements)
    failing = [len(verdict.reasons) for verdict in assessment.verdicts()]
    nearest = assessment.nearest()
    if not failing:
        assert (nearest.fewest, nearest.mask) == (0, 0)
        return
    fewest = min(failing)
    assert nearest.fewest == fewest
    assert list(bits(nearest.mask)) == [ordinal for ordinal, count in enumerate(failing) if count == fewest]
    groups = Counter(
        tuple(sorted(reason.parameter for reason in verdict.reasons))
        for verdict in assessment.verdicts(nearest.mask)
    )
    groups.pop((), None)
    changes = assessment.changes()
    assert {tuple(sorted(change.parameters)): change.count for change in changes} == dict(groups)
    assert [change.count for change in changes] == sorted((c.count for c in changes), reverse=True)
    union = 0
    for change in changes:
        assert not union & change.mask
        union |= change.mask


@given(worlds(), requirement_sets())
def test_more_requirements_never_admit_more(config, requirements):
    table = QueueTable(config, "vo")
    fewer = dict(list(requirements.items())[1:])
    assert table.eligible_mask(requirements) & ~table.eligible_mask(fewer) == 0
    assert table.eligible_mask({}) == table.open_to_vo
    assert QueueTable(config).eligible_mask({}) == QueueTable(config).full


CONFIG = """
[job_description]
SoftwareTag = "list"
[site.A.ce.c]
SoftwareTag = ["x"]
[site.A.ce.c.queue.small]
Memory = 2000
[site.A.ce.c.queue.mid]
Memory = 4000
[site.A.ce.c.queue.large]
Memory = 8000
[site.B]
VO = "other"
[site.B.ce.c.queue.closed]
Memory = 64000
SoftwareTag = ["x", "y"]
[site.C.ce.c.queue.bare]
"""


@pytest.fixture(scope="module")
def table():
    return QueueTable(load_toml(CONFIG), "vo")


def test_queues_and_bits(table):
    large = QueueId("A", "c", "large")
    assert table.queues[table.bit(large)] == large
    assert table.names(0b101) == [QueueId("A", "c", "small"), large]
    assert table.sites(0b11001) == ("A", "B", "C")
    assert table.full == 0b11111
    assert table.open_to_vo == 0b10111
    assert table.params(large)["memory"].value == 8000
    with pytest.raises(KeyError):
        table.bit(QueueId("A", "c", "none"))


def test_masks(table):
    assert table.eligible_mask({"Memory": 4000}) == 0b00110
    assert table.eligible_mask({"Memory": 4000, "SoftwareTag": ["x", "y"]}) == 0b00110
    assert table.eligible_mask({"Memory": 64000}) == 0
    assert table.eligible_mask({"Unknown": 1}) == 0
    assert table.eligible_mask(table.compile({"Memory": "2000 MB"})) == 0b00111


def test_bad_requirements_are_refused(table):
    for ask in (table.eligible_mask, table.assess):
        with pytest.raises(InvalidJob, match="Memory"):
            ask({"Memory": "lots"})


def test_why_nothing_is_eligible(table):
    assessment = table.assess({"Memory": 16000, "SoftwareTag": "x"})
    assert assessment.eligible == 0
    assert assessment.counts() == [("Memory", 4), ("SoftwareTag", 1), ("VO", 1)]
    nearest = assessment.nearest()
    assert nearest.fewest == 1
    assert table.names(nearest.mask) == [
        QueueId("A", "c", "small"),
        QueueId("A", "c", "mid"),
        QueueId("A", "c", "large"),
        QueueId("B", "c", "closed"),
    ]
    assert assessment.changes() == [
        Change(parameters=("Memory",), mask=0b00111, count=3),
        Change(parameters=("VO",), mask=0b01000, count=1),
    ]
    (reason,) = assessment.reasons(QueueId("A", "c", "large"))
    assert isinstance(reason, TooSmall)
    assert (reason.wanted, reason.offered) == (16000, 8000)
    (denied,) = assessment.reasons(QueueId("B", "c", "closed"))
    assert isinstance(denied, AccessDenied)
    assert [type(item) for item in assessment.reasons(QueueId("C", "c", "bare"))] == [MissingParameter] * 2


def test_what_is_eligible_misses_nothing(table):
    assessment = table.assess({"Memory": 4000})
    assert assessment.nearest().fewest == 0
    assert assessment.nearest().mask == assessment.eligible
    assert assessment.changes() == []


def test_reasons_of_one_queue_are_those_of_the_predicate(table):
    criteria = table.compile({"Memory": 16000, "SoftwareTag": "y"})
    for ordinal, queue in enumerate(table.queues):
        assert table.reasons(ordinal, criteria) == refusals(criteria, table.params(queue), vo="vo")


def test_an_empty_table():
    table = QueueTable(ResourceConfig(), "vo")
    assert (table.full, table.eligible_mask({"a": 1}), table.queues) == (0, 0, ())
    assert table.assess({"a": 1}).nearest().mask == 0
    assert table.assess({"a": 1}).changes() == []


def test_one_and_true_are_two_values_of_an_undeclared_parameter():
    config = load_toml(
        "[site.S.ce.c.queue.one]\nP = 1\n[site.S.ce.c.queue.true]\nP = true\n"
        "[site.S.ce.c.queue.ones]\nP = [1, 7]\n[site.S.ce.c.queue.trues]\nP = [true]"
    )
    table = QueueTable(config)
    assert table.eligible_mask({"P": 1}) == 0b0101
    assert table.eligible_mask({"P": True}) == 0b1010


def test_bits():
    assert list(bits(0)) == []
    assert list(bits(1 << 2000 | 0b1010)) == [1, 3, 2000]


@pytest.mark.slow
def test_a_large_table_in_bounded_work():
    """2,000 queues and 200 requirements with all counts: masks, not pairs."""
    lines = ["[job_description]"]
    lines += [f'P{k} = "number"' for k in range(200)]
    for q in range(2000):
        lines.append(f"[site.S{q}.ce.c.queue.q]")
        lines.append(f"P{q % 200} = {q}")
    table = QueueTable(load_toml("\n".join(lines)))
    assessment = table.assess({f"P{k}": 1000 for k in range(200)})
    assert assessment.counts()[0][1] == 1995
    assert assessment.nearest().fewest == 199
    assert assessment.nearest().mask.bit_count() == 1000


def test_what_queues_offer_is_counted_by_what_is_the_same():
    text = "".join(
        f"[site.S{n}.ce.c.queue.q]\n{one}\n"
        for n, one in enumerate(["M = 1", "M = true", "M = 1", 'M = "ANY"', "", 'M = [1, "x"]', "M = []"])
    )
    table = QueueTable(load_toml(text))
    found = table.offered("m", table.full)
    assert [(values, n, type(values[0])) for values, n in found] == [
        ((1,), 2, int), ((True,), 1, bool), ((1, "x"), 1, int),
    ]  # fmt: skip
    assert table.offered("m", 0b101110) == [((True,), 1), ((1,), 1), ((1, "x"), 1)]
    assert table.offered("other", table.full) == []
