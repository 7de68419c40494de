"""The configuration of `--config`, `--data` and `--set`, and the check of its data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.base.errors import Conflict, each_once
from lodesman.user.cli.arguments import FILE, ParsedArgument, several
from lodesman.user.cli.faults import FAILED
from lodesman.user.cli.tables import note

if TYPE_CHECKING:
    from lodesman.server.config import ServerConfig


@dataclass(frozen=True, slots=True)
class NamedConfig:
    """The configuration that a command names."""

    path: Path | None  # None: the defaults
    settings: tuple[Any, ...]  # section, name and value of each --set

    def load(self) -> ServerConfig:
        """Read it. Raises InvalidConfig."""
        from lodesman.server.config import load_config

        overrides: dict[str, dict[str, Any]] = {}
        for section, name, value in self.settings:
            overrides.setdefault(section, {})[name] = value
        return load_config(self.path, overrides=overrides)

    def arguments(self) -> list[str]:
        """The words that lead another process to it."""
        same = [] if self.path is None else ["--config", str(self.path.resolve())]
        for section, name, value in self.settings:
            same += ["--set", f"{section}.{name}={json.dumps(value)}"]
        return same


def _setting(word: str) -> tuple[str, str, Any]:
    """SECTION.NAME=VALUE, in JSON, else a text."""
    key, equals, text = word.partition("=")
    section, _, name = key.partition(".")
    if not (section and name and equals):
        raise ValueError(f"{word[:60]!r} is not of the form SECTION.NAME=VALUE.")
    try:
        return section, name, json.loads(text, object_pairs_hook=each_once)
    except json.JSONDecodeError:
        return section, name, text


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets the configuration of its options as `chosen`."""

    @click.option(
        "--config", "config_file", metavar="FILE", type=FILE, help="The configuration. [default: ./lode.toml]"
    )
    @click.option("--data", metavar="DIR", type=FILE, help="Where all data is kept.")
    @several(
        "--set",
        "settings",
        type=ParsedArgument("setting", _setting),
        metavar="SECTION.NAME=VALUE",
        help="Any other value of the file",
    )
    @wraps(command)
    def run(
        *words: Any, config_file: Path | None, data: Path | None, settings: tuple[Any, ...], **more: Any
    ) -> Any:
        if data is not None:
            settings += (("server", "data", str(data.resolve())),)
        here = Path("lode.toml")
        path = config_file or (here if here.is_file() else None)
        return command(*words, chosen=NamedConfig(path, settings), **more)

    return run


@contextmanager
def no_server() -> Iterator[None]:
    """Raises Conflict if a server has the data."""
    try:
        yield
    except Conflict as owned:
        owned.hint = "Stop that server first."
        raise


def check_data(config: ServerConfig) -> int:
    """Returns the exit code."""
    from lodesman.server.loops.reconciler import check_data as faults_of

    with no_server():
        faults = faults_of(config)
    for fault in faults:
        note(fault)
    if not faults:
        note(f"The data in {config.data} is whole.")
    return FAILED if faults else 0
