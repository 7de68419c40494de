"""`lode user import` and `lode user rm`."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from lodesman.base.errors import InvalidRequest, LodesmanError, each_once
from lodesman.user.cli.faults import CONFLICT
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say, show_table
from lodesman.user.cli.words import counted
from lodesman.wire import calls
from lodesman.wire.accounts import (
    MOST_IMPORTED,
    AccountBody,
    DisableBody,
    ImportUsersBody,
    RemoveUserBody,
    UserRemoved,
)
from lodesman.wire.job_queries import ControlBody, Selection

_MOST_BYTES: Final = 1 << 20
_MOST_FAULTS: Final = 10
_ROLES: Final = {"": {}, "user": {}, "admin": {"admin": True}, "vo-admin": {"vo_admin": True}}
_COLUMNS: Final = ("name", "vo", "groups", "role")
_SAID: Final = {"new": "made", "changed": "changed", "same": "there already"}


class _UserLine(NamedTuple):
    line: int
    body: AccountBody


def read_users(text: str) -> list[_UserLine]:
    """Lines of JSON objects, or CSV with named columns. Raises InvalidRequest, with the wrong lines."""
    faults: list[InvalidRequest] = []
    users: list[_UserLine] = []
    for line, row in _json_lines(text, faults) if text.lstrip()[:1] == "{" else _csv_rows(text, faults):
        try:
            users.append(_UserLine(line, _user_of(line, row)))
        except InvalidRequest as fault:
            faults.append(fault)
    if faults:
        raise _one_refusal(faults)
    if not users:
        raise InvalidRequest("There is no user in the file.", hint="Its first line is: name,vo,groups,role")
    if len(users) > MOST_IMPORTED:
        raise InvalidRequest(
            f"The file has {len(users):,} users; at most {MOST_IMPORTED:,} are imported at once."
        )
    return users


def _one_refusal(faults: Sequence[InvalidRequest]) -> InvalidRequest:
    first, *others = faults
    if not others:
        return first
    words = [fault.message for fault in faults[:_MOST_FAULTS]]
    if more := len(faults) - len(words):
        words.append(f"So {'is 1 more line' if more == 1 else f'are {more:,} more lines'}.")
    hints = dict.fromkeys(fault.hint for fault in faults if fault.hint)
    lines = [fault.data["line"] for fault in faults[:_MOST_FAULTS]]
    return InvalidRequest(" ".join(words), hint=" ".join(hints), line=lines[0], lines=lines)


def _json_lines(text: str, faults: list[InvalidRequest]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line, object_pairs_hook=_columns)
            except InvalidRequest as twice:
                faults.append(InvalidRequest(f"Line {number}: {twice.message}", line=number))
                continue
            except ValueError as fault:
                why = (
                    f": {fault.msg}, column {fault.colno}" if isinstance(fault, json.JSONDecodeError) else ""
                )
                faults.append(InvalidRequest(f"Line {number} is no JSON{why}.", line=number))
                continue
            if not isinstance(row, dict):
                faults.append(InvalidRequest(f"Line {number} is no JSON object.", line=number))
                continue
            yield number, row


def _column(name: str) -> str:
    column = name.strip().lower()
    return "groups" if column == "group" else column


def _columns(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return each_once((_column(name), value) for name, value in pairs)
    except ValueError as twice:
        raise InvalidRequest(f"{twice}.") from None


def _csv_rows(text: str, faults: list[InvalidRequest]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    names: list[str] = []
    for cells in reader:
        row = [cell.strip() for cell in cells]
        if any("\n" in cell or "\r" in cell for cell in row):
            raise InvalidRequest(
                f"Line {reader.line_num}: a cell has more than one line.", line=reader.line_num
            )
        if not any(row) or row[0].startswith("#"):
            continue
        if not names:
            names = _names(reader.line_num, row)
            continue
        if len(row) != len(names):
            words = f"Line {reader.line_num} has {counted(len(row), 'cell')}, the first one {len(names)}."
            faults.append(InvalidRequest(words, line=reader.line_num))
            continue
        yield reader.line_num, dict(zip(names, row, strict=True))


def _names(line: int, row: Iterable[str]) -> list[str]:
    names = list(map(_column, row))
    _check_columns(line, names)
    try:
        return list(_columns((name, "") for name in names))
    except InvalidRequest as twice:
        raise InvalidRequest(f"Line {line}: {twice.message}", line=line) from None


def _check_columns(
    line: int, names: Iterable[str], where: str = "the first line names the columns, and "
) -> None:
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        words = f"Line {line}: {where}{unknown[0]!r} is none of them."
        raise InvalidRequest(words, hint=f"They are {','.join(_COLUMNS)}.", line=line)


def _user_of(line: int, row: dict[str, Any]) -> AccountBody:
    _check_columns(line, row, "an object has the keys of a user, and ")
    role, groups = str(row.pop("role", "") or "").lower(), row.get("groups")
    if role not in _ROLES:
        raise InvalidRequest(
            f"Line {line}: {role!r} is no role.", hint="Write user, admin or vo-admin.", line=line
        )
    if isinstance(groups, str):
        row["groups"] = groups.replace(";", " ").split()
    try:
        return msgspec.convert({**row, **_ROLES[role]}, AccountBody)
    except msgspec.ValidationError:
        raise InvalidRequest(f"Line {line}: {_fault_of(row)}", line=line) from None


def _fault_of(row: dict[str, Any]) -> str:
    for column in ("name", "vo"):
        if not isinstance(row.get(column, ""), str):
            return f"{column} is no text."
        if not row.get(column):
            return f"there is no {column}."
    groups = row.get("groups")
    if (
        not isinstance(groups, list)
        or not groups
        or not all(isinstance(group, str) and group for group in groups)
    ):
        return "groups has no names of groups." if groups else "there are no groups."
    if not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", row["name"]):
        return f"{row['name'][:80]!r} is no name of a user: at most 64 letters, digits and . _ @ -."
    return "there are more than 100 groups, or a name in it is too long."


def _refused(users: Sequence[_UserLine], fault: dict[str, Any]) -> str:
    return f"Line {users[fault['user']].line}: {fault['message']}"


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--update", is_flag=True, help="Change users who are there otherwise.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@with_session
def import_users(session: Session, /, *, file: Path, update: bool, dry_run: bool) -> None:
    """Make the users of FILE: CSV or lines of JSON, all or none.

    Columns are name, vo, groups (with spaces between) and role: user, admin or vo-admin. Lines that are wrong are named by
    their numbers, at most ten, and no user is made. Users who are there as the file says stay as they are.
    """
    with file.open("rb") as source:
        content = source.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InvalidRequest(f"{file} is larger than 1 MB.", hint="Import it in parts.")
    try:
        users = read_users(content.decode("utf-8-sig"))
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise InvalidRequest(f"Line {line} of {file} is not UTF-8.", line=line) from None
    body = ImportUsersBody([listed.body for listed in users], update, dry_run)
    try:
        answer = session.answer(calls.IMPORT_USERS, body=body)
    except LodesmanError as fault:
        number = fault.data.get("user")
        if not isinstance(number, int) or number >= len(users):
            raise
        line = users[number].line
        others = [other for other in fault.data.get("others", ()) if other["user"] < len(users)]
        words = " ".join([f"Line {line}: {fault.message}", *(_refused(users, other) for other in others)])
        raise type(fault)(
            f"{words} No user was imported.", hint=fault.hint, **{**fault.data, "line": line}
        ) from None
    show_table(("user", "change"), ([row.name, _SAID[row.change]] for row in answer.users))
    counts = Counter(_SAID[row.change] for row in answer.users)
    done = ", ".join(f"{count:,} {change}" for change, count in counts.items())
    note(f"{done}.{' Nothing was changed.' if answer.dry_run else ''}")


@click.command("rm")
@click.argument("name")
@click.option("--kill", is_flag=True, help="Kill the jobs that have not ended before.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_session
def remove_user(session: Session, /, *, name: str, kill: bool, dry_run: bool, yes: bool) -> int:
    """Remove user NAME, who left: all tokens end at once.

    Refused while jobs wait or run, unless --kill is given. Jobs that ended, files and usage stay, under the name. The name
    is given again only when its jobs and files are forgotten, or to the same person (lode user add --same-person).
    """
    outlook = session.call(calls.REMOVE_USER, body=RemoveUserBody(name, True))
    if dry_run:
        refused = bool(outlook.live) and not kill
        session.exit_if_json(outlook, CONFLICT if refused else 0)
        say(
            f"User {name} would {'not ' if refused else ''}be removed: {_removal(outlook)}. Nothing was changed."
        )
        return CONFLICT if refused else 0
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"Remove user {name} ({_removal(outlook)})?", abort=True, err=True)
    if kill and outlook.live:
        # No token brings jobs meanwhile.
        session.call(calls.DISABLE_USER, body=DisableBody(name))
        session.control(ControlBody("kill", [], "user removed", Selection(owner=name)))
    done = session.answer(calls.REMOVE_USER, body=RemoveUserBody(name))
    say(f"User {name} is removed: {_removal(done)}.")
    return 0


def _removal(removed: UserRemoved) -> str:
    live = sum(removed.live.values())
    parts = [f"{counted(removed.tokens, 'token')} end"]
    parts += [f"{counted(live, 'job')} not ended (--kill ends them)"] if live else []
    parts.append(f"{counted(removed.jobs, 'job')} and {counted(removed.files, 'input file')} stay")
    return ", ".join(parts)
