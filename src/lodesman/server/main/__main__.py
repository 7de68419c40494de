"""One process of the server. Exit codes: 2 for wrong arguments, 8 without a database, 1 for other errors."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lodesman.base.errors import InvalidConfig, LodesmanError
from lodesman.server.main.log_lines import start_logging
from lodesman.server.main.process import heed_hang_up, interrupt

_USAGE = "server|background [--config FILE] [--set SECTION.NAME=JSON ...] [--kept FILE]"
# As `lode server` ends then: systemd must not try again (docs/how-to/administrators.md).
_LOST = 8
log = logging.getLogger(__name__)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments; `overrides` has the values of `--set`. Raises SystemExit, InvalidConfig for one that is not JSON."""
    parser = argparse.ArgumentParser(
        usage=f"python -m lodesman.server.main {_USAGE}", add_help=False, allow_abbrev=False
    )
    parser.add_argument("process", choices=("server", "background"))
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--kept", type=Path)
    arguments = parser.parse_args(words)
    arguments.overrides = overrides = dict[str, dict[str, Any]]()
    for setting in arguments.set:
        name, equals, text = setting.partition("=")
        section, dot, option = name.partition(".")
        if not (equals and dot and section and option):
            parser.error(f"--set {setting[:80]!r} is not of the form SECTION.NAME=JSON.")
        try:
            overrides.setdefault(section, {})[option] = json.loads(text)
        except ValueError:
            raise InvalidConfig(f"--set {name}: {text[:80]!r} is not JSON.") from None
    return arguments


def main() -> int:
    """Run the process that the first argument names; returns the exit code."""
    # The second process ends with the first one.
    heed_hang_up(_do_nothing if "background" in sys.argv[1:2] else interrupt)
    try:
        _run(parse(sys.argv[1:]))
    except LodesmanError as fault:
        start_logging(sys.argv[1])
        log.critical("%s", fault)
        return _LOST if fault.code == "database-lost" else 1
    except KeyboardInterrupt:
        # Ctrl-C is how it ends; by now everything has ended in good order.
        return 0
    return 0


def _run(arguments: argparse.Namespace) -> None:
    from lodesman.server.config import load_config

    load = partial(load_config, arguments.config, overrides=arguments.overrides)
    if arguments.process == "background":
        from lodesman.server.main.background import run_background

        run_background(load, arguments.kept)
    else:
        from lodesman.server.main.server import run_server

        run_server(load(), sys.argv[2:], load)


def _do_nothing() -> None:
    """Go on."""


if __name__ == "__main__":
    sys.exit(main())
