"""Commands on another machine: against a real sshd that lets this account in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.kits.backend_kit import missing
from tests.kits.sshd import started_sshd

from lodesman.base.errors import BackendFault
from lodesman.server.config.backends import BackendSection
from lodesman.server.config.identities import IdentitySection, with_identities
from lodesman.server.engines.run.ssh import Ssh
from lodesman.server.main.backends import make_backend

pytestmark = [pytest.mark.e2e, pytest.mark.engines]


@pytest.fixture(scope="module")
def ssh():
    with started_sshd() as runner:
        yield runner


def fault_of(runner, words=("true",), **more) -> BackendFault:
    with pytest.raises(BackendFault) as fault:
        runner.run(words, **more)
    return fault.value


def test_words_arrive_as_they_are(ssh):
    words = [
        "a b",
        "it's",
        '"',
        "$HOME",
        "`id`",
        "*",
        "~",
        "!!",
        "\\n",
        "",
        "-n",
        "ü",
        ";",
        "a\nb",
        "#",
        "%s",
        "~/x",
    ]
    done = ssh.run(["printf", "%s\\0", *words])
    assert done.out.split("\0")[:-1] == words
    assert (done.code, done.err) == (0, "")


def test_input_and_outputs_are_whole(ssh):
    text = "line ü\n" * 100_000
    assert ssh.run(["cat"], stdin=text.encode()).out == text
    done = ssh.run(["sh", "-c", "echo out; echo error >&2; printf '\\377'; exit 7"])
    assert done == (7, "out\n\ufffd", "error\n")


def test_the_environment_is_that_of_the_other_account(ssh, monkeypatch):
    for name in ("LODE_SECRET_OF_THE_SERVER", "LC_SECRET_OF_THE_SERVER"):
        monkeypatch.setenv(name, "hush")
    given = replace(ssh, environment={"LODE_GIVEN": "with blank"})
    out = given.run(["env"]).out
    assert "hush" not in out
    assert "LODE_GIVEN=with blank\n" in out
    assert "LC_ALL=C\n" in out


def test_one_connection_serves_all(ssh):
    ports = {ssh.run(["printenv", "SSH_CONNECTION"]).out for _ in range(3)}
    with ThreadPoolExecutor(8) as pool:
        ports |= set(pool.map(lambda _: ssh.run(["printenv", "SSH_CONNECTION"]).out, range(16)))
    assert len(ports) == 1


def test_only_this_account_reaches_the_connection(ssh):
    ssh.run(["true"])
    assert ssh.sockets.stat().st_mode & 0o777 == 0o700
    assert len(list(ssh.sockets.iterdir())) == 1


def test_a_command_that_takes_too_long_is_killed_over_there(ssh, tmp_path):
    mark = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.1; done"
    fault = fault_of(ssh, ["sh", "-c", script], seconds=3)  # it has begun by then
    assert fault.data["transient"]
    assert "3 s" in fault.message
    pid = mark.read_text().strip()
    deadline = time.monotonic() + 120
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ssh.run(["echo", "again"]).out == "again\n"


def test_the_exit_code_255_of_a_command_is_its_own(ssh, tmp_path):
    program = tmp_path / "sbatch"
    program.write_text('#!/bin/sh\necho "$0: unrecognized option" >&2\nexit 255\n')
    program.chmod(0o755)
    assert ssh.run([str(program)]).code == 255
    assert fault_of(ssh, ["sh", "-c", "exit 255"]).data["transient"]


def test_a_missing_command_is_an_answer(ssh):
    assert ssh.run(["/no/such/command"]).code == 127


def test_a_machine_with_another_key_is_not_talked_to(ssh, tmp_path):
    other = tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    other.write_text(f"[127.0.0.1]:{ssh.port} {(tmp_path / 'key.pub').read_text()}")
    for text in (other.read_text(), ""):
        other.write_text(text)
        fault = fault_of(replace(ssh, known_hosts=other, sockets=tmp_path / "s"))
        assert fault.data["transient"]
        assert "Host key verification failed" in fault.message


def test_a_key_that_is_not_let_in(ssh, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    fault = fault_of(replace(ssh, identity=tmp_path / "key", sockets=tmp_path / "s"))
    assert "Permission denied" in fault.message


def test_a_connection_that_is_lost_is_made_again(ssh):
    runner = replace(ssh, sockets=ssh.sockets.with_name("others"))
    master = int(runner.run(["printenv", "SSH_CONNECTION"]).out.split()[1])
    runner.close()
    assert int(runner.run(["printenv", "SSH_CONNECTION"]).out.split()[1]) != master
    runner.close()
    assert list(runner.sockets.iterdir()) == []


def test_a_socket_that_was_left_behind_is_passed_over(ssh):
    runner = replace(ssh, sockets=ssh.sockets.with_name("dead"))
    runner.run(["true"])
    (socket,) = runner.sockets.iterdir()
    kept = socket.with_name("kept")
    os.link(socket, kept)
    runner.close()
    kept.rename(socket)
    assert runner.run(["echo", "on"]).out == "on\n"
    runner.close()


def test_a_folder_whose_path_is_too_long_for_sockets(ssh, tmp_path):
    runner = replace(ssh, sockets=tmp_path / ("x" * 100))
    assert [runner.run(["echo", "on"]).out for _ in range(2)] == ["on\n"] * 2
    runner.close()
    folder = runner._folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()


# --- without a server ---------------------------------------------------------------------------------


@pytest.fixture
def place():
    """A folder with a short path: that of a socket has a limit."""
    if shutil.which("ssh") is None:
        missing("sshd", "apt-get install -y --no-install-recommends openssh-client")
    with tempfile.TemporaryDirectory(prefix="lode-") as folder:
        yield Path(folder)


def unreachable(folder: Path) -> Ssh:
    (folder / "known_hosts").touch()
    return Ssh(host="127.0.0.1", port=1, known_hosts=folder / "known_hosts", sockets=folder / "s")


def test_a_host_that_is_not_reached(place):
    fault = fault_of(unreachable(place))
    assert fault.data["transient"]
    assert "Connection refused" in fault.message


def test_known_hosts_has_to_be_there(place):
    fault = fault_of(replace(unreachable(place), known_hosts=place / "none"))
    assert "is not there" in fault.message
    assert "ssh-keyscan" in fault.hint


def test_the_folder_of_connections_is_private(place):
    (place / "s").mkdir(mode=0o755)
    assert "alone" in fault_of(unreachable(place)).message
    (place / "s").rmdir()
    (place / "real").mkdir(mode=0o700)
    (place / "s").symlink_to(place / "real")
    assert "alone" in fault_of(unreachable(place)).message


def test_a_host_is_no_option(place):
    fault = fault_of(replace(unreachable(place), host="-oProxyCommand=touch /tmp/never"))
    assert fault.data["transient"]
    assert not Path("/tmp/never").exists()


def test_an_identity_reaches_the_same_host_as_its_own_user_with_its_own_key(ssh, tmp_path):
    base = BackendSection(
        type="slurm", host=f"nobody@{ssh.host}:{ssh.port}", known_hosts=str(ssh.known_hosts)
    )
    mine = IdentitySection(account=ssh.user, ssh_key=str(ssh.identity))
    found, rules = with_identities({"slurm": base}, {"me": mine}, lambda *fault: pytest.fail(str(fault)))
    assert rules["me"].backends == {"slurm"}
    runners = {name: cast("Any", make_backend(one, ssh.sockets)).runner for name, one in found.items()}
    assert runners["slurm+me"].run(["id", "-un"]).out.strip() == ssh.user
    assert "not reached by SSH" in fault_of(runners["slurm"]).message
