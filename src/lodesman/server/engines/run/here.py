"""Commands on this machine, as this account or as another one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pwd import getpwnam
from typing import Final

from msgspec import Struct, field

from lodesman.base.errors import BackendFault
from lodesman.base.processes import kill_group
from lodesman.server.engines.run import CommandResult

# What a command needs of the server's environment, and what says where batch systems are: the rest may hold secrets.
_PASSED_ON: Final = (
    "HOME", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER", "SLURM_CONF", "CONDOR_CONFIG", "KRB5CCNAME",
    "SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_CLUSTER_NAME",
)  # fmt: skip
_ROOT: Final = 0


def base_environment() -> dict[str, str]:
    """The environment of a command."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C"}


class Here(Struct, frozen=True, kw_only=True):
    """Runs commands as `account`, '': as this process. Root changes to it, others need a rule of sudo."""

    account: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 60.0) -> CommandResult:
        """Run a command to its end. Raises BackendFault."""
        environment = {**base_environment(), **self.environment}
        try:
            words = [*self._prefix(environment), *words]
            process = subprocess.Popen(
                words, env=environment, cwd="/", start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            raise BackendFault(f"{words[0]} cannot be run: {why}.", transient=True) from None
        with process:
            try:
                out, err = process.communicate(stdin, seconds)
            except subprocess.TimeoutExpired:
                kill_group(process.pid)  # what it started may hold its output open
                raise BackendFault(f"{words[0]} did not end within {seconds:g} s.", transient=True) from None
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return CommandResult(code, out.decode(errors="replace"), err.decode(errors="replace"))

    def _prefix(self, environment: dict[str, str]) -> list[str]:
        """Raises ValueError if there is no such account."""
        if not self.account:
            return []
        if os.geteuid() != _ROOT:
            kept = ",".join(("LC_ALL", *self.environment))
            return ["sudo", "-n", "-H", f"--preserve-env={kept}", "-u", self.account, "--"]
        try:
            entry = getpwnam(self.account)
        except KeyError:
            raise ValueError(f"there is no account {self.account!r}") from None
        environment |= {"HOME": entry.pw_dir, "LOGNAME": self.account, "USER": self.account}
        return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups", "--"]
