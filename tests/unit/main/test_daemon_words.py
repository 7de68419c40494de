"""`python -m lodesman.server.main`: exactly these words, everything else is a usage error."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.server.main import __main__ as program


@pytest.fixture
def said(monkeypatch, capsys):
    """Run with these words; returns (exit code, what was started, standard error)."""

    def run(*words):
        started = []
        monkeypatch.setattr(sys, "argv", ["lodesman.server.main", *words])
        monkeypatch.setattr(program, "start_logging", lambda _name: None)
        monkeypatch.setattr(program, "heed_hang_up", lambda _end: None)
        monkeypatch.setattr(
            "lodesman.server.config.load_config", lambda path, overrides: ("config", path, overrides)
        )
        monkeypatch.setattr(
            "lodesman.server.main.background.run_background",
            lambda load, kept: started.append((load(), kept)),
        )
        monkeypatch.setattr(
            "lodesman.server.main.server.run_server",
            lambda config, arguments, _load: started.append((config, arguments)),
        )
        try:
            code = program.main()
        except SystemExit as ended:
            code = ended.code
        return code, started, capsys.readouterr().err

    return run


def test_a_server_gets_its_configuration_and_hands_its_words_on(said):
    words = ["--config", "lode.toml", "--set", "server.port=0", "--set", 'pilots.python="py=3"']
    code, started, _ = said("server", *words)
    overrides = {"server": {"port": 0}, "pilots": {"python": "py=3"}}
    assert (code, started) == (0, [(("config", Path("lode.toml"), overrides), words)])


def test_a_background_process_gets_what_was_kept(said):
    code, started, _ = said("background", "--kept", "kept.json", "--set", "server.port=1")
    assert (code, started) == (0, [(("config", None, {"server": {"port": 1}}), Path("kept.json"))])
    assert said("background")[1] == [(("config", None, {}), None)]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("",),
        ("--help",),
        ("serve",),
        ("Server",),
        ("server", "now"),
        ("server", "--port", "7"),
        ("server", "--config"),
        ("server", "--set", "server.port"),
        ("server", "--set", "port=7"),
        ("server", "--set", ".port=7"),
        ("server", "--set", "server.=7"),
        ("background", "--kept"),
    ],
)
def test_other_words_start_nothing(said, words):
    code, started, told = said(*words)
    assert (code, started) == (2, [])
    assert "usage: python -m lodesman.server.main server|background" in told


def test_a_value_that_is_no_json_is_a_fault_of_the_configuration(said):
    code, started, told = said("server", "--set", "server.port=seven")
    assert (code, started) == (1, [])
    assert "usage" not in told
    with pytest.raises(InvalidConfig, match="is not JSON"):
        program.parse(["server", "--set", "server.port=seven"])


# A signal comes as soon as a module is looked for that takes long to load.
START = """
    import os, signal, sys
    class Signal:
        def find_spec(self, name, *_):
            if name == {module!r}:
                os.kill(os.getpid(), {signum})
    sys.meta_path.insert(0, Signal())
    sys.argv[:] = {words!r}
    {run}
"""
WAYS = {
    "service": ("from lodesman.server.main.__main__ import main; sys.exit(main())", "server"),
    "background": ("from lodesman.server.main.__main__ import main; sys.exit(main())", "background"),
    "command": ("from lodesman.user.cli import main; sys.exit(main())", "server"),
}


def started_with(signum, way, module):
    """A start without a terminal that gets this signal; it ends by itself, since its configuration is missing."""
    run, process = WAYS[way]
    words = ["lode", process, "--config", "/nowhere/lode.toml"]
    script = textwrap.dedent(START.format(module=module, signum=int(signum), words=words, run=run))
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("way", "module"), [
    ("service", "lodesman.server.config"), ("background", "lodesman.server.config"), ("command", "lodesman.user.cli.root"),
])  # fmt: skip
def test_signals_in_the_first_second_of_a_start(way, module):
    hung_up = started_with(signal.SIGHUP, way, module)
    assert "/nowhere/lode.toml" in hung_up.stderr, "it goes on to its end"
    assert "Traceback" not in hung_up.stderr
    interrupted = started_with(signal.SIGINT, way, module)
    assert interrupted.returncode == (130 if way == "command" else 0)
    assert interrupted.stderr in ("", "lode: interrupted\n")
