"""`python -m lodesman.daemon background|server [--kept FILE] [--config FILE] [--set SECTION.NAME=JSON ...]`: one
process of the server.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from lodesman.config import load_config
from lodesman.daemon import run_background, run_server
from lodesman.daemon.logs import start_logging
from lodesman.errors import InvalidConfig, LodesmanError

log = logging.getLogger(__name__)


def parse(arguments: list[str]) -> tuple[Path | None, dict[str, dict[str, Any]]]:
    """The configuration file and the overrides of a process. Raises InvalidConfig."""
    path: Path | None = None
    overrides: dict[str, dict[str, Any]] = {}
    words = iter(arguments)
    for word in words:
        value = next(words, "")
        if word == "--config":
            path = Path(value)
        elif word == "--set":
            name, _, text = value.partition("=")
            section, _, option = name.partition(".")
            overrides.setdefault(section, {})[option] = _value(name, text)
    return path, overrides


def _value(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidConfig(f"--set {name}: {text[:80]!r} is not JSON.") from None


def main() -> int:
    """Run the process that the first argument names."""
    name, *arguments = sys.argv[1:] or [""]
    try:
        kept = Path(arguments[1]) if arguments[:1] == ["--kept"] else None
        path, overrides = parse(arguments if kept is None else arguments[2:])
        load = partial(load_config, path, overrides=overrides)
        if name == "background":
            run_background(load, kept)
        else:
            run_server(load(), arguments, load)
    except LodesmanError as fault:
        start_logging(name)
        log.critical("%s", fault)
        return 1
    except KeyboardInterrupt:
        # Ctrl-C is how it ends; by now everything has ended in good order.
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
