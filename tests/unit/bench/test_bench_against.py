"""Two commits in turn: ratios of pairs, CPU time for each operation, a row that fails on one side, nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import against
from bench.against import Side, checkout, compare, play

BENCH = """
import json, pathlib, sys
words = sys.argv
row, report = words[words.index("--only") + 1], words[words.index("--json") + 1]
if row == "broken":
    sys.exit(1)
pathlib.Path(report).write_text(json.dumps({"figures": [FIGURE]}))
"""


def figure(value, **more):
    return {"row": "claims", "unit": "/s", "value": value, "details": {}, **more}


def test_the_ratio_is_the_median_of_the_pairs():
    new = [
        figure(value, cpu_us={"hot": cpu, "background": 2.0}) for value, cpu in ((10, 50), (30, 60), (20, 70))
    ]
    old = [figure(value, cpu_us={"hot": 100.0, "background": 1.0}) for value in (10, 10, 10)]
    pairs = [({"claims": one}, {"claims": other, "gone": other}) for one, other in zip(new, old, strict=True)]
    assert compare(pairs) == [("claims", "20.0 /s", "10.0 /s", "2.00", "60.0 / 100", "0.60", "2.00 / 1.00")]


def test_an_older_benchmark_counts_its_cores_for_each_operation():
    old = figure(1_000, details={"server_cores": 0.5, "background_cores": 0.1})
    new = figure(1_000, cpu_us={"hot": 250.0})
    assert compare([({"claims": new}, {"claims": old})])[0][4:] == ("250 / 500", "0.50", "- / 100")
    late = {**figure(3.0, details={"server_cores": 0.5}), "unit": "ms"}
    assert compare([({"claims": late}, {"claims": late})])[0][4:] == ("- / -", "-", "- / -")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository of two commits, whose benchmark says 10 and then 20."""
    root = tmp_path / "tree"
    for folder in ("bench", "requirements"):
        (root / folder).mkdir(parents=True)
    for name in against.LOCKS:
        (root / "requirements" / name).write_text("")
    names = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    git = lambda *words: subprocess.run(  # noqa: E731
        ["git", *words], cwd=root, check=True, env={**os.environ, **names}
    )
    git("init", "-q")
    for value in (10, 20):
        (root / "bench" / "run.py").write_text(BENCH.replace("FIGURE", json.dumps(figure(value))))
        git("add", ".")
        git("commit", "-q", "-m", f"{value}")
    monkeypatch.setattr(against, "ROOT", root)
    return root


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.slow
def test_each_commit_plays_by_its_own_benchmark_and_nothing_is_left(tree, tmp_path, capsys):
    home = tmp_path / "home"
    home.mkdir()
    with checkout("HEAD~1", home) as (that, data):
        assert that.python == Path(sys.executable)
        failed = play(["claims", "broken"], 2, [], that, data)
    assert failed == ["broken (this tree)", "broken (HEAD~1)"]
    assert "claims | 20.0 /s | 10.0 /s | 2.00" in capsys.readouterr().out
    assert list(home.iterdir()) == []
    status = subprocess.run(["git", "worktree", "list"], cwd=tree, check=True, capture_output=True, text=True)
    assert len(status.stdout.splitlines()) == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_unknown_commit_is_refused_and_nothing_is_left(tree, tmp_path):
    with pytest.raises(ValueError, match="rev-parse"), checkout("nowhere", tmp_path):
        pass
    assert list(tmp_path.glob("bench-against-*")) == []


def test_a_run_that_is_interrupted_ends_its_benchmark(tmp_path, monkeypatch):
    ended = tmp_path / "ended"
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "run.py").write_text(
        f"import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(open({str(ended)!r}, 'w').close()))\n"
        f"open({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(60)\n"
    )

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is None and not ended.exists():
                while not (tmp_path / "begun").exists():
                    pass
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(against.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Side(name="x", root=tmp_path, python=Path(sys.executable)).play("row", [], tmp_path)
    assert ended.exists()
