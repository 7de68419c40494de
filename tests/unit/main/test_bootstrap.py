"""The first start and all later ones: users, tokens, directories; logs; arguments of a process."""

from __future__ import annotations

import json
import logging
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from lodesman.base.errors import InvalidConfig
from lodesman.decide.matching.policy import Policy
from lodesman.server.config import load_config
from lodesman.server.main import __main__ as entry
from lodesman.server.main import bootstrap, data_folder
from lodesman.server.main.log_lines import JsonLines
from lodesman.server.store.accounts import principal_of, principals
from lodesman.server.store.audit import audit_entries
from lodesman.server.writer.memberships import group_of
from lodesman.server.writer.pilots import hash_token
from lodesman.wire.requests import MOST_ID


@pytest.fixture
def config(tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text('[group.physics]\nvo = "lab"\n[group.bio]\nvo = "lab"\n')
    return load_config(
        None, overrides={"server": {"data": str(tmp_path / "data")}, "resources": {"files": [str(sites)]}}
    )


@pytest.fixture
def db(config):
    found = config.database.writer()
    yield found
    found.close()


@pytest.mark.slow
def test_local_pilots_do_not_see_what_leads_into_the_database(tmp_path):
    sites = tmp_path / "sites.toml"
    sites.write_text(
        '[site.S]\nVO=["lab"]\n[site.S.ce.c]\nBackend="local"\n[site.S.ce.c.queue.q]\nSlots=1\nCPUTime=9\n'
    )
    file, elsewhere = tmp_path / "lode.toml", tmp_path / "elsewhere" / "lode.db"
    file.write_text(
        f'[server]\ndata="data"\n[store]\nurl="sqlite://{elsewhere}"\n[resources]\nfiles=["sites.toml"]\n'
    )
    isolation = bootstrap.isolation_of(load_config(file))
    assert isolation is not None
    assert {str(file), str(elsewhere), f"{elsewhere}-wal", str(tmp_path / "data")} <= set(isolation.hidden)


def token_in(path: Path) -> bytes:
    return hash_token(path.read_text().strip())


def test_the_first_start_makes_an_administrator_of_all_groups(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    who = principal_of(db, token_in(config.data / "admin.token"))
    assert who is not None
    assert (who.name, who.vo, who.admin, who.groups) == ("admin", "lab", True, ("physics", "bio"))
    assert who.expires_at is None
    service = principal_of(db, token_in(config.data / "run" / "service.token"))
    assert service is not None
    assert service.kind == "service"


TWO_VOS = """
[site.W]
VO = ["local", "phys"]
[site.W.ce.c.queue.q.vo.phys]
Memory = 5
[group.users]
vo = "local"
[group.pg]
vo = "phys"
[group.more]
vo = "local"
[group.anybody]
"""


@pytest.mark.parametrize(
    ("admin", "vo", "groups"),
    [
        ({}, "local", ("users", "more", "anybody")),
        ({"vo": "phys"}, "phys", ("pg", "anybody")),
        ({"vo": "phys", "groups": ["pg"]}, "phys", ("pg",)),
        ({"groups": ["pg", "anybody"]}, "phys", ("pg", "anybody")),
        ({"groups": ["new"]}, "phys", ("new",)),  # of no VO: the first that the files name
        ({"vo": "third"}, "third", ("anybody",)),
    ],
)
def test_the_first_user_of_a_server_with_two_vos_is_in_groups_of_its_own(tmp_path, admin, vo, groups):
    sites = tmp_path / "sites.toml"
    sites.write_text(TWO_VOS)
    overrides = {"server": {"data": str(tmp_path / "data")}, "resources": {"files": [str(sites)]}}
    config = load_config(None, overrides={**overrides, "admin": admin})
    writer = config.database.writer()
    data_folder.prepare_data(writer, config, now=5.0)
    who = principal_of(writer, token_in(config.data / "admin.token"))
    writer.close()
    assert who is not None
    assert (who.vo, who.groups) == (vo, groups)
    policy = Policy(config.resources)
    for group in ("", *who.groups):
        assert group_of(who, policy, group).vo in ("", vo)


@pytest.mark.parametrize(
    ("text", "vo", "groups"),
    [
        ("", "local", ("users",)),
        ("[group.g]\n", "local", ("g",)),
        ("[site.S.ce.c.queue.q.vo.phys]\nMemory = 5\n", "phys", ("users",)),
        ("[group.g]\n[group.h]\nvo = 'lab'\n", "lab", ("g", "h")),
    ],
)
def test_the_first_user_where_little_is_configured(tmp_path, text, vo, groups):
    sites = tmp_path / "sites.toml"
    sites.write_text(text)
    config = load_config(
        None, overrides={"server": {"data": str(tmp_path)}, "resources": {"files": [str(sites)]}}
    )
    assert data_folder._first_place(config) == (vo, groups)


def test_later_starts_keep_the_administrator_and_change_the_service_s_token(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    admin, service = (token_in(config.data / name) for name in ("admin.token", "run/service.token"))
    data_folder.prepare_data(db, config, now=6.0)
    assert token_in(config.data / "admin.token") == admin
    assert principal_of(db, admin) is not None
    assert principal_of(db, service) is None
    assert [who.kind for who in principals(db).values()].count("service") == 1


def test_a_lost_token_file_is_made_anew(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    (config.data / "admin.token").unlink()
    data_folder.prepare_data(db, config, now=6.0)
    assert principal_of(db, token_in(config.data / "admin.token")) is not None


def test_tokens_that_the_server_itself_made_are_in_the_audit_trail(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    data_folder.prepare_data(db, config, now=6.0)
    (config.data / "admin.token").unlink()
    data_folder.prepare_data(db, config, now=7.0)
    found = audit_entries(db, before=MOST_ID, since=0.0, action="", by="", limit=9)
    assert [(one.at, one.action, one.subject, one.by) for one in found] == [
        (at, "token-issued", config.admin.name, "server") for at in (7.0, 5.0)
    ]


@pytest.mark.parametrize("letters", [1, 100, 200])
def test_the_socket_works_however_long_the_name_of_the_data_directory_is(tmp_path, letters):
    config = load_config(None, overrides={"server": {"data": str(tmp_path / ("d" * letters))}})
    data_folder.run_directory(config).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(data_folder.socket_path(config))
        server.listen()
        client.connect(data_folder.socket_path(config))
    assert [path.name for path in data_folder.run_directory(config).iterdir()] == ["reads.sock"]


def test_other_users_cannot_read_secrets(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    for name in (".", "run", "sandboxes", "admin.token", "run/service.token"):
        assert (config.data / name).stat().st_mode & 0o077 == 0, name


def test_every_account_can_read_what_is_for_pilots(config, db):
    data_folder.prepare_data(db, config, now=5.0)
    assert data_folder.share_directory(config).stat().st_mode & 0o777 == 0o755


def test_pilots_get_the_certificate_without_a_key_that_stands_beside_it(config, tmp_path):
    assert bootstrap.read_own_certificates(config) == ""
    block = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
    both = tmp_path / "both.pem"
    both.write_text(f"-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n{block}\n")
    server = msgspec.structs.replace(config.server, tls_certificate=str(both))
    assert bootstrap.read_own_certificates(msgspec.structs.replace(config, server=server)) == block


def test_a_secret_is_written_whole(tmp_path):
    path = tmp_path / "secret"
    for text in ("one", "two"):
        data_folder.write_file(path, text)
        assert path.read_text() == f"{text}\n"
    assert list(tmp_path.iterdir()) == [path]


def record(message="it ran", **extra):
    made = logging.makeLogRecord(
        {"name": "lodesman.x", "levelno": 30, "levelname": "WARNING", "msg": message, **extra}
    )
    return json.loads(JsonLines("hot").format(made))


def test_a_log_line_is_one_json_object_with_its_extras():
    line = record(pilot=5, queue=Path("/a"))
    assert (line["level"], line["process"], line["logger"], line["message"]) == (
        "warning",
        "hot",
        "lodesman.x",
        "it ran",
    )
    assert (line["pilot"], line["queue"]) == (5, "/a")
    assert "args" not in line
    assert "\n" not in JsonLines("hot").format(logging.makeLogRecord({"msg": "two\nlines"}))


def test_a_log_line_of_a_fault_has_its_trace():
    try:
        raise KeyError("inner")
    except KeyError:
        line = record(exc_info=sys.exc_info())
    assert "KeyError" in line["trace"]


def test_arguments_lead_to_a_configuration():
    found = entry.parse(
        [
            "server",
            "--config",
            "/etc/lode.toml",
            "--set",
            "server.port=80",
            "--set",
            'server.data="x=y"',
            "--set",
            "a.b=[1]",
        ]
    )
    assert found.config == Path("/etc/lode.toml")
    assert found.overrides == {"server": {"port": 80, "data": "x=y"}, "a": {"b": [1]}}
    assert (entry.parse(["server"]).config, entry.parse(["server"]).overrides) == (None, {})


def test_an_argument_that_is_no_json_is_named():
    with pytest.raises(InvalidConfig, match=r"server\.port"):
        entry.parse(["server", "--set", "server.port=eighty"])


@pytest.mark.parametrize("name", ["server", "background"])
def test_a_process_that_cannot_start_says_why_in_one_line(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, "argv", ["daemon", name, "--set", "server.port=70000"])
    monkeypatch.setattr(entry, "heed_hang_up", lambda _end: None)
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        assert entry.main() == 1
    finally:
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
    (line,) = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["process"], "port" in line["message"]) == ("critical", name, True)


@pytest.mark.parametrize(("fraction", "default", "found"), [
    (0.0, "Fast", set()), (0.5, "Local", {"Fast"}), (0.5, "Fast", {"Fast", ""}),
])  # fmt: skip
def test_the_policy_knows_the_pools_that_draw_private_pilots(tmp_path, fraction, default, found):
    director = {
        "SubmitPools": "Local, Fast",
        "DefaultSubmitPools": default,
        "Fast": {"PrivatePilotFraction": fraction},
    }
    config = load_config(None, overrides={"server": {"data": str(tmp_path)}, "director": director})
    policy = bootstrap.policy_of(config, {}, life_seconds=0, inhabited=lambda _: frozenset())
    assert policy.private_pools == policy.vo_config("lab").private_pools == found
