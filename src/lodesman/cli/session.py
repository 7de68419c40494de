"""What every command has: the server's address, the token, typed calls of the server, and how the answer is wanted.

A token never comes as an argument: arguments are seen by everybody on the machine.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from lodesman.cli.arguments import MOST_LISTED
from lodesman.cli.tables import Cell, emit_json, note, show_table
from lodesman.errors import InvalidConfig, LodesmanError, NotFound, Unauthorized

if TYPE_CHECKING:
    from lodesman.answers.call import Call, Nothing
    from lodesman.answers.job_queries import JobsQuery
    from lodesman.answers.jobs import Job
    from lodesman.answers.requests import AllQuery
    from lodesman.cli.arguments import Range
    from lodesman.client import Client

DEFAULT_SERVER = "http://127.0.0.1:7777"
# A person waits: about a second for a server that restarts, no more.
RETRY_ROUNDS = 4
_PAGE = 1_000
_MOST_TOKEN_BYTES = 4_096
_TOKEN = re.compile(r"[!-~]+")
_MOST_ADDRESS = 300
# Of the server that is run from the current folder.
_LOCAL_TOKEN = "lode-data/admin.token"

A = TypeVar("A")
B = TypeVar("B")
Q = TypeVar("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Session:
    """The global options of one call of `lode`, and the client, made when a command first needs it."""

    server: str | None = None
    token_file: Path | None = None
    ca_file: str | None = None
    as_json: bool = False
    _client: Client | None = None

    @property
    def address(self) -> str:
        """The server as it was named, else the one that runs here, whose token is used then."""
        if self.server is not None:
            return self.server
        return find_server(self.token_file, os.environ, Path.cwd())

    @property
    def client(self) -> Client:
        """The client. Raises Unauthorized without a token, InvalidConfig for an unusable address."""
        if self._client is None:
            from lodesman.client import Client, Retry

            servers = [part.strip() for part in self.address.split(",") if part.strip()]
            retry = Retry(rounds=RETRY_ROUNDS)
            token = find_token(self.token_file, os.environ, Path.cwd())
            client = Client(servers, token, ca_file=self.ca_file, retry=retry)
            for server in client.servers:
                if not server.is_private:
                    hint = "Use https:// (and --ca-file, if need be)."
                    raise InvalidConfig(f"Your token would travel to {server} in the clear.", hint=hint)
            self._client = client
        return self._client

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()

    def call(self, call: Call[Q, B, A], query: Q | None = None, body: B | None = None) -> A:
        """The answer to a call. Raises LodesmanError."""
        return call.read(self._fetch(call, query, body))

    def raw(self, call: Call[Nothing, Nothing, A]) -> Any:
        """The answer to a call in JSON values."""
        return json.loads(self._fetch(call, None, None))

    def answer(self, call: Call[Q, B, A], query: Q | None = None, body: B | None = None) -> A:
        """The answer to a call, for people; `--json` prints it as it came and ends the command, by Exit."""
        raw = self._fetch(call, query, body)
        if self.as_json:
            self.exit_if_json(json.loads(raw))
        return call.read(raw)

    def exit_if_json(self, value: Any, code: int = 0) -> None:
        """`--json`: print this value, all that a program gets, and end the command with this exit code, by Exit."""
        if self.as_json:
            emit_json(value)
            raise click.exceptions.Exit(code)

    def _fetch(self, call: Call[Q, B, A], query: Q | None, body: B | None) -> bytes:
        """All answers are objects. Raises LodesmanError for what another program said."""
        from lodesman.answers.call import encode

        sent, address = None if body is None else encode(body), call.address(query)
        raw = self.client.fetch(call.method, address, sent, idempotent=call.repeatable, timeout=call.timeout)
        if not raw.lstrip().startswith(b"{"):
            hint = "For another address: lode --server URL."
            raise LodesmanError(f"What answers at {self.address} is not a Lodesman server.", hint=hint)
        return raw

    def show_some(
        self,
        name: str,
        rows: Sequence[R],
        limit: int,
        titles: Sequence[str],
        cells: Callable[[R], list[Cell]],
    ) -> None:
        """Print at most `limit` of the rows, and whether there are more of them."""
        some, more = rows[:limit], len(rows) > limit
        self.exit_if_json({name: some, "more": more})
        show_table(titles, map(cells, some))
        if more:
            note(f"There are more: --limit {min(limit * 10, MOST_LISTED)}.")

    def whole(self, call: Call[Any, B, A], query: AllQuery, rows: str) -> A:
        """A list with all its pages as one; `rows`: the member that has them."""
        from msgspec.structs import replace

        found: Any = self.call(call, query)
        while found.more:
            after: Any = self.call(call, replace(query, after=found.cursor))
            setattr(after, rows, getattr(found, rows) + getattr(after, rows))
            found = after
        whole: A = found
        return whole

    def jobs(self, query: JobsQuery) -> Iterator[Job]:
        """Jobs, asked for page by page: as many as the query's limit at once, at most a thousand."""
        from msgspec.structs import replace

        from lodesman.answers import calls

        limit = min(query.limit, _PAGE)
        while query.first <= query.last:
            found = self.call(calls.JOBS, replace(query, limit=limit)).jobs
            yield from found
            if len(found) < limit:
                return
            end = found[-1].id
            query = replace(query, last=end - 1) if query.newest else replace(query, first=end + 1)

    def refuse_missing(self, wanted: Range) -> NoReturn:
        """No list has a job of this range. Raises NotFound, for a single job with the server's reason."""
        if wanted.size == 1:
            from lodesman.answers import calls
            from lodesman.answers.requests import JobAt

            self.call(calls.JOB, JobAt(wanted.first))
        raise NotFound(
            f"Jobs {wanted} were not found, or you may not see them.", first=wanted.first, last=wanted.last
        )


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


def _is_ours(path: Path) -> bool:
    """Whether a file that was found belongs to this user, and only the user can change it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).as_json = True


_JSON = click.option(
    "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json, help="Answer in JSON, for programs."
)  # fmt: skip
_PASSED = click.make_pass_decorator(Session, ensure=True)


def with_session(command: F) -> F:
    """A command that gets the session, and has `--json`: the answer for programs."""
    return cast("F", _JSON(_PASSED(command)))
