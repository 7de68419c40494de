"""SubmitPool identifiers: one for all spellings of a set, different for different sets."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.errors import InvalidJob
from lodesman.matching.submit_pool import (
    canonical_criteria,
    canonical_requirements,
    pool_id_of,
    submit_pool_id,
)
from lodesman.resources import Kind, ParameterType, TypeTable, compile_requirements

TYPES = TypeTable(
    [
        ParameterType(name="SoftwareTag", kind=Kind.LIST),
        ParameterType(name="CPUModel", kind=Kind.STRING),
        ParameterType(name="ROOT", kind=Kind.VERSION),
        ParameterType(name="Internet", kind=Kind.BOOLEAN),
    ]
)


def test_the_example_of_the_seed():
    requirements = {"SoftwareTag": ["AppVersion1", "AppVersion2"], "CPUModel": "Intel Xeon", "Memory": 4000}
    assert json.loads(canonical_requirements(requirements, TYPES)) == {
        "cpumodel": ["string", ["Intel Xeon"]],
        "memory": ["number", [4000]],
        "softwaretag": ["list", ["AppVersion1", "AppVersion2"]],
    }
    assert re.fullmatch(r"req1:[0-9a-f]{64}", submit_pool_id(requirements, TYPES))


def test_an_identifier_never_changes_between_processes_and_releases():
    found = submit_pool_id(
        {"Memory": 4000, "SoftwareTag": ["b", "a"]}, TypeTable(TYPES.all(), well_known=False)
    )
    assert found == submit_pool_id({"softwaretag": "a, b", "memory": "4000 MB"}, TYPES)
    plain = submit_pool_id({"P": 1}, TypeTable(well_known=False))
    assert plain == "req1:5d294f961eb594d27ac94e712a8ed4ed58761f64c8f049020a16b5703090b48b"


def test_an_empty_set_needs_no_pool():
    assert submit_pool_id({}, TYPES) == ""
    assert canonical_requirements({}, TYPES) == "{}"


@pytest.mark.parametrize("value", ["4000", 4000, 4000.0, "4000 MB", " 4000.00 ", "4e3", [4000, "4000 MB"]])
def test_spellings_of_a_number_are_one(value):
    assert submit_pool_id({"Memory": value}, TYPES) == submit_pool_id({"MEMORY": 4000}, TYPES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"Memory": 4000}, {"Memory": 4001}),
        ({"Memory": 4000}, {"MaxRAM": 4000}),
        ({"SoftwareTag": "a"}, {"SoftwareTag": ["a", "b"]}),
        ({"SoftwareTag": "a"}, {"SoftwareTag": "A"}),
        ({"Memory": 4000}, {"Memory": 4000, "SoftwareTag": "a"}),
        ({"Undeclared": "4000"}, {"Undeclared": 4000}),
        ({"Undeclared": True}, {"Undeclared": 1}),
        ({"Undeclared": True}, {"Undeclared": "true"}),
        ({"A": "x", "B": "y"}, {"A": "y", "B": "x"}),
        ({"CPUModel": "a,b"}, {"CPUModel": ["a", "b"]}),
    ],
)
def test_different_sets_have_different_identifiers(one, other):
    assert submit_pool_id(one, TYPES) != submit_pool_id(other, TYPES)


def test_a_change_of_types_gives_new_identifiers():
    others = TypeTable([*TYPES.all(), ParameterType(name="New", kind=Kind.STRING)])
    assert submit_pool_id({"Memory": 4000}, TYPES) != submit_pool_id({"Memory": 4000}, others)
    merging = TypeTable(
        [ParameterType(name=t.name, kind=t.kind, merge=t.kind is Kind.LIST) for t in TYPES.all()]
    )
    assert canonical_requirements({"SoftwareTag": "a"}, TYPES) == canonical_requirements(
        {"SoftwareTag": "a"}, merging
    )


def test_what_a_queue_is_may_differ_from_vo_to_vo_so_pools_do():
    ids = {submit_pool_id({"Memory": 4000}, TYPES, vo) for vo in ("", "lab", "lab2", '"', "\n", "caf\u00e9")}
    assert len(ids) == 6
    assert submit_pool_id({}, TYPES, "lab") == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"Memory": "4000"}, {"Memory": 4000.0}),
        ({"SoftwareTag": ["a", "b"]}, {"SoftwareTag": "b, a"}),
        ({"SoftwareTag": ["a", "b", "a"]}, {"SoftwareTag": ["b", "a"]}),
        ({"CPUModel": "4000"}, {"CPUModel": 4000}),
        ({"CPUModel": 4000}, {"CPUModel": 4000.0}),
        ({"SoftwareTag": "4000"}, {"SoftwareTag": [4000.0]}),
        ({"ROOT": "6.30"}, {"ROOT": "6.30.0"}),
        ({"Internet": "yes"}, {"Internet": True}),
        ({"Undeclared": 4000}, {"Undeclared": 4000.0}),
        ({"Undeclared": [2, 1]}, {"Undeclared": [1, 2, 2]}),
        ({"A": 1, "B": 2}, {"b": 2, "a": 1}),
    ],
)
def test_by_the_declared_type_two_spellings_are_one(one, other):
    assert submit_pool_id(one, TYPES) == submit_pool_id(other, TYPES)


def test_bad_requirements_are_refused():
    with pytest.raises(InvalidJob, match="Memory"):
        submit_pool_id({"Memory": "lots"}, TYPES)


def test_compiled_criteria_give_the_same():
    requirements = {"ROOT": "6.30.0", "Other": [2, "x"]}
    criteria = compile_requirements(requirements, TYPES)
    assert pool_id_of(criteria, TYPES) == submit_pool_id(requirements, TYPES)
    assert canonical_criteria(criteria) == canonical_requirements(requirements, TYPES)


def test_odd_text_is_no_problem():
    odd = {"\ud800": '"},{', "ß": "\u2028", "x\x00": "\\"}
    assert submit_pool_id(odd, TYPES) != submit_pool_id({**odd, "x\x00": "/"}, TYPES)


scalars = st.one_of(
    st.sampled_from(["a", "b", "A", "1", "1.0", "true", "4 GB"]),
    st.integers(-2, 2),
    st.sampled_from([0.5, 1.0, 1e20]),
    st.booleans(),
)
kinds_of = {
    "Memory": st.sampled_from([1, 1.0, "1", "1 MB", 1024, "1 GB", 2.5]),
    "SoftwareTag": st.sampled_from(["a", "b", " a", 1, "1"]),
    "ROOT": st.sampled_from(["1", "1.0", "1.2", "1.2rc1", 2]),
    "Internet": st.sampled_from([True, "yes", "on", False, 0]),
    "Undeclared": scalars,
    "Another": scalars,
}


@st.composite
def sets(draw):
    names = draw(st.lists(st.sampled_from(sorted(kinds_of)), unique=True, min_size=1))
    return {name: draw(st.lists(kinds_of[name], min_size=1, max_size=3)) for name in names}


@given(sets(), st.randoms(use_true_random=False))
def test_order_repetition_and_spelling_do_not_matter(requirements, rng):
    def respelled(name):
        return rng.choice([name, name.upper(), name.lower(), f" {name}"])

    def shuffled(values):
        out = [*values, rng.choice(values)]
        rng.shuffle(out)
        return out if len(set(map(repr, out))) > 1 else rng.choice([out[0], out])

    names = list(requirements)
    rng.shuffle(names)
    other = {respelled(name): shuffled(requirements[name]) for name in names}
    assert canonical_requirements(other, TYPES) == canonical_requirements(requirements, TYPES)
    assert submit_pool_id(other, TYPES) == submit_pool_id(requirements, TYPES)


@given(sets(), sets())
def test_identifiers_are_equal_exactly_for_equal_sets(one, other):
    same = canonical_requirements(one, TYPES) == canonical_requirements(other, TYPES)
    assert (submit_pool_id(one, TYPES) == submit_pool_id(other, TYPES)) == same


@given(sets())
def test_the_canonical_form_is_canonical(requirements):
    text = canonical_requirements(requirements, TYPES)
    rows = json.loads(text)
    assert list(rows) == sorted(rows)
    again = {name: values for name, (_, values) in rows.items()}
    assert canonical_requirements(again, TYPES) == text


@given(sets(), st.sampled_from(sorted(kinds_of)))
def test_leaving_one_out_is_another_set(requirements, name):
    fewer = {key: value for key, value in requirements.items() if key != name}
    if fewer != requirements:
        assert submit_pool_id(fewer, TYPES) != submit_pool_id(requirements, TYPES)
