"""Reading the server's configuration: one TOML file and the resource files that it names, checked as a whole.

Every fault of all files is told at once, each with file, line and section.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lodesman.config.files import Stamps, Texts, Watched
from lodesman.config.sections import (
    AdminSection,
    PilotSection,
    Polling,
    Sections,
    ServerSection,
    SubmitPoolSection,
    read_sections,
)
from lodesman.config.tls import listening_faults
from lodesman.director import DirectorOptions, read_options
from lodesman.errors import InvalidConfig, SyntaxFault
from lodesman.resources import (
    Fault,
    ResourceConfig,
    Source,
    fault_of,
    line_of,
    lines_of,
    load_resources,
    parse_toml,
    refuse,
)

POLLING_SECONDS = 60.0
OVERRIDE = "--set"

Overrides = Mapping[str, Mapping[str, Any]]
Look = Callable[[Watched, Stamps], None]


class ServerConfig(Struct, frozen=True):
    """Everything the server is told. Paths are absolute."""

    path: Path | None
    server: ServerSection
    pilots: PilotSection
    admin: AdminSection
    submit_pools: SubmitPoolSection
    director: DirectorOptions
    polling_seconds: float
    resources: ResourceConfig
    resource_files: tuple[Path, ...]
    watched: Watched
    stamps: Stamps
    texts: Texts

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


def load_config(
    path: Path | None,
    *,
    overrides: Overrides | None = None,
    looked_at: Look | None = None,
    texts: Texts | None = None,
) -> ServerConfig:
    """Read and check a configuration file (None: all defaults), with single values overridden.

    `looked_at` is told which files are read, and their stamps from before, whatever comes of it: mending one of them
    must be noticed. `texts` are read instead of the files. Raises InvalidConfig; `data["faults"]` has every fault of
    all files.
    """
    own = None if path is None else path.resolve()
    watched = Watched(base=Path.cwd() if own is None else own.parent, own=own)
    stamps = watched.stamps()
    tell = looked_at or _nobody
    tell(watched, stamps)
    text = "" if path is None else _own_text(path) if texts is None else texts.own
    raw = _parse_own(text, str(path))
    reader = _Reader(str(path or "configuration"), text, overrides or {})
    sections = reader.sections(raw)
    watched = replace(watched, names=sections.resources.files)
    # The server's own file has been read already, and is as it was then.
    stamps = {**watched.stamps(), **stamps}
    tell(watched, stamps)
    files = reader.resource_texts(watched) if texts is None else texts.files
    return reader.config(sections, watched, stamps, Texts(own=text, files=files))


def _nobody(_watched: Watched, _stamps: Stamps) -> None:
    """Nobody wants to know."""


class _Reader:
    """Reads one file; gathers faults with their places."""

    def __init__(self, file: str, text: str, overrides: Overrides) -> None:
        self._file = file
        self._lines = lines_of(text) if text else {}
        self._overrides = overrides
        self._faults: list[Fault] = []

    def complain(self, path: tuple[str, ...], message: str) -> None:
        """A fault of the value at a path."""
        section = ".".join(path[:-1] or path)
        if len(path) > 1 and path[1] in self._overrides.get(path[0], {}):
            source = Source(file=OVERRIDE, section=section)
        else:
            source = Source(file=self._file, section=section, line=line_of(self._lines, path))
        self._faults.append(Fault(message=message, source=source))

    def sections(self, raw: dict[str, Any]) -> Sections:
        """The sections, with single values overridden."""
        for section, values in self._overrides.items():
            before = raw.get(section, {})
            raw[section] = {**before, **values} if isinstance(before, dict) else before
        return read_sections(raw, self.complain)

    def config(self, sections: Sections, watched: Watched, stamps: Stamps, texts: Texts) -> ServerConfig:
        """Everything. Raises InvalidConfig with the faults of all files."""
        server = _with_absolute_paths(sections.server, watched.base)
        for option, message in listening_faults(server):
            self.complain(("server", option), message)
        polling, options = self.director(sections.director)
        return ServerConfig(
            path=watched.own,
            server=server,
            pilots=sections.pilots,
            admin=sections.admin,
            submit_pools=sections.submit_pools,
            director=options,
            polling_seconds=polling,
            resources=load_resources(texts.files.items(), faults=self._faults),
            resource_files=tuple(map(Path, texts.files)),
            watched=watched,
            stamps=stamps,
            texts=texts,
        )

    def director(self, section: dict[str, Any]) -> tuple[float, DirectorOptions]:
        """The director's seconds between iterations, and its options."""
        options = dict(section)
        told = options.pop("PollingTime", POLLING_SECONDS)
        polling = POLLING_SECONDS
        try:
            polling = msgspec.convert(told, Polling, strict=False)
        except msgspec.ValidationError:
            message = f"PollingTime must be a number from 0.1 to 86400, not {str(told)[:80]!r}"
            self.complain(("director", "PollingTime"), message)
        try:
            return polling, read_options(options)
        except InvalidConfig as refused:
            for fault in refused.data["faults"]:
                pool = () if fault["section"] == "Director" else (fault["section"],)
                path = ("director", *pool, *filter(None, (fault["option"],)))
                self.complain(path, " ".join(filter(None, (*pool, fault["option"], fault["message"]))))
        return polling, DirectorOptions()

    def resource_texts(self, watched: Watched) -> dict[str, str]:
        """The texts of the resource files, by name."""
        for name in watched.names:
            if not watched.matches(name):
                self.complain(("resources", "files"), f"no file is called {name}")
        texts: dict[str, str] = {}
        for file in watched.resource_files():
            try:
                texts[str(file)] = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as fault:
                why = fault.strerror if isinstance(fault, OSError) else f"it is no UTF-8 ({fault.reason})"
                self._faults.append(Fault(message=f"it cannot be read: {why}", source=Source(file=str(file))))
        return texts


def _with_absolute_paths(server: ServerSection, base: Path) -> ServerSection:
    """Files of the server section count from the configuration file, wherever the server is started."""
    return msgspec.structs.replace(
        server,
        tls_certificate=str(base / server.tls_certificate) if server.tls_certificate else "",
        tls_key=str(base / server.tls_key) if server.tls_key else "",
    )


def _own_text(path: Path) -> str:
    """The text of the server's own file. Raises InvalidConfig."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as fault:
        message = f"it cannot be read: {fault.strerror}"
    except UnicodeDecodeError as fault:
        message = f"it cannot be read: it is no UTF-8 ({fault.reason})"
    raise refuse([Fault(message=message, source=Source(file=str(path)))])


def _parse_own(text: str, file: str) -> dict[str, Any]:
    try:
        return parse_toml(text, source=file)
    except SyntaxFault as fault:
        raise refuse([fault_of(fault, file)]) from None
