"""Sandboxes in the reading process: input files of users, outputs of attempts."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from lodesman.base.errors import Forbidden, InvalidRequest, NotFound, StorageFull, TooLarge
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.http.wire import FileResponse, Response, content_length, header
from lodesman.server.store.sandboxes import (
    InputUsage,
    counted_size,
    may_hand_in,
    owner_of_input,
    owner_of_job,
    small_output,
    uploaded_size,
    usage_of,
)
from lodesman.server.store.write.attempts import NOT_KEPT
from lodesman.server.writer.report import not_handed_in
from lodesman.server.writer.submit import need_room
from lodesman.wire import calls, inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.jobs import Stored
from lodesman.wire.requests import AttemptAt, JobAt, SandboxAt
from lodesman.wire.service import UploadedFile, UploadedOutput

_SHA = re.compile(r"[0-9a-f]{64}")


@serves(calls.JOB_OUTPUT)
async def _job_output(side: ReadSide, request: Request[JobAt, Nothing]) -> Response:
    job = side.job(request.query.job, request.who)
    if job.output_sha256:
        about: dict[str, Any] = {
            "media_type": "application/gzip", "headers": {"x-sha256": job.output_sha256}
        }  # fmt: skip
        small = small_output(side.db, job.last_attempt)
        if small is not None:
            return Response(small, **about)
        path = side.shelf.output_path(job.id, job.attempt)
        if path.exists():
            return FileResponse(path, **about)
    if job.output_sha256 == NOT_KEPT:
        raise NotFound(f"The output of job {job.id} was not kept.", hint=f"See: lode show {job.id}.")
    raise NotFound(f"Job {job.id} has no output: it is {job.state}.", job=job.id)


@serves(calls.PUT_OUTPUT)
async def _put_output(side: ReadSide, request: Request[AttemptAt, Nothing]) -> Stored:
    job, attempt = request.query.job, request.query.attempt
    pilot = request.who.pilot_id
    if may_hand_in(side.db, pilot, job, attempt) is None:
        raise not_handed_in(job, attempt)
    sha, owner, path = _sha(request), owner_of_job(side.db, job), side.shelf.output_path(job, attempt)
    # What comes twice is stored one after the other: the file is what is noted of it.
    lock = side.handing_in.setdefault((job, attempt), asyncio.Lock())
    with _reserved(side, owner, content_length(request.scope) or 0):
        async with lock:
            try:
                size = await side.shelf.store(_chunks(request), path, sha)
            except OSError as fault:
                if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise StorageFull(
                    "The disk of the server is full.", hint="Nothing was stored; try again later."
                ) from None
            try:
                await side.ask_hot(inner_calls.OUTPUT_STORED, UploadedOutput(pilot, job, attempt, sha, size))
            except Forbidden:  # it has ended meanwhile
                path.unlink(missing_ok=True)
                raise
    return Stored(sha, size)


@contextmanager
def _reserved(side: ReadSide, owner: str, size: int, *, files: int = 0) -> Iterator[None]:
    """Uploads at once share the quota. Raises TooLarge before the first byte."""
    used = usage_of(side.db, owner)
    used = InputUsage(used.files + side.files_coming[owner], used.bytes + side.reserved[owner], used.outputs)
    need_room(owner, used, size, quota=side.quota_bytes, most_files=files and side.most_files)
    side.reserved[owner] += counted_size(size)
    side.files_coming[owner] += files
    try:
        yield
    finally:
        side.reserved[owner] -= counted_size(size)
        side.files_coming[owner] -= files
        if not side.reserved[owner]:
            del side.reserved[owner], side.files_coming[owner]


@serves(calls.PUT_SANDBOX)
async def _put_sandbox(side: ReadSide, request: Request[Nothing, Nothing]) -> Stored:
    owner, sha = request.who.name, _sha(request)
    size = _known(side, owner, sha)
    if size is not None:
        return Stored(sha, size)
    is_new, path = uploaded_size(side.db, owner, sha) is None, side.shelf.input_path(owner, sha)
    coming = _reserved(side, owner, content_length(request.scope) or 0, files=1) if is_new else nullcontext()
    with coming:
        size = await side.shelf.store(_chunks(request), path, sha)
        try:
            done = UploadedFile(owner, sha, size, side.quota_bytes, side.most_files)
            await side.ask_hot(inner_calls.UPLOADED, done)
        except TooLarge:
            # Others came first. Only those who have uploaded it may have it.
            if uploaded_size(side.db, owner, sha) is None:
                path.unlink(missing_ok=True)
            raise
    return Stored(sha, size)


def _known(side: ReadSide, owner: str, sha: str) -> int | None:
    """The size of a file that will be there for some time."""
    size = uploaded_size(side.db, owner, sha, to_stay=True)
    return size if size is not None and side.shelf.input_path(owner, sha).is_file() else None


@serves(calls.SANDBOX)
async def _sandbox(side: ReadSide, request: Request[SandboxAt, Nothing]) -> Stored | FileResponse:
    """A user asks whether it is there, a pilot reads it."""
    who, sha = request.who, request.query.digest
    if not _SHA.fullmatch(sha):
        raise NotFound("A sandbox is named by its SHA-256.")
    if who.kind != "pilot":
        size = _known(side, who.name, sha)
        if size is None:
            raise NotFound("You have not uploaded such a file.")
        return Stored(sha, size)
    owner = owner_of_input(side.db, who.pilot_id, sha)
    if owner is None:
        raise NotFound("No job of this pilot has such an input sandbox.")
    path = side.shelf.input_path(owner, sha)
    if not path.is_file():
        raise NotFound("This input sandbox is not there.", sha256=sha)
    return FileResponse(path, media_type="application/octet-stream")


def _sha(request: Request[Any, Any]) -> str:
    sha = header(request.scope, b"x-sha256").decode("latin-1")
    if not _SHA.fullmatch(sha):
        raise InvalidRequest("X-Sha256 must be the file's SHA-256 in lower-case hexadecimal.")
    return sha


async def _chunks(request: Request[Any, Any]) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("The upload is incomplete.")
        more = message.get("more_body", False)
        yield message.get("body", b"")
