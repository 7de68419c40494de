"""How local pilots are kept from the server: what this machine allows, and what follows.

With *namespaces* a pilot sees neither the server's data nor its processes, and nothing of it outlives its keeper.
An *account* other than the server's, which takes root, cannot open the server's files or touch its processes. With
neither, each job may do what the server may.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.own_servers import notes_folder
from lodesman.base.processes import kill_group
from lodesman.server.engines import namespaces

# Made at the first start by root, if `useradd` is there.
ACCOUNT: Final = "lodesman"
_PROBE_SECONDS: Final = 20.0
_TRY: Final = "import sys; sys.exit(sys.version_info < (3, 9))"


class Isolation(Struct, frozen=True, kw_only=True):
    """What holds for each local pilot."""

    namespaces: bool = False
    account: tuple[str, int, int] | None = None  # name, uid and gid; None: the server's own
    usable: bool = True
    trusted: bool = False
    fault: str = ""  # why it is not more, or why no pilot can run
    missing: str = ""  # the program that would run it, and is not there
    hidden: tuple[str, ...] = ()  # places in namespaces, as `read_only` and `shown`
    read_only: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def separate(self) -> bool:
        """Whether a job cannot do what the server can."""
        other = self.account is not None and self.account[1] != 0
        return self.usable and (other or (self.namespaces and self.account is None))

    @property
    def folder_mode(self) -> int:
        """Of folders above a pilot's own: another account passes through them, and sees nothing."""
        alone = self.separate and not self.namespaces
        return 0o711 if alone else 0o700

    @property
    def _unusable(self) -> str:
        if self.missing:
            return f"cannot start: there is no program {self.missing!r} (python of [pilots])"
        return f"cannot be kept from the server: {self.fault}"

    def closed(self, accounts: int) -> str:
        """Why no local pilot may run with this number of accounts."""
        if not self.usable:
            return f"local pilots {self._unusable}"
        if self.separate or self.trusted or accounts < 2:
            return ""
        return f"the jobs of {accounts} accounts could read and change all data of the server: {self.fault}; {_REMEDY}"

    def sentence(self, accounts: int = 0) -> str:
        """One line for administrators of a server with this number of accounts."""
        if self.usable and (closed := self.closed(accounts)):
            return f"Local pilots: refused, since {closed}."
        who = f"the account {self.account[0]}" if self.account else "the account of the server"
        if not self.usable:
            return f"Local pilots: refused, since they {self._unusable}."
        if self.separate:
            how = "isolated by namespaces" if self.namespaces else "isolated by their account alone"
            more = "" if self.namespaces else f" ({self.fault})"
            return f"Local pilots: {how}, as {who}{more}."
        rule = (
            "the configuration trusts all jobs"
            if self.trusted
            else "a second account closes all local queues"
        )
        return f"Local pilots: not isolated, each job may do all that the server may: {self.fault}; {rule}."

    def plan(self, work: Path) -> str:
        """What a keeper has to do, in JSON."""
        name, uid, gid = self.account or ("", 0, 0)
        own = {"HOME": str(work), "USER": name, "LOGNAME": name} if name and uid else {}
        return json.dumps({
            "namespaces": self.namespaces, "account": {"uid": uid, "gid": gid} if name and uid else None,
            "certain": self.namespaces or bool(name and uid), "environment": own,
            "hidden": self.hidden, "read_only": self.read_only, "shown": self.shown,
        })  # fmt: skip


