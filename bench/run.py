"""The benchmark: `python bench/run.py [--quick | --smoke] [--only ROW...] [--json FILE] [--picture FILE]`.

What the rows mean: docs/benchmarks.md.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.path[:1] = [str(root), str(root / "src")]
    sys.exit(runpy.run_module("bench.suite")["main"]())
