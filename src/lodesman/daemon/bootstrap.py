"""What must exist before the server takes its first request: the first user, tokens, directories."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lodesman.answers.accounts import SCOPES
from lodesman.commands.accounts import AddAccount, IssueToken
from lodesman.commands.pilots import hash_token
from lodesman.config import ServerConfig
from lodesman.store import Writer
from lodesman.store.journal import Transaction
from lodesman.store.read.accounts import is_user
from lodesman.store.write.accounts import set_service_token

TOKEN_FILE = "admin.token"
SERVICE_FILE = "service.token"
SOCKET = "reads.sock"
URL_FILE = "url"


def run_directory(config: ServerConfig) -> Path:
    """DATA/run: the service token, the reading process's socket, and where the server listens."""
    return config.data / "run"


def prepare(db: Writer, config: ServerConfig, *, now: float) -> None:
    """Make the first user with its token, and a fresh token for the background process."""
    for folder in (config.data, run_directory(config), config.data / "sandboxes"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    with db:
        tx = Transaction(db, now)
        _first_user(tx, config)
        token = secrets.token_urlsafe(32)
        set_service_token(tx, hash_token(token))
        tx.flush()
    write_secret(run_directory(config) / SERVICE_FILE, token)


def _first_user(tx: Transaction, config: ServerConfig) -> None:
    if is_user(tx.reader(), config.admin.name) and (config.data / TOKEN_FILE).exists():
        return
    vo, groups = first_place(config)
    AddAccount(config.admin.name, vo, groups, admin=True).apply(tx)
    token = IssueToken(config.admin.name, SCOPES, None, "made at the first start").apply(tx)
    write_secret(config.data / TOKEN_FILE, token)


def first_place(config: ServerConfig) -> tuple[str, tuple[str, ...]]:
    """VO and groups of the first user, as far as they are not given: the VO of the first group that has one, and those
    groups whose members may be of that VO.
    """
    known, given = config.resources.groups, config.admin.groups
    vo_of = {name: known[name].vo if name in known else "" for name in given or known}
    vo = config.admin.vo or next((one for one in (*vo_of.values(), *config.resources.vos) if one), "local")
    return vo, given or tuple(name for name, one in vo_of.items() if one in ("", vo)) or ("users",)


def write_url(config: ServerConfig) -> None:
    """Tell where the server listens: DATA/run/url (with port 0 nobody could know)."""
    write_secret(run_directory(config) / URL_FILE, config.url)


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, all or nothing."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
