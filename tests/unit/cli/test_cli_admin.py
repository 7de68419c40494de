"""Users, tokens, the server's own commands, conversion and completion."""

import json
import re
import subprocess
import time
import tomllib

import jsonschema_rs
import msgspec
import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.config import ServerFile, load_config
from lodesman.server.main.__main__ import parse
from lodesman.user.cli import configured
from lodesman.user.cli.arguments import ParsedArgument
from lodesman.user.cli.commands.serve import LODE, sites_file

# --- users and tokens


def test_a_user_is_made(at, server):
    server.on("POST", "/v1/users", {"name": "ann"})
    result = at("user", "add", "ann", "--vo", "lab", "--group", "physics", "--group", "bio", "--admin")
    assert result.out.endswith(" lode token issue ann --admin\n")
    body = {"name": "ann", "vo": "lab", "groups": ["physics", "bio"], "admin": True}
    assert server.asked[-1].json == body
    assert at("user", "add", "ann", "--vo", "lab", "--group", "g", "--json").json == {"name": "ann"}
    assert at("user", "add", "ann", "--vo", "lab").code == 2
    plain = at("user", "add", "ann", "--vo", "lab", "--group", "g")
    assert plain.out.endswith(" lode token issue ann\n")
    server.on("POST", "/v1/users", {"name": "vera"})
    made = at("user", "add", "vera", "--vo", "lab", "--group", "g", "--vo-admin")
    assert made.out.endswith(" lode token issue vera --admin\n")
    assert server.asked[-1].json == {"name": "vera", "vo": "lab", "groups": ["g"], "vo_admin": True}


def test_who_administers_what_is_listed(at, server):
    row = {"vo": "lab", "groups": ["g"], "created_at": 0.0, "disabled_at": None, "tokens": 1}
    users = [
        {"name": "ann", "admin": False, **row}, {"name": "root", "admin": True, **row},
        {"name": "vera", "admin": False, "vo_admin": True, **row},
    ]  # fmt: skip
    server.on("GET", "/v1/users", {"users": users})
    lines = at("user", "ls").out.splitlines()[1:]
    assert [" ".join(line.split()[6:]) for line in lines] == ["-", "administrator", "administrator of the VO"]


def test_a_token_is_printed_and_nothing_else(at, server):
    server.on("POST", "/v1/tokens", {"token": "secret"})
    result = at("token", "issue", "ann", "--days", "1", "--note", "laptop", "--scope", "jobs:read")
    assert (result.code, result.out, result.err) == (0, "secret\n", "")
    assert server.asked[-1].json == {
        "account": "ann",
        "seconds": 86_400.0,
        "note": "laptop",
        "scopes": ["jobs:read"],
    }
    assert at("token", "issue", "ann", "--json").json == {"token": "secret"}
    body = server.asked[-1].json
    assert body == {
        "account": "ann",
        "seconds": 30 * 86_400.0,
        "scopes": ["jobs:read", "jobs:write", "pilots:read"],
    }


@pytest.mark.parametrize("days", ["nan", "inf", "-inf", "1e300", "36501", "-1", "x"])
def test_a_token_is_good_for_a_number_of_days(at, server, days):
    result = at("token", "issue", "ann", "--days", days)
    assert (result.code, result.out, server.asked) == (2, "", [])
    assert "'--days': " in result.err


def test_a_token_is_good_for_a_hundred_years_or_until_it_is_revoked(at, server):
    server.on("POST", "/v1/tokens", {"token": "secret"})
    for days in (36_500, 0, 0.5):
        assert at("token", "issue", "ann", "--days", str(days)).code == 0
        assert server.asked[-1].json["seconds"] == days * 86_400


def test_a_token_for_a_file_is_seen_by_its_owner_only(at, server, home):
    server.on("POST", "/v1/tokens", {"token": "secret"})
    result = at("token", "issue", "ann", "--output", "ann.token")
    assert (result.out, "secret" in result.err) == ("", False)
    assert (home / "ann.token").read_text() == "secret\n"
    assert (home / "ann.token").stat().st_mode & 0o777 == 0o600
    result = at("token", "issue", "ann", "--output", "ann.token")
    assert (result.code, "exists" in result.err) == (6, True)
    assert len(server.asked) == 1


