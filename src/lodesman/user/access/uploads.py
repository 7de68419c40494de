"""Input files on their way to the server, each content once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lodesman.base.errors import LodesmanError, NotFound
from lodesman.user.access.caller import Caller
from lodesman.wire import calls
from lodesman.wire.requests import InputBody, SandboxAt


def measure(paths: Iterable[Path]) -> dict[Path, InputBody]:
    """Digest and size of each file, whether its owner may execute it, and when it was changed. Raises OSError."""
    from lodesman.wire.client import sha256_of

    found = {}
    for path in dict.fromkeys(paths):
        status = path.stat()
        is_program = bool(status.st_mode & stat.S_IXUSR)
        changed = max(0, int(status.st_mtime))
        found[path] = InputBody(sha256_of(path), status.st_size, executable=is_program, modified=changed)
    return found


def distinct(files: Mapping[Path, InputBody]) -> dict[str, tuple[Path, InputBody]]:
    """One file for each content, by its digest."""
    return {one.sha256: (path, one) for path, one in files.items()}


def upload(
    caller: Caller, files: Mapping[Path, InputBody], advance: Callable[[int], None] = lambda _: None
) -> None:
    """Upload what the server does not have yet; `advance` gets the bytes of each. Raises what the client raises, with the
    file.
    """
    for path, one in distinct(files).values():
        try:
            caller.call(calls.SANDBOX, SandboxAt(one.sha256))
        except NotFound:
            _send(caller, path, one.sha256)
        advance(one.size)


def _send(caller: Caller, path: Path, sha256: str) -> None:
    try:
        caller.client.upload(calls.PUT_SANDBOX.path, path, sha256, method=calls.PUT_SANDBOX.method)
    except LodesmanError as fault:
        fault.message = f"{path}: {fault.message}"
        raise
