"""The end of every call: exit codes, errors as one sentence, help, and nothing heavy at the start."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest

from lodesman.base import errors
from lodesman.server.store.incarnation import DatabaseLost
from lodesman.user.access.caller import RETRY_ROUNDS
from lodesman.user.cli import faults, root
from lodesman.user.cli.catalog import COMMANDS
from lodesman.wire.client import Aborted

SOURCE = str(Path(root.__file__).parents[3])
LODE = "import sys; from lodesman.user.cli import main; sys.exit(main())"


def run_process(*arguments, code=LODE, **more):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LODE_")}
    environ |= {"PYTHONPATH": SOURCE, **more}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        check=False,
    )


def test_version_and_help(lode):
    assert lode("--version").out.startswith("lode 0.")
    help_text = lode("--help").out
    for title in root.SECTIONS:
        assert f"{title}:" in help_text
    assert "Exit codes:" in help_text
    assert "lode submit hello.jdl" in help_text
    assert lode("-h").out == help_text


def test_every_command_stands_in_a_section():
    context = click.Context(root.lode)
    for names in root.SECTIONS.values():
        for name in names:
            assert root.lode.get_command(context, name).name == name


def test_no_arguments_show_the_help_and_are_no_success(lode):
    result = lode()
    assert result.code == 2
    assert "Examples:" in result.err


@pytest.mark.parametrize(
    "arguments",
    [["nosuch"], ["status", "--nosuch"], ["kill"], ["why", "x"], ["why", "1-5"], ["status", "5-1"], ["--server"],
     ["status", "--state", "Odd"], ["submit", "-", "-"], ["token", "issue", "x", "--scope", "all"]],
)  # fmt: skip
def test_wrong_usage_is_one_line_that_names_the_help(lode, arguments):
    result = lode(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("lode: ")
    assert result.err.endswith("--help\n")
    assert result.err.count("\n") == 1


def test_words_of_other_systems_are_answered_with_the_command_here(lode):
    context = click.Context(root.lode)
    for word, here in root._ELSEWHERE.items():
        assert word not in COMMANDS
        assert here.startswith("--") or root.lode.get_command(context, here.split()[0])
    said = "lode: No such command 'scancel'. Did you mean lode kill? See: lode --help\n"
    assert (lode("scancel", "5").code, lode("scancel", "5").err) == (2, said)
    assert lode("pilot", "log", "1").err.startswith("lode: No such command 'log'. Did you mean 'logs'? See:")
    assert (
        "'--sit'. Did you mean one of: '--set', '--site', '--wait'? See:" in lode("submit", "--sit", "x").err
    )


def test_hostile_arguments_do_not_steer_the_terminal(lode):
    result = lode("\x1b[2Jevil")
    assert "\x1b" not in result.err
    assert result.code == 2


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "unauthorized", 4),
        (403, "forbidden", 4),
        (404, "not-found", 3),
        (409, "conflict", 6),
        (400, "invalid-request", 1),
        (413, "too-large", 1),
        (422, "impossible", 1),
        (500, "odd", 1),
    ],
)
def test_errors_of_the_server_have_their_exit_code(at, server, status, code, expected):
    server.refuse("GET", "/v1/sites", status, code=code, message="It is so.", hint="Do that.")
    result = at("site", "ls")
    assert (result.code, result.out, result.err) == (expected, "", "lode: It is so. Do that.\n")


def test_every_exit_code_in_the_table_is_an_error_that_exists():
    def codes(kind):
        yield kind.code
        for child in kind.__subclasses__():
            yield from codes(child)

    # This one is of the store, which no command of a user imports.
    assert set(faults.BY_CODE) <= {*codes(errors.LodesmanError), Aborted.code, DatabaseLost.code}


def test_with_json_errors_are_json_too(at, server):
    server.refuse("GET", "/v1/sites", 404, code="not-found", message="It is not there.", data={"x": 1})
    result = at("site", "ls", "--json")
    error = json.loads(result.err)["error"]
    assert (result.code, result.out) == (3, "")
    assert (error["code"], error["message"], error["data"]["x"]) == ("not-found", "It is not there.", 1)


def test_a_server_that_is_not_there(lode):
    result = lode("--server", "http://127.0.0.1:1", "site", "ls")
    assert result.code == 5
    assert "does not answer" in result.err
    assert "lode server" in result.err


def test_what_only_reads_was_not_carried_out(lode):
    """A server that speaks TLS hangs up on who does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            for _ in range(RETRY_ROUNDS):
                with listener.accept()[0] as client:
                    client.recv(65_536)

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        result = lode("--server", f"http://127.0.0.1:{listener.getsockname()[1]}", "site", "ls")
        thread.join(30)
    assert result.code == 5
    assert "carried out" not in result.err
    assert result.err.endswith("The server there may want https.\n")


def test_an_answer_that_is_not_ours(at, server):
    server.on("GET", "/v1/sites", b"<html>hello</html>")
    result = at("site", "ls")
    assert result.code == 1
    assert "is not a Lodesman server" in result.err


def test_the_servers_words_do_not_steer_the_terminal(at, server):
    server.refuse("GET", "/v1/sites", 404, code="not-found", message="\x1b]0;x\x07\nlode: all is well")
    result = at("site", "ls")
    assert "\x1b" not in result.err
    assert result.err.count("\n") == 1


def test_a_local_error_names_the_file(lode, home):
    home.chmod(0o700)
    (home / "file").write_text("")
    result = lode("init", home / "file" / "below")
    assert result.code == 1
    assert result.err.startswith("lode: ")
    assert "file" in result.err


