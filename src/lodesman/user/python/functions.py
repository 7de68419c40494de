"""Calls of Python functions as jobs."""

from __future__ import annotations

import io
import pickle
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.languages.jobs.record import Record

CALL, RESULT, RUNNER, LIBRARY = "call.pkl", "result.pkl", "call_runner.py", "cloudpickle.zip"
MOST_BYTES: Final = 64 << 20
# The Python of this machine if the node has it, as nodes with a shared file system do; else the same version there.
_START: Final = """\
for python in "$@"; do command -v "$python" >/dev/null && exec "$python" call_runner.py; done
echo "lodesman: the node has none of $*" >&2; exit 3
"""
_INSTALLED: Final = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
Call = tuple[tuple[Any, ...], dict[str, Any]]


class RemoteTraceback(Exception):
    """The traceback on the node, the cause of what is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def pack_calls(function: Callable[..., Any], calls: Iterable[Call], folder: Path) -> int:
    """One call a job; returns their number. Raises LodesmanError."""
    pickler = _cloudpickle()
    try:
        with _by_value(pickler, function):
            packed = [pickler.dumps(call) for call in calls]
            content = {
                "python": sys.version_info[:2], "function": pickler.dumps(function), "arguments": packed,
            }  # fmt: skip
        (folder / CALL).write_bytes(pickle.dumps(content))
    except (pickle.PicklingError, TypeError, AttributeError) as fault:
        name = getattr(function, "__qualname__", repr(function))
        words = f"{name} or its arguments cannot travel: {fault}."
        raise InvalidRequest(words, hint="Open files and connections in the function itself.") from fault
    size = (folder / CALL).stat().st_size
    if size > MOST_BYTES:
        words = f"The arguments have {size >> 20} MB; the maximum is {MOST_BYTES >> 20} MB."
        raise InvalidRequest(words, hint="Write large data to files, and name these: using(files=[...]).")
    source = resources.files("lodesman.user.python") / RUNNER
    (folder / RUNNER).write_bytes(source.read_bytes())
    (folder / LIBRARY).write_bytes(_zipped(Path(pickler.__file__).parent))
    return len(packed)


def record_of_call(function: Callable[..., Any], python: str) -> Record:
    """The description of the jobs."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    pythons = [python] if python else [sys.executable, version, "python3"]
    return {
        "JobName": getattr(function, "__name__", "function").strip("<>")[:100] or "function",
        "Executable": "/bin/sh",
        "Arguments": ["-c", _START, "sh", *pythons],
        "OutputSandbox": [RESULT],
    }


def is_call(record: Record) -> bool:
    """Of this version or an earlier one."""
    words, kept = record.get("Arguments"), record.get("OutputSandbox")
    runs = isinstance(words, list) and len(words) > 1 and RUNNER in str(words[1])
    return runs and record.get("Executable") == "/bin/sh" and isinstance(kept, list) and RESULT in kept


def read_result(file: Path) -> Any:
    """Raises what the function raised. The file is a pickle: it must be of one's own call."""
    returned, value, text = pickle.loads(file.read_bytes())  # noqa: S301
    if returned:
        return value
    raise value from RemoteTraceback(text)


@contextmanager
def _by_value(pickler: Any, function: Callable[..., Any]) -> Iterator[None]:
    """The node lacks a module that is not installed here: what it has of the function travels."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    installed = file is None or any(Path(file).is_relative_to(folder) for folder in _INSTALLED)
    if module is None or installed or module.__name__ == "__main__":
        yield
        return
    pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickler.unregister_pickle_by_value(module)


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # noqa: PLC0415 - only functions need it
    except ImportError:
        hint = "In a checkout of the source: pip install --require-hashes -r requirements/functions.txt"
        raise LodesmanError("Functions as jobs need the package cloudpickle.", hint=hint) from None
    return cloudpickle


def _zipped(package: Path) -> bytes:
    """The same bytes each time: it is uploaded once."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in sorted(package.rglob("*.py")):
            name = f"{package.name}/{file.relative_to(package).as_posix()}"
            zipped.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), file.read_bytes())
    return out.getvalue()
