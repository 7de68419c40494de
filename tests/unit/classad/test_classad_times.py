"""Times in ClassAds: what they are without a zone of the machine, how they are written, and what no calendar holds."""

from __future__ import annotations

import pytest
from tests.kits.table import hold_all

from lodesman.languages.classad import ERROR, Run, evaluate, parse_expression, write_value
from lodesman.languages.classad.partial import flatten
from lodesman.languages.classad.values import AbsTime, RelTime

NOW = 1_583_298_367.5
CLOCKS = {
    "absTime()": AbsTime(1_583_298_367, 0),
    "currentTime()": AbsTime(1_583_298_367, 0),
    "dayTime()": RelTime(18_367.0),
    "timeZoneOffset()": RelTime(0.0),
    'formatTime(absTime(), "%F %T %Z %z %s %%")': "2020-03-04 05:06:07 UTC +0000 1583298367 %",
    "formatTime()": "Wed Mar  4 05:06:07 2020",
    "time() - int(currentTime())": 0,
    "splitTime(currentTime()).DayOfWeek =?= undefined": True,
}
BEYOND = (
    "absTime(1e300)", 'absTime("2020-13-01")', 'absTime("2020")', 'relTime("1:")', "relTime(1) / 0", "formatTime(1e18)",
    "getYear(absTime(1000000000000000, 0))", "relTime(1e300) * 1e300", 'formatTime(0, "%c%c%c" + 1)', "absTime(1, true)",
    "splitTime(1e18)", "formatTime([Year = 0])", "absTime(1, 1, 1)",
)  # fmt: skip


def check_clock(case):
    text, value = case
    node = parse_expression(text)
    assert evaluate(node, run=Run(now=NOW)) == value
    assert evaluate(flatten(node), run=Run(now=NOW)) == value


def test_what_the_clock_says_is_asked_when_it_is_evaluated():
    hold_all(CLOCKS.items(), check_clock)


def check_beyond(text):
    assert evaluate(parse_expression(text)) is ERROR


def test_what_no_calendar_holds_is_an_error():
    hold_all(BEYOND, check_beyond)


@pytest.mark.parametrize(
    "value",
    [
        AbsTime(0, 0),
        AbsTime(1_000, 3_600),
        AbsTime(-5, -5_400),
        RelTime(0.0),
        RelTime(-90_061.0),
        RelTime(1.5),
        RelTime(59.0),
    ],
)
def test_what_is_written_reads_as_the_same(value):
    assert evaluate(parse_expression(write_value(value))) == value


def test_a_form_is_paid_for_and_its_text_is_bounded():
    run = Run(most=1_000)
    assert evaluate(parse_expression(f'formatTime(0, "{"%c" * 200}")'), run=run) is ERROR
    assert run.is_spent
    assert evaluate(parse_expression(f'formatTime(0, "{"%c" * 200}")')) is ERROR
