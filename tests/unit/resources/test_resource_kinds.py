"""Parameter types: declarations, readings, and the one predicate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.resources.kinds import (
    ParameterType,
    TypeTable,
    admits,
    boolean_of,
    parse_type,
    scalar_of,
)
from lodesman.decide.resources.model import BadValue, as_text, fold
from lodesman.wire.vocabulary import Kind


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("number", ParameterType(name="P", kind=Kind.NUMBER, operator=">=")),
        ("number MB", ParameterType(name="P", kind=Kind.NUMBER, unit="MB", operator=">=")),
        ("number == GHz", ParameterType(name="P", kind=Kind.NUMBER, unit="GHz", operator="==")),
        ("string", ParameterType(name="P", kind=Kind.STRING, operator="==")),
        ("list", ParameterType(name="P", kind=Kind.LIST, operator="any")),
        ("LIST Merge", ParameterType(name="P", kind=Kind.LIST, operator="any", merge=True)),
        ("version", ParameterType(name="P", kind=Kind.VERSION, operator=">=")),
        ("version ==", ParameterType(name="P", kind=Kind.VERSION, operator="==")),
        ("boolean", ParameterType(name="P", kind=Kind.BOOLEAN, operator="==")),
        ({"type": "number", "unit": "MB"}, ParameterType(name="P", kind=Kind.NUMBER, unit="MB")),
        ({"Type": "list", "Merge": "yes"}, ParameterType(name="P", kind=Kind.LIST, merge=True)),
        ({"type": "list", "merge": False}, ParameterType(name="P", kind=Kind.LIST)),
        ({"TYPE": "version", "operator": "=="}, ParameterType(name="P", kind=Kind.VERSION, operator="==")),
    ],
)
def test_declarations(declaration, expected):
    assert parse_type("P", declaration) == expected


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("", "is none of number, string, list, version, boolean"),
        ("numbr", "type 'numbr' is none of"),
        ("deduced", "type 'deduced' is none of"),
        ("number MB GB", "unit is given twice"),
        ("list merge merge", "merge is given twice"),
        ("version >= ==", "operator is given twice"),
        ("string >=", "operator '>=' does not fit a string"),
        ("list MB", "a list has no unit"),
        ("number merge", "only a list is merged, not a number"),
        ({}, "is none of"),
        ({"type": "number", "unti": "MB"}, "'unti' is not a property of a type"),
        ({"type": "list", "merge": "perhaps"}, "neither true nor false"),
        ({"type": ["number"]}, "is none of"),
        (7, "7 declares no type"),
        (["number"], "declares no type"),
    ],
)
def test_bad_declarations_say_what_is_wrong(declaration, message):
    with pytest.raises(BadValue, match=message.replace("(", r"\(")):
        parse_type("P", declaration)


def test_names_are_found_without_regard_to_case():
    table = TypeTable([parse_type("SoftwareTag", "list")])
    assert table.get("softwaretag") is table.get("SOFTWARETAG") is table.get(" SoftwareTag ")
    assert table.get("softwaretag").name == "SoftwareTag"
    assert table.get("Software") is None


def test_well_known_parameters_are_declared_and_can_be_declared_anew():
    assert TypeTable().get("Memory") == ParameterType(name="Memory", kind=Kind.NUMBER, unit="MB")
    assert TypeTable().get("tag").merge
    assert TypeTable().get("RequiredTag").merge
    assert not TypeTable().get("Platform").merge
    assert TypeTable([parse_type("memory", "number GB")]).get("Memory").unit == "GB"


def test_all_types_come_sorted():
    names = [item.name for item in TypeTable().all()]
    assert names == sorted(names, key=str.lower)


def test_the_version_of_the_table_follows_what_decides_identity():
    def version(*declarations):
        return TypeTable([parse_type(name, text) for name, text in declarations]).version

    base = version(("A", "number MB"), ("B", "list"))
    assert base == version(("B", "list"), ("a", "number MB"))
    assert base == version(("A", "number MB"), ("B", "list merge"))
    assert len({base, version(("A", "number GB"), ("B", "list")), version(("A", "number MB"))}) == 3
    assert base != version(("A", "number == MB"), ("B", "list"))
    assert base != version(("A", "string"), ("B", "list"))


@pytest.mark.parametrize(
    ("value", "kind", "unit", "expected"),
    [
        ("4 GB", Kind.NUMBER, "MB", 4096),
        (" Intel Xeon ", Kind.STRING, "", "Intel Xeon"),
        (5, Kind.STRING, "", "5"),
        (5.0, Kind.LIST, "", "5"),
        (5.5, Kind.LIST, "", "5.5"),
        (True, Kind.STRING, "", "true"),
        ("1.20.0", Kind.VERSION, "", "1.20"),
        (7, Kind.VERSION, "", "7"),
        ("Yes", Kind.BOOLEAN, "", True),
        (0, Kind.BOOLEAN, "", False),
        (1.0, Kind.BOOLEAN, "", True),
        ("off", Kind.BOOLEAN, "", False),
        ("4000", Kind.DEDUCED, "", "4000"),
        (4000.0, Kind.DEDUCED, "", 4000),
        (True, Kind.DEDUCED, "", True),
        ("  x ", Kind.DEDUCED, "", "x"),
    ],
)
def test_readings(value, kind, unit, expected):
    found = scalar_of(value, kind, unit)
    assert found == expected
    assert type(found) is type(expected)
    assert scalar_of(found, kind, unit) == found


@pytest.mark.parametrize("value", ["maybe", "", 2, -1, 0.5, None, [True]])
def test_what_is_no_truth_value(value):
    with pytest.raises(BadValue, match="neither true nor false"):
        boolean_of(value)


ADMITTED = [
    (Kind.NUMBER, ">=", 4000, 4000),
    (Kind.NUMBER, ">=", 4000, 4000.5),
    (Kind.NUMBER, "==", 4000, 4000),
    (Kind.STRING, "==", "Intel Xeon", "Intel Xeon"),
    (Kind.LIST, "any", "AppVersion1", "AppVersion1"),
    (Kind.VERSION, ">=", "6.28", "6.30"),
    (Kind.VERSION, ">=", "6.28", "6.28"),
    (Kind.VERSION, "==", "6.28", "6.28"),
    (Kind.BOOLEAN, "==", False, False),
    # Undeclared: a true number on one side makes it a matter of capacity.
    (Kind.DEDUCED, "any", 4000, 4000),
    (Kind.DEDUCED, "any", 4000, 8000),
    (Kind.DEDUCED, "any", 4000, "8000"),
    (Kind.DEDUCED, "any", "4000", 8000),
    (Kind.DEDUCED, "any", "4000", "4000"),
    (Kind.DEDUCED, "any", True, "TRUE"),
    (Kind.DEDUCED, "any", "false", False),
    (Kind.DEDUCED, "any", False, False),
    (Kind.DEDUCED, "any", "x", "x"),
]

REFUSED = [
    (Kind.NUMBER, ">=", 4000, 3999),
    (Kind.NUMBER, "==", 4000, 8000),
    (Kind.STRING, "==", "Intel Xeon", "intel xeon"),
    (Kind.LIST, "any", "AppVersion1", "AppVersion"),
    (Kind.VERSION, ">=", "6.30", "6.4"),
    (Kind.VERSION, "==", "6.28", "6.30"),
    (Kind.BOOLEAN, "==", True, False),
    (Kind.DEDUCED, "any", 4000, 2000),
    (Kind.DEDUCED, "any", 4000, "2000"),
    (Kind.DEDUCED, "any", "4000", 2000),
    (Kind.DEDUCED, "any", "4000", "8000"),  # two texts are compared as texts
    (Kind.DEDUCED, "any", 4000, "4000 MB"),  # a unit means something only where it is declared
    (Kind.DEDUCED, "any", 4000, "lots"),
    (Kind.DEDUCED, "any", "lots", 4000),
    (Kind.DEDUCED, "any", 1, True),
    (Kind.DEDUCED, "any", True, 1),
    (Kind.DEDUCED, "any", True, "yes"),
    (Kind.DEDUCED, "any", "true", "True"),
    (Kind.DEDUCED, "any", "X", "x"),
]


@pytest.mark.parametrize(("kind", "operator", "wanted", "offered"), ADMITTED)
def test_admitted(kind, operator, wanted, offered):
    assert admits(kind, operator, wanted, offered)


@pytest.mark.parametrize(("kind", "operator", "wanted", "offered"), REFUSED)
def test_refused(kind, operator, wanted, offered):
    assert not admits(kind, operator, wanted, offered)


scalars = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["1", "2.0", "true", "False", "1.2", "4 GB"]),
    st.integers(-5, 5),
    st.floats(-5, 5),
    st.booleans(),
)


@given(scalars, st.sampled_from(list(Kind)))
def test_reading_is_idempotent_and_every_value_admits_itself(value, kind):
    try:
        found = scalar_of(value, kind, "MB" if kind is Kind.NUMBER else "")
    except BadValue:
        return
    assert scalar_of(found, kind, "MB" if kind is Kind.NUMBER else "") == found
    operator = {Kind.LIST: "any", Kind.DEDUCED: "any", Kind.STRING: "==", Kind.BOOLEAN: "=="}.get(kind, ">=")
    assert admits(kind, operator, found, found)


@given(st.text(max_size=10))
def test_folding_is_idempotent(name):
    assert fold(fold(name)) == fold(name)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()))
def test_as_text_is_a_text_without_outer_blanks(value):
    text = as_text(value)
    assert text == text.strip()
    assert text
