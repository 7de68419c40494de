"""Port 0: a free port is taken at once, and everybody concerned learns which."""

from __future__ import annotations

import socket
from functools import partial

import msgspec
import pytest

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.config import Texts, load_config
from lodesman.server.main import data_folder
from lodesman.server.main.__main__ import parse
from lodesman.server.main.bootstrap import listen
from lodesman.server.main.config_watch import changed_options
from lodesman.server.main.server import run_server


def loader(**server):
    return partial(load_config, None, overrides={"server": server})


def free():
    with socket.create_server(("127.0.0.1", 0)) as there:
        return there.getsockname()[1]


def test_a_port_that_is_configured_is_taken_at_once():
    port = free()
    load = loader(port=port)
    found = listen(load(), ["--set", "a.b=1"], load)
    (taken,) = found.sockets
    with taken:
        assert (found.config.server.port, found.arguments) == (port, ["--set", "a.b=1"])
        assert taken.getsockname() == ("127.0.0.1", port)
    assert found.load is load


def test_a_port_that_is_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        load = loader(port=port)
        with pytest.raises(Conflict, match=rf"^Port {port} of 127\.0\.0\.1 is in use") as told:
            listen(load(), [], load)
    assert "--port" in told.value.hint


def test_a_server_that_cannot_listen_leaves_nothing_behind(tmp_path):
    greeted = []
    with socket.create_server(("127.0.0.1", 0)) as there:
        load = loader(port=there.getsockname()[1], data=str(tmp_path / "data"))
        with pytest.raises(Conflict):
            run_server(load(), [], load, greeted.append)
    assert (greeted, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_free_port_is_taken_and_reported(host):
    load = loader(port=0, host=host)
    found = listen(load(), ["--set", "server.port=0"], load)
    (taken,) = found.sockets
    with taken:
        port = taken.getsockname()[1]
        assert found.config.server.port == port > 0
        assert found.config.url == f"http://{host}:{port}"
        with socket.create_connection(taken.getsockname()[:2], timeout=30):
            pass
        overrides = parse(["background", *found.arguments]).overrides  # what the second process is led to
        assert overrides == {"server": {"port": port}}


def test_a_configuration_that_is_read_again_has_the_same_port():
    load = loader(port=0)
    found = listen(load(), [], load)
    with found.sockets[0]:
        again = found.load(texts=Texts())
        assert again.server == found.config.server
        assert changed_options(found.config, again) == ()


def test_a_port_that_is_configured_later_waits_for_the_next_start():
    ports = iter([0, 0, 7002])
    found = listen(loader(port=0)(), [], lambda **more: loader(port=next(ports))(**more))
    with found.sockets[0]:
        assert changed_options(found.config, found.load()) == ()
        assert changed_options(found.config, found.load()) == ()
        assert changed_options(found.config, found.load()) == ("server.port",)


def test_an_address_that_this_machine_does_not_have():
    load = loader(port=0)
    config = load()
    elsewhere = msgspec.structs.replace(config.server, host="203.0.113.7")
    with pytest.raises(Unavailable, match=r"cannot listen at 203\.0\.113\.7"):
        listen(msgspec.structs.replace(config, server=elsewhere), [], load)


def test_the_address_is_written_down(tmp_path):
    config = load_config(None, overrides={"server": {"port": 7003, "data": str(tmp_path)}})
    data_folder.run_directory(config).mkdir()
    data_folder.share_directory(config).mkdir()
    data_folder.write_url(config)
    files = [tmp_path / "run" / "url", data_folder.shared_url_file(config)]
    assert [file.read_text() for file in files] == ["http://127.0.0.1:7003\n"] * 2
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o644]


def test_what_a_running_server_takes_in_needs_no_restart():
    before, after = loader(keep_days=1)(), loader(keep_days=2, sandbox_quota_mb=5)()
    assert changed_options(before, after) == ()
    assert changed_options(before, loader(keep_days=1, sandbox_mb=3)()) == ("server.sandbox_mb",)
