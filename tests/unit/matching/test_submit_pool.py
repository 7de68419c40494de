"""SubmitPool identifiers: one for all spellings of a set, different for different sets."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.decide.matching import TaskQueueKey, given_of, submit_pool
from lodesman.decide.matching.submit_pool import read_again, wanted_of, with_stations, without_stations
from lodesman.decide.matching.task_queue import job_ad
from lodesman.decide.resources import ParameterType, TypeTable, compile_requirements
from lodesman.decide.resources.kinds import parse_type
from lodesman.languages.classad import Ad, evaluate, parse_ad, parse_expression
from lodesman.wire.vocabulary import Kind

TYPES = TypeTable(
    [
        ParameterType(name="SoftwareTag", kind=Kind.LIST),
        ParameterType(name="CPUModel", kind=Kind.STRING),
        ParameterType(name="ROOT", kind=Kind.VERSION),
        ParameterType(name="Internet", kind=Kind.BOOLEAN),
    ]
)


def canonical_requirements(requirements, types):
    return submit_pool.canonical_requirements(compile_requirements(requirements, types))


def spelled_requirements(requirements, types):
    return submit_pool.spelled_requirements(compile_requirements(requirements, types))


def submit_pool_id(requirements, types, vo=""):
    return submit_pool.submit_pool_id(compile_requirements(requirements, types), vo)


def test_the_example_of_the_seed():
    requirements = {"SoftwareTag": ["AppVersion1", "AppVersion2"], "CPUModel": "Intel Xeon", "Memory": 4000}
    assert json.loads(canonical_requirements(requirements, TYPES)) == {
        "cpumodel": ["string", "==", "", ["Intel Xeon"]],
        "memory": ["number", ">=", "mb", [4000]],
        "softwaretag": ["list", "any", "", ["AppVersion1", "AppVersion2"]],
    }
    assert re.fullmatch(r"req2:[0-9a-f]{64}", submit_pool_id(requirements, TYPES))


def test_an_identifier_never_changes_between_processes_and_releases():
    found = submit_pool_id({"Memory": 4000, "SoftwareTag": ["b", "a"]}, TypeTable(TYPES.all()))
    assert found == submit_pool_id({"softwaretag": "a, b", "memory": "4000 MB"}, TYPES)
    plain = submit_pool_id({"P": 1}, TypeTable())
    assert plain == "req2:0a353631a38002fc85039a2b8c02dce7c1fe1ba4b0f73075bc6c4e8ca042bbe8"
    expression = submit_pool_id(
        {"Constraint": 'Net && (Memory > 5 || member("a", Tag)) && CurMatches < 5'}, TypeTable()
    )
    assert expression == "req2:31f41c298bb7d83b7495506cb532ebaf0ba36509873762193e9faa68b7b0d4c3"


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


def declared(**types):
    return TypeTable(parse_type(name, words) for name, words in types.items())


@pytest.mark.parametrize("words", ["number GB", "number MB ==", "string", "version", "list"])
def test_a_change_of_its_type_gives_a_set_another_identifier(words):
    plain = submit_pool_id({"Scratch": 4000}, declared(Scratch="number MB"))
    assert plain != submit_pool_id({"Scratch": 4000}, declared(Scratch=words))


def test_declarations_of_other_parameters_change_no_identifier():
    others = TypeTable([*TYPES.all(), ParameterType(name="New", kind=Kind.STRING)])
    assert submit_pool_id({"Memory": 4000}, TYPES) == submit_pool_id({"Memory": 4000}, others)
    assert submit_pool_id({"Memory": 4000}, TYPES) == submit_pool_id(
        {"Memory": 4000}, declared(Memory="number mb")
    )
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


def test_odd_text_is_no_problem():
    odd = {"\ud800": '"},{', "ß": "\u2028", "x\x00": "\\"}
    assert submit_pool_id(odd, TYPES) != submit_pool_id({**odd, "x\x00": "/"}, TYPES)


scalars = st.one_of(
    st.sampled_from(["a", "b", "A", "1", "1.0", "true", "4 GB"]),
    st.integers(0, 3),
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
    assert canonical_requirements(wanted_of(text), TYPES) == text
    assert read_again(text, TYPES, "lab")[0] == submit_pool_id(requirements, TYPES, "lab")


@given(sets())
def test_what_is_stored_means_the_same_and_is_stored_as_it_is(requirements):
    stored = spelled_requirements(requirements, TYPES)
    assert read_again(stored, TYPES, "lab") == (submit_pool_id(requirements, TYPES, "lab"), stored)


@given(
    st.one_of(st.integers(0, 10**40), st.floats(0, 1e20), st.sampled_from([10**299, 0.1, 1e-9])),
    st.sampled_from(["number", "number B", "number MB", "number GB", "number HS06", "number " + "u" * 70]),
)
def test_a_number_is_read_again_as_it_was_under_the_same_type(number, words):
    types = declared(disk=words)
    stored = spelled_requirements({"disk": number}, types)
    assert read_again(stored, types, "") == (submit_pool_id({"disk": number}, types), stored)


@pytest.mark.parametrize(
    ("before", "wanted", "after", "same_as"),
    [
        ("number GB", 50, "number MB", 51_200),
        ("number GB", 50, "number MB", "50 GB"),
        ("number GB", [50, 1], "number GB ==", [1, 50]),
        ("number h", 1.5, "number s", 5400),
        ("number", 50, "number MB", 50),
        ("number GB", 50, "string", "50 GB"),
        ("string", "50", "number GB", 50),
        ("string", "a, b", "list", ["a", "b"]),
        ("version", "6.30", "string", "6.30"),
        ("boolean", "yes", "string", "true"),
    ],
)
def test_what_was_asked_for_stays_when_the_type_changes(before, wanted, after, same_as):
    stored = spelled_requirements({"disk": wanted}, declared(disk=before))
    found, text = read_again(stored, declared(disk=after), "lab")
    assert found == submit_pool_id({"disk": same_as}, declared(disk=after), "lab")
    assert text == spelled_requirements({"disk": same_as}, declared(disk=after))


def test_a_declaration_that_is_dropped_leaves_the_number_with_its_unit():
    stored = spelled_requirements({"disk": 50}, declared(disk="number GB"))
    assert read_again(stored, TypeTable(), "")[0] == submit_pool_id({"disk": "50 GB"}, TypeTable())


@pytest.mark.parametrize(("before", "wanted", "after"), [
    ("number GB", 50, "number s"), ("string", "much", "number GB"), ("number HS06", 1, "number MB"),
])  # fmt: skip
def test_values_that_the_types_can_no_longer_read_are_reported(before, wanted, after):
    stored = spelled_requirements({"disk": wanted}, declared(disk=before))
    with pytest.raises(InvalidJob, match="disk"):
        read_again(stored, declared(disk=after), "")


def test_a_number_whose_unit_is_not_known_is_in_that_of_today():
    types = declared(disk="number MB")
    assert wanted_of('{"disk": ["number", "", null, [50]]}') == {"disk": [50]}
    assert read_again('{"disk": ["number", "", null, [50]]}', types, "")[0] == submit_pool_id(
        {"disk": 50}, types
    )


def test_requirements_are_read_back_with_their_units():
    types = declared(Software="list")
    stored = spelled_requirements({"memory": "4 GB", "Software": "b, a", "x": 1}, types)
    assert wanted_of(stored) == {"Memory": ["4096 MB"], "Software": ["a", "b"], "x": [1]}
    assert wanted_of("") == {}
    for text in ("x", "[1", '{"a": ["number", [1]]}'):
        with pytest.raises(ValueError, match=r"Expecting|values to unpack"):
            wanted_of(text)


@pytest.mark.parametrize("name", ["Constraint", "constraint", " CONSTRAINT "])
def test_an_expression_is_one_row_by_whatever_name_it_is_spelled(name):
    found = canonical_requirements({name: "TARGET.Memory>4000&&Internet", "Memory": 5}, TYPES)
    assert json.loads(found) == {
        "constraint": ["expression", "", "", ["internet && memory > 4000"]],
        "memory": ["number", ">=", "mb", [5]],
    }


def test_the_pool_of_an_expression_has_what_it_asks_of_the_job():
    def of(text, memory):
        request = job_ad(TaskQueueKey(owner="ann", group="g", vo="lab", memory_mb=memory))
        return submit_pool.requirements_of({"Constraint": text}, TYPES, "lab", request)

    small, large = (of("TARGET.Memory >= 2 * RequestMemory && Internet", memory) for memory in (5, 6))
    assert small.pool != large.pool
    assert small.pool == of("internet && Memory >= 2 * 5", 7).pool
    assert (
        small.text == '{"Constraint":["expression","","[RequestMemory = 5]",'
        '["TARGET.Memory >= 2 * RequestMemory && Internet"]]}'
    )
    assert read_again(small.text, TYPES, "lab") == (small.pool, small.text)
    assert read_again(small.text, declared(Internet="string", memory="number GB"), "lab")[0] == small.pool
    assert given_of(small.text) == {"Constraint": "TARGET.Memory >= 2 * RequestMemory && Internet"}


def test_a_declaration_of_that_name_says_nothing_of_expressions():
    types = declared(Constraint="number GB")
    assert submit_pool_id({"Constraint": "Memory > 5"}, types) == submit_pool_id(
        {"Constraint": "Memory > 5"}, TYPES
    )


@given(sets(), st.sampled_from(sorted(kinds_of)))
def test_leaving_one_out_is_another_set(requirements, name):
    fewer = {key: value for key, value in requirements.items() if key != name}
    if fewer != requirements:
        assert submit_pool_id(fewer, TYPES) != submit_pool_id(requirements, TYPES)


DECIMALS = ["2048", "2048.0", "2048.00000000000000001", "2047.99999999999999999", "2e3", 2048, 2048.0, 2047.5]


@pytest.mark.slow
@given(st.lists(st.sampled_from(DECIMALS), min_size=1), st.randoms(use_true_random=False))
def test_equal_numbers_share_one_identifier_in_any_order(values, rng):
    """Equal as numbers: a decimal fraction may be no number that a machine has but the one beside it."""
    other = [*values, *values[:2]]
    rng.shuffle(other)
    assert submit_pool_id({"Memory": other}, TYPES) == submit_pool_id({"Memory": values}, TYPES)
    asked = sorted({float(value) for value in values})
    assert submit_pool_id({"Memory": asked}, TYPES) == submit_pool_id({"Memory": values}, TYPES)


def test_a_declaration_that_goes_and_comes_back_in_another_unit_weakens_nothing():
    """So a number stays with its unit, as a text, while its parameter is undeclared: 50 would be 50 MB afterwards."""
    stored = spelled_requirements({"disk": 50}, declared(disk="number GB"))
    _, undeclared = read_again(stored, TypeTable(), "")
    assert wanted_of(undeclared) == {"disk": ["50 GB"]}
    back = declared(disk="number MB")
    assert read_again(undeclared, back, "")[0] == submit_pool_id({"disk": 51_200}, back)


# --- stations: a list of names becomes a clause, and is found again in it ---------------------------------------

STATIONS = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1), min_size=1)


@given(STATIONS, st.sampled_from([None, "a || b", "a && (b || c)", 'member(StationName, {"x"})', "true"]))
def test_stations_are_found_again_in_the_constraint(stations, own):
    given = {"Memory": 5} if own is None else {"Memory": 5, "constraint": own}
    found = with_stations(given, stations)
    name = "Constraint" if own is None else "constraint"
    assert list(found) == ["Memory", name]
    left, names = without_stations(found)
    assert left == given
    assert {one.lower() for one in names} == {one.lower() for one in stations}
    pools = {
        submit_pool_id(with_stations(given, some), TYPES) for some in (stations, names, [*names, names[0]])
    }
    assert len(pools) == 1, "order and repetition do not matter"


@pytest.mark.parametrize(
    "text", ["a || b", 'member(StationName, {"x"})', 'f(a, {"x"}) || g(b)', "x || y && z"]
)
def test_another_constraint_names_no_stations(text):
    assert without_stations({"Constraint": text}) == ({"Constraint": text}, ())
    assert without_stations({}) == ({}, ())


@pytest.mark.parametrize(
    ("ad", "holds"),
    [
        ('StationName = "d0"', True),
        ('StationName = "CDF"', True),
        ('StationName = "d00"', False),
        ('StationNames = {"x", "cdf"}', True),
        ('StationName = "x"; StationNames = {"D0"}', True),
        ('StationName = "x"; StationNames = {"y"}', False),
        ("MaxJobs = 5", False),
    ],
)
def test_a_site_is_wanted_that_advertises_one_of_the_stations(ad, holds):
    clause = with_stations({}, ["d0", "cdf"])["Constraint"]
    assert (evaluate(parse_expression(clause), Ad({}), parse_ad(f"[{ad}]")) is True) == holds
