"""Sandboxes: input files by their SHA-256, one copy per owner; output archives by attempt."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from lodesman.errors import Forbidden, InvalidJob, InvalidRequest, NotFound, TooLarge
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction

HELD_BY_PILOT = """SELECT s.owner FROM attempt a JOIN job j ON j.id = a.job_id
JOIN template t ON t.id = j.template_id JOIN submission s ON s.id = j.submission_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND instr(t.body, ?) > 0 LIMIT 1"""
# Live, or lost and such that its success would still count (`services.report`).
OPEN_ATTEMPT = """SELECT 1 FROM job j JOIN attempt a ON a.id = j.last_attempt
WHERE j.id = ?1 AND j.attempt = ?2 AND a.pilot_id = ?3 AND (a.ended_at IS NULL OR a.outcome = 'Released'
AND a.cause IN ('pilot-lost', 'lease-expired') AND a.stop_reason IS NULL AND j.state IN ('Waiting', 'Held', 'Failed'))"""
RENEW = "UPDATE sandbox SET created_at = ?, unused_since = NULL WHERE owner = ? AND sha256 = ?"
INSERT = "INSERT INTO sandbox (owner, sha256, size, created_at) VALUES (?,?,?,?)"
USED = "SELECT files, bytes FROM sandbox_usage WHERE owner = ?"
ADD_USED = """INSERT INTO sandbox_usage (owner, files, bytes) VALUES (?,?,?)
ON CONFLICT (owner) DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes"""
MISSING = """SELECT 1 FROM json_each(?2) WHERE NOT EXISTS
(SELECT 1 FROM sandbox WHERE owner = ?1 AND sha256 = value) LIMIT 1"""
USE = "INSERT OR IGNORE INTO sandbox_use (owner, sha256, submission_id) VALUES (?,?,?)"
# Bytes of an upload that are written in one go.
PORTION = 1 << 20
SIZE = "SELECT size, unused_since FROM sandbox WHERE owner = ? AND sha256 = ?"


@dataclass(slots=True)
class RegisterSandbox:
    """Record that an owner has uploaded a file. `quota` in bytes of all its files together, 0 for none."""

    owner: str
    sha256: str
    size: int
    quota: int = 0

    def apply(self, tx: Transaction) -> None:
        """Idempotent. Raises TooLarge beyond the quota."""
        if tx.write(RENEW, (tx.now, self.owner, self.sha256)):
            return
        need_room(used_by(tx.db, self.owner), self.size, self.quota)
        tx.write(INSERT, (self.owner, self.sha256, self.size, tx.now))
        tx.write(ADD_USED, (self.owner, 1, self.size))


@dataclass(frozen=True, slots=True)
class Usage:
    """What an owner has on the shelf."""

    files: int
    bytes: int


def used_by(db: Reader, owner: str) -> Usage:
    """What an owner has on the shelf."""
    return Usage(*(db.execute(USED, (owner,)).fetchone() or (0, 0)))


def need_room(used: Usage, size: int, quota: int) -> None:
    """Raises TooLarge if a file of this size does not fit into the owner's quota (bytes; 0: there is none)."""
    if quota and used.bytes + size > quota:
        raise TooLarge(
            f"Your input files would take {_mb(used.bytes + size)}: {_mb(used.bytes)} are there, {_mb(quota)} allowed.",
            hint="Delete jobs that you need no more (lode delete JOB): files that no job names go a day later. "
            "Or ask an administrator for a larger sandbox_quota_mb.",
            limit=quota,
            used=used.bytes,
            size=size,
        )


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


def need_all(tx: Transaction, owner: str, inputs: Sequence[str]) -> None:
    """Raises InvalidJob unless all these files are there: one may have been removed since they were asked for."""
    if inputs and tx.read(MISSING, (owner, msgspec.json.encode(inputs).decode())):
        raise InvalidJob(
            "InputSandbox: a file that was uploaded long ago is not there any more.",
            hint="Submit again: it is uploaded anew.",
            attribute="InputSandbox",
        )


def use(tx: Transaction, owner: str, inputs: Sequence[str], submission: int) -> None:
    """A submission names these files: they stay as long as it does."""
    if inputs:
        tx.later_many(USE, [(owner, sha256, submission) for sha256 in inputs])


