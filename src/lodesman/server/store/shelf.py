"""Sandboxes on disk: input files by SHA-256, one copy per owner; output archives by attempt."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from lodesman.base.durable import sync_directory
from lodesman.base.errors import InvalidRequest, TooLarge

# Bytes of an upload that are written in one go.
PORTION = 1 << 20


class Shelf:
    """The folder DATA/sandboxes: in/<owner hash>/<sha256> and out/<job>.<attempt>.tar.gz."""

    def __init__(self, root: Path, *, limit_bytes: int) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._moving = threading.Lock()

    def input_path(self, owner: str, sha256: str) -> Path:
        """Names of owners may hold any character, so their hash is the folder."""
        return self.root / "in" / hashlib.sha256(owner.encode()).hexdigest()[:32] / sha256

    def head(self, owner: str, sha256: str, most: int) -> bytes:
        """The beginning of an input file; nothing if it cannot be read."""
        try:
            with self.input_path(owner, sha256).open("rb") as file:
                return file.read(most)
        except OSError:
            return b""

    def output_path(self, job_id: int, attempt: int) -> Path:
        """The place of an output archive."""
        return self.root / "out" / str(job_id // 1000) / f"{job_id}.{attempt}.tar.gz"

    def output_size(self, job_id: int, attempt: int, stored: int) -> int | None:
        """If it is not there: `stored`, or None if no output can be so large."""
        try:
            return self.output_path(job_id, attempt).stat().st_size
        except OSError:
            return stored if stored <= self.limit_bytes or not self.root.is_dir() else None

    def next_job(self) -> int:
        """The first id above those of all outputs here."""
        folders = [int(folder.name) for folder in self.root.glob("out/*") if folder.name.isdigit()]
        outputs = self.root.glob(f"out/{max(folders)}/*.tar.gz") if folders else ()
        numbers = (output.name.partition(".")[0] for output in outputs)
        return max((int(number) for number in numbers if number.isdigit()), default=0) + 1

    async def store(self, chunks: AsyncIterator[bytes], path: Path, sha256: str) -> int:
        """Write a synced file in other threads; returns its size. Raises TooLarge, InvalidRequest for a wrong checksum;
        then nothing is left.
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
        """Unless it was stored again since (UNIX seconds)."""
        with self._moving:
            try:
                if path.stat().st_mtime >= before:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def remove_outputs(self, job_id: int, attempts: int) -> None:
        """Of a purged job."""
        for attempt in range(1, attempts + 1):
            self.output_path(job_id, attempt).unlink(missing_ok=True)


class _Part:
    """A file that is not whole yet. `drop` ends whatever still goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._dropped = False
        self._lock = threading.Lock()

    def add(self, data: bytes) -> None:
        with self._lock:
            self._write(data)

    def finish(self, data: bytes, sha256: str, moving: threading.Lock) -> None:
        """Raises InvalidRequest for a wrong checksum."""
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
        with self._lock:
            self._dropped = True
            if self._file is not None:
                self._file.close()
                self._part.unlink(missing_ok=True)

    def _write(self, data: bytes) -> BinaryIO:
        if self._dropped:
            raise InvalidRequest("The upload broke off.")
        if self._file is None:
            _make_directory(self._path.parent)
            self._file = self._part.open("xb")
        self._digest.update(data)
        self._file.write(data)
        return self._file


def _make_directory(folder: Path) -> None:
    if not folder.is_dir():
        _make_directory(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(folder.parent)