_REMEDY: Final = (
    "let the kernel give user namespaces, start the server as root with [local] run_as, "
    "or set [local] trust_jobs = true"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the configuration asks for, and where things are."""

    data: Path
    run_as: str = ""
    trust_jobs: bool = False
    python: str = "python3"  # what runs pilots
    shown: tuple[Path, ...] = ()
    # What the server runs and reads, folders too: a new file there could be read at the next start.
    program: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()  # files outside the data
    probe: str = field(default=namespaces.__file__, repr=False)


def find_isolation(wishes: Wishes, *, make_account: bool) -> Isolation:
    """The best that this machine allows: each is tried as a pilot would be run. `make_account`: one may be made."""
    best = _first_choice(wishes, make_account=make_account)
    if not best.usable:
        return best
    if best.account is not None and best.account[1] == 0:
        return replace(best, namespaces=not _try(best, wishes), fault="[local] run_as names root")
    fault = _try(best, wishes)
    if not fault:
        return best
    rest = replace(best, namespaces=False, fault=f"namespaces are refused here ({fault})")
    if best.account is None:
        return rest
    fault = _try(rest, wishes)
    if not fault:
        return rest
    missing = "" if shutil.which(wishes.python) else wishes.python
    return replace(rest, usable=False, fault=f"{best.account[0]} cannot run them ({fault})", missing=missing)


def _first_choice(wishes: Wishes, *, make_account: bool) -> Isolation:
    is_root = os.geteuid() == 0
    account = None
    if wishes.run_as or is_root:
        candidate = _account(wishes.run_as) if wishes.run_as else _system_account(make=make_account)
        if candidate is None:
            return Isolation(usable=False, fault=f"there is no account {wishes.run_as!r} ([local] run_as)")
        account = candidate if candidate[1] != os.geteuid() or is_root else None
        if account is not None and not is_root:
            fault = f"only root can run them as {wishes.run_as} ([local] run_as)"
            return Isolation(usable=False, fault=fault)
    places = [_prefix(wishes.python), sys.prefix, sys.base_prefix, *map(str, wishes.shown)]
    return Isolation(
        namespaces=True,
        account=account,
        trusted=wishes.trust_jobs,
        hidden=_hidden_places(wishes),
        read_only=() if account or wishes.trust_jobs else _read_only_places(wishes),
        shown=tuple(dict.fromkeys(place for place in places if place)),
    )


def _hidden_places(wishes: Wishes) -> tuple[str, ...]:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path(_home()) / ".config")
    uid = os.geteuid()
    sockets = (f"/run/user/{uid}", f"/tmp/tmux-{uid}", "/run/screen", "/run/docker.sock")  # noqa: S108
    secrets = map(os.path.realpath, map(str, (wishes.data, *wishes.secrets)))
    private = (base / "lodesman", notes_folder({"HOME": _home(), **os.environ}), Path(_home()) / ".ssh")
    return (*secrets, *map(str, private), *sockets)


def _read_only_places(wishes: Wishes) -> tuple[str, ...]:
    """What the server or its account executes or obeys at the next start."""
    named = map(str, (_home(), sys.prefix, sys.base_prefix, *wishes.program))
    places = {*map(os.path.realpath, named)} - {"/"}
    return tuple(sorted(place for place in places if os.access(place, os.W_OK) and not _is_for_all(place)))


def _is_for_all(place: str) -> bool:
    """As in /tmp: jobs need it."""
    return bool(Path(place).stat().st_mode & stat.S_ISVTX)


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _prefix(python: str) -> str:
    path = shutil.which(python)
    return str(Path(path).resolve().parent.parent) if path else ""


def _account(name: str) -> tuple[str, int, int] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return entry.pw_name, entry.pw_uid, entry.pw_gid


def _system_account(*, make: bool) -> tuple[str, int, int] | None:
    """The account for pilots of a server of root, else the one that every system has for strangers."""
    tool = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if make and tool and _account(ACCOUNT) is None:
        words = [
            "--system",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/bin/false",
            ACCOUNT,
        ]
        subprocess.run([tool, *words], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    return next((account for account in map(_account, (ACCOUNT, "nobody")) if account and account[1]), None)


def _try(isolation: Isolation, wishes: Wishes) -> str:
    beside = wishes.data.parent  # what leads there leads to the pilots' folders
    place = beside if os.access(beside, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".try-", dir=place) as folder:
        os.chmod(folder, isolation.folder_mode)  # noqa: PTH101
        work = Path(folder, "work")
        work.mkdir(mode=0o700)
        if isolation.account is not None:
            os.chown(work, *isolation.account[1:])
        command: Sequence[str] = [wishes.python, "-c", _TRY]
        try:
            code, errors = _run(
                [sys.executable, "-I", "-S", wishes.probe, isolation.plan(work), str(work), *command]
            )
        except subprocess.TimeoutExpired:
            return f"{wishes.python} does not end there"
        except OSError as fault:
            return str(fault)
    lines = errors.strip().splitlines() or [f"{wishes.python} does not run there"]
    return "" if code == 0 else lines[-1][:200]


def _run(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and errors; a program that does not end is killed with all that it started. Raises OSError,
    TimeoutExpired.
    """
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _, errors = process.communicate(timeout=_PROBE_SECONDS)
        finally:
            if process.returncode is None:
                kill_group(process.pid)
    return process.returncode, errors
