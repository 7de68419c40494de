"""A private sshd on this machine that lets this account in by a key, and the runner that goes there."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from tests.conftest import _free_port
from tests.kits.backend_kit import missing
from tests.kits.shared_engines import at_end

from lodesman.server.engines.run.ssh import Ssh

SSHD = "/usr/sbin/sshd"


@contextmanager
def started_sshd() -> Iterator[Ssh]:
    """A runner without environment; it and the server end with the block."""
    if not (Path(SSHD).exists() and shutil.which("ssh")):
        missing("sshd", "apt-get install -y --no-install-recommends openssh-server openssh-client")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it shuts itself in
    folder = Path(tempfile.mkdtemp(prefix="lode-sshd-"))
    try:
        for key in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(words, check=True, timeout=60)
        with _serving(folder) as port:
            runner = Ssh(
                host="127.0.0.1",
                user=getpass.getuser(),
                port=port,
                identity=folder / "user",
                known_hosts=folder / "known_hosts",
                sockets=folder / "sockets",
                connect_seconds=60,
            )
            yield runner
            runner.close()
    finally:
        shutil.rmtree(folder)


@contextmanager
def _serving(folder: Path) -> Iterator[int]:
    """Its port."""
    port, log = _free_port(), folder / "log"
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
        # A bash that is no first one reads no .bashrc, which may compute for a second.
        "SetEnv SHLVL=1\n"
    )
    known = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {known}")
    with subprocess.Popen([SSHD, "-D", "-E", log, "-f", folder / "config"]) as server:
        try:
            deadline = time.monotonic() + 60
            while not (log.exists() and "Server listening" in log.read_text()):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, "sshd does not listen"
                time.sleep(0.01)
            yield port
        finally:
            server.terminate()


@cache
def sshd_of_this_session() -> Ssh:
    """One that is started when it is first asked for, and ends with the tests."""
    stack = ExitStack()
    runner = stack.enter_context(started_sshd())
    at_end(stack.close)
    return runner
