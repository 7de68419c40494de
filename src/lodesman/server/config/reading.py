"""Reading the server's configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from lodesman.base.errors import InvalidConfig, SyntaxFault, TooLarge
from lodesman.decide.director.options import DirectorOptions, read_options
from lodesman.decide.resources import (
    LOCAL,
    MANUAL,
    Fault,
    FilePosition,
    ResourceConfig,
    fault_of,
    load_resources,
    refuse,
    written_jc_lists,
)
from lodesman.decide.resources.load_toml import line_of, lines_of, parse_toml
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.server.config import sections
from lodesman.server.config.backends import queue_faults, read_backends, with_implied
from lodesman.server.config.identities import read_identities, with_identities
from lodesman.server.config.server_config import ServerConfig, SourceFiles, Texts
from lodesman.server.writer.resolving import default_faults

# The sections that are taken as they are.
_AS_STATED: Final = (
    "limits", "pilots", "store", "admin", "job_classes", "jsv", "submit_pools", "broker", "matching", "local", "shares"
)  # fmt: skip
_POLLING_SECONDS = 60.0
_MOST_AMBIGUOUS = 5

# Section -> option -> value, of `--set`.
_Overrides = Mapping[str, Mapping[str, Any]]


class RefusedConfig(InvalidConfig):
    """A configuration with faults; `sources` as far as the reading came."""

    def __init__(self, fault: InvalidConfig, sources: SourceFiles) -> None:
        super().__init__(fault.message, hint=fault.hint, **fault.data)
        self.sources = sources


def load_config(
    path: Path | None, *, overrides: _Overrides | None = None, texts: Texts | None = None
) -> ServerConfig:
    """Read and check a configuration file (None: all defaults), with single values overridden.

    `texts` are read instead of the files. Raises RefusedConfig; `data["faults"]` has every fault of all files.
    """
    reader = _ConfigReader(path, overrides or {}, texts)
    try:
        return reader.read()
    except InvalidConfig as fault:
        raise RefusedConfig(fault, reader.sources) from None


class _ConfigReader:
    def __init__(self, path: Path | None, overrides: _Overrides, texts: Texts | None) -> None:
        self.sources = SourceFiles.of(None if path is None else path.resolve())
        self._path = path
        self._overrides = overrides
        self._texts = texts
        self._own = ""
        self._lines: Mapping[tuple[str, ...], int] = {}
        self._faults: list[Fault] = []

    def read(self) -> ServerConfig:
        stated = sections.read_table(sections.ServerFile, self._raw(), (), self._complain)
        self.sources = self.sources.naming(stated.resources.files, stated.gridengine.files)
        texts = self._texts or Texts(
            own=self._own,
            files=self._read("resources", self.sources.names),
            native=self._read("gridengine", self.sources.native),
        )
        server = self._server(stated.server)
        file = None if "url" in self._overrides.get("store", {}) else self.sources.own
        for message in sections.store_faults(stated.store.url, file):
            self._complain(("store", "url"), message)
        for message in sections.slice_faults(stated.shares, server.keep_days):
            self._complain(("shares", "slices"), message)
        # Kept texts were good: what has become of the script since then is said of each submission.
        for message in sections.jsv_faults(stated.jsv) if self._texts is None else ():
            self._complain(("jsv", "server"), message)
        polling, options = self._director(stated.director)
        backends = read_backends(stated.backend, self._complain)
        resources = load_resources(texts.files.items(), faults=self._faults)
        vocabulary = self._vocabulary(texts.native, stated)
        resources = msgspec.structs.replace(
            resources, notices=(*resources.notices, *_of_jc_lists(resources, vocabulary))
        )
        identities = read_identities(stated.identity, self._complain)
        backends, rules = with_identities(with_implied(backends, resources), identities, self._complain)
        options = replace(options, identities=rules)
        self._check_pools(options, resources, backends)
        self._faults += () if self._faults else queue_faults(backends, resources)
        if self._faults:
            raise refuse(self._faults)
        return ServerConfig(
            path=self.sources.own,
            server=server,
            **{name: getattr(stated, name) for name in _AS_STATED},
            backends=backends,
            director=options,
            polling_seconds=polling,
            resources=resources,
            vocabulary=vocabulary,
            sources=self.sources,
            texts=texts,
        )

    def _server(self, server: sections.ServerSection) -> sections.ServerSection:
        # Files count from the configuration file, wherever the server is started.
        pair = {name: getattr(server, name) for name in ("tls_certificate", "tls_key")}
        absolute = {name: str(self.sources.base / path) for name, path in pair.items() if path}
        server = msgspec.structs.replace(server, **absolute)
        for option, message in sections.listening_faults(server):
            self._complain(("server", option), message)
        return server

    def _vocabulary(self, texts: Mapping[str, str], stated: sections.ServerFile) -> Vocabulary:
        faults: list[SyntaxFault] = []
        try:
            vocabulary = read_vocabulary(texts, faults=faults)
        except TooLarge as fault:
            self._complain(("gridengine", "files"), fault.message.rstrip("."))
            vocabulary = Vocabulary()
        self._faults += [fault_of(fault, str(fault.data.get("source", ""))) for fault in faults]
        for name, message in default_faults(stated.job_classes.defaults, vocabulary.complexes):
            self._complain(("job_classes", "defaults", name), message)
        if not stated.gridengine.enforce_project:
            return vocabulary
        if not vocabulary.projects:
            message = "enforce_project: no file defines a project, so no job could be submitted; add what qconf -sprj prints"
            self._complain(("gridengine", "enforce_project"), message)
        return replace(vocabulary, enforce_project=True)

    def _complain(self, path: sections.Place, message: str) -> None:
        section = ".".join(path[:-1] or path)
        if len(path) > 1 and path[1] in self._overrides.get(path[0], {}):
            source = FilePosition(file="--set", section=section)
        else:
            file = "configuration" if self._path is None else str(self._path)
            source = FilePosition(file=file, section=section, line=line_of(self._lines, path))
        self._faults.append(Fault(message=message, source=source))

    def _raw(self) -> dict[str, Any]:
        raw: dict[str, Any] = {}
        if self._path is not None:
            try:
                self._own = self._path.read_text("utf-8") if self._texts is None else self._texts.own
                raw = parse_toml(self._own, source=str(self._path))
            except (OSError, UnicodeDecodeError) as fault:
                raise refuse([_unreadable(self._path, fault)]) from None
            except SyntaxFault as fault:
                raise refuse([fault_of(fault, str(self._path))]) from None
            self._lines = lines_of(self._own)
        for section, values in self._overrides.items():
            before = raw.get(section, {})
            raw[section] = {**before, **values} if isinstance(before, dict) else before
        return raw

    def _director(self, section: dict[str, Any]) -> tuple[float, DirectorOptions]:
        options = dict(section)
        seconds = options.pop("PollingTime", _POLLING_SECONDS)
        polling = _POLLING_SECONDS
        try:
            polling = msgspec.convert(seconds, sections.Polling, strict=False)
        except msgspec.ValidationError:
            message = f"PollingTime must be a number from 0.1 to 86400, not {str(seconds)[:80]!r}"
            self._complain(("director", "PollingTime"), message)
        try:
            return polling, read_options(options)
        except InvalidConfig as refused:
            for fault in refused.data["faults"]:
                pool = () if fault["section"] == "Director" else (fault["section"],)
                path = ("director", *pool, *filter(None, (fault["option"],)))
                self._complain(path, " ".join(filter(None, (*pool, fault["option"], fault["message"]))))
        return polling, DirectorOptions()

    def _check_pools(
        self, options: DirectorOptions, resources: ResourceConfig, backends: Collection[str]
    ) -> None:
        places = list(resources.tree.queue_ids())
        queues = {"/".join(path) for place in places for path in (place, place[:2])}
        names_of = {
            "Backends": {LOCAL, MANUAL, *backends},
            "Sites": set(resources.tree.sites),
            "Queues": queues,
        }
        inherited = options.pool_defaults.scope
        for name, pool in {"": options.pool_defaults, **options.pools}.items():
            if pool.identity and pool.identity not in options.identities:
                close = get_close_matches(pool.identity, options.identities, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self._complain(
                    ("director", *filter(None, (name,)), "identity"),
                    f"there is no [identity.{pool.identity[:80]}]{hint}",
                )
        for name, scope in {"": inherited, **options.scopes}.items():
            for option, names, usual in zip(names_of, scope, inherited, strict=True):
                for value in () if name and names == usual else names:
                    if value not in names_of[option]:
                        close = get_close_matches(value, names_of[option], n=1)
                        hint = f"; did you mean {close[0]}?" if close else ""
                        path = ("director", *filter(None, (name,)), option)
                        self._complain(path, f"{option}: there is no {value[:80]}{hint}")

    def _read(self, section: str, names: Collection[str]) -> dict[str, str]:
        for name in names:
            if not self.sources.matches(name):
                self._complain((section, "files"), f"no file is called {name}")
        texts: dict[str, str] = {}
        for file in self.sources.files(names):
            try:
                texts[str(file)] = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as fault:
                self._faults.append(_unreadable(file, fault))
        return texts


def _of_jc_lists(resources: ResourceConfig, vocabulary: Vocabulary) -> Iterator[Fault]:
    for place, source, lists in written_jc_lists(resources.tree):
        unknown = [group for group in lists.groups if group not in vocabulary.host_groups]
        sentences = [f"jc_list names the host group {group}, which no file defines" for group in unknown]
        sentences += [
            ambiguity.sentence for ambiguity in islice(lists.ambiguous(vocabulary), _MOST_AMBIGUOUS)
        ]
        yield from (Fault(message=f"JcList of {place}: {sentence}", source=source) for sentence in sentences)


def _unreadable(file: Path, fault: OSError | UnicodeDecodeError) -> Fault:
    why = fault.strerror if isinstance(fault, OSError) else f"it is not UTF-8 ({fault.reason})"
    return Fault(message=f"it cannot be read: {why}", source=FilePosition(file=str(file)))
