"""What one evaluation may cost: its steps are counted in every evaluator, and too many are ERROR, never a match."""

from __future__ import annotations

import sys

import pytest
from tests.conftest import untraced
from tests.kits.dear_ads import IN_PATTERNS
from tests.kits.table import hold_all

from lodesman.languages.classad import ERROR, Run, evaluate, matches, parse_ad, parse_expression
from lodesman.languages.classad.ads import MOST_STEPS
from lodesman.languages.classad.clauses import explain
from lodesman.languages.classad.fast import FastCondition, MatchSide, fast_match
from lodesman.languages.classad.functions import FUNCTIONS
from lodesman.languages.classad.nodes import Constant
from lodesman.languages.classad.partial import flatten

RANGES = "".join(f"{chr(256 + 3 * n)}-{chr(257 + 3 * n)}" for n in range(400))
ATTRIBUTES = {
    "Letters": f'"{"ab" * 2_000}"', "Digits": f'"{"1" * 4_000}"', "Words": f'"{"a," * 2_000}"',
    "Umlauts": f'"{chr(0xC4) * 4_000}"',
    "Ads": f"{{{', '.join(['[a = 1; b = 2]'] * 100)}}}",
    "Numbers": f"{{{', '.join(['1'] * 1_000)}}}", "Unread": f'"({"a" * 2_500}"', "Ranges": f'"[{RANGES}]"',
}  # fmt: skip
DEAR = {
    'regexp("a.{0,60}z", Letters)': 1,
    "regexp(Unread, Letters)": 1,
    "regexp(Ranges, Umlauts)": 1,
    "versionGT(Digits, Digits)": 5,
    'stringListMember("x", Words)': 9,
    "size(split(Words)) > 1": 9,
    'Umlauts == "x"': 9,
    "Letters < Letters": 20,
    "Letters =?= Digits": 40,
    "size(strcat(Letters, Letters)) == 1": 20,
    "member(7, Numbers)": 5,
    'anyCompare("==", Numbers, Letters)': 1,
    "size({Numbers, Numbers, Numbers})": 2,
    "size(string(Numbers)) == 1": 5,
    "size({Numbers, Numbers}.x.x)": 2,
    "size(string(MY)) == 1": 5,
    "size(string(Ads)) == 1": 5,
    'versionGT(Ads, "1")': 5,
    'size(join(",", Ads)) == 1': 5,
    'size(replaceAll("b", Letters, "cc")) == 1': 1,
    'regexpMember("a.{0,9}z", {Letters, Digits})': 1,
    'stringList_regexpMember("x.*y.*z.*w", Words)': 1,
    "size(argsToList(Letters)) == 1": 5,
    'isString(mergeEnvironment(strcat("A=", Letters)))': 5,
    "quantize(7, Numbers) == 7": 5,
    "eval(Digits) == 1": 1,
}
"""What is dear, and how many times as much takes more than the steps of these tests."""


def check_dear(case):
    expression, times = case
    entries = "".join(
        f"{name} = {text}\n" for name, text in ATTRIBUTES.items() if name in expression or "MY" in expression
    )
    ad = parse_ad(f"{entries}Requirements = {' || '.join([f'isError({expression}) || 1 > 2'] * times)}")
    run = Run(most=4_000)
    assert evaluate("Requirements", ad, run=run) is ERROR
    assert run.is_spent
    assert not matches(ad, parse_ad("Requirements = true"), run=Run(most=4_000))


def test_each_kind_of_work_counts():
    hold_all(DEAR.items(), check_dear)


@pytest.fixture
def doubling():
    """Each attribute asks for the one before it twice: 2^60 of them."""
    return parse_ad(
        "a0 = time()\n"
        + "".join(f"a{n} = a{n - 1} + a{n - 1}\n" for n in range(1, 60))
        + "Requirements = isError(a59) || true"
    )


def test_an_evaluation_that_is_spent_is_no_match_whatever_follows(doubling):
    """As an error in it would, it cannot be caught by isError."""
    other = parse_ad("Requirements = true")
    assert evaluate("Requirements", doubling) is ERROR
    assert not matches(doubling, other)
    assert not fast_match(MatchSide(doubling), MatchSide(other))


def test_what_is_known_before_the_match_is_worked_out_in_as_many_steps():
    one = f'size(strcat("{"a" * 60_000}", "b")) == 1'
    node = parse_expression(one)
    assert flatten(node) == Constant(value=False, start=node.start, stop=node.stop)
    ad = parse_ad(f'T = "{"a" * 60_000}"')
    dear = parse_expression("TARGET.x || " + " || ".join(["versionGT(T, T)"] * 90))
    found = flatten(dear, ad)
    assert isinstance(found, Constant)
    assert found.value is ERROR


def test_a_condition_of_a_column_has_all_its_steps_each_time():
    condition = FastCondition(parse_expression('regexp("a{9}z", text)'))
    assert [condition.exact({"text": "a" * 3_000}) for _ in range(9)] == [False] * 9
    assert condition.exact({"text": "a" * 30_000}) is ERROR


def test_an_explanation_shares_its_steps(doubling):
    clauses = explain(parse_expression("a59 > 1 && a58 > 1 && 1 < 2"), doubling)
    assert [one.is_dear for one in clauses] == [True, True, True]
    assert [one.is_dear for one in explain(parse_expression("a3 >= 0 && 1 < 2"), doubling)] == [False, False]


