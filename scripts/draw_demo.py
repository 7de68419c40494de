"""Draw docs/images from a run: `./demo --json > report.json; .venv/bin/python -m scripts.draw_demo report.json`.

`demo.svg` is the summary as a terminal shows it, `picture.png` the picture that the jobs rendered, at half its
size. The summary's text goes to standard output, for the README. Results are named `demo-results`, wherever they were.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from examples.demo.png import Image, read_png, write_png
from examples.demo.report import DemoReport, read_report
from examples.demo.summary import WIDTH, summary_text, summary_view
from msgspec.structs import replace
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RESULTS = Path("demo-results")


def main() -> int:
    """Read the report named on the command line and write both images."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    report = read_report(text)
    picture = report.composition.picture if report.composition else None
    if picture is None or picture.path is None:
        sys.exit("The report has no picture.")
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "demo.svg").write_text(drawing(moved(report)), encoding="utf-8")
    (IMAGES / "picture.png").write_bytes(write_png(halved(read_png(picture.path.read_bytes()))))
    sys.stdout.write(summary_text(moved(report)))
    return 0


def moved(report: DemoReport) -> DemoReport:
    """The report with its results at RESULTS."""
    composition = report.composition
    if composition is not None and composition.picture is not None:
        picture = replace(composition.picture, path=RESULTS / "picture.png")
        composition = replace(composition, picture=picture)
    return replace(report, composition=composition, results=RESULTS)


def drawing(report: DemoReport) -> str:
    """The summary as a terminal window, without addresses of fonts on the network."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(summary_view(report))
    svg = console.export_svg(title="./demo", unique_id="demo")
    plain = re.sub(r"\s*@font-face\s*\{[^}]*\}", "", svg)
    return "\n".join(line.rstrip() for line in plain.splitlines()) + "\n"


def halved(image: Image) -> Image:
    """Each pixel the mean of four."""
    width, height = image.width // 2, image.height // 2
    row = 3 * image.width
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            corner = 2 * y * row + 6 * x
            for colour in range(corner, corner + 3):
                four = (colour, colour + 3, colour + row, colour + row + 3)
                pixels.append(sum(image.pixels[place] for place in four) // 4)
    return Image(width=width, height=height, pixels=bytes(pixels))


if __name__ == "__main__":
    sys.exit(main())
