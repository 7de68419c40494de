"""The token and the server's address: where they come from, and what is refused."""

import pytest

from lodesman.base.errors import InvalidConfig, Unauthorized
from lodesman.user.access import DEFAULT_SERVER
from lodesman.user.access.tokens import find_server, find_token, read_token, user_token_file


def write(path, text="secret", mode=0o600):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home")}


def test_a_named_file_beats_all_else(tmp_path, environ):
    named = write(tmp_path / "named", "from-file\n")
    environ["LODE_TOKEN"] = "from-environment"
    assert find_token(named, environ, tmp_path) == "from-file"


def test_then_the_environment_then_the_user_then_the_server_here(tmp_path, environ):
    here = tmp_path / "here"
    write(here / "lode-data" / "admin.token", "of-server")
    assert find_token(None, environ, here) == "of-server"
    write(user_token_file(environ), "of-user")
    assert find_token(None, environ, here) == "of-user"
    environ["LODE_TOKEN"] = " of-environment "
    assert find_token(None, environ, here) == "of-environment"


@pytest.fixture
def local(tmp_path):
    """A folder with the token of a server that was run from it."""
    write(tmp_path / "lode-data" / "admin.token", "of-server")
    return tmp_path


def test_the_address_is_that_of_the_server_run_from_here_else_the_usual_one(local, environ):
    told = local / "lode-data" / "run" / "url"
    assert find_server(None, environ, local) == DEFAULT_SERVER
    write(told, "http://127.0.0.1:4711\n")
    assert find_server(None, environ, local) == "http://127.0.0.1:4711"
    write(told, "\n")
    assert find_server(None, environ, local) == DEFAULT_SERVER


@pytest.mark.parametrize("place", ["none", "named", "environment", "user"])
def test_an_address_that_is_found_gets_only_the_token_beside_it(local, environ, place):
    """A file of that name may come with the output of any job."""
    write(local / "lode-data" / "run" / "url", "http://127.0.0.1:4711\n")
    named = write(local / "named", "of-file") if place == "named" else None
    if place == "environment":
        environ["LODE_TOKEN"] = "of-environment"
    elif place == "user":
        write(user_token_file(environ), "of-user")
    elif place == "none":
        (local / "lode-data" / "admin.token").unlink()
    assert find_server(named, environ, local) == DEFAULT_SERVER


def test_an_address_that_others_could_have_written_is_not_taken(local, environ):
    """The token goes to where it names."""
    told = write(local / "lode-data" / "run" / "url", "http://127.0.0.1:4711\n", mode=0o666)
    assert find_server(None, environ, local) == DEFAULT_SERVER
    told.unlink()
    told.symlink_to(write(local / "elsewhere", "http://127.0.0.1:4711\n"))
    assert find_server(None, environ, local) == DEFAULT_SERVER


def test_without_a_token_the_error_names_its_file(tmp_path, environ):
    with pytest.raises(Unauthorized) as caught:
        find_token(None, environ, tmp_path)
    assert str(user_token_file(environ)) in str(caught.value)
    assert "lode token issue" in str(caught.value)
    assert "lode server" in str(caught.value)


def test_the_users_file_follows_xdg(tmp_path, environ):
    assert user_token_file({**environ, "XDG_CONFIG_HOME": "/cfg"}).as_posix() == "/cfg/lodesman/token"
    assert user_token_file({**environ, "XDG_CONFIG_HOME": "relative"}) == user_token_file(environ)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused(tmp_path, mode):
    with pytest.raises(InvalidConfig, match="chmod 600"):
        read_token(write(tmp_path / "token", mode=mode))


def test_a_foreign_or_open_token_lying_about_is_not_taken(tmp_path, environ):
    open_to_all = write(tmp_path / "lode-data" / "admin.token", mode=0o644)
    with pytest.raises(Unauthorized) as refused:
        find_token(None, environ, tmp_path)
    assert f"chmod 600 {open_to_all}" in refused.value.hint
    (tmp_path / "lode-data" / "admin.token").unlink()
    (tmp_path / "lode-data" / "admin.token").symlink_to(write(tmp_path / "elsewhere"))
    with pytest.raises(Unauthorized):
        find_token(None, environ, tmp_path)


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\nb", "caf\u00e9", "\x1b[31m", "x" * 5_000])
def test_what_holds_no_token(tmp_path, text):
    with pytest.raises(InvalidConfig, match="holds no token"):
        read_token(write(tmp_path / "token", text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidConfig, match="nowhere cannot be read: No such file"):
        read_token(tmp_path / "nowhere")


def test_the_token_is_sent_and_never_taken_as_an_argument(at, server):
    used = {"files": 0, "bytes": 0, "limit": None}
    me = {"name": "ann", "vo": "lab", "groups": ["physics"], "scopes": [], "admin": False, "inputs": used}
    server.on("GET", "/v1/me", me)
    assert at("whoami").code == 0
    assert server.asked[-1].headers["Authorization"] == "Bearer token-of-ann"
    result = at("--token", "x", "whoami")
    assert result.code == 2
    assert "No such option" in result.err


@pytest.mark.parametrize(
    "address", ["http://example.org", "http://192.0.2.7:7777", "http://[2001:db8::1]:80"]
)
def test_a_token_does_not_travel_in_the_clear(lode, address):
    result = lode("--server", address, "status")
    assert result.code == 1
    assert "in the clear" in result.err
    assert "https" in result.err


@pytest.mark.parametrize("address", ["ftp://x", "localhost:7777", "http://", "http://a b", "http://u@h", ""])
def test_an_unusable_address_is_refused(lode, address):
    result = lode("--server", address, "status")
    assert result.code == 1
    assert result.err.startswith("lode: ")
    assert result.err.count("\n") == 1


def test_one_of_several_servers_is_enough(lode, server, home):
    server.on("GET", "/v1/sites", {"sites": []})
    result = lode("--server", f"http://127.0.0.1:1,{server.url}", "site", "ls", "--json")
    assert (result.code, result.json) == (0, {"sites": [], "closed": [], "more": False, "cursor": ""})


def test_the_environment_names_the_server(lode, server, monkeypatch):
    monkeypatch.setenv("LODE_SERVER", server.url)
    server.on("GET", "/v1/sites", {"sites": []})
    assert lode("site", "ls", "--json").json == {"sites": [], "closed": [], "more": False, "cursor": ""}