def test_a_local_error_is_json_where_json_was_asked_for(at, server, home):
    server.on("POST", "/v1/tokens", {"token": "secret"})
    (home / "file").write_text("")
    result = at("token", "issue", "ann", "--output", "file/below", "--json")
    assert result.code == 1
    error = json.loads(result.err)["error"]
    assert error["code"] == "system"
    assert "file" in error["message"]


def test_debug_shows_where_an_error_arose(at, server, monkeypatch):
    monkeypatch.setenv("LODE_DEBUG", "1")
    server.refuse("GET", "/v1/sites", 404, code="not-found", message="It is so.")
    with pytest.raises(errors.NotFound):
        at("site", "ls")


@pytest.mark.slow
def test_an_unforeseen_error_is_no_traceback():
    code = LODE.replace(
        "sys.exit",
        "from lodesman.user.cli.commands import status\nstatus.fetch_submissions = lambda *_: 1 / 0\nsys.exit",
    )
    result = run_process("status", code=code, LODE_TOKEN="x")
    assert result.returncode == 1
    assert result.stderr.startswith("lode: a fault in the program: ZeroDivisionError")
    assert "Traceback" not in result.stderr
    assert "Traceback" in run_process("status", code=code, LODE_TOKEN="x", LODE_DEBUG="1").stderr


def test_interrupted(lode, monkeypatch):
    def interrupt(*_arguments, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("lodesman.user.access.caller.Caller.fetch", interrupt)
    result = lode("site", "ls")
    assert (result.code, result.err.strip()) == (130, "lode: interrupted")


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LODE, "config", "schema"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


# What every call of `lode` loads of the package, beside the packages themselves.
OF_EVERY_CALL = set(
    "base.errors user.access.caller user.access.selecting user.cli.arguments user.cli.catalog user.cli.examples "
    "user.cli.faults user.cli.root user.cli.session user.cli.tables user.cli.words wire.vocabulary".split()
)


def loaded(*arguments, **more):
    """What a call has loaded when it ends: the modules of the package without its name, and the others."""
    code = "import sys\nfrom lodesman.user.cli import main\nmain()\nprint(*sys.modules)"
    names = set(run_process(*arguments, code=code, **more).stdout.splitlines()[-1].split())
    packages = {name.rpartition(".")[0] for name in names}
    own = {name for name in names if name.startswith("lodesman.")}
    return {name.partition(".")[2] for name in own - packages}, names - own


@pytest.mark.slow
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_what_is_about_lode_itself_loads_no_command(word):
    own, others = loaded(word)
    assert own - OF_EVERY_CALL <= {"user.cli.origin"}
    assert not {"msgspec", "rich", "ctypes", "hashlib", "logging", "ssl", "http.client"} & others


@pytest.mark.slow
def test_a_submission_loads_no_types_of_other_calls(server, tmp_path):
    """Also no server, no program of pilots, and nothing that packs folders."""
    server.on(
        "POST",
        "/v1/jobs",
        {"submission": 1, "first": 1, "count": 1, "held": 0, "repeated": False, "notices": []},
    )
    (tmp_path / "hello.jdl").write_text('Executable = "/bin/true";')
    own, others = loaded("--server", server.url, "submit", str(tmp_path / "hello.jdl"), LODE_TOKEN="x")
    # Those of requests and answers about jobs, and what their types are made of.
    spoken = "call job_calls job_classes job_queries jobs nodes quotas requests vocabulary waiting why_jobs".split()
    assert {name for name in own if name.startswith("wire.") and name.count(".") == 1} == {
        f"wire.{name}" for name in spoken
    }
    assert not [name for name in own if name.startswith(("server.", "decide.", "pilot.", "site."))]
    assert not {"logging", "secrets", "tarfile", "gzip", "asyncio", "rich"} & others


def test_the_help_says_of_each_command_what_its_own_help_does():
    assert [
        (name, entry.summary)
        for name, entry in COMMANDS.items()
        if entry.load(name).get_short_help_str(90) != entry.summary
    ] == []


@pytest.mark.slow
def test_a_command_for_jobs_needs_no_server_code(server):
    server.on("GET", "/v1/submissions", {"submissions": []})
    server.on("GET", "/v1/me", {"name": "ann"})
    server.on("GET", "/v1/jobs/counts", {"counts": []})
    code = (
        "import sys\nfrom lodesman.user.cli import main\nassert main() == 0\n"
        "print([m for m in ('rich', 'httptools', 'uvloop', 'apsw', 'lodesman.languages.jobs',"
        " 'lodesman.decide.resources') if m in sys.modules])"
    )
    result = run_process("--server", server.url, "status", code=code, LODE_TOKEN="x")
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_completion_knows_commands_and_states():
    result = run_process(_LODE_COMPLETE="bash_complete", COMP_WORDS="lode rel", COMP_CWORD="1")
    assert result.stdout.strip() == "plain,release"
    result = run_process(_LODE_COMPLETE="bash_complete", COMP_WORDS="lode status --state Run", COMP_CWORD="3")
    assert result.stdout.strip() == "plain,running"


def test_a_wrong_call_is_one_plain_sentence_and_where_to_look(lode):
    missing = lode("queue", "breaker", "A/b/c")
    words = "lode: Missing argument '{open|close|auto}'. Choose from: open, close, auto. See: lode queue breaker --help\n"
    assert (missing.code, missing.err) == (2, words)
    without = lode("queue", "breaker", "A/b/c", "close")
    words = "lode: Say why: --reason, to close a breaker. See: lode queue breaker --help\n"
    assert (without.code, without.err) == (2, words)
    assert "Did you mean '--sort'? See: lode pilot ls --help\n" in lode("pilot", "ls", "--state", "x").err
