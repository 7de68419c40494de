"""The JDL reader and writer: what is read, what is refused and where, and that nothing is lost."""

from __future__ import annotations

import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob, SyntaxFault, TooLarge
from lodesman.languages.jobs.description import read_description, write_description
from lodesman.languages.jobs.jdl import read_jdl_value, write_jdl_value
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, TextLimits

read_jdl = partial(read_description, form="jdl")
write_jdl = partial(write_description, form="jdl")


def record(text):
    return read_jdl(text).record


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"abc"', "abc"),
        ('""', ""),
        (r'"a\"b\\c\n\t\r"', 'a"b\\c\n\t\r'),
        (r'"\101\061\7"', "A1\a"),
        (r'"it\'s"', "it's"),
        ('"a;b]c}d//e#f/*g"', "a;b]c}d//e#f/*g"),
        ('"é ü ∀"', "é ü ∀"),
        ('"tab\there"', "tab\there"),
        ("0", 0),
        ("42", 42),
        ("-7", -7),
        ("+7", 7),
        (str(INT_MAX), INT_MAX),
        (str(INT_MIN), INT_MIN),
        ("1.5", 1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("-1.5E-3", -0.0015),
        ("0.0", 0.0),
        ("0e99", 0.0),
        ("true", True),
        ("FALSE", False),
        ("{}", []),
        ("{1}", [1]),
        ('{"a", "b"}', ["a", "b"]),
        ('{ "a" , }', ["a"]),
        ('{1, "a", true, {2}, [ x = 1 ]}', [1, "a", True, [2], {"x": 1}]),
        ("[]", {}),
        ("[ a = 1 ]", {"a": 1}),
        ("[ a = 1; ]", {"a": 1}),
        ("[ a = [ b = 2 ] ]", {"a": {"b": 2}}),
    ],
)
def test_values(text, value):
    found = record(f"A = {text};")["A"]
    assert found == value
    assert type(found) is type(value)
    assert read_jdl_value(text)[0] == value


@pytest.mark.parametrize(
    "text",
    [
        "[A=1;B=2;]",
        "[A=1;B=2]",
        "A=1;B=2;",
        "A=1;B=2",
        "[ A = 1 ;\n B = 2 ; ]\n",
        "A=1;;B=2;;",
        "// first\nA = 1; /* two\nlines */ B /* here */ = // there\n 2 # end",
        "# only a comment before\n[A=1;B=2]# and after",
        "\ufeffA=1;B=2",
        "A=1;\r\nB=2;\r\n",
        "/**/A/***/=/* * / */1;B=2",
    ],
)
def test_one_record_in_many_clothes(text):
    assert record(text) == {"A": 1, "B": 2}


@pytest.mark.parametrize("text", ["", "  \n", "[]", "[ ; ]", "# nothing", ";"])
def test_empty_descriptions(text):
    assert record(text) == {}


def test_the_example_of_the_rfc_reads_alike_with_and_without_the_last_semicolon():
    head = (
        '[\nExecutable = "my_executable";\nRequirements = [\nSoftwareTag = { "AppVersion1","AppVersion2" };\n'
    )
    tail = 'CPUModel = "Intel Xeon";\nMemory = 4000;\n'
    texts = [head + tail + end for end in ("]\n]", "];\n]", "]]", "];]")]
    expected = {
        "Executable": "my_executable",
        "Requirements": {
            "SoftwareTag": ["AppVersion1", "AppVersion2"],
            "CPUModel": "Intel Xeon",
            "Memory": 4000,
        },
    }
    assert [record(text) for text in texts] == [expected] * 4


def test_spelling_and_order_of_names_are_kept_and_dots_are_part_of_them():
    text = "zeta = 1; Parameters.X = {1}; parameterStart.my_2nd.x = 3; _A = 4;"
    assert list(record(text)) == ["zeta", "Parameters.X", "parameterStart.my_2nd.x", "_A"]


def test_odd_names_stand_in_single_quotes():
    assert record(r"'a b' = 1; 'it\'s' = 2; 'x=y' = [ 'é' = 3 ];") == {"a b": 1, "it's": 2, "x=y": {"é": 3}}


def test_words_of_the_language_can_be_names():
    assert record("true = false; TRUE_ = 1") == {"true": False, "TRUE_": 1}


def test_positions_of_attributes_at_every_depth():
    parsed = read_jdl("[\n  A = 1;\n  R = [ B = 2;\n    C = { 1, [ D = 3 ] } ];\n]")
    assert dict(parsed.positions) == {
        "A": (2, 3),
        "R": (3, 3),
        "R/B": (3, 9),
        "R/C": (4, 5),
        "R/C[1]/D": (4, 16),
    }
    assert parsed.form == "jdl"


