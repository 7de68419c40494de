"""What expressions are worth: as HTCondor says, line by line, but for the differences that the manual lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.kits.table import hold_all

from lodesman.languages.classad import ERROR, UNDEFINED, Ad, Run, evaluate, parse_ad, parse_expression
from lodesman.languages.classad.ads import MOST_STEPS
from lodesman.languages.classad.values import MAX_TEXT

ROOT = Path(__file__).parents[3]
RECORDED = (ROOT / "tests/data/classad/answers.txt").read_text(encoding="utf-8").splitlines()[1:]
# `expression` | there | here
DIFFERENCES = re.findall(
    r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \|",
    (ROOT / "docs/how-to/classads.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def shown(value) -> str:
    """As the recorded answers are written."""
    if value is UNDEFINED or value is ERROR:
        return value.value
    if isinstance(value, tuple):
        return f"{{{', '.join(map(shown, value))}}}"
    if isinstance(value, Ad):
        return f"AD[{'; '.join(f'{entry.name}={shown(evaluate(entry.node, value))}' for entry in value)}]"
    return repr(value)


def worth(text: str) -> str:
    return shown(evaluate(parse_expression(text)))


def test_recorded_answers():
    def check(line):
        expression, _, value = line.partition("\t")
        assert worth(expression) == value

    hold_all(RECORDED, check)


@pytest.mark.parametrize(("expression", "there", "here"), DIFFERENCES)
def test_differences_are_as_the_manual_says(expression, there, here):
    assert there != here
    if here == "refused":
        with pytest.raises(Exception, match="line 1, column"):
            parse_expression(expression)
    else:
        assert worth(expression) == here


def test_the_manual_lists_differences():
    assert len(DIFFERENCES) > 15


MY = parse_ad(
    "[a = 1; b = a + 1; c = TARGET.a; d = TARGET.c; e = z; n = [a = 5; k = a; p = PARENT.a; q = b; m = MY.a]; t = d]"
)
TARGET = parse_ad("[a = 10; c = TARGET.a; z = y; y = 7; list = {[a = 1], [a = 2]}]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("b", 2),
        ("A", 1),
        ("my.A", 1),
        ("target.a", 10),
        ("c", 10),
        ("d", 1),
        ("e", 7),
        ("y", 7),
        ("MY.y", UNDEFINED),
        ("MY.MY.a", 1),
        ("MY.TARGET.a", 10),
        ("TARGET.MY.a", 10),
        ("TARGET.TARGET.a", 1),
        ("other.a", 10),
        ("OTHER.y", 7),
        ("self.a", 1),
        ("self.y", UNDEFINED),
        ("n.MY.a", 5),
        ("n.self.k", 5),
        ("n.TARGET.a", 10),
        ("n.PARENT.b", 2),
        ("MY.PARENT.a", UNDEFINED),
        ("[a = 3; b = MY.MY.a].b", 3),
        ("[a = 3; b = other.a].b", 10),
        ("n.k", 5),
        ("n.p", 1),
        ("n.q", 2),
        ("n.m", 5),
        ("n.z", UNDEFINED),
        ("TARGET.nothing", UNDEFINED),
        ("t", 1),
        ("TARGET.list[1].a", 2),
        ("sum(TARGET.list.a)", 3),
        ('n["A"]', 5),
        ("TARGET.b", UNDEFINED),
        ("PARENT.a", UNDEFINED),
    ],
)
def test_names_are_looked_up_here_then_outwards_then_there(text, value):
    assert evaluate(parse_expression(text), MY, TARGET) == value


def test_without_another_ad_target_is_undefined():
    assert evaluate("c", MY) is UNDEFINED
    assert evaluate(parse_expression("TARGET"), MY) is UNDEFINED


def test_a_cycle_is_an_error_and_names_its_attributes():
    run = Run()
    assert evaluate("A", parse_ad("[A = B + 1; B = C; C = 1 + MY.B]"), run=run) is ERROR
    assert run.cycle == ("B", "C")


def test_a_cycle_through_both_ads():
    assert evaluate("x", parse_ad("[x = TARGET.x]"), parse_ad("[x = TARGET.x]")) is ERROR


def test_work_is_bounded():
    """Each attribute asks for the one before it twice: 2^40 of them, were they not counted."""
    ad = parse_ad("a0 = time()\n" + "".join(f"a{n} = a{n - 1} + a{n - 1}\n" for n in range(1, 41)))
    run = Run()
    assert evaluate("a40", ad, run=run) is ERROR
    assert run.is_spent
    assert run.steps <= MOST_STEPS + 80
    assert evaluate("a9", ad, run=Run(now=3.9)) == 3 * 2**9


def test_a_chain_of_attributes_that_is_too_long_is_an_error():
    ad = parse_ad("a0 = 1\n" + "".join(f"a{n} = (((a{n - 1} + 0) + 0) + 0)\n" for n in range(1, 1_500)))
    assert evaluate("a100", ad) == 1
    assert evaluate("a1499", ad) is ERROR


def test_texts_do_not_grow_without_end():
    ad = parse_ad(
        f'a0 = "{"x" * 1_024}"\n' + "".join(f"a{n} = strcat(a{n - 1}, a{n - 1})\n" for n in range(1, 20))
    )
    assert len(evaluate("a5", ad)) == 1_024 << 5
    assert MAX_TEXT < 1_024 << 7
    assert evaluate("a7", ad) is ERROR


def test_the_time_is_that_of_the_run():
    assert evaluate(parse_expression("time()"), run=Run(now=12.7)) == 12
