"""ClassAd texts: both forms, faults with line and column, limits by name, and writing what reads as the same."""

from __future__ import annotations

import random

import pytest
from tests.kits.classad_kit import ad_text, expression
from tests.kits.table import hold_all

from lodesman.base.errors import SyntaxFault
from lodesman.languages.classad import parse_ad, parse_ads, parse_expression, write_ad, write_expression
from lodesman.languages.classad.nodes import Logic, clauses, walk
from lodesman.languages.classad.parse import MOST_CHARACTERS, MOST_ITEMS


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "the text ends where a value is needed"),
        ("1 +", 1, 4, "the text ends where a value is needed"),
        ("a = 3", 1, 3, "= stands after the end of an expression"),
        ("(1", 1, 3, r"where \) is needed"),
        ("{1,}", 1, 4, "} stands where a value is needed"),
        ("1\n 2", 2, 2, "2 stands after the end"),
        ('a == "b', 1, 6, "a text that is never closed"),
        ("1 /* x", 1, 3, "a comment that is never closed"),
        ("0x1F", 1, 1, "0x1F is not a number"),
        ("10M", 1, 1, "10M is not a number"),
        ("017", 1, 1, "may mean octal"),
        ("9223372036854775808", 1, 1, "beyond 64 bits"),
        ("1e999", 1, 1, "too large"),
        (r'"a\q"', 1, 3, r"unknown escape \\q"),
        (r'"a\0"', 1, 3, "unknown escape"),
        ("''", 1, 1, "a name without letters"),
        ("a.1", 1, 2, "stands after the end"),
        ("a ? b", 1, 6, "where : is needed"),
        ("x\x00", 1, 2, r"unexpected character U\+0000"),
        ("(" * 100, 1, 65, "nested more than 64 deep"),
        ("a" + ".b" * 70, 1, 1, "nested more than 64 deep"),
        ("1" + "+1" * 70, 1, 1, "nested more than 64 deep"),
        ("a" + "&&a" * 600, 1, 1, "more than 1,000 parts"),
        ("{" + "1," * MOST_ITEMS + "1}", 1, 2 * MOST_ITEMS + 2, "more than 10,000 items"),
        ("1" + " " * MOST_CHARACTERS, 1, 1, "more than 64 KiB"),
        ('"' + "é" * (MOST_CHARACTERS // 2) + '"', 1, 1, "more than 64 KiB"),
    ],
)
def test_faults_of_expressions(text, line, column, words):
    with pytest.raises(SyntaxFault, match=words) as fault:
        parse_expression(text)
    assert (fault.value.data["line"], fault.value.data["column"]) == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("[a = 1; A = 2]", 1, 9, "A comes twice"),
        ("[a = 1 b = 2]", 1, 8, "where ; is needed after the attribute a"),
        ("[a = 1] x", 1, 9, "after the end of an ad"),
        ("[a]", 1, 3, "where = is needed"),
        ("[1 = 2]", 1, 2, "where the name of an attribute is needed"),
        ("[a=1].a", 1, 6, ". stands after the end of an ad"),
        ("a = 1\nb = \nc = 2", 2, 5, "the text ends where a value"),
        ("a = 1\n\n  b == 2", 3, 5, "where = is needed"),
        ("a = 1\n# b\na = 3", 3, 1, "a comes twice"),
        ("a = 1; b = 2", 1, 8, "b stands after the end of an attribute"),
    ],
)
def test_faults_of_ads(text, line, column, words):
    with pytest.raises(SyntaxFault, match=words) as fault:
        parse_ad(text)
    assert (fault.value.data["line"], fault.value.data["column"]) == (line, column)


def test_both_forms_are_one():
    new = parse_ad("[ A = 1; ; 'two words' = {A, \"x\"};\n B = [C = 2;] ]")
    old = parse_ad("A = 1\n\n# remark\n'two words' = {A, \"x\"}\n// remark\nB = [C = 2]\n")
    assert write_ad(new) == write_ad(old)
    assert [entry.name for entry in new] == ["A", "two words", "B"]
    assert "TWO WORDS" in new
    assert parse_ad("").entries == parse_ad("[]").entries == {}


@pytest.mark.slow
def test_each_attribute_of_an_ad_is_an_expression_of_its_own():
    many = "; ".join(f"a{n} = 1 + 2 + 3" for n in range(900))
    assert len(parse_ad(f"[{many}]")) == 900


def test_a_long_chain_is_one_node():
    node = parse_expression(" || ".join(f"a == {n}" for n in range(200)))
    assert isinstance(node, Logic)
    assert len(node.operands) == 200


def test_spans_are_those_of_the_text():
    text = 'a && foo(b, "x") || -5 > [c = 1].c'
    pieces = {text[node.start : node.stop] for node in walk(parse_expression(text))}
    assert {"a", 'foo(b, "x")', "-5", "[c = 1].c", "[c = 1]", 'a && foo(b, "x")', text} <= pieces