FAULTS = [
    # text, line, column, words of the message
    ('A = "x', 1, 5, "never closed"),
    ('A = "x\ny";', 1, 5, "never closed"),
    ('A = 1;\nB = "x;\nC = "y";', 2, 5, "never closed"),
    ("A = 1; /* x", 1, 8, "comment that is never closed"),
    (r'A = "a\qb"', 1, 7, r"unknown escape \q"),
    (r'A = "a\0b"', 1, 7, r"unknown escape \0"),
    (r'A = "\400"', 1, 6, r"unknown escape \400"),
    ('A = "a\\\nb"', 1, 7, "end of a line"),
    ("A = 0x1F;", 1, 5, "hexadecimal numbers are not read: 0x1F"),
    ("A = -0xg;", 1, 5, "hexadecimal"),
    ("A = 017;", 1, 5, "starts with 0"),
    ("A = 9223372036854775808;", 1, 5, "beyond 64 bits"),
    ("A = -9223372036854775809;", 1, 5, "beyond 64 bits"),
    ("A = " + "9" * 100_000 + ";", 1, 5, "beyond 64 bits"),
    ("A = 1e999;", 1, 5, "too large"),
    ("A = -1e999;", 1, 5, "too large"),
    ("A = 1e-999;", 1, 5, "too small"),
    ("A = 4K;", 1, 5, "4K is not a number"),
    ("A = 1.2.3;", 1, 5, "1.2.3 is not a number"),
    ("A = 1e;", 1, 5, "1e is not a number"),
    ("A = (Memory > 4000);", 1, 5, "an expression"),
    ("A = other.Memory > 4000;", 1, 5, "an expression"),
    ("A = Memory > 4000;", 1, 5, "an expression"),
    ('A = Member("x", y);', 1, 5, "an expression"),
    ("A = 4 > 3;", 1, 7, "an expression"),
    ("InputSandbox = %(Box)s;", 1, 16, "%(Box)s, the place of a parameter, without quotes"),
    ("A = {%s};", 1, 6, "%s, the place of a parameter, without quotes"),
    ("A = -x;", 1, 5, "-x stands without quotes"),
    ("A = /bin/ls -l;", 1, 5, "/bin/ls -l stands without quotes"),
    ("A = {a.b, c};", 1, 6, "a.b stands without quotes"),
    ("A = 3600*24;", 1, 9, "an expression"),
    ("A = a - b;", 1, 5, "an expression"),
    ("A = !true;", 1, 5, "an expression"),
    ("A = ls;", 1, 5, "ls stands without quotes"),
    ("A = undefined;", 1, 5, "undefined stands without quotes"),
    ("A = 'ls';", 1, 5, "single quotes"),
    ("A = 'ls;", 1, 5, "never closed"),
    ("A = ;", 1, 5, "; stands where a value is needed"),
    ("A = ]", 1, 5, "] stands where a value is needed"),
    ("A =", 1, 4, "the text ends where a value is needed"),
    ("A = 1 B = 2;", 1, 7, "B stands where ';' after the value of A is needed"),
    ("A = 4000 B=2;", 1, 10, "B stands where ';'"),
    ('A = "x" "y";', 1, 10, "y stands where ';'"),
    ("A 1;", 1, 3, "1 stands after A, where '=' is needed"),
    ("A\n  [ B = 1 ];", 2, 3, "[ stands after A, where '=' is needed"),
    ("A;", 1, 2, "; stands after A, where '=' is needed"),
    ("[ A ]", 1, 5, "] stands after A, where '=' is needed"),
    ("A", 1, 2, "the text ends after A, where '=' is needed"),
    ("A // note", 1, 10, "the text ends after A, where '=' is needed"),
    ("Memory>=4", 1, 7, "> stands after Memory, where '=' is needed"),
    ("n += 4", 1, 3, "+ stands after n, where '=' is needed"),
    ("[a-b = 1;]", 1, 3, "- cannot stand in a name"),
    ("a - b = 1;", 1, 3, "- stands after a, where '=' is needed"),
    ("été = 1;", 1, 1, "unexpected character é"),
    ("caf\u00e9 = 1;", 1, 4, "\u00e9 cannot stand in a name"),
    ('["a" = 1;]', 1, 2, "the name a stands in double quotes"),
    ('["a\\"b" == 1;]', 1, 3, "stands where an attribute"),
    ('["a b"=1;]', 1, 2, "the name a b stands in double quotes"),
    ('"a"', 1, 2, "a stands where an attribute"),
    ("= 1;", 1, 1, "an expression"),
    ("A == 1;", 1, 3, "'==' stands after A, where '=' is needed"),
    ("[a/*b*/==1;]", 1, 8, "'==' stands after a, where '=' is needed"),
    ("A = {1 2};", 1, 8, "2 stands where ',' or '}'"),
    ("A = {,};", 1, 6, ", stands where a value"),
    ("A = {1,,2};", 1, 8, ", stands where a value"),
    ("A = {1, 2", 1, 5, "'{' is never closed"),
    ("A = [ B = 1;", 1, 5, "'[' is never closed"),
    ("[ A = 1;\n", 1, 1, "'[' is never closed"),
    ("A = {1]", 1, 7, "] stands where ',' or '}'"),
    ("[ A = 1 }", 1, 9, "} stands where ';'"),
    ("[ A = 1 ] x", 1, 11, "goes on after the closing ']'"),
    ("[ A = 1 ] ;", 1, 11, "goes on after the closing ']'"),
    ("[ A = 1 ]\n[ A = 1 ]", 2, 1, "goes on"),
    ("A = 1; ]", 1, 8, "] stands where an attribute"),
    ("A = 1;\n a = 2;", 2, 2, "a is given twice, first at line 1, column 1"),
    ("[ R = [ X = 1;\n x = 2 ] ]", 2, 2, "x is given twice, first at line 1, column 9"),
    ("A = 1; 'a' = 2", 1, 9, "given twice"),
    ("'' = 1", 1, 2, "empty attribute name"),
    ("x" * 256 + " = 1", 1, 1, "256 characters"),
    ("A = é;", 1, 5, "unexpected character é"),
    ("A = 1;\n\x01", 2, 1, "unexpected character U+0001"),
    ("A = $x", 1, 5, "unexpected character $"),
    ("A = 1;\nB = \0", 2, 5, "NUL"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), FAULTS)
