"""Where the server and the token are found if none is named. A token is no argument: all on the machine see arguments."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from lodesman.base.errors import Conflict, InvalidConfig, Unauthorized
from lodesman.base.own_servers import RunningServer, is_private, running_servers
from lodesman.user.access import DEFAULT_SERVER

_MOST_TOKEN_BYTES = 4_096
_TOKEN = re.compile(r"[!-~]+")
_MOST_ADDRESS = 300
# Of the server that is run from the current folder.
_LOCAL_TOKEN = "lode-data/admin.token"


def find_server(named: Path | None, environ: Mapping[str, str], here: Path, *, token: str = "") -> str:
    """The server run from `here` whose token is used, else that of this account, else the usual address.

    No other token, nor that of a program (`token`), goes to a found address, which any unpacked folder may hold.
    Raises Conflict if several run.
    """
    if (
        token
        or named is not None
        or environ.get("LODE_TOKEN", "").strip()
        or user_token_file(environ).exists()
    ):
        return DEFAULT_SERVER
    file, local = here / "lode-data" / "run" / "url", here / _LOCAL_TOKEN
    if not is_private(local):
        own = own_server(environ, None)
        return DEFAULT_SERVER if own is None else own.url
    try:
        text = file.read_text(encoding="utf-8") if is_private(file) else ""
    except (OSError, UnicodeDecodeError):
        text = ""
    return text[:_MOST_ADDRESS].strip() or DEFAULT_SERVER


def find_token(
    named: Path | None, environ: Mapping[str, str], here: Path, *, server: str | None = None
) -> str:
    """The token of the file, LODE_TOKEN, the user's file, the server run from `here`, or that of this account.

    Raises Unauthorized if there is none, InvalidConfig for an unusable file, Conflict if several servers run.
    """
    if named is not None:
        return read_token(named)
    if environ.get("LODE_TOKEN", "").strip():
        return environ["LODE_TOKEN"].strip()
    own = user_token_file(environ)
    if own.exists():
        return read_token(own)
    local = here / _LOCAL_TOKEN
    if is_private(local):
        return read_token(local)
    if (running := own_server(environ, server)) is not None:
        return read_token(running.token_file)
    raise Unauthorized("There is no token.", hint=_remedy(local, own, running_servers(environ)))


def own_server(environ: Mapping[str, str], server: str | None) -> RunningServer | None:
    """The server of this account here, at the address if one is named. Raises Conflict."""
    usable = [running for running in running_servers(environ) if is_private(running.token_file)]
    if server is not None:
        return next((running for running in usable if running.url == server.strip().rstrip("/")), None)
    if len(usable) > 1:
        servers = "; ".join(f"{running.url} from {running.data}" for running in usable)
        raise Conflict(
            f"Several servers of yours run here, and none is named: {servers}.",
            hint=f"Name it: lode --server {usable[0].url}, or LODE_SERVER; or work in the folder of its lode-data.",
        )
    return usable[0] if usable else None


def _remedy(local: Path, own: Path, running: Sequence[RunningServer]) -> str:
    if _is_open(local):
        return f"Others can read {local}, so it is not used. If it is yours, run: chmod 600 {local}"
    servers = "; ".join(f"{server.url} from {server.data}" for server in running)
    mine = (
        f"Of your servers run here: {servers}."
        if servers
        else "No server of yours runs here (lode server starts one)."
    )
    return (
        f"{mine} For another one ask its administrator for a token (lode token issue) and write it to {own}, readable by "
        "you alone; or name its file: lode --token-file FILE."
    )


def user_token_file(environ: Mapping[str, str]) -> Path:
    """Where a user's own token is kept."""
    base = environ.get("XDG_CONFIG_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return root / "lodesman" / "token"


def read_token(path: Path) -> str:
    """Read a file that only its owner can read. Raises InvalidConfig."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(_MOST_TOKEN_BYTES + 1)
    except OSError as fault:
        raise InvalidConfig(
            f"The token file {path} cannot be read: {fault.strerror}.", source=str(path)
        ) from None
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and status.st_mode & 0o077:
        raise InvalidConfig(
            f"Others can read the token file {path}.", hint=f"Run: chmod 600 {path}", source=str(path)
        )
    text = raw.decode("ascii", "replace").strip()
    if len(raw) > _MOST_TOKEN_BYTES or not _TOKEN.fullmatch(text):
        raise InvalidConfig(
            f"{path} holds no token.", hint="It must be one line with the token.", source=str(path)
        )
    return text


@contextmanager
def new_token_file(path: Path) -> Iterator[TextIO]:
    """Opened before the token is made, so that none is lost; a partial file is removed. Raises Conflict."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists.", hint="Remove it, or name another file.") from None
    with ExitStack() as undo:
        undo.callback(path.unlink, missing_ok=True)
        with os.fdopen(descriptor, "w") as sink:
            yield sink
        undo.pop_all()


def _is_open(path: Path) -> bool:
    """It is this user's and others can use it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and bool(status.st_mode & 0o077)
