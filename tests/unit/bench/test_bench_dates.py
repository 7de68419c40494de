"""docs/benchmarks.md says of each table of figures when it was measured, and at which commit."""

from __future__ import annotations

import re
from pathlib import Path

DATED = re.compile(
    r"^\*\*[0-9]{1,2}(?: and [0-9]{1,2})? [A-Z][a-z]+ 20[0-9]{2}, commits? [0-9a-f]{8}", re.MULTILINE
)


def test_each_table_of_figures_has_its_date_and_commit():
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    measured = text.partition("\n## Measured\n")[2]
    parts = re.split(r"^\|---.*$", measured, flags=re.MULTILINE)
    assert len(parts) > 4
    lacking = [part.rstrip().splitlines()[-1] for part in parts[:-1] if not DATED.search(part)]
    assert lacking == []
