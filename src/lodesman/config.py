"""The server's configuration: one TOML file, checked, with defaults that are safe."""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from lodesman.director import DirectorOptions, read_options
from lodesman.errors import InvalidConfig
from lodesman.resources import ResourceConfig, load_resources

Seconds = Annotated[float, Meta(gt=0)]
Polling = Annotated[float, Meta(ge=0.1, le=86_400)]


class ServerSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Where it listens and where it keeps its data. Without TLS it listens on loopback only.

    `public_url`: how pilots and users reach it, if not by host and port (behind a proxy, or on 0.0.0.0).
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 7777
    data: str = "lode-data"
    tls_certificate: str = ""
    tls_key: str = ""
    public_url: str = ""
    sandbox_mb: Annotated[int, Meta(gt=0)] = 200


class PilotSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Habits of pilots, in seconds. `stop_at_exit`: local pilots end with the server (for demos)."""

    lease_seconds: Seconds = 1_800.0
    heartbeat_seconds: Seconds = 60.0
    idle_seconds: Seconds = 120.0
    life_seconds: Annotated[int, Meta(ge=0)] = 0
    python: str = "python3"
    stop_at_exit: bool = False


class AdminSection(Struct, forbid_unknown_fields=True, frozen=True):
    """The first user, made at the first start; its token is written to DATA/admin.token."""

    name: str = "admin"
    vo: str = ""
    groups: tuple[str, ...] = ()


class ResourceSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Files that describe sites and groups (TOML or DIRAC CFG), relative to this file."""

    files: tuple[str, ...] = ()


class _Whole(Struct, forbid_unknown_fields=True, frozen=True):
    server: ServerSection = ServerSection()
    pilots: PilotSection = PilotSection()
    admin: AdminSection = AdminSection()
    resources: ResourceSection = ResourceSection()
    director: dict[str, Any] = {}


class ServerConfig(Struct, frozen=True):
    """Everything the server is told. Paths are absolute."""

    path: Path | None
    server: ServerSection
    pilots: PilotSection
    admin: AdminSection
    director: DirectorOptions
    polling_seconds: float
    resources: ResourceConfig
    resource_files: tuple[Path, ...]

    @property
    def data(self) -> Path:
        """The data directory."""
        base = Path.cwd() if self.path is None else self.path.parent
        return (base / self.server.data).resolve()

    @property
    def database(self) -> Path:
        """The database file."""
        return self.data / "lode.db"

    @property
    def url(self) -> str:
        """Where this machine finds the server."""
        scheme = "https" if self.server.tls_certificate else "http"
        # A server that listens on every address is found here on loopback.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.server.host, self.server.host)  # noqa: S104
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.server.port}"

    @property
    def pilot_url(self) -> str:
        """Where pilots find the server."""
        return self.server.public_url or self.url


def load_config(path: Path | None, *, overrides: dict[str, dict[str, Any]] | None = None) -> ServerConfig:
    """Read and check a configuration file (None: all defaults), with single values overridden.

    Raises InvalidConfig that names the file and the value.
    """
    where = str(path or "configuration")
    raw = {} if path is None else _read_toml(path)
    for section, values in (overrides or {}).items():
        before = raw.get(section, {})
        raw[section] = {**before, **values} if isinstance(before, dict) else before
    try:
        whole = msgspec.convert(raw, _Whole)
    except msgspec.ValidationError as wrong:
        raise InvalidConfig(f"{where}: {wrong}.", source=where) from None
    try:
        _check_listening(whole.server)
        polling, options = _read_director(whole.director)
    except InvalidConfig as wrong:
        wrong.message = f"{where}: {wrong.message}"
        raise
    base = Path.cwd() if path is None else path.resolve().parent
    files = tuple(base / name for name in whole.resources.files)
    return ServerConfig(
        path=None if path is None else path.resolve(),
        server=_with_absolute_paths(whole.server, base),
        pilots=whole.pilots,
        admin=whole.admin,
        director=options,
        polling_seconds=polling,
        resources=read_resources(files),
        resource_files=files,
    )


def _read_director(section: dict[str, Any]) -> tuple[float, DirectorOptions]:
    """The director's seconds between iterations, and its options. Raises InvalidConfig."""
    options = dict(section)
    told = options.pop("PollingTime", 60.0)
    try:
        polling = msgspec.convert(told, Polling, strict=False)
    except msgspec.ValidationError:
        raise InvalidConfig(
            f"Director PollingTime must be a number from 0.1 to 86400, not {str(told)[:80]!r}."
        ) from None
    return polling, read_options(options)


def _with_absolute_paths(server: ServerSection, base: Path) -> ServerSection:
    """Files of the server section count from the configuration file, wherever the server is started."""
    return msgspec.structs.replace(
        server,
        tls_certificate=str(base / server.tls_certificate) if server.tls_certificate else "",
        tls_key=str(base / server.tls_key) if server.tls_key else "",
    )


def read_resources(files: tuple[Path, ...]) -> ResourceConfig:
    """The resource configuration in all files together. Raises InvalidConfig."""
    texts = []
    for file in files:
        try:
            texts.append((str(file), file.read_text()))
        except (OSError, UnicodeDecodeError) as fault:
            raise InvalidConfig(f"{file} cannot be read: {fault}.", source=str(file)) from None
    return load_resources(texts)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as fault:
        raise InvalidConfig(f"{path} cannot be read: {fault.strerror}.", source=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InvalidConfig(f"{path} is not TOML: {fault}.", source=str(path)) from None
    except RecursionError:
        raise InvalidConfig(f"{path} is nested too deeply.", source=str(path)) from None


def _check_listening(server: ServerSection) -> None:
    """Tokens must not travel in the clear: without TLS only loopback is allowed."""
    if bool(server.tls_certificate) != bool(server.tls_key):
        raise InvalidConfig("tls_certificate and tls_key belong together.", section="server")
    if server.tls_certificate:
        return
    try:
        loopback = ipaddress.ip_address(server.host).is_loopback
    except ValueError:
        loopback = server.host == "localhost"
    if not loopback:
        raise InvalidConfig(
            f"The server would listen on {server.host} without TLS, and tokens would travel in the clear.",
            hint="Set tls_certificate and tls_key, or listen on 127.0.0.1.",
            section="server",
        )
