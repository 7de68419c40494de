"""The data folder of a server, and how a start makes it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lodesman.base.durable import write_durably
from lodesman.server.config import ServerConfig
from lodesman.server.store import Writer
from lodesman.server.store.accounts import is_admin, set_service_token
from lodesman.server.store.audit import append_entry
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.accounts import add_account, issue_token
from lodesman.server.writer.pilots import hash_token
from lodesman.server.writer.submit_pools import number_at_start
from lodesman.wire.accounts import SCOPES, AuditNote

SERVICE_FILE = "service.token"
READS_SOCKET, INNER_SOCKET = "reads.sock", "hot.sock"
# The longest name of a Unix socket, and the zero byte that ends it.
_SOCKET_NAME_BYTES = 108
_TOKEN_FILE = "admin.token"


def run_directory(config: ServerConfig) -> Path:
    """DATA/run: for the server's own processes, and the command line."""
    return config.data / "run"


def service_token(config: ServerConfig) -> str:
    """The token of the server's own processes, as `prepare_data` made it."""
    return (run_directory(config) / SERVICE_FILE).read_text().strip()


def socket_path(config: ServerConfig, name: str = READS_SOCKET) -> str:
    """Through a descriptor of its folder where the name is too long for a socket."""
    path = run_directory(config) / name
    if len(os.fsencode(path)) < _SOCKET_NAME_BYTES:
        return str(path)
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)}/{name}"


def share_directory(config: ServerConfig) -> Path:
    """DATA/share: what pilots on this machine may read."""
    return config.data / "share"


def shared_url_file(config: ServerConfig) -> Path:
    """The server's address, for pilots on this machine."""
    return share_directory(config) / "url"


def prepare_data(db: Writer, config: ServerConfig, *, now: float) -> None:
    """Number the CE queues, make the first user with its token, and a fresh token of the server's processes."""
    private = (config.data, run_directory(config), config.data / "sandboxes")
    for folder, mode in {**dict.fromkeys(private, 0o700), share_directory(config): 0o755}.items():
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        folder.chmod(mode)
    with db:
        tx = Transaction(db, now)
        number_at_start(tx, list(config.resources.tree.queue_ids()))
        is_known = is_admin(tx.reader(), config.admin.name) is not None
        if not (is_known and (config.data / _TOKEN_FILE).exists()):
            vo, groups = _first_place(config)
            add_account(tx, config.admin.name, vo, groups, admin=True)
            why = "made at the first start"
            first = issue_token(tx, config.admin.name, SCOPES, seconds=None, note=why)
            append_entry(
                tx, AuditNote("token-issued", config.admin.name, detail=f"{', '.join(sorted(SCOPES))}; {why}")
            )
            write_file(config.data / _TOKEN_FILE, first)
        token = secrets.token_urlsafe(32)
        set_service_token(tx, hash_token(token))
        tx.flush()
    write_file(run_directory(config) / SERVICE_FILE, token)


def _first_place(config: ServerConfig) -> tuple[str, tuple[str, ...]]:
    """By default the VO of the first group that has one, and its groups."""
    groups, named = config.resources.groups, config.admin.groups
    vo_of = {name: groups[name].vo if name in groups else "" for name in named or groups}
    vos = filter(None, (*vo_of.values(), *config.resources.vos))
    vo = config.admin.vo or next(vos, "local")
    return vo, named or tuple(name for name, group_vo in vo_of.items() if group_vo in ("", vo)) or ("users",)


def write_url(config: ServerConfig) -> None:
    """Write the server's address for the command line and for local pilots."""
    write_file(run_directory(config) / "url", config.url)
    write_file(shared_url_file(config), config.url, mode=0o644)


def write_file(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file, all or nothing."""
    write_durably(path, f"{text}\n".encode(), mode=mode)
