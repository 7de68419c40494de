"""Parts of expressions: replaced, judged before all is known, and judged for many values."""

import random

import pytest
from tests.kits.classad_kit import NAMES, ad_text, expression

from lodesman.languages.classad import EMPTY, evaluate, parse_ad, parse_expression, write_expression
from lodesman.languages.classad.ads import ad_of
from lodesman.languages.classad.fast import FastCondition
from lodesman.languages.classad.nodes import Constant, Name, rewrite
from lodesman.languages.classad.partial import can_be, flatten
from lodesman.languages.classad.regexp import read_regexp
from lodesman.languages.classad.values import is_true, truth

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]


def put_in(name, value):
    def change(node):
        return Constant(value=value) if isinstance(node, Name) and node.key == name else None

    return change


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a", "5"),
        ("b", "b"),
        ("a + b * -a", "5 + b * -(5)"),
        ("a && b && (a || b)", "5 && b && (5 || b)"),
        ("a ? a : b ?: a", "5 ? 5 : b ?: 5"),
        ("f(a, {a, b})[a].c", "f(5, {5, b})[5].c"),
        ("[x = a; y = b].x", "[x = 5; y = b].x"),
        ("!a =?= MY.a", "!5 =?= MY.a"),
    ],
)
def test_parts_are_replaced_wherever_they_stand(text, after):
    assert write_expression(rewrite(parse_expression(text), put_in("a", 5))) == after


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_replaced_is_nothing_changed(seed):
    node = parse_expression(expression(random.Random(seed), 4))
    assert rewrite(node, lambda _: None) == node


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("true", True, False),
        ("0", False, True),
        ("2.5", True, False),
        ("undefined", False, False),
        ('"text"', False, False),
        ("x", True, True),
        ("x && false", False, True),
        ("x && undefined", False, True),
        ("x || false", True, True),
        ("x || true", True, False),
        ("x || undefined", True, False),
        ("!(x && false)", True, False),
        ("!undefined", False, False),
        ("x < undefined", False, False),
        ("error + x", False, False),
        ("x =?= undefined", True, True),
        ("x < 5 ? false : y && false", False, True),
        ("(false ?: x) ? true : false", True, True),
    ],
)
def test_what_an_expression_can_be_before_all_is_known(text, true, false):
    assert can_be(parse_expression(text)) == (true, false)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_it_becomes_it_could_be(seed):
    draw = random.Random(seed)
    for _ in range(100):
        node, ad = parse_expression(expression(draw, 4)), parse_ad(ad_text(draw))
        known = flatten(node, parse_ad(ad_text(draw)))
        for one in (node, known):
            found = truth(evaluate(one, EMPTY, ad))
            assert found is not True or can_be(one)[0]
            assert found is not False or can_be(one)[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_condition_about_values_is_judged_as_in_an_ad(seed):
    """Fast where that is possible, and then as exactly."""
    draw = random.Random(seed)
    quick = 0
    for _ in range(100):
        node = parse_expression(expression(draw, 3))
        condition = FastCondition(node)
        for _ in range(3):
            ad = parse_ad(ad_text(draw))
            values = {name.lower(): evaluate(name, ad) for name in NAMES if name != "Nested"}
            exact = truth(evaluate(node, ad_of(values)))
            fast = condition.fast({name: condition.plain(value) for name, value in values.items()})
            assert condition.exact(values) is exact
            assert fast is None or fast is exact
            quick += fast is not None
    assert quick > 5


def test_an_ad_is_made_of_values():
    ad = ad_of({"Name": "x", "Tags": ("a", 1)})
    assert evaluate("name", ad) == "x"
    assert is_true(evaluate(parse_expression('member("A", tags)'), ad))


def test_the_size_of_a_pattern_counts_what_is_repeated():
    assert read_regexp("a").size < read_regexp("a{9}").size < read_regexp("(a{9}){9}").size
