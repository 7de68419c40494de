"""Another commit beside this one: both play each row in turn, each with its own benchmark.

What was made for it is removed at the end, also by Ctrl-C.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import shown
from bench.stats import median

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("runtime.txt", "dev.txt")
SET_UP = 'root=$1 && . "$root/scripts/setup.sh" && set_up dev'
END_SECONDS = 90.0
HEAD = ("row", "this", "that", "ratio", "hot us this / that", "ratio", "background us this / that")
PROCESSES = ("hot", "background")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A tree, and the Python that has what it needs."""

    name: str
    root: Path
    python: Path

    def play(self, row: str, options: Sequence[str], home: Path) -> dict[str, dict[str, Any]] | None:
        """The figures of a row, by name; None if it fails there."""
        report = home / "figures.json"
        report.unlink(missing_ok=True)
        command = [str(self.python), "bench/run.py", "--only", row, "--samples", "1", "--json", str(report),
                   "--home", str(home), *options]  # fmt: skip
        with subprocess.Popen(
            command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as run:
            try:
                run.wait()
            except BaseException:
                run.terminate()  # it stops its servers
                run.wait(END_SECONDS)
                raise
        figures = json.loads(report.read_text())["figures"] if report.exists() else []
        return {one["row"]: one for one in figures} or None


@contextmanager
def checkout(commit: str, home: Path | None) -> Iterator[tuple[Side, Path]]:
    """The tree of a commit, and a folder for databases. Raises ValueError if there is no such commit."""
    with tempfile.TemporaryDirectory(prefix="bench-against-", dir=home) as folder:
        root = Path(folder) / "that"
        _run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(root)])
        _run(["git", "-C", str(root), "checkout", "-q", "--detach", _full(commit)])
        same = all(_lock(root, name) == _lock(ROOT, name) for name in LOCKS)
        if not same:
            _run(["sh", "-c", SET_UP, "sh", str(root)])
        python = Path(sys.executable) if same else root / ".venv" / "bin" / "python"
        data = Path(folder) / "data"
        data.mkdir()
        yield Side(name=commit, root=root, python=python), data


def play(rows: Sequence[str], turns: int, options: Sequence[str], that: Side, data: Path) -> list[str]:
    """Print a line for each figure of each row; the rows that fail on one side, with its name."""
    sides = (Side(name="this tree", root=ROOT, python=Path(sys.executable)), that)
    failed = []
    print(" | ".join(HEAD), flush=True)
    for row in rows:
        pairs = []
        for _ in range(turns):
            played = {side.name: side.play(row, options, data) for side in sides}
            lacking = [name for name, figures in played.items() if figures is None]
            failed += [f"{row} ({name})" for name in lacking]
            if lacking:
                break
            pairs.append((played[sides[0].name] or {}, played[that.name] or {}))
        for line in compare(pairs):
            print(" | ".join(line), flush=True)
    return failed


def compare(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """One line for each figure that both sides have in all turns: medians, and the medians of the ratios of pairs. Pure."""
    if not pairs:
        return []
    names = [name for name in pairs[0][0] if all(name in ours and name in theirs for ours, theirs in pairs)]
    return [_line(name, [(ours[name], theirs[name]) for ours, theirs in pairs]) for name in names]


def _line(name: str, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> tuple[str, ...]:
    unit = pairs[0][0]["unit"]
    values = [(ours["value"], theirs["value"]) for ours, theirs in pairs]
    hot, background = (
        [(cpu_us(ours, one), cpu_us(theirs, one)) for ours, theirs in pairs] for one in PROCESSES
    )
    medians = [f"{shown(median(side))} {unit}" for side in zip(*values, strict=True)]
    return (name, *medians, _ratio(values), _both(hot), _ratio(hot), _both(background))


def cpu_us(figure: Mapping[str, Any], process: str) -> float | None:
    """Microseconds for each operation; of benchmarks before 1 December 2026 by their cores and rate."""
    if figure.get("cpu_us"):
        return float(figure["cpu_us"][process]) if process in figure["cpu_us"] else None
    cores = figure["details"].get({"hot": "server_cores"}.get(process, f"{process}_cores"))
    is_rate = figure["unit"].endswith("/s")
    return 1e6 * cores / figure["value"] if cores is not None and is_rate and figure["value"] else None


def _both(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    sides = ([one for one in side if one is not None] for side in zip(*pairs, strict=True))
    return " / ".join(shown(median(side)) if side else "-" for side in sides)


def _ratio(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
    return f"{median(ratios):.2f}" if ratios else "-"


def _lock(root: Path, name: str) -> bytes:
    return (root / "requirements" / name).read_bytes()


def _full(commit: str) -> str:
    return _run(["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]).strip()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if done.returncode:
        raise ValueError(f"{' '.join(command)} failed")
    return done.stdout
