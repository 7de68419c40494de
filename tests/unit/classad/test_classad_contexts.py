"""Expressions in other ads, as policies for GPUs ask for them, and expressions as texts."""

from __future__ import annotations

from tests.kits.table import hold_all

from lodesman.languages.classad import ERROR, UNDEFINED, Run, evaluate, parse_ad, parse_expression
from lodesman.languages.classad.partial import flatten, references

JOB = parse_ad(
    "[A = 1; Min = 3; RequireGPUs = Cap > 4; Bare = Cap > Min; Other = Cap > TARGET.Lim; Near = Cap > Lim; Mine = W]"
)
SLOT = parse_ad(
    '[Lim = 4; Min = 100; Gpus = {G1, G2, G3}; G1 = [Cap = 4; N = "a"]; G2 = [Cap = 5.5; N = "b"]; G3 = [N = "c"];'
    " Written = {[Cap = 1], [Cap = 9]}]"
)
HELD = {
    "countMatches(MY.RequireGPUs, TARGET.Gpus)": 1,
    "countMatches(RequireGPUs, Gpus)": 1,
    "countMatches(Cap > 4, Gpus)": 1,
    "countMatches(Cap > 4, Nothing)": 0,
    "countMatches(Cap, {5, undefined, G2})": 1,
    "evalInEachContext(Cap + 0, Gpus)": (4, 5.5, UNDEFINED),
    "evalInEachContext(Cap, Gpus)": (4, 5.5, UNDEFINED),
    'evalInEachContext(strcat(N, "x"), Gpus)': ("ax", "bx", "cx"),
    "evalInEachContext(MY.Bare, TARGET.Gpus)": (False, False, UNDEFINED),
    "evalInEachContext(MY.Other, TARGET.Gpus)": (UNDEFINED, UNDEFINED, UNDEFINED),
    "evalInEachContext(MY.Near, TARGET.Gpus)": (False, True, UNDEFINED),
    "evalInEachContext(Cap > MY.Lim, Gpus)": (False, True, UNDEFINED),
    "evalInEachContext(Cap > TARGET.Min, Gpus)": (True, True, UNDEFINED),
    "evalInEachContext(A, Gpus)": (1, 1, 1),
    "evalInEachContext(Cap, Written)": (1, 9),
    "evalInEachContext(Cap, {TARGET.G1, TARGET.Nope, 5})": (4, UNDEFINED, ERROR),
    "evalInEachContext(Cap, Nothing)": UNDEFINED,
    "evalInEachContext(Cap, 5)": ERROR,
    "unparse(RequireGPUs)": "Cap > 4",
    "unparse(MY.RequireGPUs)": "",
    "unparse(Nothing)": "",
    "unparse(1 + 1)": ERROR,
    'eval("A + Min")': 4,
    'eval("TARGET.Lim")': 4,
    'eval("A +")': ERROR,
    "eval(unparse(Min))": 3,
    "eval(undefined)": ERROR,
}


def check_worth(case):
    text, value = case
    assert evaluate(parse_expression(text), JOB, SLOT) == value
    assert evaluate(flatten(parse_expression(text), JOB), JOB, SLOT) == value


def test_expressions_in_other_ads():
    hold_all(HELD.items(), check_worth)


def test_what_such_calls_ask_for_is_known():
    found = references(
        parse_expression("countMatches(RequireGPUs, TARGET.Gpus) > 0 && n.TARGET.Lim > 1"), JOB
    )
    assert found.own == {"requiregpus"}
    assert {"cap", "gpus", "lim"} <= found.other


def test_each_ad_has_its_steps():
    many = f"[L = {{{', '.join(['[a = 1]'] * 300)}}}; Requirements = countMatches({' + '.join(['a'] * 40)} > 0, L) > 0]"
    run = Run(most=9_000)
    assert evaluate("Requirements", parse_ad(many), run=run) is ERROR
    assert run.is_spent
    long = parse_ad(f'T = "{{{"1, " * 900}1}}"\nR = size(eval(T))')
    assert evaluate("R", long) == 901
    assert evaluate("R", long, run=Run(most=9_000)) is ERROR


def test_an_expression_that_evaluates_itself_ends():
    assert evaluate("R", parse_ad('[T = "eval(T)"; R = eval(T)]')) is ERROR
