"""What commands share: the server, and the form of answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from lodesman.user.access.caller import Caller
from lodesman.user.cli.arguments import MOST_LISTED
from lodesman.user.cli.tables import emit_json, note

if TYPE_CHECKING:
    from lodesman.wire.call import Call, Nothing

A = TypeVar("A")
B = TypeVar("B")
Q = TypeVar("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Session(Caller):
    """The global options of one call of `lode`, and its client."""

    as_json: bool = False

    def raw(self, call: Call[Nothing, Nothing, A]) -> Any:
        """The answer in JSON values."""
        return json.loads(self.fetch(call, None, None))

    def answer(self, call: Call[Q, B, A], query: Q | None = None, body: B | None = None) -> A:
        """For people; `--json` prints it and ends the command, by Exit."""
        raw = self.fetch(call, query, body)
        if self.as_json:
            self.exit_if_json(json.loads(raw))
        return call.read(raw)

    def exit_if_json(self, value: Any, code: int = 0) -> None:
        """Print this value and end by Exit, with `--json`."""
        if self.as_json:
            emit_json(value)
            raise click.exceptions.Exit(code)

    def show_some(
        self, name: str, rows: Sequence[R], limit: int, show: Callable[[Sequence[R]], None]
    ) -> None:
        """At most `limit` rows; says whether there are more."""
        some, more = rows[:limit], len(rows) > limit
        self.exit_if_json({name: some, "more": more})
        show(some)
        if more:
            note(f"There are more: --limit {min(limit * 10, MOST_LISTED)}.")


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).as_json = True


_JSON = click.option(
    "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json, help="Answer in JSON, for programs."
)  # fmt: skip
_PASSED = click.make_pass_decorator(Session, ensure=True)


def with_session(command: F) -> F:
    """Give a command the session, and `--json`."""
    return cast("F", _JSON(_PASSED(command)))
