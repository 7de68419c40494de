"""`lode server`, `lode init`, `lode config`: a server on this machine."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.answers import calls
from lodesman.answers.server import Configuration
from lodesman.cli.faults import FAILED, remark
from lodesman.cli.session import Session, json_option, pass_session
from lodesman.cli.tables import Cell, emit_json, note, say, show_fields
from lodesman.cli.words import age, counted, joined
from lodesman.errors import Conflict, InvalidConfig

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
    # Ctrl-C is how it ends.
    with suppress(KeyboardInterrupt):
        run_server(load(), process_arguments(path, given), load, _greet)


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
    texts = {"lode.toml": first_files.LODE, "sites.toml": first_files.sites(), "hello.jdl": first_files.HELLO}
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
    """Check a server's configuration FILE and all that it names; every fault is shown.

    What a running server made of its files: lode config status.
    """
    from lodesman.config import load_config

    try:
        found = load_config(file)
    except InvalidConfig as refused:
        refused.hint = "A server that runs keeps what it has; see: lode config status."
        raise
    resources = found.resources
    sites = {
        name: sum(len(ce.queues) for ce in site.ces.values()) for name, site in resources.tree.sites.items()
    }
    groups = {name: group.share for name, group in sorted(resources.groups.items())}
    notices = [notice.as_dict() for notice in resources.notices]
    files = [str(path) for path in found.resource_files]
    pools, vos = list(found.director.submission_pools), sorted(resources.vos)
    if session.as_json:
        emit_json({
            "file": str(file), "url": found.url, "data": str(found.data), "resource_files": files, "vos": vos,
            "groups": groups, "sites": sites, "submission_pools": pools, "notices": notices,
        })  # fmt: skip
        return
    show_fields(
        [
            ("listens at", found.url),
            ("data", str(found.data)),
            ("resources", joined(files)),
            ("VOs", joined(vos)),
            ("groups", joined(f"{name} (share {share:g})" for name, share in groups.items())),
            ("sites", joined(f"{name} ({counted(n, 'queue')})" for name, n in sites.items())),
            ("submission pools", joined(pools)),
        ]
    )
    for notice in notices:
        note(f"notice: {remark(**notice)}")
    note(f"{file} is good.")


@config.command("status")
@json_option
@pass_session
def configuration_status(session: Session, /) -> int:
    """Show which configuration the server uses, since when, and why its last change was refused.

    Exit code 1 if the files, as they are now, are refused.
    """
    found = session.call(calls.CONFIGURATION)
    if session.as_json:
        emit_json(found)
    else:
        _show_configuration(found)
    return 0 if found.refused_at is None else FAILED


def _show_configuration(found: Configuration) -> None:
    now = found.loaded_at + found.age_seconds
    pairs: list[tuple[str, Cell]] = [
        ("files", joined(found.files)),
        ("in use for", age(found.loaded_at, now)),
        ("read again", counted(found.reloads, "time")),
        ("refused", counted(found.refusals, "time")),
    ]
    if found.refused_at is not None:
        pairs.append(("last refused", f"{age(found.refused_at, now)} ago; what was there before is in use"))
    if found.at_next_start:
        pairs.append(("at the next start", joined(found.at_next_start)))
    show_fields(pairs)
    for fault in found.faults:
        note(remark(fault.message, fault.source, fault.section, fault.line))
    for notice in found.notices:
        note(f"notice: {remark(notice.message, notice.source, notice.section, notice.line)}")


@config.command("schema")
def show_schema() -> None:
    """Show the JSON schema of a server's configuration."""
    import msgspec

    from lodesman.config import ServerFile

    # The schema of what reads the file; its own words about itself are for readers of the source.
    (_,), parts = msgspec.json.schema_components([ServerFile], ref_template="#/$defs/{name}")
    whole = {**parts.pop("ServerFile"), "title": "Lodesman server"}
    director = "The director's parameters, named as in the Taskqueue Director."
    whole["properties"]["director"]["description"] = director
    emit_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": parts})


COMMANDS = (init, server, config)
