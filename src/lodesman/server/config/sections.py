"""The sections of the server's file, with safe defaults, and what may be wrong in them: every fault is reported."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Meta, Struct

from lodesman.base.errors import InvalidConfig
from lodesman.server.jsv import server_script
from lodesman.wire.accounts import LimitSection
from lodesman.wire.client import is_loopback, parse_server
from lodesman.wire.groups import ShareSection
from lodesman.wire.job_classes import JobClassSection
from lodesman.wire.jsv import JsvSection
from lodesman.wire.vocabulary import GateMode, Packing

Seconds = Annotated[float, Meta(gt=0)]
Polling = Annotated[float, Meta(ge=0.1, le=86_400)]


class ServerSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Where the server listens and keeps its data. Without TLS it listens on loopback only."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 7777
    data: str = "lode-data"
    tls_certificate: str = ""
    tls_key: str = ""
    public_url: str = (
        ""  # How pilots and users reach it, if not by host and port (behind a proxy, on 0.0.0.0).
    )
    sandbox_mb: Annotated[int, Meta(gt=0)] = 200
    # What input files and outputs of one user may take; 0: no limit.
    sandbox_quota_mb: Annotated[int, Meta(ge=0)] = 10_240
    keep_days: Annotated[float, Meta(ge=0)] = 90.0  # How long jobs are kept after their end.


class PilotSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Habits of pilots."""

    lease_seconds: Seconds = 1_800.0
    heartbeat_seconds: Seconds = 60.0
    idle_seconds: Seconds = 120.0
    life_seconds: Annotated[int, Meta(ge=0)] = 0
    python: str = "python3"
    stop_at_exit: bool = False  # Local pilots end with the server (for demos).
    # Below it pilots publish where the site sets no $JOBSTATUS; from their working directory; empty: nowhere.
    jobstatus_directory: str = ""
    home_writable: bool = False  # Jobs may write in the home of the account that runs pilots.


class LocalSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Pilots on the server's own machine."""

    run_as: str = ""  # Their account, for a server that root runs.
    # Local queues stay open although jobs of several users could do all that the server can.
    trust_jobs: bool = False


class AdminSection(Struct, forbid_unknown_fields=True, frozen=True):
    """The first user, made at the first start; its token is written to DATA/admin.token."""

    name: str = "admin"
    vo: str = ""
    groups: tuple[str, ...] = ()


class ResourceSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Files that describe sites and groups (TOML or DIRAC CFG), relative to this file; `*` and `?` as in a shell."""

    files: tuple[str, ...] = ()


class GridEngineSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Files with complexes, host groups, user lists and projects of Grid Engine, as `qconf` prints them."""

    files: tuple[str, ...] = ()
    enforce_project: bool = False  # Each job names one of these projects (JobGroup).


class SubmitPoolSection(Struct, forbid_unknown_fields=True, frozen=True):
    """SubmitPools (RFC #7)."""

    refresh_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 900.0  # How often SubmitPools are evaluated.
    grace_seconds: Annotated[float, Meta(ge=0)] = 14_400.0  # How long one that no job needs is kept.
    add_eligible_sites: bool = (
        False  # Descriptions of jobs with Requirements name the sites that fulfil them.
    )


class BrokerSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Sites that advertise themselves."""

    mode: GateMode = GateMode.LEDGER  # How gates count, where a site has no GateMode.
    # How long an ad counts that does not say so itself.
    lifetime_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 900.0
    ledger_seconds: Annotated[float, Meta(ge=1, le=86_400)] = (
        900.0  # How long a match counts that no ad shows.
    )
    # Of a station list, sites with more free capacity are chosen more often.
    stations_by_capacity: bool = False


class MatchingSection(Struct, forbid_unknown_fields=True, frozen=True):
    """How jobs are given to pilots that run several at once."""

    packing: Packing = Packing.WASTE

    @property
    def packs(self) -> bool:
        """Whether jobs are packed."""
        return self.packing is Packing.WASTE


class StoreSection(Struct, forbid_unknown_fields=True, frozen=True):
    """The database."""

    # postgresql://USER@HOST/NAME or sqlite:///FILE; empty: lode.db in the data directory.
    url: str = ""


class ServerFile(Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file."""

    server: ServerSection = ServerSection()
    limits: LimitSection = LimitSection()
    pilots: PilotSection = PilotSection()
    store: StoreSection = StoreSection()
    admin: AdminSection = AdminSection()
    resources: ResourceSection = ResourceSection()
    gridengine: GridEngineSection = GridEngineSection()
    job_classes: JobClassSection = JobClassSection()
    jsv: JsvSection = JsvSection()
    submit_pools: SubmitPoolSection = SubmitPoolSection()
    broker: BrokerSection = BrokerSection()
    matching: MatchingSection = MatchingSection()
    local: LocalSection = LocalSection()
    shares: ShareSection = ShareSection()
    backend: dict[str, Any] = {}
    identity: dict[str, Any] = {}
    director: dict[str, Any] = {}


