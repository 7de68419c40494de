"""The table of queues agrees with the single predicate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.resources.conftest import eligible_mask, load_toml, named, reasons

from lodesman.base.errors import InvalidJob
from lodesman.decide.masks.bits import bits
from lodesman.decide.resources import (
    Node,
    ParameterType,
    QueueId,
    QueueTable,
    ResourceConfig,
    ResourceTree,
    TypeTable,
    compile_requirements,
)
from lodesman.decide.resources.kinds import typed_value
from lodesman.wire.vocabulary import Kind

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
            queues = {f"q{q}": Node(name=f"q{q}", **draw(nodes())) for q in range(draw(st.integers(1, 2)))}
            ces[f"c{c}"] = Node(name=f"c{c}", children=queues, **draw(nodes()))
        sites[f"s{s}"] = Node(name=f"s{s}", children=ces, **draw(nodes()))
    return ResourceConfig(tree=ResourceTree(sites=sites), types=TYPES)


@st.composite
def requirement_sets(draw):
    names = draw(st.lists(st.sampled_from([*sorted(VALUES), "Site", "Unknown"]), unique=True, max_size=5))
    return {name: draw(some_of(VALUES.get(name, st.sampled_from(["s0", "s1"])))) for name in names}


@given(worlds(), requirement_sets(), st.sampled_from(["vo", "other", ""]))
def test_a_bit_is_set_exactly_if_no_reason_is_found(config, requirements, vo):
    table = QueueTable(config, vo)
    criteria = compile_requirements(requirements, config.types)
    mask, failing = table.eligible_mask(criteria), table.failing(criteria)
    found = reasons(config, requirements, vo)
    assert list(found) == list(table.queues.values())
    for bit, queue in table.queues.items():
        assert bool(mask >> bit & 1) == (not found[queue])
        assert table.reasons(bit, criteria) == found[queue]
        failed = {one.parameter for one, lost in zip(criteria, failing, strict=True) if lost >> bit & 1}
        assert failed == {reason.parameter for reason in found[queue]} - {"VO"}
    assert mask & ~table.full == 0


@given(worlds(), requirement_sets(), st.randoms(use_true_random=False))
def test_any_numbering_names_the_same_queues(config, requirements, rng):
    numbers = rng.sample(range(40), 12)
    queues = list(config.tree.queue_ids())
    given_bits = dict(zip(queues[: rng.randint(0, len(queues))], numbers, strict=False))
    plain, table = QueueTable(config, "vo"), QueueTable(config, "vo", given_bits)
    criteria = compile_requirements(requirements, config.types)
    assert {queue: table.bit(queue) for queue in given_bits} == given_bits
    assert list(table.queues.values()) == queues
    for one, other in (
        (plain.eligible_mask(criteria), table.eligible_mask(criteria)),
        (plain.full, table.full),
        (plain.open_to_vo, table.open_to_vo),
    ):
        assert {plain.queues[bit] for bit in bits(one)} == {table.queues[bit] for bit in bits(other)}
    for bit, queue in table.queues.items():
        assert table.params(bit) == plain.params(plain.bit(queue))


@given(worlds(), requirement_sets())
def test_more_requirements_never_admit_more(config, requirements):
    table = QueueTable(config, "vo")
    fewer = dict(list(requirements.items())[1:])
    assert eligible_mask(table, requirements) & ~eligible_mask(table, fewer) == 0
    assert table.eligible_mask(()) == table.open_to_vo
    assert QueueTable(config).eligible_mask(()) == QueueTable(config).full


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
    assert table.bit(large) == 2
    assert named(table, 0b101) == [QueueId("A", "c", "small"), large]
    assert table.sites(0b11001) == ("A", "B", "C")
    assert table.full == 0b11111
    assert table.open_to_vo == 0b10111
    assert table.params(2)["memory"].value == 8000
    assert table.bit(QueueId("A", "c", "none")) is None


def test_masks(table):
    assert eligible_mask(table, {"Memory": 4000}) == 0b00110
    assert eligible_mask(table, {"Memory": 4000, "SoftwareTag": ["x", "y"]}) == 0b00110
    assert eligible_mask(table, {"Memory": 64000}) == 0
    assert eligible_mask(table, {"Unknown": 1}) == 0
    assert eligible_mask(table, {"Memory": "2000 MB"}) == 0b00111


def test_bad_requirements_are_refused(table):
    with pytest.raises(InvalidJob, match="Memory"):
        eligible_mask(table, {"Memory": "lots"})


def test_an_empty_table():
    table = QueueTable(ResourceConfig(), "vo")
    assert (table.full, eligible_mask(table, {"a": 1}), table.queues) == (0, 0, {})


def test_one_and_true_are_two_values_of_an_undeclared_parameter():
    config = load_toml(
        "[site.S.ce.c.queue.one]\nP = 1\n[site.S.ce.c.queue.true]\nP = true\n"
        "[site.S.ce.c.queue.ones]\nP = [1, 7]\n[site.S.ce.c.queue.trues]\nP = [true]"
    )
    table = QueueTable(config)
    assert eligible_mask(table, {"P": 1}) == 0b0101
    assert eligible_mask(table, {"P": True}) == 0b1010


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
