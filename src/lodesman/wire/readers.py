"""Readers of submissions: users who see what jobs do and what they wrote, and change nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from lodesman.wire.requests import Given, Number

MOST_READERS = 100


class SubmissionAt(Struct, frozen=True, omit_defaults=True):
    """A submission by its number."""

    submission: int


class ReadersBody(Struct, frozen=True, omit_defaults=True):
    """Users (`ann`) and groups (`@physics`) of the submission's VO who may read it from now on, or not any more."""

    submission: Number
    readers: Annotated[list[Given], Meta(min_length=1, max_length=MOST_READERS)]
    how: Literal["add", "remove"] = "add"


class SubmissionReader(Struct, frozen=True):
    """A user, or `@` and a group, with whom a submission is shared: since when (UNIX seconds), and who shared it."""

    reader: str
    at: float
    by: str


class SubmissionReaders(Struct, frozen=True):
    """All readers of a submission, by name."""

    submission: int
    readers: list[SubmissionReader]
