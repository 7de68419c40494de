"""The command line `lode`. What is slow to load is imported by the command that needs it: start-up time matters."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    try:
        # A closed stream (`>&-`) must not get the number of a file opened later.
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
        if (sys.argv[1:] if arguments is None else arguments)[:1] == ["server"]:
            from lodesman.server.main.process import heed_hang_up, interrupt

            heed_hang_up(interrupt)  # before anything that takes time
        from lodesman.user.cli import root

        return root.main(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("lode: interrupted\n")
        return _INTERRUPTED
