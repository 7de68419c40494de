"""Requirements compiled, and one held against one effective value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.decide.resources.inherit import EffectiveParam
from lodesman.decide.resources.kinds import TypeTable, parse_type
from lodesman.decide.resources.model import BadValue
from lodesman.decide.resources.requirement import (
    _MAX_REQUIREMENTS,
    _MAX_TEXT,
    _MAX_VALUES,
    Mismatch,
    access_refusal,
    capacities,
    compile_requirements,
    judge,
)
from lodesman.wire.vocabulary import Kind, Level

TYPES = TypeTable(
    [
        parse_type("SoftwareTag", "list"),
        parse_type("CPUModel", "string"),
        parse_type("ROOT", "version"),
        parse_type("Kernel", "version =="),
        parse_type("GPUs", "number =="),
        parse_type("Internet", "boolean"),
    ]
)


def effective(value, name="P", level=Level.QUEUE):
    return EffectiveParam(name=name, value=value, level=level, levels=(level,), said=value)


def verdict(name, wanted, offered):
    (criterion,) = compile_requirements({name: wanted}, TYPES)
    return judge(criterion, effective(offered, name))


def test_criteria_are_canonical_and_sorted_by_name():
    criteria = compile_requirements(
        {"softwaretag": ["b", "a", "b"], "Memory": "4 GB", "Zoo": 1, "alpha": "x"}, TYPES
    )
    assert [(item.parameter, item.wanted) for item in criteria] == [
        ("alpha", ("x",)),
        ("Memory", (4096,)),
        ("SoftwareTag", ("a", "b")),
        ("Zoo", (1,)),
    ]
    assert criteria[0].kind is Kind.DEDUCED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"Memory": "4000"}, {"memory": 4000.0}),
        ({"Memory": "4000 MB"}, {"Memory": [4000, "4000"]}),
        ({"SoftwareTag": "a"}, {"SoftwareTag": ["a", " a "]}),
        ({"SoftwareTag": "a, b"}, {"SoftwareTag": ("b", "a")}),
        ({"ROOT": "6.30"}, {"root": "6.30.0"}),
        ({"Internet": "yes"}, {"Internet": True}),
        ({"CPUModel": "Intel Xeon"}, {" CPUModel ": "Intel Xeon "}),
        ({"Other": [1.0, 2]}, {"other": [2, 1]}),
    ],
)
def test_spellings_of_one_requirement_are_equal(one, other):
    assert compile_requirements(one, TYPES) == compile_requirements(other, TYPES)


def test_a_comma_separates_only_in_lists():
    (criterion,) = compile_requirements({"CPUModel": "Intel, the old one"}, TYPES)
    assert criterion.wanted == ("Intel, the old one",)
    (criterion,) = compile_requirements({"Undeclared": "a, b"}, TYPES)
    assert criterion.wanted == ("a, b",)


def test_one_and_true_stay_two_values():
    (criterion,) = compile_requirements({"Undeclared": [1, True, "1", 1.0]}, TYPES)
    assert criterion.wanted == (True, 1, "1")
    assert [type(item) for item in criterion.wanted] == [bool, int, str]


@pytest.mark.parametrize(
    ("requirements", "attribute", "message"),
    [
        ({"Memory": "lots"}, "Requirements.Memory", "a number is expected: 'lots' is not a number"),
        ({"Memory": "4 s"}, "Requirements.Memory", "unit 's' does not fit"),
        ({"Memory": True}, "Requirements.Memory", "True is not a number"),
        ({"Internet": "perhaps"}, "Requirements.Internet", "neither true nor false"),
        ({"ROOT": "a,b"}, "Requirements.ROOT", "is not a version"),
        ({"Nested": {"a": 1}}, "Requirements.Nested", "neither text, number, truth value nor a list"),
        ({"Nothing": None}, "Requirements.Nothing", "neither text, number"),
        ({"Empty": []}, "Requirements.Empty", "an empty list"),
        ({"SoftwareTag": " , "}, "Requirements.SoftwareTag", "an empty list"),
        ({"SoftwareTag": [" "]}, "Requirements.SoftwareTag", "an empty list"),
        ({"Deep": [["a"]]}, "Requirements.Deep", "a list inside a list"),
        ({"Long": "x" * (_MAX_TEXT + 1)}, "Requirements.Long", "longer than"),
        ({"Long": ["x" * (_MAX_TEXT + 1)]}, "Requirements.Long", "longer than"),
        ({"Many": list(range(_MAX_VALUES + 1))}, "Requirements.Many", "more than 10000 values"),
        ({"Memory": 1, "memory": 2}, "Requirements.memory", "given twice, also as Memory"),
        ({"": 1}, "Requirements", "'' is not a name of a requirement"),
        ({"n" * (_MAX_TEXT + 1): 1}, "Requirements", "is not a name of a requirement"),
        ({"Huge": 10**400}, "Requirements.Huge", "too large"),
        ({"Endless": float("inf")}, "Requirements.Endless", "not a finite number"),
    ],
)
def test_what_is_refused_names_the_attribute(requirements, attribute, message):
    with pytest.raises(InvalidJob, match=message) as caught:
        compile_requirements(requirements, TYPES)
    assert caught.value.data["attribute"] == attribute
    assert caught.value.hint.startswith("Give ")


def test_what_would_be_right_names_the_kind_and_the_unit():
    for requirements, right in (
        ({"Memory": "lots"}, "Give a number (MB if it names no unit), or a list of which any will do."),
        ({"Internet": "perhaps"}, "Give true or false, or a list of which any will do."),
        ({"ROOT": "a,b"}, 'Give a version, as in "6.32/04", or a list of which any will do.'),
        ({"Nested": {}}, "Give a text, a number or a truth value, or a list of which any will do."),
    ):
        with pytest.raises(InvalidJob) as caught:
            compile_requirements(requirements, TYPES)
        assert caught.value.hint == right


def test_too_many_requirements():
    with pytest.raises(InvalidJob, match="1001 entries"):
        compile_requirements({f"r{i}": 1 for i in range(_MAX_REQUIREMENTS + 1)}, TYPES)
    assert (
        len(compile_requirements({f"r{i}": 1 for i in range(_MAX_REQUIREMENTS)}, TYPES)) == _MAX_REQUIREMENTS
    )


@pytest.mark.parametrize(
    ("name", "wanted", "offered"),
    [
        ("Memory", 4000, 4000),
        ("Memory", 4000, 8000),
        ("Memory", [4000, 64000], 8000),
        ("Memory", 4000, (2000, 8000)),
        ("Memory", 4000, "ANY"),
        ("Memory", "4 GB", 4096),
        ("GPUs", 2, 2),
        ("SoftwareTag", ["AppVersion1", "AppVersion2"], "AppVersion2"),
        ("SoftwareTag", "AppVersion2", ("AppVersion1", "AppVersion2")),
        ("SoftwareTag", "AppVersion2", "AppVersion1, AppVersion2"),
        ("SoftwareTag", "whatever", ("x", "ANY")),
        ("CPUModel", "Intel Xeon", "Intel Xeon"),
        ("CPUModel", ["AMD", "Intel Xeon"], "Intel Xeon"),
        ("ROOT", "6.28", "6.30"),
        ("ROOT", ["7", "6.28"], "6.30"),
        ("Kernel", "5.14.0", "5.14"),
        ("Internet", "yes", True),
        ("Undeclared", 5, "6"),
        ("Undeclared", ["x", 5], ("y", 7)),
        ("Undeclared", "anything", "ANY"),
    ],
)
def test_fulfilled(name, wanted, offered):
    assert verdict(name, wanted, offered) is None


@pytest.mark.parametrize(
    ("name", "wanted", "offered", "reason"),
    [
        ("Memory", 8000, 4000, "wanted at least 8000 MB, the queue offers 4000"),
        ("Memory", [8000, 9000], (1000, 4000), "wanted at least 8000 MB, the queue offers 4000"),
        ("Memory", 8000, (), "wanted at least 8000 MB, the queue offers nothing"),
        ("GPUs", 2, 4, "wanted 2, the queue offers 4"),
        ("GPUs", [1, 2], 4, "wanted 1 or 2, the queue offers 4"),
        ("SoftwareTag", ["a", "b"], ("c", "d"), "wanted a or b, the queue offers c or d"),
        ("SoftwareTag", "a", (), "wanted a, the queue offers nothing"),
        ("SoftwareTag", "any", "Any", "wanted any, the queue offers Any"),
        ("CPUModel", "Intel", "AMD", "wanted Intel, the queue offers AMD"),
        ("ROOT", "6.30", "6.4", "wanted at least 6.30, the queue offers 6.4"),
        ("ROOT", ["6.10", "6.9"], ("6.2", "6.8"), "wanted at least 6.9, the queue offers 6.8"),
        ("Kernel", "5", "6", "wanted 5, the queue offers 6"),
        ("Internet", True, False, "wanted true, the queue offers false"),
        ("Undeclared", 1.5, (), "wanted 1.5, the queue offers nothing"),
        ("Undeclared", 5, "4", "wanted at least 5, the queue offers 4"),
        ("Undeclared", "5", 4, "wanted at least 5, the queue offers 4"),
        ("Undeclared", "5", "4", "wanted 5, the queue offers 4"),
        ("Undeclared", 5, "x", "wanted 5, the queue offers x"),
        ("Undeclared", True, 1, "wanted true, the queue offers 1"),
    ],
)
def test_refused_with_the_reason(name, wanted, offered, reason):
    assert verdict(name, wanted, offered) == Mismatch(name, f"{name}: {reason}")


def test_a_missing_parameter():
    (criterion,) = compile_requirements({"Memory": 4000}, TYPES)
    assert str(judge(criterion, None)) == "Memory is not declared (wanted 4000)"


def test_the_level_of_the_value_is_in_the_reason():
    (criterion,) = compile_requirements({"Memory": 4000}, TYPES)
    reason = judge(criterion, effective(2000, level=Level.SITE_VO))
    assert str(reason) == "Memory: wanted at least 4000 MB, the site(VO) offers 2000"


def test_a_vo_that_is_not_on_the_access_list():
    access = effective(("physvo", "other"), level=Level.CE)
    assert access_refusal(access, "other") is None
    assert str(access_refusal(access, "biovo")) == "VO biovo has no access: the CE admits physvo or other"


def test_a_resource_value_that_its_type_cannot_read_is_no_silent_no():
    (criterion,) = compile_requirements({"Memory": 4000}, TYPES)
    with pytest.raises(BadValue):
        judge(criterion, effective("lots"))


def test_long_lists_are_compared_in_one_step():
    wanted = [f"w{i}" for i in range(_MAX_VALUES)]
    offered = tuple(f"o{i}" for i in range(_MAX_VALUES))
    assert "wanted w0 or" in str(verdict("SoftwareTag", wanted, offered))
    assert verdict("SoftwareTag", wanted, (*offered, "w7")) is None


values = st.one_of(
    st.integers(-3, 3),
    st.floats(-3, 3),
    st.booleans(),
    st.sampled_from(["1", "2", "true", "a", "A", "1.0", "ANY", "x, y"]),
)
requirement_values = st.one_of(values, st.lists(values, min_size=1, max_size=4))
names = st.sampled_from(
    ["Memory", "SoftwareTag", "CPUModel", "ROOT", "Kernel", "GPUs", "Internet", "Undeclared"]
)


@given(names, requirement_values, st.one_of(values, st.lists(values, max_size=4).map(tuple)))
def test_more_wanted_values_never_make_it_harder(name, wanted, offered):
    try:
        (criterion,) = compile_requirements({name: wanted}, TYPES)
        reason = judge(criterion, effective(offered, name))
        as_list = wanted if isinstance(wanted, list) else [wanted]
        (wider,) = compile_requirements({name: [*as_list, "1"]}, TYPES)
    except (InvalidJob, BadValue):
        return
    if reason is None:
        assert judge(wider, effective(offered, name)) is None
    else:
        assert str(reason)


@given(
    st.dictionaries(
        st.text(max_size=6), st.recursive(values, lambda inner: st.lists(inner, max_size=3)), max_size=5
    )
)
def test_any_requirements_compile_or_are_refused_by_name(requirements):
    criteria, named = compiled_or_named(requirements)
    assert named.startswith("Requirements") if criteria is None else len(criteria) == len(requirements)
    folded = [item.folded for item in criteria or ()]
    assert folded == sorted(set(folded))


def compiled_or_named(requirements):
    try:
        return compile_requirements(requirements, TYPES), ""
    except InvalidJob as fault:
        return None, fault.data["attribute"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Memory", "-5"),
        ("Memory", " -5 MB"),
        ("Memory", -5),
        ("Memory", [4000, "-1 kB"]),
        ("Undeclared", "-5"),
        ("Undeclared", -0.5),
        ("Undeclared", ["x", " -1e3 "]),
    ],
)
def test_a_number_is_not_negative_however_it_is_written(name, value):
    with pytest.raises(InvalidJob, match="it is negative") as caught:
        compile_requirements({name: value}, TypeTable())
    assert caught.value.data["attribute"] == f"Requirements.{name}"


@pytest.mark.parametrize("words", ["string", "list", "version"])
def test_where_texts_are_wanted_a_minus_is_a_letter(words):
    types = TypeTable([parse_type("Temp", words)])
    assert len(compile_requirements({"Temp": "-5"}, types)) == 1


@pytest.mark.parametrize("value", ["-x", "--", "-", "5-6", "-O2", "-0"])
def test_a_text_that_spells_no_negative_number_is_a_text(value):
    assert compile_requirements({"Flag": value}, TypeTable())[0].wanted == (value,)


@pytest.mark.parametrize(
    ("words", "wanted", "offered", "expected"),
    [
        ("number", 5, [(1, 3), (2,)], [3, 2]),
        ("number ==", 5, [(1, 3), (2,)], [None, None]),
        ("version", "7", [("6.9", "6.10"), ("6.2",)], ["6.10", "6.2"]),
        ("version ==", "7", [("6.9",)], [None]),
        ("string", "x", [("y",)], [None]),
        ("list", "x", [("y",)], [None]),
        ("boolean", True, [(False,)], [None]),
        (None, 9, [("3",), (7,), (True,), ("x",), (1, "y"), ("4 GB",)], [3, 7, None, None, 1, None]),
        (None, [9, 12], [("3", 2.5)], [3]),
        (None, "9", [(5,), (7, 2)], [5, 7]),
        (None, "9", [(5,), ("3",)], [None, None]),
        (None, True, [("3",), (7,)], [None, None]),
        (None, [9, "x"], [("3",), (7,)], [None, None]),
    ],
)
def test_of_which_offers_as_much_or_less_will_do(words, wanted, offered, expected):
    types = TypeTable([parse_type("P", words)] if words else [])
    (criterion,) = compile_requirements({"P": wanted}, types)
    assert capacities(criterion, offered) == expected


def test_texts_with_commas_make_no_longer_list_than_a_list():
    items = ["a," * 500] * 21
    with pytest.raises(InvalidJob, match=f"more than {_MAX_VALUES} values"):
        compile_requirements({"SoftwareTag": items}, TYPES)
