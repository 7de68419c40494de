"""The records of local pilots: each is believed whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from lodesman.decide.resources import QueueId
from lodesman.server.engines.keeper import read_json

BOOT: Final = re.compile(r"[0-9a-f-]{36}\n?")
LAST_SECOND: Final = 253_402_300_800
"""The end of the year 9999, in UNIX seconds: what is later is no time."""
_MOST_LETTERS: Final = 4_000

_Word = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]
_Name = Annotated[str, Meta(pattern=r"\A[^\0=]+\Z")]
_Boot = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f-]{36}\n?)?\Z")]
_Digest = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{64})?\Z")]
_Cause = Annotated[str, Meta(pattern=r"\A[ -~]{1,100}\Z")]  # later releases may have other words
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Positive = Annotated[int, Meta(ge=1, lt=2**40)]
_Seconds = Annotated[float, Meta(ge=0, lt=2**40)]
_Time = Annotated[float, Meta(ge=0, lt=LAST_SECOND)]
_Code = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_Process = tuple[Annotated[int, Meta(ge=1, lt=2**31)], _Count]


class Entry(Struct, frozen=True, kw_only=True):
    """What was submitted."""

    stamp: str
    queue: QueueId
    order: _Count  # rises with each submission: the lowest of a queue starts first
    argv: Annotated[tuple[_Word, ...], Meta(min_length=1)]
    environment: Mapping[_Name, _Word]
    wall_seconds: Annotated[int, Meta(ge=0, lt=2**40)]
    grace_seconds: _Seconds
    output_cap: _Positive
    boot: _Boot = ""  # the start of the machine in which it was stored, or its keeper began
    digest: _Digest = ""  # of the pilot's own file, '' in earlier releases


class StartRecord(Struct, frozen=True, kw_only=True):
    """What a keeper records; earlier releases did not name pilot and queue."""

    keeper: _Process
    guard: _Process
    boot: _Boot
    certain: bool
    started_at: _Time
    cgroup: str | None = None
    pilot: _Process | None = None
    queue: QueueId | None = None


class EndRecord(Struct, frozen=True, kw_only=True):
    """What is recorded of an end."""

    cause: _Cause
    ended_at: _Time
    exit_code: _Code | None = None  # negative for an end by signal
    message: str = ""


def read_record(path: Path, kind: type[Struct], stamp: str) -> dict[str, Any]:
    """A record that is whole, and of this pilot. Raises OSError; ValueError for any other."""
    value = read_json(str(path))
    msgspec.convert(value, kind)
    # No value is infinite, and each text can be written: an environment with the bytes that the system gives, all else as
    # UTF-8.
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    text.encode("utf-8", "surrogateescape" if kind is Entry else "strict")
    if value.get("stamp", stamp) != stamp:
        raise ValueError(f"{path} is of another pilot")
    return value


def sayable(message: str) -> str:
    """A message as records and databases take it: paths may have bytes that are no text."""
    return message[:_MOST_LETTERS].replace("\0", "").encode("utf-8", "backslashreplace").decode()
