"""Figures against targets, the table, and the picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from bench.figures import Figure, best, shown
from bench.picture import BARS, draw, place, png, svg
from bench.table import cells, markdown, missed, plain
from examples.demo.png import read_png

RATE = Figure(
    row="claims",
    what="claims <a second>",
    unit="/s",
    value=9_000,
    target=8_000,
    floor_name="commits",
    floor=4_500,
    cpu_us={"hot": 105.2, "background": 1.5},
)
LATE = Figure(row="p99", what="99 % within", unit="ms", value=25.0, target=20, less=True)
BARE = Figure(row="why", what="why", unit="ms", value=3.25)


def test_a_rate_shall_reach_its_target_and_a_time_stay_within():
    assert RATE.met is True
    assert RATE.reached == pytest.approx(1.125)
    assert LATE.met is False
    assert LATE.reached == pytest.approx(0.8)
    assert BARE.met is None


def test_exactly_the_target_is_met():
    for less in (False, True):
        assert Figure(row="x", what="x", unit="", value=5, target=5, less=less).met is True


def test_the_ratio_is_to_the_floor_of_the_same_run():
    assert RATE.ratio == 2
    assert LATE.ratio is None
    assert RATE.as_dict()["ratio_to_floor"] == 2
    assert RATE.as_dict()["met"] is True


def test_best_takes_the_largest_rate_and_the_smallest_time():
    samples = [{"rate": 3, "ms": 7}, {"rate": 5, "ms": 9}]
    assert best(samples, "rate") == samples[1]
    assert best(samples, "ms", less=True) == samples[0]


@pytest.mark.parametrize(
    ("value", "text"), [(123456.7, "123,457"), (99.94, "99.9"), (3.256, "3.26"), (0.00123, "0.0012")]
)
def test_numbers_show_the_digits_that_mean_something(value, text):
    assert shown(value) == text


def test_the_table_says_no_where_a_target_is_missed():
    lines = plain([RATE, LATE, BARE]).splitlines()
    assert re.search(
        r"^claims +claims <a second> +>= 8,000 /s +9,000 /s +yes +2 x commits +hot 105, background 1\.50$",
        lines[2],
    )
    assert " NO " in lines[3]
    assert cells(BARE)[2] == "-"
    assert missed([RATE, LATE, BARE]) == [LATE]


def test_markdown_has_one_row_for_each_figure():
    lines = markdown([RATE, LATE]).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {8}


def test_the_target_is_in_the_middle_and_the_ends_are_clipped():
    assert place(1) == pytest.approx(0.5)
    assert place(0.01) == 0
    assert place(1e9) == 1


def test_the_svg_is_well_formed_and_colours_by_verdict():
    root = ET.fromstring(svg([RATE, LATE, BARE], "a < b"))
    bars = [one for one in root.iter() if one.get("fill", "") in ("#2e7d32", "#c62828")]
    assert [bar.get("fill") for bar in bars] == ["#2e7d32", "#c62828"]
    texts = [one.text for one in root.iter() if one.tag.endswith("text")]
    assert "a < b" in texts
    assert "claims <a second>" in texts
    assert "why" not in texts


def test_the_png_has_the_bars_and_names_them():
    image = read_png(png([RATE, LATE]))
    assert image.width == BARS
    rows = list(image.rows())
    assert rows[11][:3] == bytes.fromhex("2e7d32")
    assert rows[33][:3] == bytes.fromhex("c62828")
    assert image.texts["Bar 2"] == "99 % within: 25.0 ms"


def test_the_ending_of_the_name_chooses_the_form(tmp_path):
    draw([RATE], tmp_path / "a.svg", "t")
    draw([RATE], tmp_path / "a.png", "t")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"\.jpg"):
        draw([RATE], tmp_path / "a.jpg", "t")