def test_a_token_that_was_not_made_leaves_no_file(at, server, home):
    server.refuse("POST", "/v1/tokens", 404, code="not-found", message="There is no user ann.")
    assert at("token", "issue", "ann", "--output", "ann.token").code == 3
    assert list(home.iterdir()) == []


def test_tokens_are_listed_without_their_text(at, server):
    tokens = [
        {"hash": "ab" * 32, "kind": "user", "account": "ann", "scopes": ["jobs:read"], "note": "\x1b[1mx",
         "created_at": 0.0, "expires_at": None, "made_with": None, "made_by": None},
        {"hash": "cd" * 32, "kind": "user", "account": "bob", "scopes": ["admin"], "note": "", "created_at": 0.0,
         "expires_at": 5.0, "made_with": "ab" * 32, "made_by": "ann"},
        {"hash": "ef" * 32, "kind": "user", "account": "cleo", "scopes": ["admin"], "note": "", "created_at": 0.0,
         "expires_at": 5.0, "made_with": "00" * 32, "made_by": None},
    ]  # fmt: skip
    server.on("GET", "/v1/tokens", {"tokens": tokens})
    result = at("token", "ls")
    first, second, third = result.out.splitlines()[1:]
    assert "ann abababababab" in second
    assert "gone 000000000000" in third
    assert first.split()[:3] == ["abababababab", "ann", "jobs:read"]
    assert "never" in first
    assert "ended" in second
    assert "\x1b" not in result.out
    assert at("token", "ls", "--json").json == {"tokens": tokens, "more": False, "cursor": ""}


def test_a_token_is_revoked_by_its_hash(at, server):
    server.on("DELETE", "/v1/tokens/ab12", {"revoked": 1, "kept": 0})
    result = at("token", "revoke", "AB12")
    assert (result.code, result.err) == (0, "lode: The token AB12 is revoked.\n")
    assert server.asked[-1].path == "/v1/tokens/ab12"
    for odd in ("../users", "a/b", "", "x y", "\u00e9"):
        assert at("token", "revoke", odd).code == 2
    assert len(server.asked) == 1
    assert at("token", "revoke", "AB12", "--json").json == {"revoked": "ab12", "tokens": 1, "kept": 0}


def test_tokens_of_a_revoked_token_are_listed(at, server):
    server.on("DELETE", "/v1/tokens/ab12", {"revoked": 3, "kept": 2})
    first, second = at("token", "revoke", "ab12").err.splitlines()
    assert first == "lode: The token ab12 is revoked, and 2 that it made for the same user."
    assert second.startswith(
        "lode: 2 tokens that were made with it for others are still valid. See: lode token ls"
    )
    assert "--all" in second
    server.on("DELETE", "/v1/tokens/ab12", {"revoked": 1, "kept": 1})
    assert "1 token that was made with it for others is still valid." in at("token", "revoke", "ab12").err


def test_a_token_of_an_administrator_has_the_usual_scopes_and_admin(at, server):
    server.on("POST", "/v1/tokens", {"token": "secret"})
    at("token", "issue", "root", "--admin")
    assert server.asked[-1].json["scopes"] == ["jobs:read", "jobs:write", "pilots:read", "admin"]
    at("token", "issue", "root", "--admin", "--scope", "admin")
    assert server.asked[-1].json["scopes"] == ["admin"]


def test_whoami_says_when_an_administrator_s_token_may_not_administer(at, server):
    me = {"name": "vera", "kind": "user", "vo": "lab", "groups": ["g"], "admin": False, "vo_admin": True}
    inputs = {"files": 0, "bytes": 0, "limit": None, "outputs": 0}
    for scopes, rank in (
        (["jobs:read"], "of VO lab, but this token lacks the scope admin"),
        (["admin", "jobs:read"], "of VO lab"),
    ):
        server.on("GET", "/v1/me", {**me, "scopes": scopes, "inputs": inputs})
        assert at("whoami").out.splitlines()[5].split(maxsplit=1) == ["administrator", rank]


