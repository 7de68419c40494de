"""What every command has: the server's address, the token, the client, and how the answer is wanted.

A token never comes as an argument: arguments are seen by everybody on the machine.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from lodesman.cli.ranges import Range, parse_ranges
from lodesman.errors import InvalidConfig, LodesmanError, NotFound, Unauthorized

if TYPE_CHECKING:
    from lodesman.client import Client

DEFAULT_SERVER = "http://127.0.0.1:7777"
PAGE = 1_000
# A person waits: about a second for a server that restarts, no more.
PATIENCE_ROUNDS = 4
MOST_TOKEN_BYTES = 4_096
MOST_ADDRESS = 300
Row = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Session:
    """The global options of one call of `lode`, and the client, made when a command first needs it."""

    server: str | None = None
    token_file: Path | None = None
    ca_file: str | None = None
    as_json: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _client: Client | None = None

    @property
    def address(self) -> str:
        """The server as it was named, else the one that runs here."""
        return find_server(Path.cwd()) if self.server is None else self.server

    @property
    def client(self) -> Client:
        """The client. Raises Unauthorized without a token, InvalidConfig for an unusable address."""
        if self._client is None:
            from lodesman.client import Client, Retry

            servers = [part.strip() for part in self.address.split(",") if part.strip()]
            retry = Retry(rounds=PATIENCE_ROUNDS)
            token = find_token(self.token_file, self.environ, Path.cwd())
            client = Client(servers, token, ca_file=self.ca_file, retry=retry)
            for server in client.servers:
                _check_private(server.host, str(server), secure=server.secure)
            self._client = client
        return self._client

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()

    def get(self, path: str, /, **query: str | float | None) -> Any:
        """The JSON answer to GET. Parameters that are None or empty are left out."""
        from urllib.parse import urlencode

        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self._ours(self.client.request("GET", f"{path}?{urlencode(given)}" if given else path))

    def post(self, path: str, body: Any, *, idempotent: bool = False, timeout: float = 30.0) -> Any:
        """The JSON answer to POST; `idempotent` if repeating it does no harm."""
        return self._ours(self.client.request("POST", path, body, idempotent=idempotent, timeout=timeout))

    def delete(self, path: str, /) -> Any:
        """The JSON answer to DELETE."""
        return self._ours(self.client.request("DELETE", path))

    def _ours(self, answer: Any) -> Row:
        """All answers are objects. Raises LodesmanError for what another program said."""
        if not isinstance(answer, dict):
            raise LodesmanError(
                f"What answers at {self.server} is no Lodesman server.",
                hint="For another address: lode --server URL.",
            )
        return answer

    def jobs(
        self, within: Range | None = None, *, newest: bool = False, page: int = PAGE, **filters: str | None
    ) -> Iterator[Row]:
        """Jobs, asked for page by page: ascending, or the newest first. Filters: state, group, all."""
        first, last = within or Range(1, 1 << 53)
        limit = min(page, PAGE)
        order = "true" if newest else None
        while first <= last:
            found = self.get("/v1/jobs", first=first, last=last, limit=limit, newest=order, **filters)["jobs"]
            yield from found
            if len(found) < limit:
                return
            if newest:
                last = found[-1]["id"] - 1
            else:
                first = found[-1]["id"] + 1

    def refuse_missing(self, wanted: Range) -> NoReturn:
        """No list has a job of this range. Raises NotFound, for a single job with the server's reason."""
        if wanted.size == 1:
            self.get(f"/v1/jobs/{wanted.first}")
        raise NotFound(
            f"Jobs {wanted} were not found, or you may not see them.", first=wanted.first, last=wanted.last
        )


def find_server(here: Path) -> str:
    """The address if none is given: of the server run from `here`, else the usual one."""
    told = here / "lode-data" / "run" / "url"
    if not _is_ours(told):
        return DEFAULT_SERVER
    try:
        return told.read_text(encoding="utf-8")[:MOST_ADDRESS].strip() or DEFAULT_SERVER
    except (OSError, UnicodeDecodeError):
        return DEFAULT_SERVER


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
    local = here / "lode-data" / "admin.token"
    if _is_ours(local):
        return read_token(local)
    raise Unauthorized(
        "There is no token.",
        hint=f"Ask an administrator for one (lode token issue) and write it to {own}, readable by you alone; "
        "or name its file: lode --token-file FILE.",
    )


def user_token_file(environ: Mapping[str, str]) -> Path:
    """Where a user's own token is kept."""
    base = environ.get("XDG_CONFIG_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return root / "lodesman" / "token"


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read. Raises InvalidConfig."""
    try:
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            raw = file.read(MOST_TOKEN_BYTES + 1)
    except OSError as fault:
        raise InvalidConfig(
            f"The token file {path} cannot be read: {fault.strerror}.", source=str(path)
        ) from None
    if stat.S_ISREG(told.st_mode) and told.st_uid == os.getuid() and told.st_mode & 0o077:
        raise InvalidConfig(
            f"Others can read the token file {path}.", hint=f"Run: chmod 600 {path}", source=str(path)
        )
    text = raw.decode("ascii", "replace").strip()
    if not text or len(raw) > MOST_TOKEN_BYTES or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidConfig(
            f"{path} holds no token.", hint="It must be one line with the token.", source=str(path)
        )
    return text


def _is_ours(path: Path) -> bool:
    """Whether a file that merely lies about belongs to this user, and to nobody else."""
    try:
        told = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(told.st_mode) and told.st_uid == os.getuid() and not told.st_mode & 0o077


def _check_private(host: str, shown: str, *, secure: bool) -> None:
    """A token does not travel in the clear. Raises InvalidConfig."""
    if secure or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidConfig(
            f"Your token would travel to {shown} in the clear.",
            hint="Use https:// (and --ca-file, if need be).",
        )


class JobRanges(click.ParamType[Range, Any]):
    """A job or a range of jobs."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The ranges of one word. A usage error for what is none."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_ranges([value], what=self.name)
        except LodesmanError as fault:
            self.fail(str(fault), param, ctx)


class JobId(click.ParamType[int, Any]):
    """One job."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The id. A usage error for a range and for what is no id."""
        if isinstance(value, int):
            return value
        try:
            (one,) = parse_ranges([value])
        except (LodesmanError, ValueError):
            one = Range(0, 0)
        if not one.first or one.size != 1:
            self.fail(f"{value[:60]!r} is not one job; write its number.", param, ctx)
        return one.first


def merged(words: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """The ranges of all arguments together, ascending. Raises InvalidRequest for too many."""
    return parse_ranges(str(one) for word in words for one in word)


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    session = context.find_object(Session)
    if session is not None:
        session.as_json = session.as_json or value


def json_option(command: F) -> F:
    """`--json`: the answer for programs."""
    return click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json,
        help="Answer in JSON, for programs.",
    )(command)  # fmt: skip


pass_session = click.make_pass_decorator(Session, ensure=True)
