"""Typed calls of a user's program over one kept connection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lodesman.base.errors import InvalidConfig, LodesmanError, NotFound

if TYPE_CHECKING:
    from lodesman.user.access.selecting import Range
    from lodesman.wire.call import Call
    from lodesman.wire.client import Client
    from lodesman.wire.job_queries import ControlBody, ControlQuery, JobsQuery
    from lodesman.wire.jobs import Controlled, Job, RangeControlled
    from lodesman.wire.requests import AllQuery

# A person waits: about a second for a server that restarts, no more.
RETRY_ROUNDS = 4
_PAGE = 1_000
_MOST_EXAMPLES = 20

A = TypeVar("A")
B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(slots=True)
class Caller:
    """A server and a token. Its client belongs to one thread."""

    server: str | None = None
    token_file: Path | None = None
    ca_file: str | None = None
    rounds: int = RETRY_ROUNDS  # how often all addresses are tried
    token: str = ""  # of a program
    _client: Client | None = None

    @property
    def address(self) -> str:
        """As named, else that of the server which runs here. Raises Conflict."""
        if self.server is not None:
            return self.server
        from lodesman.user.access.tokens import find_server

        return find_server(self.token_file, os.environ, Path.cwd(), token=self.token)

    @property
    def client(self) -> Client:
        """Raises Unauthorized without a token, InvalidConfig for an unusable address."""
        if self._client is None:
            from lodesman.user.access.tokens import find_token
            from lodesman.wire.client import Client, Retry

            servers = [part.strip() for part in self.address.split(",") if part.strip()]
            retry = Retry(rounds=self.rounds, patient=False)
            token = self.token or find_token(self.token_file, os.environ, Path.cwd(), server=self.server)
            client = Client(servers, token, ca_file=self.ca_file, retry=retry)
            for server in client.servers:
                if not server.is_private:
                    hint = "Use https:// (and --ca-file, if need be)."
                    raise InvalidConfig(f"Your token would travel to {server} in the clear.", hint=hint)
            self._client = client
        return self._client

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def call(self, call: Call[Q, B, A], query: Q | None = None, body: B | None = None) -> A:
        """Raises LodesmanError."""
        return call.read(self.fetch(call, query, body))

    def fetch(self, call: Call[Q, B, A], query: Q | None, body: B | None) -> bytes:
        """The answer as bytes. Raises LodesmanError."""
        from lodesman.wire.call import encode

        sent, address = None if body is None else encode(body), call.address(query)
        raw = self.client.fetch(call.method, address, sent, idempotent=call.repeatable, timeout=call.timeout)
        if not raw.lstrip().startswith(b"{"):
            hint = "For another address: lode --server URL."
            raise LodesmanError(f"What answers at {self.address} is not a Lodesman server.", hint=hint)
        return raw

    def whole(self, call: Call[Any, B, A], query: AllQuery, rows: str) -> A:
        """All pages as one list; `rows`: the member that has them."""
        from msgspec.structs import replace

        page: Any = self.call(call, query)
        gathered = list(getattr(page, rows))
        while page.more:
            page = self.call(call, replace(query, after=page.cursor))
            gathered += getattr(page, rows)
        whole: A = replace(page, **{rows: gathered})
        return whole

    def jobs(self, query: JobsQuery) -> Iterator[Job]:
        """Jobs, page by page."""
        from msgspec.structs import replace

        from lodesman.wire import job_calls

        limit = min(query.limit, _PAGE)
        while query.first <= query.last:
            page = self.call(job_calls.JOBS, replace(query, limit=limit)).jobs
            yield from page
            if len(page) < limit:
                return
            end = page[-1].id
            query = replace(query, last=end - 1) if query.newest else replace(query, first=end + 1)

    def control(self, body: ControlBody, query: ControlQuery | None = None) -> Controlled:
        """The server answers after some seconds, and is asked for the rest."""
        from msgspec.structs import replace

        from lodesman.wire import job_calls
        from lodesman.wire.jobs import Controlled

        answer = self.call(job_calls.CONTROL, query, body)
        while answer.rest:
            body = replace(body, ranges=answer.rest)
            try:
                more = self.call(job_calls.CONTROL, query, body)
            except NotFound:
                break  # of a range that was touched before no job was left
            changed, refused = answer.changed + more.changed, answer.refused + more.refused
            examples = (answer.examples + more.examples)[:_MOST_EXAMPLES]
            ranges = _merge_parts(answer.ranges or [], more.ranges or []) or answer.ranges
            answer = Controlled(changed, refused, examples, ranges, more.rest)
        return answer

    def refuse_missing(self, missing: Range) -> NoReturn:
        """Raises NotFound, for a single job with the server's reason."""
        if missing.size == 1:
            from lodesman.wire import job_calls
            from lodesman.wire.requests import JobAt

            self.call(job_calls.JOB, JobAt(missing.first))
        raise NotFound(
            f"Jobs {missing} were not found, or you may not see them.", first=missing.first, last=missing.last
        )


def _merge_parts(before: list[RangeControlled], more: list[RangeControlled]) -> list[RangeControlled]:
    from lodesman.wire.jobs import RangeControlled

    ranges = {part.last: part for part in before}
    for new in more:
        old = ranges.get(new.last)
        if old is None:
            ranges[new.last] = new
        else:
            changed, refused = old.changed + new.changed, old.refused + new.refused
            ranges[new.last] = RangeControlled(
                old.first, old.last, changed, refused, old.reason or new.reason
            )
    return list(ranges.values())
