"""Input sandboxes: the local files that descriptions name, found, hashed and uploaded once each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lodesman.cli.tables import is_terminal
from lodesman.errors import InvalidJob, LodesmanError, NotFound

if TYPE_CHECKING:
    from lodesman.client import Client
    from lodesman.jobs import Description

LARGE_BYTES, MANY_FILES = 8 << 20, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A local file with its digest and size in bytes."""

    path: Path
    sha256: str
    size: int


def local_inputs(description: Description, base: Path) -> dict[str, Path]:
    """Where each InputSandbox entry lies, those of all members of an array; relative ones below `base`.

    Raises InvalidJob.
    """
    from lodesman.jobs import input_names

    return {name: _local(name, base) for name in input_names(description.spec, description.members)}


def _local(name: str, base: Path) -> Path:
    path = base / name
    if path.is_file():
        return path
    if path.is_dir():
        problem, hint = (
            "is a directory",
            "Pack it: tar -czf inputs.tar.gz DIRECTORY, and unpack it in the job.",
        )
    elif path.exists():
        problem, hint = "is no plain file", "Only plain files can be sent."
    else:
        problem, hint = "does not exist", "Paths are relative to the directory of the description."
    raise InvalidJob(f"InputSandbox: {path} {problem}.", hint=hint, attribute="InputSandbox")


def measure(paths: Iterable[Path]) -> dict[Path, InputFile]:
    """Digest and size of each file. Raises OSError."""
    from lodesman.client import sha256_of

    return {
        path: InputFile(path=path, sha256=sha256_of(path), size=path.stat().st_size)
        for path in dict.fromkeys(paths)
    }


def upload(client: Client, files: Mapping[Path, InputFile]) -> int:
    """Upload what the server does not have yet, each content once; returns how many files were sent.

    Raises what the client raises, with the file named.
    """
    distinct = {one.sha256: one for one in files.values()}
    sent = 0
    with _progress(distinct.values()) as advance:
        for one in distinct.values():
            if not _is_there(client, one.sha256):
                _send(client, one)
                sent += 1
            advance(one.size)
    return sent


def _is_there(client: Client, sha256: str) -> bool:
    try:
        client.request("GET", f"/v1/sandboxes/{sha256}")
    except NotFound:
        return False
    return True


def _send(client: Client, one: InputFile) -> None:
    try:
        client.upload("/v1/sandboxes", one.path, one.sha256, method="POST")
    except LodesmanError as fault:
        fault.message = f"{one.path}: {fault.message}"
        raise


def _progress(files: Iterable[InputFile]) -> AbstractContextManager[Callable[[int], Any]]:
    """A bar for large work, if a person looks on."""
    sizes = [one.size for one in files]
    large = sum(sizes) > LARGE_BYTES or len(sizes) > MANY_FILES
    if not large or not is_terminal(sys.stderr):
        return nullcontext(_nothing)
    from lodesman.cli.progress import byte_bar

    return byte_bar("uploading", sum(sizes))


def _nothing(_size: int) -> None:
    """Nobody looks on."""
