"""`python -m lodesman.daemon server|background [--kept FILE] [--config FILE] [--set SECTION.NAME=JSON ...]`: one
process of the server. `--kept` is for the background process. Exit codes: 2 for other words than these, 1 for a fault.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lodesman.config import load_config
from lodesman.daemon import run_background, run_server
from lodesman.daemon.bootstrap import start_logging
from lodesman.errors import InvalidConfig, LodesmanError

USAGE = "Usage: python -m lodesman.daemon server|background [--kept FILE] [--config FILE] [--set SECTION.NAME=JSON ...]"
log = logging.getLogger(__name__)


class _Misused(LodesmanError):
    """Words that this program does not know."""

    code = "usage"


def parse(arguments: list[str]) -> tuple[Path | None, dict[str, dict[str, Any]]]:
    """The configuration file and the overrides of a process. Raises _Misused, InvalidConfig for a value that is no JSON."""
    path: Path | None = None
    overrides: dict[str, dict[str, Any]] = {}
    words = iter(arguments)
    for word in words:
        value = next(words, None)
        if word not in ("--config", "--set") or not value:
            raise _Misused(f"{word[:80]!r} is no option with a value.")
        if word == "--config":
            path = Path(value)
            continue
        name, equals, text = value.partition("=")
        section, dot, option = name.partition(".")
        if not (equals and dot and section and option):
            raise _Misused(f"--set {value[:80]!r} is not of the form SECTION.NAME=JSON.")
        overrides.setdefault(section, {})[option] = _value(name, text)
    return path, overrides


def _value(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidConfig(f"--set {name}: {text[:80]!r} is not JSON.") from None


def main() -> int:
    """Run the process that the first argument names; returns the exit code."""
    name, *arguments = sys.argv[1:] or [""]
    try:
        run = _prepare(name, arguments)
        run()
    except _Misused as fault:
        sys.stderr.write(f"lodesman.daemon: {fault}\n{USAGE}\n")
        return 2
    except LodesmanError as fault:
        start_logging(name)
        log.critical("%s", fault)
        return 1
    except KeyboardInterrupt:
        # Ctrl-C is how it ends; by now everything has ended in good order.
        return 0
    return 0


def _prepare(name: str, arguments: list[str]) -> Callable[[], None]:
    """What the words ask for. Raises _Misused."""
    if name not in ("server", "background"):
        raise _Misused(f"{name[:80]!r} is no process of the server.")
    kept: Path | None = None
    if name == "background" and len(arguments) > 1 and arguments[0] == "--kept":
        kept, arguments = Path(arguments[1]), arguments[2:]
    path, overrides = parse(arguments)
    load = partial(load_config, path, overrides=overrides)
    if name == "background":
        return partial(run_background, load, kept)
    return lambda: run_server(load(), arguments, load)


if __name__ == "__main__":
    sys.exit(main())
