"""The value behind the summary: spreads, grouped reasons, JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from examples.demo.compose import Composition, Picture
from examples.demo.merge import PiEstimate, WordTable
from examples.demo.report import DemoReport, Reason, SiteRow, Spread, reasons, report_json, spread
from msgspec import to_builtins

from lodesman.store.read.usage import spread as measured


def test_a_spread_is_as_the_server_tells_it():
    told = {"count": 100, "p50": 5.0, "p90": 8.0, "p95": 9.0, "p99": 9.5, "most": 10.0}
    assert spread(told) == Spread(count=100, p50=5.0, p95=9.0, most=10.0)
    assert spread(to_builtins(measured(range(1, 101)))) == Spread(count=100, p50=50, p95=95, most=100)


def test_the_spread_of_nothing_is_unknown():
    assert spread(to_builtins(measured([]))) is None
    assert spread(to_builtins(measured([math.nan, math.inf]))) is None


def test_reasons_are_grouped_most_frequent_first():
    got = reasons([(9, "exit code 1"), (7, "exit code 3"), (8, "exit code 3"), (4, "CPU time")])
    assert got == (
        Reason(text="exit code 3", count=2, example=7),
        Reason(text="CPU time", count=1, example=4),
        Reason(text="exit code 1", count=1, example=9),
    )
    assert reasons([]) == ()


def test_the_report_as_json_keeps_unknown_as_null():
    values = report_json(DemoReport(states=None, sites=[SiteRow(site="A", done=None, failed=0)]))
    assert values["states"] is None
    assert values["sites"] == [{"site": "A", "done": None, "failed": 0, "pilots": None, "cpu_seconds": None}]
    assert values["composition"] is None
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_the_report_as_json_has_text_for_paths_and_only_the_first_words():
    counts = tuple((f"w{k}", 1000 - k) for k in range(500))
    composition = Composition(
        picture=Picture(path=Path("out/picture.png"), found=3, missing=(1,)),
        pi=PiEstimate(value=3.14, error=math.nan, samples=10, parts=1),
        words=WordTable(text="GPL-3", counts=counts, pieces=4, missing=()),
        unheard={"pi": 2},
    )
    report = DemoReport(states={"Done": 3}, composition=composition, results=Path("out"))
    values = report_json(report)
    assert values["results"] == "out"
    assert values["composition"]["picture"]["path"] == "out/picture.png"
    assert values["composition"]["picture"]["missing"] == [1]
    assert values["composition"]["pi"]["error"] is None
    words = values["composition"]["words"]
    assert (len(words["counts"]), words["distinct"], words["total"]) == (100, 500, sum(dict(counts).values()))
    assert words["counts"][0] == ["w0", 1000]
    assert json.dumps(values, allow_nan=False)


def test_a_report_is_a_value():
    report = DemoReport(states={})
    with pytest.raises(AttributeError):
        report.states = {"Done": 1}  # type: ignore[misc]
