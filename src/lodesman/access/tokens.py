"""Where the server and the token are found if none is named.

A token never comes as an argument: arguments are seen by everybody on the machine.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from lodesman.errors import InvalidConfig, Unauthorized

DEFAULT_SERVER = "http://127.0.0.1:7777"
_MOST_TOKEN_BYTES = 4_096
_TOKEN = re.compile(r"[!-~]+")
_MOST_ADDRESS = 300
# Of the server that is run from the current folder.
_LOCAL_TOKEN = "lode-data/admin.token"


def find_server(named: Path | None, environ: Mapping[str, str], here: Path) -> str:
    """The address if none is given: of the server run from `here` if its token is the one to be used, else the usual one.
    No other token may go to an address that is found: it may be in anything that was unpacked.
    """
    file, local = here / "lode-data" / "run" / "url", here / _LOCAL_TOKEN
    has_other = (
        named is not None or environ.get("LODE_TOKEN", "").strip() or user_token_file(environ).exists()
    )
    try:
        text = (
            "" if has_other or not (_is_ours(file) and _is_ours(local)) else file.read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError):
        text = ""
    return text[:_MOST_ADDRESS].strip() or DEFAULT_SERVER


def find_token(named: Path | None, environ: Mapping[str, str], here: Path) -> str:
    """The token: of the file named, of LODE_TOKEN, of the user's file, of the server run from `here`.

    Raises Unauthorized if there is none, InvalidConfig for a file that cannot be used.
    """
    if named is not None:
        return read_token(named)
    if environ.get("LODE_TOKEN", "").strip():
        return environ["LODE_TOKEN"].strip()
    own = user_token_file(environ)
    if own.exists():
        return read_token(own)
    local = here / _LOCAL_TOKEN
    if _is_ours(local):
        return read_token(local)
    if _is_ours(local, private=False):
        hint = f"Others can read {local}, so it is not used. If it is yours, run: chmod 600 {local}"
    else:
        hint = (
            f"Ask an administrator for one (lode token issue) and write it to {own}, readable by you alone; "
            "or name its file: lode --token-file FILE."
        )
    raise Unauthorized("There is no token.", hint=hint)


def user_token_file(environ: Mapping[str, str]) -> Path:
    """Where a user's own token is kept."""
    base = environ.get("XDG_CONFIG_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return root / "lodesman" / "token"


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read. Raises InvalidConfig."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            raw = file.read(_MOST_TOKEN_BYTES + 1)
    except OSError as fault:
        raise InvalidConfig(
            f"The token file {path} cannot be read: {fault.strerror}.", source=str(path)
        ) from None
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077:
        raise InvalidConfig(
            f"Others can read the token file {path}.", hint=f"Run: chmod 600 {path}", source=str(path)
        )
    text = raw.decode("ascii", "replace").strip()
    if len(raw) > _MOST_TOKEN_BYTES or not _TOKEN.fullmatch(text):
        raise InvalidConfig(
            f"{path} holds no token.", hint="It must be one line with the token.", source=str(path)
        )
    return text


def _is_ours(path: Path, *, private: bool = True) -> bool:
    """Whether a file that was found belongs to this user; `private`: and is for this user alone."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid == os.getuid()
        and not (private and found.st_mode & 0o077)
    )