def test_usual_requirements_take_a_small_part_of_the_steps():
    machine = parse_ad(
        'Machine = "slot1@wn1234.grid.example.org"\nArch = "X86_64"\nFeatures = "gpu, cvmfs, avx2"\n'
        "Memory = TotalMemory / 2\nTotalMemory = 16000\nRequirements = START\n"
        "START = (TARGET.ImageSize < Memory) && member(TARGET.Owner, Owners)\n"
        f"Owners = {{{', '.join(f'{chr(34)}user{n}{chr(34)}' for n in range(200))}}}"
    )
    job = parse_ad(
        'Owner = "user150"\nImageSize = 2000\nRequirements = TARGET.Arch == "x86_64" && TARGET.Memory >= 2000 && '
        'regexp("^slot[0-9]+@wn[0-9]+\\.(grid|cloud)\\.example\\.org$", TARGET.Machine) && '
        '!regexp("(bad|worse|slow)[0-9]+", TARGET.Machine, "i") && stringListMember("cvmfs", TARGET.Features) && '
        '(isUndefined(TARGET.Opsys) || regexp("(alma|rocky|debian).*[789]", TARGET.Opsys))'
    )
    run = Run()
    assert matches(job, machine, run=run)
    assert run.steps < MOST_STEPS / 50
    for one, other in ((job, machine), (machine, job)):
        run = Run()
        assert evaluate("Requirements", one, other, run=run) is True
        assert run.steps < MOST_STEPS / 10


@pytest.mark.parametrize("digits", ["9" * 5_000, "-" + "9" * 5_000, "0" * 5_000 + "1"])
def test_numbers_of_any_length_are_read(digits):
    """Python itself refuses more than 4,300 digits by an exception of its own."""
    values = [
        evaluate(parse_expression(f'{name}("{digits}")'))
        for name in ("int", "stringListSum", "stringListMin")
    ]
    assert set(values) <= {ERROR, 1}
    assert evaluate(parse_expression(f'stringListAvg("{digits},1")')) in {ERROR, 1}


def test_digits_are_looked_through_once():
    """It took 18 seconds, in a library that let no other thread run."""
    assert evaluate(parse_expression(f'stringListSum("{"1" * 30_000}x")')) is ERROR


def test_every_function_has_its_price():
    """Those without look at the kind of their arguments only."""
    free = {name for name, one in FUNCTIONS.items() if one.cost is None and not one.needs_run}
    assert free == {"size", *[name for name in FUNCTIONS if name.startswith("is")]}


SEARCHES = (
    'regexp(strcat("7", P), T)', 'regexp(strcat("a|", P, "x"), T, "i")', 'regexp(strcat(P, "("), T)',
    'regexps(strcat(P, "|a"), T, "z")', 'replaceAll(strcat("b|", P), T, "x", "x")',
)  # fmt: skip
MOST_CALLS = 2.5
"""Of functions, for each step: what is charged must follow what is done."""


def calls_of(act):
    """How many functions it calls, on any machine."""
    count = 0

    def note(_, event, __):
        nonlocal count
        count += event in {"call", "c_call"}

    with untraced():
        sys.setprofile(note)
        try:
            act()
        finally:
            sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_a_pattern_that_an_evaluation_makes_costs_as_much_as_it_takes(search):
    """Empty groups and branches, repetitions of nothing and patterns that cannot be read once cost next to nothing."""
    node, over = parse_expression(search), {}
    for part in IN_PATTERNS:
        for times in (10, 150, 900):
            ad, run = parse_ad(f'P = "{part * times}"\nT = "ab, aab, b ba"'), Run()
            calls = calls_of(lambda: evaluate(node, ad, run=run))  # noqa: B023 - it is called at once
            if calls > MOST_CALLS * (run.steps + 100):
                over[part, times] = calls, run.steps
    assert over == {}


OTHERS = (
    "splitTime(5)", "unparse(T)", 'stringListSum("1,2,3")', 'stringListSize("a;b", ";|,.:")', 'subset("a", "a,b")',
    "random() > 2", 'eval("1 + 1")', 'mergeEnvironment("A=1", "B=2")', 'formatTime(5, "%c")', 'absTime("20200101")',
    'relTime("1+02:03:04")', "string(absTime(0))", "quantize(5, {3, 4, 9})", 'join(",", {1, 2, 3})', "interval(99999)",
    'versioncmp("1.2.3", "1.2.4")', "countMatches(a > 1, {[a = 1], [a = 2]})", 'listToArgs({"a", "b c"})', "round(2.5)",
)  # fmt: skip


@pytest.mark.parametrize("call", OTHERS)
def test_a_call_costs_as_much_as_it_takes(call):
    """Also one with short texts: an attribute may be asked for again and again."""
    ad, run = parse_ad(f"T = a + b\nMany = {' || '.join([f'(isError({call}) && false)'] * 20)}"), Run()
    calls = calls_of(lambda: evaluate(parse_expression("Many || Many || Many"), ad, run=run))
    assert 0 < calls <= 2 * MOST_CALLS * run.steps


def test_a_long_list_of_names_is_cheap_enough_for_an_ad():
    names = "|".join(f"user{n}" for n in range(120))
    run = Run(most=20_000)
    assert evaluate(parse_expression(f'regexp("^({names})$", "user7")'), run=run) is True