S = TypeVar("S", bound=Struct)
# Section and option, or section alone.
Place = tuple[str, ...]
_Complain = Callable[[Place, str], None]


def read_table(kind: type[S], table: object, path: Place, complain: _Complain) -> S:
    """A section, or the whole file. A wrong value is reported with its path and has its default in the answer."""
    if not isinstance(table, dict):
        complain(path, f"a table [{'.'.join(path)}] is expected")
        return kind()
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        here = (*path, name)
        if name not in fields:
            complain(here, _unknown(name, fields, path))
        elif isinstance(fields[name].type, type) and issubclass(fields[name].type, Struct):
            values[fields[name].name] = read_table(fields[name].type, value, here, complain)
        else:
            try:
                values[fields[name].name] = msgspec.convert(value, fields[name].type)
            except msgspec.ValidationError as wrong:
                message = str(wrong)
                complain(here, f"{name}: {message[:1].lower()}{message[1:]}")
    return kind(**values)


def _unknown(name: str, fields: dict[str, Any], path: Place) -> str:
    kind = "an option" if path else "a section"
    close = get_close_matches(name, fields, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(fields)}"
    return f"{name[:80]} is not {kind} of the configuration; {hint}"


def slice_faults(shares: ShareSection, keep_days: float) -> Iterator[str]:
    """What is wrong with time slices: usage is known as long as jobs are kept."""
    longest = max(slice_.time_span for slice_ in shares.slices)
    if shares.corrector != "none" and 0 < keep_days * 86_400 < longest:
        yield f"a TimeSpan of {longest:g} s is longer than jobs are kept (keep_days = {keep_days:g} in [server])"


def jsv_faults(jsv: JsvSection) -> Iterator[str]:
    """Why the server's verifier could not run: then no job could be submitted."""
    try:
        server_script(jsv)
    except InvalidConfig as fault:
        yield f"{fault.message.rstrip('.')}{f'; {fault.hint}' if fault.hint else ''}".rstrip(".")


def listening_faults(server: ServerSection) -> Iterator[tuple[str, str]]:
    """Option and fault. Tokens must not travel in the clear, so without TLS only loopback is allowed. Paths are absolute."""
    if bool(server.tls_certificate) != bool(server.tls_key):
        missing = "tls_key" if server.tls_certificate else "tls_certificate"
        named = "tls_certificate" if server.tls_certificate else "tls_key"
        yield named, f"tls_certificate and tls_key belong together, and {missing} is not given"
    elif server.tls_certificate:
        yield from _pair_faults(server.tls_certificate, server.tls_key)
    elif not is_loopback(server.host):
        where = server.host or "every address"
        message = f"the server would listen on {where} without TLS, and tokens would travel in the clear"
        yield "host", f"{message}; set tls_certificate and tls_key, or listen on 127.0.0.1"
    if server.public_url:
        try:
            public = parse_server(server.public_url)
        except InvalidConfig as fault:
            yield "public_url", fault.message
        else:
            if not public.is_private:
                clear = f"pilots would send their tokens to {public} in the clear; it must be https://"
                yield "public_url", clear


def store_faults(url: str, file: Path | None) -> Iterator[str]:
    """What is wrong with the url of the database. `file`: where it stands, None for the command line."""
    try:
        parts = urlsplit(url)
        has_password = bool(parts.password) or "password" in parse_qs(parts.query)
    except ValueError:
        yield "url is no address; it is postgresql://USER@HOST/NAME, or sqlite:///FILE"
        return
    if url and parts.scheme not in ("postgresql", "postgres", "sqlite"):
        yield "url begins with postgresql:// or with sqlite:///"
    elif has_password and file is None:
        yield "url has a password, which the arguments of a command show to all; write it into the configuration file"
    elif has_password and _others_may_read(str(file)):
        yield f"url has a password, and others may read {file}; run: chmod 600 {file}"


def _pair_faults(certificate: str, key: str) -> Iterator[tuple[str, str]]:
    faults = [*_unreadable("tls_certificate", certificate), *_unreadable("tls_key", key)]
    if not faults and _others_may_read(key):
        faults = [("tls_key", f"others may read {key}; run: chmod 600 {key}")]
    if faults:
        yield from faults
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without the empty password OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as fault:
        if fault.reason == "KEY_VALUES_MISMATCH":
            yield "tls_key", f"{key} is not the key of {certificate}"
        else:
            why = (fault.reason or str(fault)).replace("_", " ").lower()
            pair = f"{certificate} and {key}"
            yield "tls_certificate", f"{pair} are not a certificate and key in PEM, without a password: {why}"


def _others_may_read(key: str) -> bool:
    """Whether accounts other than its owner may read a file; the group may read root's, as Debian has keys."""
    status = Path(key).stat()
    return bool(status.st_mode & (0o077 if status.st_uid else 0o007))


def _unreadable(option: str, path: str) -> Iterator[tuple[str, str]]:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as fault:
        yield option, f"{path} cannot be read: {fault.strerror}"
