"""The images of the README are drawn from a report as `./demo --json` writes it."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest
from examples.demo.compose import Composition, Picture
from examples.demo.merge import PiEstimate, WordTable
from examples.demo.png import Image, read_png, write_png
from examples.demo.report import AttemptCheck, DemoReport, GroupShare, Reason, SiteRow, report_json
from examples.demo.summary import summary_lines, summary_text

from lodesman.wire.server import Spread

ROOT = Path(__file__).resolve().parents[2]
COUNTS = tuple((f"w{number}", 200 - number) for number in range(150))
WORDS = WordTable(text="GPL-3", counts=COUNTS, total=15_000, distinct=150, pieces=48, missing=())


@pytest.fixture(scope="module")
def draw_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_demo", ROOT / "scripts" / "draw_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def report(tmp_path):
    picture = tmp_path / "elsewhere" / "picture.png"
    picture.parent.mkdir()
    picture.write_bytes(write_png(Image(width=4, height=2, pixels=bytes(range(24)))))
    return DemoReport(
        states={"Done": 3, "Held": 1},
        expected={"Done": 3, "Held": 1},
        elapsed_seconds=12.0,
        sites=[SiteRow(site="North", done=3, failed=0, pilots=2, cpu_seconds=4.0)],
        waiting=Spread(count=3, p50=1.0, p90=2.0, p95=2.0, p99=3.0, most=3.0),
        groups=[GroupShare(group="physics", share=3000.0, actual=3, target=2.5, deviation=0.4)],
        held=[Reason(text="no queue", count=1, example=4)],
        failed=[],
        attempts=AttemptCheck(started=3, attempts=3, twice=0, lost=0),
        composition=Composition(
            picture=Picture(path=picture, width=4, height=2, found=2),
            pi=PiEstimate(value=3.14, error=0.01, samples=100, parts=2),
            words=WORDS,
            unheard={},
        ),
        results=picture.parent,
    )


def test_the_report_comes_back_but_for_where_the_results_lay(draw_demo, report, tmp_path):
    text = summary_text(draw_demo.moved(draw_demo.read_report(report_json(report))))
    assert str(tmp_path) not in text
    assert "demo-results/picture.png" in text
    moved = ("Picture", "Results")
    known = [line.plain for line in summary_lines(report) if not line.plain.startswith(moved)]
    assert [line for line in text.splitlines() if not line.startswith(moved)] == known
    assert f"{WORDS.total:,} words" in text


def test_the_drawing_is_svg_without_addresses_of_files(draw_demo, report):
    svg = draw_demo.drawing(draw_demo.moved(draw_demo.read_report(report_json(report))))
    assert ET.fromstring(svg).tag.endswith("svg")
    assert "@font-face" not in svg
    assert "url(&quot;http" not in svg
    assert "Lodesman" in re.sub(r"&#160;", " ", svg)


def test_a_pixel_is_the_mean_of_four(draw_demo):
    image = Image(width=2, height=2, pixels=bytes([0, 0, 0, 4, 8, 12, 8, 16, 24, 0, 0, 0]))
    assert draw_demo.halved(image) == Image(width=1, height=1, pixels=bytes([3, 6, 9]))


def test_both_images_are_written(draw_demo, report, tmp_path, monkeypatch, capsys):
    path = tmp_path / "report.json"
    path.write_text(report_json(report))
    monkeypatch.setattr(sys, "argv", ["draw_demo.py", str(path)])
    monkeypatch.setattr(draw_demo, "IMAGES", tmp_path / "images")
    assert draw_demo.main() == 0
    assert (tmp_path / "images" / "demo.svg").read_text().startswith("<svg")
    assert read_png((tmp_path / "images" / "picture.png").read_bytes()).width == 2
    assert capsys.readouterr().out.startswith("Lodesman demo: 4 jobs")


def test_the_readme_shows_the_run_that_is_drawn():
    """The text in the README and the image are of one run."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    svg = html.unescape((ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")).replace(
        "\xa0", " "
    )
    shown = readme[readme.index("```text\n") + 8 :].partition("```")[0]
    lines = [line for line in shown.splitlines() if line.strip()]
    assert len(lines) > 20
    assert [line for line in lines if line not in svg] == []
    for image in (ROOT / "docs" / "images").iterdir():
        assert image.stat().st_size < 300_000
        assert f"docs/images/{image.name}" in readme
