"""`lode server`, `lode init`, `lode config`, `lode demo`: a server on this machine."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import emit_json, note, say, show_fields
from lodesman.cli.words import counted, joined
from lodesman.errors import Conflict

if TYPE_CHECKING:
    from lodesman.config import ServerConfig


class Setting(click.ParamType[tuple[str, str, Any], Any]):
    """SECTION.NAME=VALUE, the value in JSON; what is no JSON is text."""

    name = "setting"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, Any]:
        """The three parts. A usage error for anything else."""
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        section, dot, name = key.partition(".")
        if not (section and dot and name and equals):
            self.fail(f"{value[:60]!r} is not of the form SECTION.NAME=VALUE.", param, ctx)
        try:
            return section, name, json.loads(text)
        except ValueError:
            return section, name, text


@click.command()
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The configuration. [default: ./lode.toml if it is there]",
)
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Where all data is kept.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The TCP port.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=Setting(),
    metavar="SECTION.NAME=VALUE",
    help="Any other value of the configuration; may be given several times.",
)
def server(*, file: Path | None, data: Path | None, port: int | None, settings: tuple[Any, ...]) -> None:
    """Run the server here until Ctrl-C.

    Without a configuration it listens on 127.0.0.1:7777 and keeps its data in ./lode-data; the first
    administrator's token is in lode-data/admin.token.
    """
    from lodesman.config import load_config
    from lodesman.daemon import run_server

    given = {(section, name): value for section, name, value in settings}
    if data is not None:
        given["server", "data"] = str(data.resolve())
    if port is not None:
        given["server", "port"] = port
    path = file if file is not None else _config_here()
    overrides: dict[str, dict[str, Any]] = {}
    for (section, name), value in given.items():
        overrides.setdefault(section, {})[name] = value
    load = partial(load_config, path, overrides=overrides)
    config = load()
    _greet(config)
    # Ctrl-C is how it ends.
    with suppress(KeyboardInterrupt):
        run_server(config, process_arguments(path, given), load)


def process_arguments(path: Path | None, given: dict[tuple[str, str], Any]) -> list[str]:
    """What leads the server's second process to the same configuration (lodesman.daemon.__main__)."""
    arguments = [] if path is None else ["--config", str(path.resolve())]
    for (section, name), value in given.items():
        arguments += ["--set", f"{section}.{name}={json.dumps(value)}"]
    return arguments


def _config_here() -> Path | None:
    path = Path("lode.toml")
    return path if path.is_file() else None


def _greet(config: ServerConfig) -> None:
    note(f"Serving {config.url} from {config.data}; Ctrl-C ends it.")
    note(f"The administrator's token is in {config.data / 'admin.token'}.")
    if not config.resources.tree.sites:
        note("No site is configured, so no job can run yet; see: lode init.")


@click.command()
@click.argument("directory", default=".", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False))
def init(*, directory: Path) -> None:
    """Write a configuration to start from into DIR: lode.toml, sites.toml and hello.jdl."""
    from lodesman.cli import first_files

    directory.mkdir(parents=True, exist_ok=True)
    texts = {"lode.toml": first_files.LODE, "sites.toml": first_files.SITES, "hello.jdl": first_files.HELLO}
    present = [name for name in texts if (directory / name).exists()]
    if present:
        raise Conflict(
            f"{directory / present[0]} exists; nothing was written.",
            hint="Remove it, or name another directory.",
        )
    for name, text in texts.items():
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        say(str(directory / name))
    there = "" if directory == Path() else f"in {directory}: "
    note(f"Now {there}lode server; and in another terminal {there}lode submit hello.jdl.")
    note("Larger examples are in the examples folder of the source.")


@click.group()
def config() -> None:
    """Check a configuration, or show what one may hold."""


@config.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@pass_session
def check_config(session: Session, /, *, file: Path) -> None:
    """Check a server's configuration FILE and all that it names."""
    from lodesman.config import load_config

    found = load_config(file)
    tree = found.resources.tree
    queues = Counter(
        {name: sum(len(ce.queues) for ce in site.ces.values()) for name, site in tree.sites.items()}
    )
    facts: dict[str, Any] = {
        "file": str(file),
        "url": found.url,
        "data": str(found.data),
        "resource_files": [str(path) for path in found.resource_files],
        "vos": sorted(found.resources.vos),
        "groups": {name: group.share for name, group in sorted(found.resources.groups.items())},
        "sites": dict(queues),
        "submission_pools": list(found.director.submission_pools),
    }
    if session.as_json:
        emit_json(facts)
        return
    show_fields(
        [
            ("listens at", found.url),
            ("data", str(found.data)),
            ("resources", joined(facts["resource_files"])),
            ("VOs", joined(facts["vos"])),
            ("groups", joined(f"{name} (share {share:g})" for name, share in facts["groups"].items())),
            ("sites", joined(f"{name} ({counted(n, 'queue')})" for name, n in queues.items())),
            ("submission pools", joined(facts["submission_pools"])),
        ]
    )
    note(f"{file} is good.")


@config.command("schema")
def show_schema() -> None:
    """Show the JSON schema of a server's configuration."""
    import msgspec

    from lodesman import config as sections

    kinds = {
        "server": sections.ServerSection,
        "pilots": sections.PilotSection,
        "admin": sections.AdminSection,
        "resources": sections.ResourceSection,
    }
    (refs, parts) = msgspec.json.schema_components(kinds.values(), ref_template="#/$defs/{name}")
    properties = dict(zip(kinds, refs, strict=True))
    director = {
        "type": "object",
        "description": "The director's parameters, named as in the Taskqueue Director.",
    }
    emit_json(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Lodesman server",
            "type": "object",
            "additionalProperties": False,
            "properties": {**properties, "director": director},
            "$defs": parts,
        }
    )


@click.command()
@click.option(
    "--results",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-results"),
    show_default=True,
    help="Where the results go.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="The server's TCP port. [default: any free one]"
)
@click.option("--keep", is_flag=True, help="Keep the server's data directory.")
@json_option
@pass_session
def demo(session: Session, /, *, results: Path, port: int, keep: bool) -> int:
    """Run 200 real jobs on three sites on this machine, with live progress and a summary."""
    from lodesman.demo.run import main

    return main(results=results, port=port, keep=keep, as_json=session.as_json)


COMMANDS = (init, server, demo, config)
