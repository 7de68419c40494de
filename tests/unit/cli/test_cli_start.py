"""The first and the last moments of a call: Ctrl-C while modules load, streams that are closed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lodesman.user.cli import root

SOURCE = str(Path(root.__file__).parents[3])
CONSOLE_SCRIPT = "import sys; from lodesman.user.cli import main; sys.exit(main())"
# The import of click is interrupted: it is the first slow one.
INTERRUPTED = """
import sys
class CtrlC:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
"""


def run_shell(command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LODE_")}
    environ |= {"PYTHONPATH": SOURCE, "PYTHON": sys.executable, "LODE_TOKEN": "x", **more}
    return subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, env=environ, check=False
    )


@pytest.mark.parametrize(
    "start", [CONSOLE_SCRIPT, "import runpy; runpy.run_module('lodesman.user.cli', None, '__main__')"]
)
def test_an_interrupt_while_modules_load_is_no_traceback(start):
    result = run_shell('exec "$PYTHON" -c "$CODE" status', CODE=INTERRUPTED + start)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "lode: interrupted\n")


def test_an_interrupt_is_handled_from_the_first_moment_on():
    """The real signal, at the moment when the first of our modules is searched."""
    code = (
        INTERRUPTED.replace("raise KeyboardInterrupt", "import os; os.kill(os.getpid(), 2)") + CONSOLE_SCRIPT
    )
    result = run_shell('exec "$PYTHON" -c "$CODE" status', CODE=code)
    assert (result.returncode, result.stderr) == (130, "lode: interrupted\n")


def test_nothing_slow_is_loaded_before_an_interrupt_is_handled():
    result = run_shell(
        'exec "$PYTHON" -S -c "$CODE"', CODE="import lodesman.user.cli, sys; print(*sys.modules)"
    )
    assert "lodesman.user.cli" in result.stdout.split()
    assert not {"typing", "re", "collections", "enum", "importlib"}.intersection(result.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_fault_of_the_program(server, closed):
    server.on("GET", "/v1/submissions", {"submissions": []})
    server.on("GET", "/v1/me", {"name": "ann"})
    server.on(
        "GET", "/v1/jobs/counts", {"counts": [{"owner": "ann", "group": "g", "state": "Done", "jobs": 1}]}
    )
    server.on("GET", "/v1/sites", {"sites": [], "closed": []})
    for command in ("status", "site ls", "--help", "--version", "convert - --to jdl"):
        result = run_shell(f'"$PYTHON" -m lodesman.user.cli --server {server.url} {command} {closed}')
        assert "fault in the program" not in result.stderr
        assert "Traceback" not in result.stderr
        assert result.returncode == 0


@pytest.mark.slow
def test_a_command_that_writes_to_a_closed_stream_says_its_errors(server):
    server.refuse("GET", "/v1/sites", 404, code="not-found", message="It is so.")
    result = run_shell(f'"$PYTHON" -m lodesman.user.cli --server {server.url} site ls >&-')
    assert (result.returncode, result.stderr) == (3, "lode: It is so.\n")


# Groups take some of their commands from modules of their own.
TAKEN = {"sites": {"site_ads", "site_mask", "site_tests", "programs"}, "accounts": {"user_lists"}}


def test_no_command_imports_another():
    """What commands share stands beside their folder, so that a command loads no other one."""
    folder = Path(root.__file__).parent / "commands"
    wrong = {}
    for path in sorted(folder.glob("*.py")):
        imported = {
            node.module.rpartition(".")[2]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("lodesman.user.cli.commands.")
        }
        if others := imported - TAKEN.get(path.stem, set()):
            wrong[path.stem] = others
    assert wrong == {}
    assert len(list(folder.glob("*.py"))) > 20
