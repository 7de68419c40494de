"""The values behind the summary: grouped reasons, sites, JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from examples.demo.compose import Composition, Picture
from examples.demo.merge import PiEstimate, WordTable
from examples.demo.report import (
    DemoReport,
    Reason,
    SiteRow,
    read_report,
    reasons,
    report_json,
    site_rows,
)

from lodesman.wire.server import AttemptCounts, Faulty, PilotCount, SiteOutcomes, Spread, Usage
from lodesman.wire.vocabulary import PilotState

NOTHING = Spread(count=0, p50=None, p90=None, p95=None, p99=None, most=None)


def usage(*, faulty=(), sites=(), pilots=()) -> Usage:
    return Usage(
        states={}, sites=list(sites), groups=[], claims=[], waiting_seconds=NOTHING, running_seconds=NOTHING,
        faulty=list(faulty), attempts=AttemptCounts(0, 0, 0), pilots=list(pilots),
    )  # fmt: skip


def test_reasons_are_grouped_most_frequent_first():
    rows = [
        Faulty(9, 1, "Failed", "exit code 1"),
        Faulty(8, 1, "Failed", "exit code 3"),
        Faulty(6, 2, "Failed", "exit code 3"),
        Faulty(4, 1, "Failed", "CPU time"),
        Faulty(2, 5, "Held", "no queue"),
    ]
    assert reasons(usage(faulty=rows), "Failed") == [
        Reason(text="exit code 3", count=3, example=6),
        Reason(text="CPU time", count=1, example=4),
        Reason(text="exit code 1", count=1, example=9),
    ]
    assert reasons(usage(), "Failed") == []


def test_sites_have_all_their_pilots():
    pilots = [PilotCount("A", PilotState("Done"), 2), PilotCount("A", PilotState("Running"), 1)]
    sites = [SiteOutcomes("A", 3.5, {"Done": 4}), SiteOutcomes("B", 0.0, {"Failed": 1})]
    assert site_rows(usage(sites=sites, pilots=pilots)) == [
        SiteRow(site="A", done=4, failed=0, pilots=3, cpu_seconds=3.5),
        SiteRow(site="B", done=0, failed=1, pilots=0, cpu_seconds=0.0),
    ]


def test_the_report_as_json_keeps_unknown_as_null():
    report = DemoReport(states=None, sites=[SiteRow(site="A", done=None, failed=0)])
    values = json.loads(report_json(report))
    assert values["states"] is None
    assert values["sites"] == [{"site": "A", "done": None, "failed": 0, "pilots": None, "cpu_seconds": None}]
    assert values["composition"] is None
    assert read_report(report_json(report)) == report


def test_the_report_as_json_has_text_for_paths_and_only_the_first_words():
    counts = tuple((f"w{k}", 1) for k in range(500))
    composition = Composition(
        picture=Picture(path=Path("out/picture.png"), found=3, missing=(1,)),
        pi=PiEstimate(value=3.14, error=math.nan, samples=10, parts=1),
        words=WordTable(text="GPL-3", counts=counts, total=500, distinct=500, pieces=4, missing=()),
        unheard={"pi": 2},
    )
    report = DemoReport(states={"Done": 3}, composition=composition, results=Path("out"))
    values = json.loads(report_json(report))
    assert values["results"] == "out"
    assert values["composition"]["picture"]["path"] == "out/picture.png"
    assert values["composition"]["picture"]["missing"] == [1]
    assert values["composition"]["pi"]["error"] is None
    words = values["composition"]["words"]
    assert (len(words["counts"]), words["total"], words["distinct"]) == (100, 500, 500)
    assert words["counts"][0] == ["w0", 1]


def test_a_report_is_a_value():
    report = DemoReport(states={})
    with pytest.raises(AttributeError):
        report.states = {"Done": 1}  # type: ignore[misc]
