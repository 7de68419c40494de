"""The configuration of a server as a value."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.resources import (
    LOCAL,
    ResourceConfig,
)
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.server.config import sections
from lodesman.server.config.backends import BackendSection
from lodesman.server.store import Database, database_at
from lodesman.wire.accounts import LimitSection
from lodesman.wire.client import is_every_address
from lodesman.wire.groups import ShareSection
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.jsv import JsvSection

_MAGIC = frozenset("*?[")


class Texts(Struct, frozen=True):
    """The texts that a configuration was read from; files by name."""

    own: str = ""
    files: dict[str, str] = {}
    native: dict[str, str] = {}


class SourceFiles(Struct, frozen=True, kw_only=True):
    """The files of a configuration as they were before they were read.

    A name with `*`, `?` or `[` stands for all files that fit it at the time, sorted.
    """

    base: Path  # of names
    own: Path | None
    names: tuple[str, ...] = ()  # of resource files
    native: tuple[str, ...] = ()  # of Grid Engine
    # Times, size and identity of each file; None: it is not there.
    stamps: Mapping[Path, tuple[int, ...] | None] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, own: Path | None) -> SourceFiles:
        """The server's own file alone, before it is read."""
        base = Path.cwd() if own is None else own.parent
        return cls(base=base, own=own, stamps={} if own is None else {own: _stamp(own)})

    def naming(self, names: tuple[str, ...], native: tuple[str, ...] = ()) -> SourceFiles:
        """With the files that it names, before they are read. The stamp of the own file, which has been read, stays."""
        named = msgspec.structs.replace(self, names=names, native=native)
        return msgspec.structs.replace(named, stamps={**named.stamps_now(), **self.stamps})

    def changed(self) -> bool:
        """Whether any file is not as it was."""
        return self.stamps_now() != self.stamps

    def files(self, names: Iterable[str]) -> tuple[Path, ...]:
        """The files that names stand for, each once; of plain names also those that are not there."""
        return tuple(dict.fromkeys(path for name in names for path in self.matches(name)))

    def matches(self, name: str) -> list[Path]:
        """The files that one name stands for."""
        plain = self.base / name
        if not _MAGIC & set(name) or plain.exists():
            return [plain]
        pattern = name if Path(name).is_absolute() else f"{glob.escape(str(self.base))}/{name}"
        files = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path takes no absolute pattern
        return [Path(path) for path in files if Path(path).is_file()]

    def stamps_now(self) -> dict[Path, tuple[int, ...] | None]:
        """The stamps of the files as they are now."""
        own = () if self.own is None else (self.own,)
        return {path: _stamp(path) for path in (*own, *self.files((*self.names, *self.native)))}


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino


class ServerConfig(Struct, frozen=True):
    """The whole configuration of the server. Paths are absolute."""

    path: Path | None
    server: sections.ServerSection
    limits: LimitSection
    pilots: sections.PilotSection
    store: sections.StoreSection
    admin: sections.AdminSection
    job_classes: JobClassSection
    jsv: JsvSection
    submit_pools: sections.SubmitPoolSection
    broker: sections.BrokerSection
    matching: sections.MatchingSection
    local: sections.LocalSection
    shares: ShareSection
    backends: dict[str, BackendSection]
    director: DirectorOptions
    polling_seconds: float
    resources: ResourceConfig
    vocabulary: Vocabulary
    sources: SourceFiles
    texts: Texts

    @property
    def backend_names(self) -> frozenset[str]:
        """The batch systems that there are."""
        return frozenset({LOCAL, *self.backends})

    @property
    def resource_files(self) -> tuple[Path, ...]:
        """The resource files that were read."""
        return tuple(map(Path, self.texts.files))

    @property
    def native_files(self) -> tuple[Path, ...]:
        """The files of Grid Engine that were read."""
        return tuple(map(Path, self.texts.native))

    @property
    def data(self) -> Path:
        """The data directory."""
        return (self.sources.base / self.server.data).resolve()

    @property
    def database(self) -> Database:
        """Where jobs and pilots are stored."""
        return database_at(self.store.url, self.data)

    @property
    def url(self) -> str:
        """The address of the server on this machine."""
        scheme = "https" if self.server.tls_certificate else "http"
        # A server that listens on every address is found here on loopback.
        host = self.server.host
        if is_every_address(host):
            host = "::1" if ":" in host else "127.0.0.1"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.server.port}"

    @property
    def pilot_url(self) -> str:
        """The address of the server for pilots."""
        return self.server.public_url or self.url
