"""Descriptions as CFG: natural files read naturally, and every typed record survives."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lodesman.base.errors import InvalidJob, SyntaxFault, TooLarge
from lodesman.languages.jobs.description import read_description, write_description
from lodesman.languages.jobs.record import ARRAY_LIMITS, TextLimits

DATA = Path(__file__).parents[2] / "data" / "cfg"


read_cfg = partial(read_description, form="cfg")
write_cfg_record = partial(write_description, form="cfg")


def value(text, name="Option"):
    return read_cfg(f"{name} = {text}").record[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("3600", 3600),
        ("-5", -5),
        ("0", 0),
        ("-1.5", -1.5),
        ("1e+16", 1e16),
        ("1e-07", 1e-7),
        ("9223372036854775807", 2**63 - 1),
        # Not just as Python writes it: text, so that nothing of a version or a code is lost.
        ("9223372036854775808", "9223372036854775808"),
        ("007", "007"),
        ("+5", "+5"),
        ("-0", "-0"),
        ("1.10", "1.10"),
        ("1.", "1."),
        ("1e3", "1e3"),
        ("1E+16", "1E+16"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("1e+999", "1e+999"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("yes", "yes"),
        ("A, B", ["A", "B"]),
        ("A,B ,C", ["A", "B", "C"]),
        ("A,", ["A"]),
        (",", []),
        (" , , ", []),
        ("A,, B", ["A", "B"]),
        ("1, 2.5, true, x", [1, 2.5, True, "x"]),
        ('"A, B"', "A, B"),
        ('"A, B", C', ["A, B", "C"]),
        ('"", A', ["", "A"]),
        ('"",', [""]),
        ('"3600"', "3600"),
        ('"3600", 3600', ["3600", 3600]),
        (r'"line\nbreak \"x\" \\"', 'line\nbreak "x" \\'),
        ('say "hi"', 'say "hi"'),
        ('say "hi", you', ['say "hi"', "you"]),
        ("{x} # y = z", "{x} # y = z"),
        ('jdl:{1, {2, "a"}}', [1, [2, "a"]]),
        ("jdl:[a = 1]", {"a": 1}),
        ('"jdl:x"', "jdl:x"),
        ("JDL:x", "JDL:x"),
    ],
)
def test_what_a_value_means(text, expected):
    found = value(text)
    assert found == expected
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("-n 5 --list a,b", "-n 5 --list a,b"),
        ("42", "42"),
        ("true", "true"),
        ('"a b" c', '"a b" c'),
        ('"a" "b"', '"a" "b"'),
        ('"a b"', "a b"),
        (r'"\"a\" \"b\""', '"a" "b"'),
        ("jdl:{1}", [1]),
        ('jdl:{"-n", "a b"}', ["-n", "a b"]),
    ],
)
@pytest.mark.parametrize("name", ["Arguments", "arguments", "JobName", "Executable", "StdOutput"])
def test_attributes_of_one_text_are_read_without_guessing(name, text, expected):
    assert value(text, name) == expected


def test_environment_is_text_throughout():
    text = 'Environment {\nN = 4\nLIST = a,b\nFLAG = true\nQUOTED = "x "\nhttp_proxy = a\nHTTP_PROXY = b\n}'
    assert read_cfg(text).record == {
        "Environment": {
            "N": "4",
            "LIST": "a,b",
            "FLAG": "true",
            "QUOTED": "x ",
            "http_proxy": "a",
            "HTTP_PROXY": "b",
        }
    }


def test_only_the_first_level_has_attributes_of_one_text():
    text = "Requirements {\nArguments = a, b\nExecutable = 5\n}\nS {\nEnvironment {\nN = 4\n}\n}"
    assert read_cfg(text).record == {
        "Requirements": {"Arguments": ["a", "b"], "Executable": 5},
        "S": {"Environment": {"N": 4}},
    }


def test_natural_files():
    record = read_cfg((DATA / "simple.cfg").read_bytes()).record
    assert record["JobName"] == "Simple Job, first try"
    assert record["Arguments"] == '-l "two words" 1,2,3'
    assert record["CPUTime"] == 3600
    assert record["Site"] == ["LCG.CERN.ch", "LCG.CNAF.it"]
    assert record["BannedSite"] == "LCG.RAL.uk"
    parsed = read_cfg((DATA / "requirements.cfg").read_bytes())
    assert parsed.form == "cfg"
    assert parsed.record["Requirements"] == {
        "SoftwareTag": ["AppVersion1", "AppVersion2"],
        "CPUModel": "Intel Xeon",
        "Memory": 4000,
    }
    assert parsed.positions["Requirements/Memory"] == (7, 3)
    assert parsed.positions["Environment"] == (9, 1)


def test_quoted_names():
    record = {
        "a=b": 1,
        "{x}": 2,
        "#c": 3,
        ' "q" ': {"=": [1]},
        '"': 4,
        "x" * 255: 5,
        "=" * 255: 6,
        "a+": 7,
        "\ufeff": 8,
    }
    text = write_cfg_record(record)
    assert '"a\\075b" = 1' in text
    assert read_cfg(text).record == record


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('a = 1\n  b = "x', 2, 3, "starts with a quote"),
        ('a = "x" y', 1, 1, "starts with a quote"),
        ('a = x, "y" z', 1, 1, 'item "y" z starts with a quote'),
        (r'a = "x\q"', 1, 1, r"unknown escape \q"),
        (r'a = x, "\q"', 1, 1, r"unknown escape \q"),
        ("a = jdl:", 1, 1, "the JDL value of a is wrong"),
        ("a = 1\nb = jdl:{1, (2)}", 2, 1, "an expression"),
        ("a = jdl:1 2", 1, 1, "the end of the value"),
        ('"a = 1', 1, 1, 'the name "a starts with a quote'),
        ('"a\\q" = 1', 1, 1, "unknown escape"),
        ('a = 1\n"a" = 2', 2, 1, "a is given twice, first at line 1"),
        ("a = 1\nA = 2", 2, 1, "A is given twice, first as a"),
        ("S {\n b = 1\n B = 2\n}", 3, 2, "given twice, first as b"),
        ("a = 1\n}", 2, 1, "closes nothing"),
        ('"" = 1', 1, 1, "empty attribute name"),
        ("x" * 300 + " = 1", 1, 1, "300 characters"),
    ],
)
def test_faults_have_a_place(text, line, column, words):
    with pytest.raises(SyntaxFault) as caught:
        read_cfg(text)
    assert words in caught.value.message
    assert (caught.value.data["line"], caught.value.data["column"]) == (line, column)


def test_limits():
    with pytest.raises(TooLarge):
        read_cfg("a = " + "x" * 2_000_000)
    with pytest.raises(SyntaxFault, match="deeper than 3"):
        read_cfg("a {\nb {\nc {\n}\n}\n}", limits=TextLimits(depth=3))
    with pytest.raises(SyntaxFault, match="deeper than 32"):
        read_cfg("a = jdl:" + "{" * 1_000)
    with pytest.raises(SyntaxFault, match="more than 5 values"):
        read_cfg("a = 1, 2, 3, 4, 5", limits=TextLimits(nodes=5))


def test_writing_uses_the_shortest_form_that_reads_back():
    record = {
        "JobName": "a, b",
        "Arguments": "-n 5",
        "Executable": "42",
        "CPUTime": 3600,
        "Code": "3600",
        "Factor": 2.0,
        "Flag": True,
        "Word": "true",
        "Site": ["A", "B"],
        "One": ["A"],
        "None": [],
        "Blank": [""],
        "Commas": "a,b",
        "Break": "a\nb",
        "Outer": " x",
        "Empty": "",
        "Nested": [[1], {"x": 2}],
        "Requirements": {"Memory": 4000, "Inner": {}},
        "Environment": {"N": "4", "M": 5},
    }
    assert write_cfg_record(record) == (
        "JobName = a, b\n"
        "Arguments = -n 5\n"
        "Executable = 42\n"
        "CPUTime = 3600\n"
        'Code = "3600"\n'
        "Factor = 2.0\n"
        "Flag = true\n"
        'Word = "true"\n'
        "Site = A, B\n"
        "One = A,\n"
        "None = ,\n"
        'Blank = "",\n'
        'Commas = "a,b"\n'
        'Break = "a\\nb"\n'
        'Outer = " x"\n'
        "Empty =\n"
        "Nested = jdl:{{1}, [ x = 2; ]}\n"
        "Requirements\n{\n  Memory = 4000\n  Inner\n  {\n  }\n}\n"
        "Environment\n{\n  N = 4\n  M = jdl:5\n}\n"
    )
    assert read_cfg(write_cfg_record(record)).record == record


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "",
        " ",
        "3",
        "1.5",
        "true",
        "False",
        "a,b",
        ",",
        '"',
        '"a"',
        '"a" "b"',
        'a"b',
        "jdl:1",
        "jdl:",
        "a\tb",
        "a\u00a0",
        "\u2003a",
        "a\u2028b",
        "\x1f",
        "\x85",
        "#",
        "{",
        "}",
        "a = b",
        "+= 3",
        "\\",
        "\\n",
        "é",
        "-0",
        "1e3",
        "0.1e1",
    ],
)
@pytest.mark.parametrize("name", ["Arguments", "Other"])
def test_ambiguous_texts_survive(name, text):
    record = {name: text, "List": [text], "Two": [text, text], "S": {name: text}, "Environment": {"X": text}}
    assert read_cfg(write_cfg_record(record)).record == record


def test_what_no_description_holds_is_not_written():
    with pytest.raises(InvalidJob):
        write_cfg_record({"A": {"B": None}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a += b\n" * 10_002, "line 10001, column 1: a is appended to more than 10000 times"),
        ("x = 1\na = " + "b," * 250_001, "line 2, column 1: more than 250000 values in all"),
        ("x { a = " + "b," * 250_001 + "\n}", "line 1, column 5: more than 250000 values"),
        (
            "".join(f"a{n} = jdl:{{{'1,' * 9_999}1}}\n" for n in range(30)),
            "line 25, column 1: more than 250000",
        ),
    ],
    ids=["appended", "list", "in a section", "in JDL"],
)
def test_values_are_counted_while_they_are_read(text, words):
    with pytest.raises(SyntaxFault, match=words):
        read_description(text, form="cfg", limits=ARRAY_LIMITS)


@pytest.mark.slow
def test_parameters_have_a_value_for_each_member():
    text = "Executable = x\nParameters = " + "b," * 250_001
    found = read_description(text, form="cfg", limits=ARRAY_LIMITS).record
    assert len(found["Parameters"]) == 250_001
    text = f"Parameters = jdl:{{{'1,' * 250_001}1}}"
    assert len(read_description(text, form="cfg", limits=ARRAY_LIMITS).record["Parameters"]) == 250_002
