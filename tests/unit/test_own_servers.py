"""Servers of this account: how they note themselves, which notes are believed, and what is used of them."""

import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from lodesman.base.errors import Conflict, Unauthorized
from lodesman.base.own_servers import RunningServer, notes_folder, running_servers
from lodesman.server.main.server_note import note_server
from lodesman.user.access import DEFAULT_SERVER
from lodesman.user.access.caller import Caller
from lodesman.user.access.tokens import find_server, find_token, user_token_file

URL = "http://127.0.0.1:4711"


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def serve(tmp_path, environ):
    """A function that makes the data of a server, and notes that this process serves it."""

    def make(name="grid", url=URL):
        data = tmp_path / name / "lode-data"
        (data / "run").mkdir(parents=True)
        data.chmod(0o700)
        for file, text in ((data / "run" / "url", url), (data / "admin.token", f"of-{name}")):
            file.write_text(f"{text}\n")
            file.chmod(0o600)
        return data, note_server(data, environ)

    return make


def test_a_server_is_found_from_any_folder(tmp_path, environ, serve):
    data, _ = serve()
    assert running_servers(environ) == [RunningServer(URL, data)]
    assert (find_server(None, environ, tmp_path), find_token(None, environ, tmp_path)) == (URL, "of-grid")


def test_a_note_is_private_and_names_no_token(environ, serve):
    _, note = serve()
    assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert note.parent == notes_folder(environ)
    assert set(json.loads(note.read_text())) == {"data", "process", "start", "boot"}


def test_what_a_user_says_wins(tmp_path, environ, serve):
    serve()
    here = tmp_path / "here"
    (here / "lode-data").mkdir(parents=True)
    token = here / "lode-data" / "admin.token"
    token.write_text("of-here")
    token.chmod(0o600)
    assert (find_server(None, environ, here), find_token(None, environ, here)) == (DEFAULT_SERVER, "of-here")
    named = environ | {"LODE_TOKEN": "mine"}
    assert (find_server(None, named, tmp_path), find_token(None, named, tmp_path)) == (DEFAULT_SERVER, "mine")
    own = user_token_file(environ)
    own.parent.mkdir(parents=True)
    own.write_text("of-user")
    own.chmod(0o600)
    assert (find_server(None, environ, tmp_path), find_token(None, environ, tmp_path)) == (
        DEFAULT_SERVER,
        "of-user",
    )


def test_its_token_goes_to_no_other_server(tmp_path, environ, serve):
    serve()
    assert find_token(None, environ, tmp_path, server=f"{URL}/") == "of-grid"
    with pytest.raises(Unauthorized) as refused:
        find_token(None, environ, tmp_path, server="https://elsewhere.example.org")
    assert URL in refused.value.hint


def test_a_programs_token_goes_to_no_address_that_is_found(tmp_path, environ, serve, monkeypatch):
    data, _ = serve()
    for name, value in (environ | {"XDG_STATE_HOME": "", "LODE_TOKEN": "", "XDG_CONFIG_HOME": ""}).items():
        monkeypatch.setenv(name, value)
    for folder in (tmp_path, data.parent):
        monkeypatch.chdir(folder)
        assert (Caller(token="of-program").address, Caller().address) == (DEFAULT_SERVER, URL)


def test_of_several_one_must_be_named(tmp_path, environ, serve):
    serve()
    other, note = serve("other", "http://127.0.0.1:4712")
    for find in (find_server, find_token):
        with pytest.raises(Conflict) as refused:
            find(None, environ, tmp_path)
        said = str(refused.value)
        assert all(
            word in said for word in (URL, "http://127.0.0.1:4712", str(other), "--server", "LODE_SERVER")
        )
    assert find_token(None, environ, tmp_path, server="http://127.0.0.1:4712") == "of-other"
    note.unlink()
    assert find_server(None, environ, tmp_path) == URL


@pytest.mark.parametrize(
    "changed",
    [
        {"start": "1"}, {"start": ""}, {"start": None}, {"boot": "another"}, {"process": 0}, {"process": -1},
        {"process": True}, {"process": "1"}, {"process": 1 << 70}, {"data": "relative"}, {"data": 7}, {"data": "a\0b"},
    ],
)  # fmt: skip
def test_a_note_that_is_not_of_a_running_process_is_not_believed(environ, serve, changed):
    _, note = serve()
    note.write_text(json.dumps(json.loads(note.read_text()) | changed))
    assert running_servers(environ) == []


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "\xff", "[" * 5_000])
def test_a_damaged_note_says_nothing(environ, serve, text):
    _, note = serve()
    note.write_text(text, encoding="latin-1")
    assert running_servers(environ) == []


def test_the_note_of_a_server_that_was_killed_is_not_believed(environ, serve):
    data, note = serve()
    note.unlink()
    code = (
        "import os, sys; from pathlib import Path; from lodesman.server.main.server_note import note_server;"
    )
    code += "note_server(Path(sys.argv[1]), os.environ); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:  # fmt: skip
        watch = threading.Timer(60.0, process.kill)
        watch.start()
        assert process.stdout is not None
        process.stdout.readline()
        assert running_servers(environ) == [RunningServer(URL, data)]
        process.kill()
        process.wait()
        watch.cancel()
    assert note.exists()
    assert running_servers(environ) == []


@pytest.mark.parametrize("place", ["note", "folder", "data", "url", "token"])
def test_what_others_could_have_written_or_read_is_not_used(tmp_path, environ, serve, place):
    data, note = serve()
    path, mode = {
        "note": (note, 0o640), "folder": (note.parent, 0o770), "data": (data, 0o750),
        "url": (data / "run" / "url", 0o622), "token": (data / "admin.token", 0o644),
    }[place]  # fmt: skip
    path.chmod(mode)
    assert find_server(None, environ, tmp_path) == DEFAULT_SERVER
    with pytest.raises(Unauthorized):
        find_token(None, environ, tmp_path)


def test_what_belongs_to_another_account_is_not_used(environ, serve, monkeypatch):
    serve()
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    assert running_servers(environ) == []


def test_a_process_of_another_account_is_not_believed(environ, serve, monkeypatch):
    serve()

    def refuse(_pid, _number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert running_servers(environ) == []


def test_a_link_is_no_note(environ, serve):
    _, note = serve()
    note.rename(note.parent.parent / "elsewhere")
    note.symlink_to(note.parent.parent / "elsewhere")
    assert running_servers(environ) == []


def test_an_account_without_a_place_has_no_note_and_its_log_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    assert note_server(tmp_path, {"XDG_STATE_HOME": "/dev/null/x"}) is None
    (said,) = caplog.messages
    assert said.startswith("commands in other folders do not find this server: its note cannot be written (")
    assert running_servers({"XDG_STATE_HOME": "/dev/null/x"}) == []
    assert notes_folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == notes_folder({"HOME": "/h"})
