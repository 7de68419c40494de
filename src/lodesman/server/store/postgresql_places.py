"""Where the url of a database of PostgreSQL leads."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

# Of Debian's library, and of the one in the wheel.
_FOLDERS: Final = "/var/run/postgresql,/tmp"


def place(url: str) -> str:
    """The database and where it is, for sentences."""
    known = conninfo_to_dict(url)
    name, host = known.get("dbname") or known.get("user") or "", known.get("host") or "the default socket"
    return f"the database {name} at {host}"


def without_passwords(url: str) -> str:
    """What other programs of PostgreSQL may be given as an argument."""
    known = conninfo_to_dict(url)
    return make_conninfo(
        "", **{name: known[name] for name in known if name not in ("password", "sslpassword")}
    )


def ways_in(url: str) -> tuple[Path, ...]:
    """The sockets of its server, and the files from which the library takes passwords and keys."""
    usual = {one.keyword.decode(): (one.val or b"").decode() for one in Conninfo.get_defaults()}
    known = {name: str(value) for name, value in (usual | conninfo_to_dict(url)).items()}
    files = known["passfile"] or "~/.pgpass", known["sslkey"] or "~/.postgresql"
    return (*_sockets(known["host"] or _FOLDERS, known["port"]), *(Path(file).expanduser() for file in files))


def _sockets(hosts: str, ports: str) -> Iterator[Path]:
    for folder in (Path(host) for host in hosts.split(",") if host.startswith("/")):
        if folder.is_dir() and folder.stat().st_mode & stat.S_ISVTX:  # jobs need it, as they need /tmp
            yield from (folder / f".s.PGSQL.{port}" for port in ports.split(","))
        else:
            yield folder
