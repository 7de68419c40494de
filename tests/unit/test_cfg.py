"""DIRAC's CFG: sections, options, appending, comments, positions, and faults with their place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig, SyntaxFault, TooLarge
from lodesman.languages.cfg import _MAX_DEPTH, _MAX_FAULTS, CfgOption, CfgSection, parse_cfg, write_cfg

DATA = Path(__file__).parent.parent / "data" / "cfg"


def plain(section):
    """A section as nested dicts, for comparison."""
    return {
        entry.name: plain(entry) if isinstance(entry, CfgSection) else entry.value
        for entry in section.entries.values()
    }


def section_of(*entries, name=""):
    return CfgSection(name=name, entries={entry.name: entry for entry in entries})


def parsed(text):
    return plain(parse_cfg(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# only\n  # comments\n\n", {}),
        ("a = 1", {"a": "1"}),
        ("a=1\n b  =  two words  \n", {"a": "1", "b": "two words"}),
        ("a =", {"a": ""}),
        ("a = b = c", {"a": "b = c"}),
        ("a = {x} # not a comment", {"a": "{x} # not a comment"}),
        ('a = "quoted, as it stands"', {"a": '"quoted, as it stands"'}),
        ("S\n{\n a = 1\n}\n", {"S": {"a": "1"}}),
        ("S {\n a = 1\n}", {"S": {"a": "1"}}),
        ("S { a = 1\n}", {"S": {"a": "1"}}),
        ("S\n\n# between\n\n{\n}", {"S": {}}),
        ("S { }", {"S": {}}),
        ("S {}", {"S": {}}),
        ("S { T { U {\n a = 1\n} } }", {"S": {"T": {"U": {"a": "1"}}}}),
        ("S { # comment\n a = 1\n} # comment", {"S": {"a": "1"}}),
        ("S {\n}\nT {\n}", {"S": {}, "T": {}}),
        ("S {\n a = 1\n}\na = 2", {"S": {"a": "1"}, "a": "2"}),
        ("a.b-c/d e = 1", {"a.b-c/d e": "1"}),
        ("a = 1\r\nS {\r\n}\r\n", {"a": "1", "S": {}}),
        ("\ufeffa = 1", {"a": "1"}),
        ("a\t=\tb\tc", {"a": "b\tc"}),
        ("a += 1", {"a": "1"}),
        ("a = 1\na += 2\na += 3", {"a": "1, 2, 3"}),
        ("a =\na += 2", {"a": "2"}),
        ("a+=1\na+=2", {"a": "1, 2"}),
        ("S {\na = 1\n}\nT {\na += 2\n}", {"S": {"a": "1"}, "T": {"a": "2"}}),
        ("case = 1\nCase = 2", {"case": "1", "Case": "2"}),
    ],
)
def test_what_a_text_means(text, expected):
    found = parsed(text)
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a = 1\nb\nc = 2", 2, 1, "b is followed by no '{'"),
        ("a = 1\n  b", 2, 3, "b is followed by no '{'"),
        ("S\nT {\n}", 1, 1, "S is followed by no '{'"),
        ("S\n}", 1, 1, "S is followed by no '{'"),
        ("S {\n a = 1", 1, 1, "S is never closed"),
        ("S {\n T {\n}", 1, 1, "S is never closed"),
        ("S { a = 1 }", 1, 1, "S is never closed"),
        ("}", 1, 1, "closes nothing"),
        ("S {\n}\n }", 3, 2, "closes nothing"),
        ("{ a = 1", 1, 1, "without the name"),
        ("S { {", 1, 5, "without the name"),
        ("= 1", 1, 1, "without a name"),
        (" += 1", 1, 2, "without a name"),
        ("a = 1\n a = 2", 2, 2, "a is given twice, first at line 1, column 1"),
        ("a += 1\na = 2", 2, 1, "given twice"),
        ("a = 1\na {\n}", 2, 1, "given twice"),
        ("a {\n}\na = 1", 3, 1, "given twice"),
        ("a {\n}\na += 1", 3, 1, "given twice"),
        ("a {\n}\n a\n{\n}", 3, 2, "given twice"),
        ("S {\n x }", 2, 2, "text without '='"),
        ("a = 1\nb = \x00", 2, 5, "U+0000"),
        ("a = \x1b[0m", 1, 5, "U+001B"),
        ("a = \ud800", 1, 5, "U+D800"),
        ("x" * 2_000 + " = 1", 1, 1, "2000 characters"),
    ],
)
def test_faults_have_a_place(text, line, column, words):
    with pytest.raises(SyntaxFault) as caught:
        parse_cfg(text, source="site.cfg")
    assert words in caught.value.message
    data = caught.value.data
    assert (data["line"], data["column"], data["source"]) == (line, column, "site.cfg")


def test_the_hint_of_a_one_line_section_says_how_to_write_it():
    with pytest.raises(SyntaxFault) as caught:
        parse_cfg("S { a = 1 }")
    assert "line of its own" in caught.value.hint
    assert "source" not in caught.value.data


def test_positions_of_options_and_sections():
    root = parse_cfg("a = 1\nS\n{\n  b = 2\n  b += 3\n}\n  T {  c = 4\n}")
    assert [(entry.name, entry.line, entry.column) for entry in root.entries.values()] == [
        ("a", 1, 1),
        ("S", 2, 1),
        ("T", 7, 3),
    ]
    (option,) = root.section("S").options()
    assert (option.value, option.line, option.column) == ("2, 3", 4, 3)
    (inner,) = root.section("/T").options()
    assert (inner.line, inner.column) == (7, 8)


def test_looking_things_up():
    root = parse_cfg("a = 1, 2,, 3\nS {\n b = x\n T {\n }\n}")
    assert "a" in root.entries
    assert "b" not in root.entries
    assert root.get("a") == "1, 2,, 3"
    assert root.get("S") == ""
    assert root.get("nothing") == ""
    assert root.section("S").get("b") == "x"
    assert [option.name for option in root.options()] == ["a"]
    assert [section.name for section in root.section("S").sections()] == ["T"]
    assert root.section("/S/T").line == 4
    assert root.section("") is root
    for missing in ("a", "S/b/c", "S/x", "S/x/T"):
        assert root.section(missing) == CfgSection()


def test_the_resources_of_a_grid():
    root = parse_cfg((DATA / "resources.cfg").read_text(encoding="utf-8"), source="resources.cfg")
    ce = root.section("/Resources/Sites/LCG/LCG.Example-A.org/CEs/ce01.a.example.org")
    assert ce.get("Tag") == "AVX2, GPU"
    assert [queue.name for queue in ce.section("Queues").sections()] == [
        "nordugrid-slurm-short",
        "nordugrid-slurm-long",
    ]
    assert root.section("/Operations/Defaults/JobScheduling/RunningLimit").entries == {}


def test_writing_is_readable():
    text = "a = 1\nS\n{\n  b = x, y\n  T\n  {\n  }\n}\nc =\n"
    assert write_cfg(parse_cfg(text)) == text


@pytest.mark.parametrize("name", ["", "a=b", "a{", "}", "#a", " a", "a ", "a\nb", "x" * 2_000, "a\x85"])
def test_a_name_that_cannot_be_read_back_is_not_written(name):
    with pytest.raises(InvalidConfig, match="cannot write the name"):
        write_cfg(section_of(CfgOption(name=name, value="1")))


def test_the_number_of_entries_is_limited(monkeypatch):
    monkeypatch.setattr("lodesman.languages.cfg._MAX_ENTRIES", 3)
    parse_cfg("a = 1\nS {\n b = 2\n}")
    with pytest.raises(SyntaxFault, match="more than 3 options and sections"):
        parse_cfg("a = 1\nS {\n b = 2\n c = 3\n}")


@pytest.mark.parametrize("value", [" a", "a ", "a\nb", "a\rb", "\x00", "\ud800"])
def test_a_value_that_cannot_be_read_back_is_not_written(value):
    with pytest.raises(InvalidConfig, match="cannot write the value of x"):
        write_cfg(section_of(CfgOption(name="x", value=value)))


def test_a_byte_order_mark_in_a_name_is_no_byte_order_mark():
    section = section_of(CfgOption(name="\ufeff", value="\ufeff"))
    assert parse_cfg(write_cfg(section)) == section


def test_depth_and_size_are_limited_both_ways():
    deep = "S { " * (_MAX_DEPTH + 1)
    with pytest.raises(SyntaxFault, match="nested deeper") as caught:
        parse_cfg(deep)
    assert caught.value.data["column"] == 4 * _MAX_DEPTH + 3
    parse_cfg("S { " * _MAX_DEPTH + "} " * _MAX_DEPTH)
    section = CfgSection(name="S")
    for _ in range(_MAX_DEPTH + 2):
        section = section_of(section, name="S")
    with pytest.raises(InvalidConfig, match="levels"):
        write_cfg(section)
    with pytest.raises(TooLarge) as too_large:
        parse_cfg("é" * 10, max_bytes=19, source="x.cfg")
    assert too_large.value.data == {"limit": 19, "size": 20, "source": "x.cfg"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a" * 400_000,
        "a {} " * 100_000,
        "".join(f"a{index} {{}} " for index in range(40_000)) + "}",
        "a = 1\n" + "a += 2\n" * 60_000 + "x",
        "".join(f"a{index} += 1\na{index} += 1\n" for index in range(30_000))
        + "".join(f"s{index} {{}}\n" for index in range(30_000))
        + "}",
        "{" * 400_000,
        "}" * 400_000,
        "\n" * 400_000 + "x",
        "x = 1\n" * 60_000,
        " " * 400_000 + "x",
    ],
)
def test_hostile_texts_are_refused_in_linear_time(text):
    started = time.process_time()
    with pytest.raises(SyntaxFault):
        parse_cfg(text)
    assert time.process_time() - started < 30


NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="={}"), min_size=1, max_size=10
).filter(lambda name: name == name.strip() and not name.startswith("#"))
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20).map(str.strip)


def sections(children):
    return st.dictionaries(NAMES, children, max_size=5)


TREES = st.recursive(VALUES, sections, max_leaves=15).filter(lambda tree: isinstance(tree, dict))


def built(name, tree):
    entries = [
        built(key, value) if isinstance(value, dict) else CfgOption(name=key, value=value)
        for key, value in tree.items()
    ]
    return section_of(*entries, name=name)


@given(TREES)
def test_what_is_written_reads_as_the_same_section(tree):
    section = built("", tree)
    assert parse_cfg(write_cfg(section)) == section


def check_place(fault):
    assert fault.data["line"] >= 1
    assert fault.data["column"] >= 1


@given(st.text(max_size=80) | st.text("ab=+{}#,\n \t", max_size=60))
def test_any_text_is_read_or_refused_and_what_is_read_can_be_written(text):
    try:
        section = parse_cfg(text)
    except SyntaxFault as fault:
        check_place(fault)
    else:
        assert parse_cfg(write_cfg(section)) == section


# --- all slips at once -----------------------------------------------------------------------------


def slips_of(text, **more):
    found = []
    root = parse_cfg(text, faults=found, **more)
    return root, [(fault.data["line"], fault.data["column"]) for fault in found]


@pytest.mark.parametrize(
    ("text", "places", "kept"),
    [
        ("a = 1\na = 2\nb = 3", [(2, 1)], {"a": "1", "b": "3"}),
        ("= 1\nb = 3", [(1, 1)], {"b": "3"}),
        ("lost\nb = 3", [(1, 1)], {"b": "3"}),
        ("  lost\nfound\n{\n}\nb = 3", [(1, 3)], {"b": "3"}),
        ("b = 3\nlost", [(2, 1)], {"b": "3"}),
        ("S {\n  x = 1\n  lost }\nb = 3", [(3, 3)], {"b": "3"}),
        ("x\x00 = 1\nb = 3", [(1, 2)], {"b": "3"}),
        ("+= 4\nb = 3", [(1, 1)], {"b": "3"}),
    ],
)
def test_a_slip_in_a_line_costs_that_line(text, places, kept):
    root, found = slips_of(text)
    assert found == places
    assert {option.name: option.value for option in root.options()} == kept


def test_a_repeated_section_is_left_out_and_its_faults_are_reported():
    root, found = slips_of("S {\n a = 1\n}\nS {\n a = 2\n b = 3\n b = 4\n}\nT {\n}\n")
    assert found == [(4, 1), (7, 2)]
    assert [section.name for section in root.sections()] == ["S", "T"]
    assert root.section("S").get("a") == "1"


def test_slips_have_their_section_and_source():
    found = []
    parse_cfg("A {\n B {\n x = 1\n x = 2\n }\n}\n", source="f.cfg", faults=found)
    assert (found[0].data["section"], found[0].data["source"]) == ("/A/B", "f.cfg")
    with pytest.raises(SyntaxFault) as caught:
        parse_cfg("A {\n B {\n x = 1\n x = 2\n }\n}\n")
    assert caught.value.data["section"] == "/A/B"


@pytest.mark.parametrize("text", ["a = 1\na = 2\n}", "a = 1\na = 2\nS {", "a = 1\na = 2\n{"])
def test_sections_that_do_not_close_are_raised_beside_the_slips(text):
    found = []
    with pytest.raises(SyntaxFault):
        parse_cfg(text, faults=found)
    assert [fault.data["line"] for fault in found] == [2]


def test_a_program_is_not_reported_line_by_line():
    found = []
    parse_cfg("\x00\n" * 5_000, faults=found)
    assert len(found) == _MAX_FAULTS


@given(st.text(alphabet="ab={}+\n #\x00", max_size=60))
def test_without_a_list_the_first_slip_is_raised(text):
    """Both ways of reading agree on what is right, and on the first thing that is wrong."""
    found = []
    try:
        told = parse_cfg(text, faults=found)
    except SyntaxFault as fault:
        found.append(fault)
        told = None
    if not found:
        assert parse_cfg(text) == told
        return
    with pytest.raises(SyntaxFault) as caught:
        parse_cfg(text)
    assert caught.value.message == found[0].message