class Shelf:
    """Where sandboxes lie: DATA/sandboxes/in/<owner hash>/<sha256> and out/<job>.<attempt>.tar.gz."""

    def __init__(self, root: Path, *, limit_bytes: int) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._moving = threading.Lock()

    def input_path(self, owner: str, sha256: str) -> Path:
        """The place of an input file. Owners' names may hold any character, so their hash is the folder."""
        return self.root / "in" / hashlib.sha256(owner.encode()).hexdigest()[:32] / sha256

    def output_path(self, job_id: int, attempt: int) -> Path:
        """The place of an output archive."""
        return self.root / "out" / str(job_id // 1000) / f"{job_id}.{attempt}.tar.gz"

    async def store(self, chunks: AsyncIterator[bytes], path: Path, sha256: str) -> int:
        """Write a file that must have this checksum; on disk before it returns. Returns its size.

        The disk is waited for in other threads: the event loop serves others meanwhile. Raises TooLarge over the limit,
        InvalidRequest for a wrong checksum; then nothing is left behind.
        """
        part = _Part(path)
        size, portion = 0, bytearray()
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > self.limit_bytes:
                    raise TooLarge(f"A sandbox is at most {self.limit_bytes} bytes.", limit=self.limit_bytes)
                portion += chunk
                if len(portion) >= PORTION:
                    await asyncio.to_thread(part.add, bytes(portion))
                    portion.clear()
            await asyncio.to_thread(part.finish, bytes(portion), sha256, self._moving)
        finally:
            part.drop()
        return size

    def remove_older(self, path: Path, before: float) -> bool:
        """Remove a file unless it was stored after that time (UNIX seconds): whoever stored it anew keeps it."""
        with self._moving:
            try:
                if path.stat().st_mtime >= before:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def remove_outputs(self, job_id: int, attempts: int) -> None:
        """Remove the output archives of a job that is forgotten."""
        for attempt in range(1, attempts + 1):
            self.output_path(job_id, attempt).unlink(missing_ok=True)


class _Part:
    """A file on its way to its place, under a name of its own until it is whole. `drop` ends whatever still goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._dropped = False
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        """Write more of it."""
        with self._lock:
            self._write(data)

    def finish(self, data: bytes, sha256: str, moving: threading.Lock) -> None:
        """Write the last of it and put it into its place. Raises InvalidRequest for a wrong checksum."""
        with self._lock:
            file = self._write(data)
            file.flush()
            os.fsync(file.fileno())
            if self._digest.hexdigest() != sha256:
                raise InvalidRequest("The file does not have the checksum that was announced; send it again.")
            with moving:
                self._part.replace(self._path)
            sync_directory(self._path.parent)

    def drop(self) -> None:
        """Close it; remove it if it is not in its place."""
        with self._lock:
            self._dropped = True
            if self._file is not None:
                self._file.close()
                self._part.unlink(missing_ok=True)

    def _write(self, data: bytes) -> BinaryIO:
        if self._dropped:
            raise InvalidRequest("The upload broke off.")
        if self._file is None:
            make_directory(self._path.parent)
            self._file = self._part.open("xb")
        self._digest.update(data)
        self._file.write(data)
        return self._file


def make_directory(folder: Path) -> None:
    """Make a directory, and those above it, so that a power cut does not lose them."""
    if not folder.is_dir():
        make_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(folder.parent)


def sync_directory(folder: Path) -> None:
    """What lies in a directory, and what is gone from it, is so on disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sandbox_owner(db: Reader, pilot_id: int, sha256: str) -> str:
    """Whose file a pilot may read: only of jobs that it holds. Raises NotFound."""
    row = db.execute(HELD_BY_PILOT, (pilot_id, sha256)).fetchone()
    if row is None:
        raise NotFound("No job of this pilot has such an input sandbox.")
    return str(row[0])


def check_attempt(db: Reader, pilot_id: int, job_id: int, attempt: int) -> None:
    """Raises Forbidden unless the pilot has this attempt, and its result can still count."""
    if db.execute(OPEN_ATTEMPT, (job_id, attempt, pilot_id)).fetchone() is None:
        raise Forbidden("This attempt is not this pilot's, or it has ended.", job=job_id, attempt=attempt)


def uploaded_size(db: Reader, owner: str, sha256: str, *, to_stay: bool = False) -> int | None:
    """The size of a file that the owner uploaded, None if there is none.

    `to_stay`: one that is about to be removed, since no job names it, does not count.
    """
    size, unused_since = db.execute(SIZE, (owner, sha256)).fetchone() or (None, None)
    return None if to_stay and unused_since is not None else size
