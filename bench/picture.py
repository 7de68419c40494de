"""How far each figure reached its target, as bars on a logarithmic scale: SVG, or PNG without letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.figures import Figure, shown
from examples.demo.png import Image, write_png

LEFT, BARS, RIGHT, LINE, TOP = 430, 420, 190, 22, 46
LOW, HIGH = 0.1, 10.0
MET, MISSED = "#2e7d32", "#c62828"


def place(reached: float) -> float:
    """Where a bar ends, as a part of the width: a tenth of the target is 0, the target 0.5, ten times 1."""
    clipped = min(max(reached, LOW), HIGH)
    return math.log(clipped / LOW) / math.log(HIGH / LOW)


def svg(figures: Sequence[Figure], title: str) -> str:
    """The picture as SVG."""
    shown_figures = [figure for figure in figures if figure.reached is not None]
    height = TOP + LINE * len(shown_figures) + 30
    width = LEFT + BARS + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        "<style>text { font-family: sans-serif }</style>",
        f'<text x="12" y="24" font-size="16">{escape(title)}</text>',
    ]
    for mark in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        x = LEFT + BARS * place(mark)
        colour = "#000" if mark == 1 else "#ddd"
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP}" y2="{height - 24}" stroke="{colour}"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{height - 8}" text-anchor="middle" font-size="11">{mark:g} x</text>'
        )
    parts += [_bar(figure, TOP + LINE * k) for k, figure in enumerate(shown_figures)]
    return "\n".join([*parts, "</svg>", ""])


def _bar(figure: Figure, y: int) -> str:
    reached = figure.reached or 0.0
    colour = MET if figure.met else MISSED
    text = f"{shown(figure.value)} {figure.unit} ({reached:.2f} x)"
    return (
        f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(figure.what)}</text>'
        f'<rect x="{LEFT}" y="{y + 3}" height="{LINE - 6}" width="{BARS * place(reached):.0f}" fill="{colour}"/>'
        f'<text x="{LEFT + BARS + 8}" y="{y + 15}">{escape(text)}</text>'
    )


def png(figures: Sequence[Figure]) -> bytes:
    """The bars alone; the names are in the file's text chunks, top first."""
    drawn = [figure for figure in figures if figure.reached is not None]
    rows, white, line = [], b"\xff" * 3, b"\x00" * 3
    for figure in drawn:
        filled = round(BARS * place(figure.reached or 0.0))
        colour = bytes.fromhex((MET if figure.met else MISSED)[1:])
        row = bytearray(colour * filled + white * (BARS - filled))
        row[3 * (BARS // 2) : 3 * (BARS // 2) + 3] = line
        gap = bytearray(white * BARS)
        gap[3 * (BARS // 2) : 3 * (BARS // 2) + 3] = line
        rows += [bytes(gap)] * 3 + [bytes(row)] * (LINE - 6) + [bytes(gap)] * 3
    texts = {f"Bar {k + 1}": f"{f.what}: {shown(f.value)} {f.unit}" for k, f in enumerate(drawn)}
    return write_png(Image(width=BARS, height=len(rows), pixels=b"".join(rows), texts=texts))


def draw(figures: Sequence[Figure], path: Path, title: str) -> None:
    """Write the picture in the form that the file's name asks for. Raises ValueError for an unknown form."""
    if path.suffix == ".svg":
        path.write_text(svg(figures, title))
    elif path.suffix == ".png":
        path.write_bytes(png(figures))
    else:
        raise ValueError(f"a picture ends in .svg or .png, not {path.suffix or 'nothing'}")
