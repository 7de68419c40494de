"""The command `./demo`: its options, its help, and a place for results that cannot be written."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples.demo import run
from examples.demo.__main__ import main
from examples.demo.engines import KINDS
from examples.demo.workload import EXAMPLES, load_workload

from lodesman.base.errors import InvalidRequest, Unavailable

ROOT = Path(__file__).resolve().parents[3]


def test_the_options_reach_the_run(monkeypatch):
    calls = []

    def run_demo(**options):
        calls.append(options)
        return 1

    monkeypatch.setattr(run, "run_demo", run_demo)
    assert main(["--results", "out", "--port", "7001", "--keep", "--json", "--store", "postgresql"]) == 1
    assert main(["--backend", "all"]) == 1
    expected = {"results": Path("out"), "port": 7001, "keep": True, "as_json": True, "workload": None}
    assert calls[0] == {**expected, "store": "postgresql", "backend": "local"}
    assert calls[1]["backend"] == "all"


def test_the_run_takes_these_options():
    assert set(inspect.signature(run.run_demo).parameters) == {
        "results",
        "port",
        "keep",
        "as_json",
        "workload",
        "store",
        "backend",
    }


def test_the_help_names_the_number_of_jobs(capsys):
    workload = load_workload(EXAMPLES / "workload" / "workload.toml")
    assert main(["--help"]) == 0
    assert f"Run {workload.jobs} real jobs" in capsys.readouterr().out


def test_every_batch_system_can_be_named(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert [kind for kind in (*KINDS, "local", "all") if kind not in said] == []


def test_wrong_usage(capsys):
    assert main(["--port", "x"]) == 2
    assert "--port" in capsys.readouterr().err


@pytest.mark.slow
def test_the_script_starts_it_from_any_folder(tmp_path):
    (tmp_path / "examples").mkdir()
    command = [sys.executable, "-P", "-m", "examples.demo", "--help"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--workload FILE" in done.stdout
    assert " ".join(command[1:4]) in (ROOT / "demo").read_text()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Unavailable("No server.", hint="Wait."), 5),
        (InvalidRequest("No."), 1),
        (OSError(28, "No space", "/x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_fault_ends_it_with_a_sentence_and_an_exit_code(monkeypatch, capsys, fault, code):
    def run_demo(**_options):
        raise fault

    monkeypatch.setattr(run, "run_demo", run_demo)
    assert main([]) == code
    said = capsys.readouterr().err
    assert said.startswith("demo: ")
    assert len(said.splitlines()) == 1
    if code != 130:
        assert main(["--json"]) == code
        assert json.loads(capsys.readouterr().err)["error"]["message"] in said


@pytest.mark.parametrize("place", ["/dev/null", "/proc/no-such-place", "/dev/null/below"])
def test_results_that_cannot_be_written(place, monkeypatch):
    started = []
    monkeypatch.setattr(run, "Grid", lambda *_, **__: started.append("grid"))
    with pytest.raises(InvalidRequest, match=f"cannot be written to {place}") as refused:
        run.run_demo(results=Path(place))
    assert "--results" in refused.value.hint
    assert started == []


def test_without_a_batch_system_nothing_is_made(tmp_path, monkeypatch):
    def find_engines(backend, _note):
        raise Unavailable(f"no {backend}")

    monkeypatch.setattr(run, "find_engines", find_engines)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(Unavailable, match="no slurm"):
        run.run_demo(results=tmp_path / "results", backend="slurm")
    assert list(tmp_path.glob("lode-demo-*")) == []


def test_the_place_is_made(tmp_path):
    run._need_place(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
