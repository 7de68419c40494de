"""`python -m lodesman.daemon background|server [--config FILE] [--set SECTION.NAME=JSON ...]`: one process of the server."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from lodesman.config import load_config
from lodesman.daemon import run_background, run_server
from lodesman.errors import LodesmanError


def parse(arguments: list[str]) -> tuple[Path | None, dict[str, dict[str, Any]]]:
    """The configuration file and the overrides of a process."""
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
            overrides.setdefault(section, {})[option] = json.loads(text)
    return path, overrides


def main() -> int:
    """Run the process that the first argument names."""
    name, *arguments = sys.argv[1:] or [""]
    path, overrides = parse(arguments)
    try:
        load = partial(load_config, path, overrides=overrides)
        if name == "background":
            run_background(load(), load)
        else:
            run_server(load(), arguments, load)
    except LodesmanError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
