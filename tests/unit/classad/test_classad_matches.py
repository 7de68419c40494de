"""Matches: generated code says what the closures say, and holds no text of an ad; what is known early; why a match fails."""

from __future__ import annotations

import random
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.classad_kit import ad_text, expression

from lodesman.languages.classad import (
    EMPTY,
    ERROR,
    UNDEFINED,
    evaluate,
    fast,
    matches,
    parse_ad,
    parse_expression,
    write_expression,
    write_value,
)
from lodesman.languages.classad.clauses import explain
from lodesman.languages.classad.fast import MatchSide, fast_match
from lodesman.languages.classad.partial import flatten, references


def worth(node, my, target):
    return write_value(evaluate(node, my, target))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_fast_and_exact_agree_and_known_parts_change_nothing(seed):
    draw = random.Random(seed)
    found = 0
    for _ in range(100):
        one, two = parse_ad(ad_text(draw)), parse_ad(ad_text(draw))
        found += matches(one, two)
        assert fast_match(MatchSide(one), MatchSide(two)) == matches(one, two)
        node = parse_expression(expression(draw))
        assert worth(flatten(node, one), one, two) == worth(node, one, two), write_expression(node)
    assert found


@pytest.mark.parametrize(
    ("requirements", "judged"),
    [
        ("TARGET.a == 1", True),
        ('TARGET.s == "X"', True),
        ("MY.s != TARGET.s", True),
        ("TARGET.a > b && !flag", True),
        ("TARGET.a == 1 || TARGET.s == 2", True),
        ("TARGET.s == 2 || TARGET.a == 1", False),
        ('member("p", TARGET.tags)', True),
        ("TARGET.tags < tags", False),
        ("TARGET.missing > 1", False),
        ("TARGET.a / 0 > 1", False),
        ("TARGET.a * 2 > 1", True),
        ("a =?= 1", True),
        ('TARGET.s =?= "x"', False),
        ("time() > 0", False),
        ("TARGET.expression > 0", False),
        ("s", False),
        ("flag", True),
        ("TARGET.big == 1", False),
        ("(flag ? a : b) == 1", False),
        ("flag ? a > 5 : b > 5", True),
    ],
)
def test_what_the_generated_code_judges_itself(requirements, judged, monkeypatch):
    asked = []
    monkeypatch.setattr(
        fast, "evaluate", lambda *words, **more: asked.append(words) or evaluate(*words, **more)
    )
    mine = parse_ad(f'[a = 1; b = 2; s = "x"; tags = {{"p"}}; flag = true; Requirements = {requirements}]')
    target = parse_ad(
        '[a = 1; s = "x"; tags = {"P"}; expression = a; big = 9007199254740993; Requirements = true]'
    )
    assert MatchSide(mine).accepts(MatchSide(target)) == (evaluate("Requirements", mine, target) is True)
    assert (not asked) is judged


@given(st.text(min_size=6, max_size=12), st.text("abcdefghij", min_size=6, max_size=12))
def test_the_code_has_no_text_of_an_ad(text, name):
    """Neither names nor values: they are constants beside it."""
    quoted = '"' + "".join(f"\\{ord(one):03o}" if 0 < ord(one) < 128 else "x" for one in text) + '"'
    ad = parse_ad(f"[{name}zz = {quoted}; Requirements = TARGET.{name}yy == {quoted} && {name}xx > 12345678]")
    code = MatchSide(ad).test.__code__
    assert isinstance(code, types.CodeType)
    written = repr((code.co_consts, code.co_names, code.co_varnames)).lower()
    assert name not in written
    assert "12345678" not in written
    assert set(code.co_varnames) == {"m", "t"}
    assert all(one.startswith("k") and one[1:].isdigit() for one in code.co_names)


def test_without_requirements_there_is_no_match():
    one = parse_ad("[a = 1]")
    assert not matches(one, parse_ad("[Requirements = true]"))
    assert not fast_match(MatchSide(one), MatchSide(one))


@pytest.mark.parametrize(
    ("value", "holds"),
    [("1", True), ("2.5", True), ("0", False), ('"true"', False), ("undefined", False), ("{}", False)],
)
def test_what_counts_as_true(value, holds):
    one = parse_ad(f"[Requirements = {value}]")
    assert matches(one, one) is fast_match(MatchSide(one), MatchSide(one)) is holds


@pytest.mark.parametrize(
    ("text", "own", "other"),
    [
        ("a + TARGET.b", {"a"}, {"b"}),
        ("c", {"c", "d"}, {"e"}),
        ("x > 1", set(), {"x"}),
        ("MY.x", {"x"}, set()),
        ("[a = 1; b = a + q].b", set(), {"q"}),
        ("member(TARGET.s, {a, b})", {"a"}, {"s", "b"}),
        ("loop", {"loop"}, set()),
    ],
)
def test_references(text, own, other):
    my = parse_ad("[a = 1; c = d + TARGET.e; d = 2; loop = loop]")
    found = references(parse_expression(text), my)
    assert (found.own, found.other) == (own, other)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("4 * 1024", "4096"),
        ("a + TARGET.b", "1 + TARGET.b"),
        ("d > 1 && TARGET.b", "TARGET.b && true"),
        ("a > 5 && TARGET.b", "false"),
        ("a == 1 || TARGET.b", "true"),
        ("TARGET.b && a > 5", "TARGET.b && false"),
        ("a ? TARGET.x : TARGET.y", "TARGET.x"),
        ("time() > a", "time() > 1"),
        ("e", "e"),
        ("loop + 1", "error"),
        ("undefined && TARGET.b", "undefined && TARGET.b"),
        ("x + 1", "x + 1"),
        ('strcat("a", a)', '"a1"'),
        ("{a, TARGET.b}", "{1, TARGET.b}"),
    ],
)
def test_what_is_known_early_is_put_in(text, left):
    my = parse_ad("[a = 1; d = a + 1; e = TARGET.q; loop = loop]")
    assert write_expression(flatten(parse_expression(text), my)) == left


def test_clauses_show_both_sides():
    my = parse_ad(
        '[Memory = 4; Loop = Loop; R = TARGET.Memory > MY.Memory && Cpus >= 2 && Loop && Name == "x"]'
    )
    target = parse_ad("[Memory = 8; Cpus = 1; Name = 5]")
    first, second, third, fourth = explain(my.node("R"), my, target)
    assert (first.text, first.value, first.own, first.other) == (
        "TARGET.Memory > MY.Memory",
        True,
        (("Memory", 4),),
        (("Memory", 8),),
    )
    assert (second.value, second.own, second.other) == (False, (), (("Cpus", 1),))
    assert (third.value, third.cycle) == (ERROR, ("Loop",))
    assert fourth.value is ERROR
    assert explain(parse_expression("x"), EMPTY)[0].value is UNDEFINED