def test_whoami(at, server):
    me = {
        "name": "ann",
        "kind": "user",
        "vo": "lab",
        "groups": ["physics"],
        "admin": False,
        "scopes": ["jobs:read"],
        "inputs": {"files": 1_200, "bytes": 3 << 20, "limit": 10 << 30, "outputs": 0},
    }
    server.on("GET", "/v1/me", me)
    out = at("whoami").out
    assert out.splitlines()[0].split() == ["user", "ann"]
    assert out.splitlines()[-1].split(maxsplit=2)[2] == "1,200, 3.0 MiB of 10 GiB"
    assert at("whoami", "--json").json == me
    assert out.splitlines()[-2].split(maxsplit=1) == ["token", "no end"]
    me["expires_at"] = time.time() + 29.5 * 86_400
    assert re.search(r"^token +until 20\d\d-\d\d-\d\d \d\d:\d\d UTC, in 29 d", at("whoami").out, re.MULTILINE)
    me["inputs"]["limit"] = None
    assert at("whoami").out.splitlines()[-1].split(maxsplit=2)[2] == "1,200, 3.0 MiB"


# --- the server


@pytest.fixture
def served(monkeypatch):
    """What `lodesman.server.main` is asked to run."""
    calls = []
    monkeypatch.setattr(
        "lodesman.server.main.server.run_server",
        lambda config, arguments, load, greet, accepts_new: (
            greet(config, "Local pilots: x."),
            calls.append((config, arguments, load)),
        ),
    )
    return calls


def test_a_server_without_a_configuration(lode, served, home):
    result = lode("server", "--port", "0", "--data", "here")
    ((config, arguments, load),) = served
    assert result.code == 0
    assert load().server == config.server
    assert (config.server.port, config.data) == (0, home / "here")
    assert arguments == ["--set", f'server.data="{home}/here"', "--set", "server.port=0"]
    assert "No site is configured" in result.err


def test_the_second_process_is_led_to_the_same_configuration(lode, served, home):
    assert lode("init").code == 0
    words = ("--set", "pilots.idle_seconds=5", "--set", "server.host=127.0.0.1", "--set", "server.port=7001")
    assert lode("server", *words).code == 0
    config, arguments, load = served[-1]
    assert load().pilots == config.pilots
    found = parse(["background", *arguments])
    again = load_config(found.config, overrides=found.overrides)
    assert (again.server, again.pilots, again.data) == (config.server, config.pilots, config.data)
    assert (config.path, config.pilots.idle_seconds) == (home / "lode.toml", 5.0)


@pytest.mark.parametrize("setting", ["port=1", "server.port", "=", "server.=1", ".port=1", "server"])
def test_a_setting_has_a_section_a_name_and_a_value(lode, served, setting):
    result = lode("server", "--set", setting)
    assert (result.code, "SECTION.NAME=VALUE" in result.err) == (2, True)
    assert served == []


def test_a_configuration_that_cannot_be_served(lode, served, home):
    for words in (("--config", "gone.toml"), ("--set", "server.host=0.0.0.0"), ("--set", "server.ports=1")):
        result = lode("server", *words)
        assert (result.code, result.err.startswith("lode: "), result.err.count("\n")) == (1, True, 1)
    assert served == []


def test_a_data_directory_in_use(lode, monkeypatch):
    def busy(*_arguments, **_more):
        raise Unavailable("Another server owns the data directory.", hint="Stop it first.")

    monkeypatch.setattr("lodesman.server.main.server.run_server", busy)
    result = lode("server")
    assert (result.code, result.err.splitlines()[-1]) == (
        5,
        "lode: Another server owns the data directory. Stop it first.",
    )


