"""Which modules a call passes: those of the package in which a function, or the body of a class, runs.

`python -m tests.kits.walk_trace WORD...` is `lode WORD...`; its last line on standard error names the modules.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SOURCES = f"{Path(__file__).resolve().parents[2]}/src/lodesman/"


class WalkTrace:
    """Sees this thread, and those that begin later, until `end`."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._is_on = False
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self._is_on and event == "call":
            self._codes.add(frame.f_code)

    @contextmanager
    def walking(self) -> Iterator[None]:
        """Around the call."""
        gc.collect()
        gc.disable()  # finalizers are no part of it
        self._codes, self._is_on = set(), True
        try:
            yield
        finally:
            self._is_on = False
            gc.enable()

    @property
    def modules(self) -> list[str]:
        """Those of the last walk, as paths below `src/lodesman`, without the `__init__.py` of packages."""
        files = {code.co_filename for code in self._codes if code.co_name != "<module>"}
        inside = [file.removeprefix(SOURCES) for file in files if file.startswith(SOURCES)]
        return sorted(file for file in inside if not file.endswith("__init__.py"))

    def end(self) -> None:
        """See nothing any more."""
        sys.setprofile(None)
        threading.setprofile(None)


def main() -> int:
    """Run one command line."""
    trace = WalkTrace()
    with trace.walking():
        from lodesman.user.cli import main as lode  # noqa: PLC0415  # seen from its beginning

        code = lode(sys.argv[1:])
    trace.end()
    sys.stderr.write(" ".join(trace.modules))
    return code


if __name__ == "__main__":
    sys.exit(main())