def test_faults_have_a_place_and_say_what_is_wrong(text, line, column, words):
    with pytest.raises(SyntaxFault) as caught:
        read_jdl(text)
    fault = caught.value
    assert words in fault.message
    assert (fault.data["line"], fault.data["column"]) == (line, column)
    assert len(str(fault)) < 400


def test_expressions_get_a_hint_that_shows_what_is_right():
    with pytest.raises(SyntaxFault) as caught:
        read_jdl("Requirements = (Memory > 4000);")
    assert "Requirements = [ Memory = 4000;" in caught.value.hint


def test_environment_variables_are_case_sensitive():
    text = 'Environment = [ http_proxy = "a"; HTTP_PROXY = "b" ]'
    assert record(text) == {"Environment": {"http_proxy": "a", "HTTP_PROXY": "b"}}
    with pytest.raises(SyntaxFault, match="given twice"):
        read_jdl('Environment = [ X = "a"; X = "b" ]')


def test_sizes_depth_and_values_are_limited():
    with pytest.raises(TooLarge):
        read_jdl("#" + "x" * 1_100_000)
    with pytest.raises(TooLarge):
        read_jdl(b"A = 1;" * 2_000_000)
    with pytest.raises(SyntaxFault, match="nested deeper than 32 levels") as caught:
        read_jdl("A = " + "{" * 100_000)
    assert caught.value.data["column"] == 36
    with pytest.raises(SyntaxFault, match="nested deeper than 4"):
        read_jdl("A=[B=[C=[D=[E=1]]]]", limits=TextLimits(depth=4))
    with pytest.raises(SyntaxFault, match="more than 10 values"):
        read_jdl("A = {1,2,3,4,5,6,7,8,9,10}", limits=TextLimits(nodes=10))
    assert record("A = " + "{" * 31 + "}" * 31)


@pytest.mark.parametrize(
    "text",
    [
        '"' * 200_001,
        "A" * 900_000,
        "A = " + "/*" * 400_000,
        "A = " + "/ *" * 300_000,
        "A = 1;" + "/**/" * 200_000 + "A",
        'A = "' + "\\" * 900_000,
        pytest.param("A = {" + "1," * 200_000, marks=pytest.mark.slow),
        "A = {" + '"x" ' * 200_000,
        "a.b" * 300_000,
        "'" + "\\'" * 400_000,
        "-" * 900_000,
        "1" * 900_000,
        "\n" * 900_000 + "x",
        pytest.param(";" * 900_000 + "x", marks=pytest.mark.slow),
        "".join(f"a{index}=[" for index in range(100_000)),
    ],
)
def test_hostile_texts_are_refused_in_linear_time(text):
    started = time.process_time()
    with pytest.raises(SyntaxFault):
        read_jdl(text)
    assert time.process_time() - started < 30