def test_interrupting_the_server_is_its_ordinary_end(lode, monkeypatch):
    def interrupted(*_arguments, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr("lodesman.server.main.server.run_server", interrupted)
    assert lode("server").code == 0


# --- init and config


@pytest.mark.slow
def test_what_init_writes_can_be_served_and_submitted(lode, home):
    result = lode("init", "grid")
    assert result.out.splitlines() == ["grid/lode.toml", "grid/sites.toml", "grid/hello.jdl"]
    found = lode("config", "check", "grid/lode.toml", "--json").json
    assert (found["sites"], found["groups"], found["vos"]) == (
        {"this.machine": 1},
        {"users": 1_000.0},
        ["local"],
    )
    assert found["data"] == str(home / "grid" / "lode-data")
    assert lode("convert", "grid/hello.jdl", "--to", "json", "--check").code == 0
    shown = lode("config", "check", "grid/lode.toml")
    assert "this.machine (1 queue)" in shown.out
    assert "grid/lode.toml is good" in shown.err


def test_the_commented_values_are_the_defaults(lode, home):
    lode("init")
    ours, defaults = load_config(home / "lode.toml"), load_config(None)
    assert (ours.server, ours.pilots, ours.admin) == (defaults.server, defaults.pilots, defaults.admin)


def test_init_overwrites_nothing(lode, home):
    (home / "hello.jdl").write_text("mine")
    result = lode("init")
    assert (result.code, "nothing was written" in result.err) == (6, True)
    assert [path.name for path in home.iterdir()] == ["hello.jdl"]


def test_a_wrong_configuration_is_named(lode, home):
    (home / "lode.toml").write_text("[server]\nport = 99999\n")
    result = lode("config", "check", "lode.toml")
    assert (result.code, "lode.toml" in result.err, "port" in result.err) == (1, True, True)
    (home / "lode.toml").write_text("[server\n")
    assert "line 1: column 8" in lode("config", "check", "lode.toml").err


def test_the_schema_knows_every_section(lode):
    schema = lode("config", "schema").json
    assert list(schema["properties"]) == [field.name for field in msgspec.structs.fields(ServerFile)]
    assert schema["additionalProperties"] is False
    for reference in schema["properties"].values():
        name = reference.get("$ref", "#/$defs/").rpartition("/")[2]
        assert not name or name in schema["$defs"]
    server = schema["$defs"]["ServerSection"]["properties"]
    assert server["port"]["maximum"] == 65_535
    assert server["keep_days"]["description"] == "How long jobs are kept after their end."


@pytest.mark.slow
@pytest.mark.parametrize("text", [LODE, "[submit_pools]\nrefresh_seconds = 60\n"])
def test_a_good_configuration_fits_the_schema(lode, home, text):
    """Every section and option that the reader takes is one that the schema knows."""
    (home / "sites.toml").write_text(sites_file())
    (home / "lode.toml").write_text(text)
    assert lode("config", "check", "lode.toml").code == 0
    fits = jsonschema_rs.validator_for(lode("config", "schema").json).is_valid
    assert fits(tomllib.loads(text))
    for wrong in (
        {"server": {"prot": 1}},
        {"sever": {}},
        {"server": {"port": 70_000}},
        {"submit_pools": {"x": 1}},
    ):
        assert not fits(wrong)


# --- convert and completion


RECORD = {"Executable": "/bin/echo", "Arguments": "a b", "CPUTime": 60, "Requirements": {"Memory": 2_000}}


def test_the_three_languages_convert_into_one_another(lode, home):
    (home / "a.json").write_text(json.dumps(RECORD))
    for form in ("jdl", "cfg", "json"):
        (home / f"b.{form}").write_text(lode("convert", "a.json", "--to", form).out)
        assert json.loads(lode("convert", f"b.{form}", "--from", form, "--to", "json").out) == RECORD


def test_conversion_reports_faults_with_their_position(lode, home):
    (home / "bad.jdl").write_text("[\n  A = ;\n]")
    result = lode("convert", "bad.jdl", "--to", "json")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("lode: bad.jdl:2:")
    assert (
        lode("convert", "gone", "--to", "json").err
        == "lode: gone: cannot be read: No such file or directory.\n"
    )


def test_conversion_checks_only_when_asked(lode):
    text = b"[ Foo = 1; ]"
    assert lode("convert", "-", "--to", "json", stdin=text).json == {"Foo": 1}
    result = lode("convert", "-", "--to", "json", "--check", stdin=text)
    assert (result.code, "Executable" in result.err) == (1, True)
    result = lode("convert", "-", "--to", "json", "--check", stdin=b'[ Executable = "x"; Foo = 1; ]')
    assert result.code == 0
    assert "warning: Foo" in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(lode, shell):
    script = lode("completion", shell).out
    assert "_LODE_COMPLETE" in script
    assert shell in script


def test_the_bash_script_is_bash(lode, tmp_path):
    file = tmp_path / "complete.sh"
    file.write_text(lode("completion", "bash").out)
    assert subprocess.run(["/bin/bash", "-n", file], check=False, timeout=30).returncode == 0


def test_settings_keep_their_types():
    setting = ParsedArgument("setting", configured._setting)
    assert setting.convert("a.b=1", None, None) == ("a", "b", 1)
    assert setting.convert("a.b=[1, 2]", None, None) == ("a", "b", [1, 2])
    assert setting.convert("a.b=text", None, None) == ("a", "b", "text")
    assert setting.convert("a.b=x=y", None, None) == ("a", "b", "x=y")


def test_a_list_of_several_pages_is_shown_whole(at, server):
    row = {
        "kind": "user",
        "scopes": [],
        "note": "",
        "created_at": 0.0,
        "expires_at": None,
        "made_with": None,
        "made_by": None,
    }
    pages = {
        "": {"tokens": [{**row, "hash": "ab" * 32, "account": "ann"}], "more": True, "cursor": "x y"},
        "x y": {"tokens": [{**row, "hash": "cd" * 32, "account": "bob"}]},
    }
    server.on("GET", "/v1/tokens", lambda asked: pages[asked.query.get("after", "")])
    assert [line.split()[1] for line in at("token", "ls").out.splitlines()[1:]] == ["ann", "bob"]


def test_users_are_listed_disabled_and_enabled(at, server):
    rows = [
        {"name": "ann", "vo": "lab", "groups": ["physics"], "admin": True, "created_at": 0.0,
         "disabled_at": 5.0, "tokens": 2},
        {"name": "bob", "vo": "lab", "groups": [], "admin": False, "created_at": 0.0, "disabled_at": None, "tokens": 0},
    ]  # fmt: skip
    server.on("GET", "/v1/users", {"users": rows})
    first, second = at("user", "ls").out.splitlines()[1:]
    assert "administrator, disabled" in first
    assert "disabled" not in second
    for word, disabled in (("disable", True), ("enable", False)):
        server.on("POST", "/v1/users/disable", {"name": "bob", "disabled": disabled})
        assert f"User bob is {word}d." in at("user", word, "bob").out
        assert server.asked[-1].json.get("disabled", True) is disabled


def test_the_audit_trail_is_shown_and_chosen_from(at, server):
    entry = {"id": 7, "at": 0.0, "action": "token-issued", "subject": "ann", "by": "root", "origin": "10.0.0.9",
             "count": 3, "detail": "jobs:read"}  # fmt: skip
    server.on("GET", "/v1/audit", {"entries": [entry, entry], "more": False})
    shown = at("audit", "--action", "token-issued", "--by", "root", "--days", "1", "--limit", "1")
    assert "1970-01-01 00:00 UTC" in shown.out
    assert shown.out.splitlines()[1].split()[3:] == [
        "token-issued",
        "ann",
        "root",
        "10.0.0.9",
        "3",
        "jobs:read",
    ]
    assert "There are more" in shown.err
    asked = server.asked[-1].query
    assert (asked["action"], asked["by"], asked["limit"], "since" in asked) == (
        "token-issued",
        "root",
        "2",
        True,
    )
    assert at("audit", "--json", "--limit", "1").json == {"entries": [entry], "more": True}
