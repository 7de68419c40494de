"""Sandboxes: input files by their SHA-256, one copy per owner; output archives by attempt."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from lodesman.errors import Forbidden, InvalidRequest, NotFound, TooLarge
from lodesman.store.journal import Transaction

HELD_BY_PILOT = """SELECT s.owner FROM attempt a JOIN job j ON j.id = a.job_id
JOIN template t ON t.id = j.template_id JOIN submission s ON s.id = j.submission_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND instr(t.body, ?) > 0 LIMIT 1"""
LIVE_ATTEMPT = """SELECT 1 FROM attempt a JOIN job j ON j.last_attempt = a.id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND j.id = ? AND j.attempt = ?"""


@dataclass(slots=True)
class RegisterSandbox:
    """Record that an owner has uploaded a file."""

    owner: str
    sha256: str
    size: int

    def apply(self, tx: Transaction) -> None:
        """Idempotent."""
        tx.later(
            "INSERT OR IGNORE INTO sandbox (owner, sha256, size, created_at) VALUES (?,?,?,?)",
            (self.owner, self.sha256, self.size, tx.now),
        )


class Shelf:
    """Where sandboxes lie: DATA/sandboxes/in/<owner hash>/<sha256> and out/<job>.<attempt>.tar.gz."""

    def __init__(self, root: Path, *, limit_bytes: int) -> None:
        self.root = root
        self.limit_bytes = limit_bytes

    def input_path(self, owner: str, sha256: str) -> Path:
        """The place of an input file. Owners' names may hold any character, so their hash is the folder."""
        return self.root / "in" / hashlib.sha256(owner.encode()).hexdigest()[:32] / sha256

    def output_path(self, job_id: int, attempt: int) -> Path:
        """The place of an output archive."""
        return self.root / "out" / str(job_id // 1000) / f"{job_id}.{attempt}.tar.gz"

    async def store(self, chunks: AsyncIterator[bytes], path: Path, sha256: str) -> int:
        """Write a file that must have this checksum; on disk before it returns. Returns its size.

        Raises TooLarge over the limit, InvalidRequest for a wrong checksum; then nothing is left behind.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        digest, size = hashlib.sha256(), 0
        try:
            with part.open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self.limit_bytes:
                        raise TooLarge(
                            f"A sandbox is at most {self.limit_bytes} bytes.", limit=self.limit_bytes
                        )
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if digest.hexdigest() != sha256:
                raise InvalidRequest("The file does not have the checksum that was announced; send it again.")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return size


def sandbox_owner(db: apsw.Connection, pilot_id: int, sha256: str) -> str:
    """Whose file a pilot may read: only of jobs that it holds. Raises NotFound."""
    row = db.execute(HELD_BY_PILOT, (pilot_id, sha256)).fetchone()
    if row is None:
        raise NotFound("No job of this pilot has such an input sandbox.")
    return str(row[0])


def check_attempt(db: apsw.Connection, pilot_id: int, job_id: int, attempt: int) -> None:
    """Raises Forbidden unless the pilot holds this live attempt."""
    if db.execute(LIVE_ATTEMPT, (pilot_id, job_id, attempt)).fetchone() is None:
        raise Forbidden("This attempt is not this pilot's, or it has ended.", job=job_id, attempt=attempt)


def uploaded_size(db: apsw.Connection, owner: str, sha256: str) -> int | None:
    """The size of a file that the owner uploaded, None if there is none."""
    row = db.execute("SELECT size FROM sandbox WHERE owner = ? AND sha256 = ?", (owner, sha256)).fetchone()
    return None if row is None else row[0]