@pytest.mark.slow
def test_many_names_under_a_long_path_do_not_multiply():
    path = "".join(f"{'n' * 200}{depth} = [" for depth in range(20))
    names = ";".join(f"a{index}=1" for index in range(50_000))
    parsed = read_jdl(path + names + "]" * 20)
    assert max(map(len, parsed.positions)) < 500


def test_a_value_alone_is_read_to_its_end():
    with pytest.raises(SyntaxFault, match="the end of the value"):
        read_jdl_value("1 2")
    with pytest.raises(SyntaxFault, match="a value"):
        read_jdl_value("")


def test_writing_is_readable():
    text = write_jdl({"Executable": "a b", "Site": ["X", "Y"], "R": {"M": 4000, "N": {}}, "odd name": True})
    assert text == (
        "[\n"
        '  Executable = "a b";\n'
        '  Site = {"X", "Y"};\n'
        "  R = [\n"
        "    M = 4000;\n"
        "    N = [];\n"
        "  ];\n"
        "  'odd name' = true;\n"
        "]\n"
    )


def test_control_characters_are_written_as_escapes():
    value = 'a"b\\c\nd\te\x01f\x7fg\x859'
    text = write_jdl({"A": value})
    assert text.split("\n")[1] == r'  A = "a\"b\\c\nd\te\001f\177g\2059";'
    assert record(text) == {"A": value}


def test_a_value_is_written_on_one_line():
    value = {"a": [1, {"b c": "x\ny"}, []], "d": {}, "e": 0.5}
    text = write_jdl_value(value)
    assert "\n" not in text
    assert read_jdl_value(text)[0] == value


@pytest.mark.parametrize("value", [None, float("nan"), 2**63, "\ud800", "\0", object(), (1,)])
def test_what_jdl_cannot_say_is_not_written(value):
    with pytest.raises(InvalidJob) as caught:
        write_jdl({"A": {"B": value}})
    assert caught.value.data["attribute"] == "A/B"


NAMES = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}(\.[a-z0-9]{1,3})?", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SCALARS = st.one_of(
    TEXT, st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)


def records(values):
    return st.dictionaries(NAMES, values, max_size=4).filter(lambda r: len({n.lower() for n in r}) == len(r))


VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | records(inner), max_leaves=10)


@given(records(VALUES))
def test_what_is_written_reads_as_the_same_record(value):
    text = write_jdl(value)
    parsed = read_jdl(text)
    assert repr(parsed.record) == repr(value)
    assert set(parsed.positions) >= set(value)


@given(records(SCALARS))
def test_semicolons_at_the_end_and_brackets_outside_make_no_difference(value):
    text = write_jdl(value)
    inner = text.removeprefix("[\n").removesuffix("]\n")
    for form in (inner, inner.rstrip().removesuffix(";"), f"[{inner.rstrip().removesuffix(';')}]"):
        assert record(form) == value


def check_place(fault):
    assert fault.data["line"] >= 1
    assert fault.data["column"] >= 1


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_input_is_read_or_refused_with_a_place(text):
    try:
        read_jdl(text)
    except SyntaxFault as fault:
        check_place(fault)


def test_a_typical_description_is_read_at_more_than_a_thousand_a_second():
    text = write_jdl({f"Attribute{index}": ["value", index] for index in range(15)})
    started = time.process_time()
    for _ in range(200):
        read_jdl(text)
    assert time.process_time() - started < 0.2 * 5  # 25 times slower than measured when quiet


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[a-b = 1;]", "In single quotes it can: 'a-b' = ..."),
        ('["a" = 1;]', "Write it without: a = ..."),
        ('["a b"=1;]', "Write it in single ones: 'a b' = ..."),
        ("A == 1;", "'==' compares; write A = value;"),
        ("A;", ""),
    ],
)
def test_what_is_wrong_after_a_name_comes_with_what_would_be_right(text, hint):
    with pytest.raises(SyntaxFault) as caught:
        read_jdl(text)
    assert caught.value.hint == hint
    if "single" in hint:
        assert read_jdl(f"[{hint.partition(': ')[2].replace('...', '1')};]").record