def test_clauses_are_those_of_the_outermost_chain():
    assert [write_expression(one) for one in clauses(parse_expression("(a && b) && (c || d && e)"))] == [
        "a",
        "b",
        "c || d && e",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("(1)", "1"),
        ("(a+b)*c", "(a + b) * c"),
        ("a+(b*c)", "a + b * c"),
        ("a-(b-c)", "a - (b - c)"),
        ("-(1)", "-(1)"),
        ("- -1", "-(-1)"),
        ("-a.b[1]", "-a.b[1]"),
        ("(-a).b", "(-a).b"),
        ("-1 .b", "(-1).b"),
        ("a is b", "a =?= b"),
        ("(a?b:c)?d:e", "(a ? b : c) ? d : e"),
        ("a?b:(c?d:e)", "a ? b : c ? d : e"),
        ("(a?:b)?:c", "(a ?: b) ?: c"),
        ("a?:(b?:c)", "a ?: b ?: c"),
        ("!(a&&b)", "!(a && b)"),
        ("(a||b)&&c", "(a || b) && c"),
        ("'is'", "'is'"),
        ("'a b'.'c'", "'a b'.c"),
        (r'"\101\n\"\\"', r'"A\n\"\\"'),
        ("{ 1 ,2}", "{1, 2}"),
        ("[ a=1 ;b=a ]", "[a = 1; b = a]"),
        ("TRUE", "true"),
        ("Foo( )", "Foo()"),
        ("1e3", "1000.0"),
        ("a<b==c", "a < b == c"),
        ("a<(b==c)", "a < (b == c)"),
    ],
)
def test_texts_have_no_parentheses_too_many(text, written):
    node = parse_expression(text)
    assert write_expression(node) == written
    assert write_expression(parse_expression(written)) == written


@pytest.mark.slow
def test_what_is_written_reads_as_the_same():
    draw = random.Random(1)
    for _ in range(1_000):
        text = write_expression(parse_expression(expression(draw, 4)))
        assert write_expression(parse_expression(text)) == text
        ad = write_ad(parse_ad(ad_text(draw)))
        assert write_ad(parse_ad(ad)) == ad


BESIDE = {
    "TARGET.Memory ?: 0 > 1000": "a ?: b > c as (a ?: b) > c, 23.9 as a ?: (b > c)",
    "2 * undefined ?: 3": "a * b ?: c as a * (b ?: c), 23.9 as (a * b) ?: c",
    "a || b ?: c": "a || b ?: c as a || (b ?: c), 23.9 as (a || b) ?: c",
    "a ?: b && c": "a ?: b && c as (a ?: b) && c, 23.9 as a ?: (b && c)",
    "a ?: b is c": "a ?: b =?= c as (a ?: b) =?= c, 23.9 as a ?: (b =?= c)",
    "!a ?: b": "!a ?: b as !(a ?: b), 23.9 as (!a) ?: b",
    "a ?: -b": "a ?: -b as a fault, 23.9 as a ?: (-b)",
    "a ?: b ? c : d": "a ?: b ? c : d as (a ?: b) ? c : d, 23.9 as a ?: (b ? c : d)",
    "(a + b) * c ?: d": "a * b ?: c as a * (b ?: c), 23.9 as (a * b) ?: c",
    "a ?: (b + c) * d": "a ?: b * c as (a ?: b) * c, 23.9 as a ?: (b * c)",
    "{f(a + b ?: c)}": "a + b ?: c as a + (b ?: c), 23.9 as (a + b) ?: c",
}
ALONE = (
    "a ?: b", "(a ?: b) + c", "a ?: (b + c)", "(a + b) ?: c", "(!a) ?: b", "-3 ?: -4", "a ?: b ?: c", "(a ?: b) ?: c",
    "x ? a ?: b : c", "x ? a : b ?: c", "a.b ?: c[0]", "f(a) ?: {1, 2}", "(a || b) ?: (c || d)", "((a)) ?: ((b))",
)  # fmt: skip


def check_beside(case):
    text, readings = case
    with pytest.raises(SyntaxFault, match=r"\?: beside another operator without parentheses") as refused:
        parse_expression(text)
    assert refused.value.hint == f"HTCondor 25.14 reads {readings}: write the parentheses."
    assert text[refused.value.data["column"] - 1 :].startswith("?:")
    again = write_expression(parse_expression(text, stored=True))
    assert write_expression(parse_expression(again)) == again


def test_a_default_beside_another_operator_needs_parentheses():
    """Releases of HTCondor read it differently, in silence."""
    hold_all(BESIDE.items(), check_beside)
    for text in ALONE:
        again = write_expression(parse_expression(text))
        assert write_expression(parse_expression(again)) == again


OLD = {
    'A = "C:\\temp"': [{"A": '"C:\\\\temp"'}],
    'A = "C:\\temp\\"': [{"A": '"C:\\\\temp\\\\"'}],
    'A = "C:\\temp\\"\r\n': [{"A": '"C:\\\\temp\\\\"'}],
    'A = "a\\"b"': [{"A": '"a\\"b"'}],
    'A = regexp("\\d+\\.", "5.")': [{"A": 'regexp("\\\\d+\\\\.", "5.")'}],
    "# x\n # y\nA = 1 # z\n// w\nB = 2": [{"A": "1", "B": "2"}],
    "A = 1;\nB = 2;;\n": [{"A": "1", "B": "2"}],
    "\n\nA = 1\n\n \t\nA = 2\r\nB = 3\r\n\r\n": [{"A": "1"}, {"A": "2", "B": "3"}],
    "[A = 1]\n[B = 2]": [{"A": "1"}, {"B": "2"}],
    "": [],
}


def check_old(case):
    text, entries = case
    found = [{one.name: write_expression(one.node) for one in ad} for ad in parse_ads(text)]
    assert found == entries


def test_files_are_read_as_htcondor_reads_them():
    hold_all(OLD.items(), check_old)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A = 1; B = 2", "column 8: B stands after the end of an attribute"),
        ("A = 1\nA = 2", "line 2, column 1: the attribute A comes twice"),
        ('A = "a\\" ', "line 1, column 5: a text that is never closed"),
        ("A := 1", "column 3: : stands where = is needed"),
    ],
)
def test_what_the_old_form_refuses(text, words):
    with pytest.raises(SyntaxFault, match=words):
        parse_ads(text)


def test_an_ad_alone_may_have_blank_lines():
    assert write_ad(parse_ad("A = 1\n\nB = 2")) == write_ad(parse_ad("[A = 1; B = 2]"))
