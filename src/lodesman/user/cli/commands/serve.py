"""`lode server`, `lode init`, `lode config`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lodesman.base.errors import Conflict, InvalidConfig
from lodesman.user.cli.arguments import DIRECTORY, FILE
from lodesman.user.cli.configured import NamedConfig, configured
from lodesman.user.cli.configured import check_data as check_data_of
from lodesman.user.cli.faults import FAILED
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import emit_json, note, note_all, say, show_fields, show_table
from lodesman.user.cli.words import age, counted, joined, located
from lodesman.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lodesman.server.config import ServerConfig


@click.command()
@configured
@click.option("--port", type=click.IntRange(0, 65_535), help="The TCP port.")
@click.option("--check-data", is_flag=True, help="The same as lode db check.")
@click.option(
    "--accept-new-database",
    "accepts_new",
    is_flag=True,
    help="Begin with nothing though a database is missing.",
)
def server(*, chosen: NamedConfig, port: int | None, check_data: bool, accepts_new: bool) -> int:
    """Run the server here until Ctrl-C.

    Without a configuration it listens on 127.0.0.1:7777 and keeps its data in ./lode-data; the first
    administrator's token is in lode-data/admin.token.

    If the database is missing that a server has used here, it does not start, with exit code 8: put a backup in its place.
    --accept-new-database begins with a new one, once; no user, token or job of before is in it.
    """
    from lodesman.server.main.server import run_server

    if port is not None:
        chosen = replace(chosen, settings=(*chosen.settings, ("server", "port", port)))
    if check_data:
        return check_data_of(chosen.load())
    # Ctrl-C is how it ends.
    with suppress(KeyboardInterrupt):
        run_server(chosen.load(), chosen.arguments(), chosen.load, _greet, accepts_new=accepts_new)
    return 0


def _greet(config: ServerConfig, local_pilots: str) -> None:
    from lodesman.server.config.set_up import set_up_notices

    note(f"Serving {config.url} from {config.data}; Ctrl-C ends it.")
    note(f"The administrator's token is in {config.data / 'admin.token'}.")
    if local_pilots:
        note(local_pilots)
    for notice in set_up_notices(config):
        note(f"notice: {located(**notice.as_dict())}")
    if not config.resources.tree.sites:
        note("No site is configured, so no job can run yet; see: lode init.")


@click.command()
@click.argument("directory", default=".", metavar="[DIR]", type=DIRECTORY)
def init(*, directory: Path) -> None:
    """Write a configuration to start from into DIR: lode.toml, sites.toml and hello.jdl."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = {"lode.toml": LODE, "sites.toml": sites_file(), "hello.jdl": _HELLO}
    for name in texts:
        if (directory / name).exists():
            hint = "Remove it, or name another directory."
            raise Conflict(f"{directory / name} exists; nothing was written.", hint=hint)
    for name, text in texts.items():
        with (directory / name).open("x") as file:
            file.write(text)
        say(str(directory / name))
    where = "" if directory == Path() else f"in {directory}: "
    note(f"Now {where}lode server; and in another terminal {where}lode submit hello.jdl.")
    note("Larger examples are in the examples folder of the source.")


config = click.Group("config", help="Check a configuration, or show what one may hold.")


@config.command("check")
@click.argument("file", type=FILE)
@with_session
def _check_config(session: Session, /, *, file: Path) -> int:
    """Check a server's configuration FILE and all that it names; every fault is shown, and what each queue will do.

    Notices name the line of what may not work, such as an address that pilots cannot reach.

    The exit code is 1 also for what can be read and cannot work: a backend that does not exist, a pilots' Python that is
    missing. What a running server made of its files: lode config status.
    """
    from lodesman.server.config import load_config
    from lodesman.server.config.set_up import mistakes, queue_outlooks, set_up_notices
    from lodesman.server.main.bootstrap import isolation_of

    try:
        loaded = load_config(file)
    except InvalidConfig as refused:
        refused.hint = "A server that runs keeps what it has; see: lode config status."
        raise
    queues = queue_outlooks(loaded)
    wrong = list(mistakes(loaded, queues))
    code = FAILED if wrong else 0
    isolation = isolation_of(loaded)
    local_pilots = "" if isolation is None else isolation.sentence()
    doubts = [notice.as_dict() for notice in set_up_notices(loaded)]
    checked = _checked(loaded, doubts) | {"local_pilots": local_pilots, "queues": queues, "mistakes": wrong}
    session.exit_if_json({"file": str(file), **checked}, code)
    _show_checked(checked)
    rows = [(row.queue, joined(row.vos), row.pilots) for row in queues]
    show_table(("queue", "VOs", "pilots"), rows, apart=True)
    for notice in checked["notices"]:
        note(f"notice: {located(**notice)}")
    for mistake in wrong:
        note(f"{mistake}.")
    if local_pilots:
        note(local_pilots)
    may = "can be read, and may not work as it is: see the notices" if doubts else "is good"
    note(f"{file} {'cannot work as it is' if wrong else may}.")
    return code


def _checked(loaded: ServerConfig, doubts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    resources = loaded.resources
    return {
        "url": loaded.url,
        "data": str(loaded.data),
        "resource_files": [str(path) for path in loaded.resource_files],
        "gridengine_files": [str(path) for path in loaded.native_files],
        "vos": sorted(resources.vos),
        "groups": {name: group.share for name, group in sorted(resources.groups.items())},
        "sites": {
            name: sum(len(ce.children) for ce in site.children.values())
            for name, site in resources.tree.sites.items()
        },
        "submission_pools": {
            name: {"serves": [name for names in pool.scope for name in names], "handled_by": pool.elsewhere}
            for name, pool in loaded.director.pools.items()
        },
        "notices": [*(notice.as_dict() for notice in resources.notices), *doubts],
    }


def _pool_words(pools: dict[str, Any]) -> Iterator[str]:
    for name, pool in pools.items():
        words = [joined(pool["serves"])] if pool["serves"] else []
        words += [f"handled by {pool['handled_by']}"] if pool["handled_by"] else []
        yield f"{name} ({'; '.join(words)})" if words else name


def _show_checked(checked: dict[str, Any]) -> None:
    show_fields(
        (
            ("listens at", checked["url"]),
            ("data", checked["data"]),
            ("resources", joined(checked["resource_files"])),
            *([("Grid Engine", joined(native))] if (native := checked["gridengine_files"]) else ()),
            ("VOs", joined(checked["vos"])),
            ("groups", joined(f"{name} (share {share:g})" for name, share in checked["groups"].items())),
            ("sites", joined(f"{name} ({counted(n, 'queue')})" for name, n in checked["sites"].items())),
            ("submission pools", joined(_pool_words(checked["submission_pools"]))),
        )
    )


@config.command("status")
@with_session
def _configuration_status(session: Session, /) -> int:
    """Show which configuration the server uses, since when, and why its last change was refused.

    Exit code 1 if the files, as they are now, are refused.
    """
    answer = session.call(calls.CONFIGURATION)
    code = 0 if answer.refused_at is None else FAILED
    session.exit_if_json(answer, code)
    now = answer.loaded_at + answer.age_seconds
    fields = {
        "files": joined(answer.files),
        "in use for": age(answer.loaded_at, now),
        "read again": counted(answer.reloads, "time"),
        "refused": counted(answer.refusals, "time"),
    }
    if answer.refused_at is not None:
        fields["last refused"] = f"{age(answer.refused_at, now)} ago; what was there before is in use"
    if answer.at_next_start:
        fields["at the next start"] = joined(answer.at_next_start)
    show_fields(fields.items())
    note_all(answer.faults)
    note_all(answer.notices, "notice: ")
    return code


@config.command("schema")
def _show_schema() -> None:
    """Show the JSON schema of a server's configuration."""
    import msgspec

    from lodesman.server.config import ServerFile
    from lodesman.wire.field_comments import describe_fields

    # The schema of what reads the file; its own words about itself are for readers of the source.
    (_,), parts = msgspec.json.schema_components([ServerFile], ref_template="#/$defs/{name}")
    describe_fields(parts)
    whole = {**parts.pop("ServerFile"), "title": "Lodesman server"}
    director = "The director's parameters, named as in the Taskqueue Director."
    whole["properties"]["director"]["description"] = director
    emit_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": parts})


# --- what lode init writes ----------------------------------------------------------------------------------------------

LODE = """\
# A Lodesman server. Every value is optional; what stands here are the defaults, unless it says otherwise.
# Check it with: lode config check lode.toml

[server]
host = "127.0.0.1"              # anything but this machine itself needs TLS
port = 7777
data = "lode-data"              # relative to this file; holds the database, sandboxes and the first token
# tls_certificate = "server.pem"
# tls_key = "server.key"
sandbox_mb = 200                # the most that one uploaded file or one job's output may have

[resources]
files = ["sites.toml"]          # sites, queues, groups and their shares: TOML or DIRAC CFG

[admin]                         # the first user; the token is written to lode-data/admin.token
name = "admin"
# vo = "local"                  # default: the first VO of the resources
# groups = ["users"]            # default: all groups of the resources

[pilots]
lease_seconds = 1800            # a pilot without heartbeat for this time has lost its jobs
heartbeat_seconds = 60
idle_seconds = 120              # a pilot without work leaves after this
life_seconds = 0                # 0: as long as its queue lets it
python = "python3"              # on the worker nodes; 3.9 or newer
# jobstatus_directory = "."     # pilots publish what vacating them would lose also where the site sets no $JOBSTATUS

[director]                      # how many pilots are sent; all parameters: docs/how-to/administrators.md
PollingTime = 10                # default 60; seconds between iterations
pilotsPerIteration = 40
extraPilots = 4
"""

SLOTS = 2
_SITES = """\
# One site: this machine. A queue has what its CE and site have, unless it says otherwise. Parameters may have
# any names; jobs ask for them in their Requirements. Three sites of different shape are in the examples
# folder of the source: three-sites.toml.

[site."this.machine"]
VO = ["local"]

[site."this.machine".ce.here]
Backend = "local"               # pilots are processes of this machine
# or "slurm", "gridengine", "htcondor"; "slurm@login.example.org" by SSH; "arc@ce.example.org"

[site."this.machine".ce.here.queue.default]
Slots = {slots}                       # pilots at the same time
MaxWaitingJobs = 2
MaxTotalJobs = 4
NumberOfProcessors = 1          # cores of each
CPUTime = "2 d"
# What is not declared is not offered: jobs that ask for it cannot run here.
Platform = {platform}
{memory}

[group.users]
vo = "local"
share = 1000
"""

_HELLO = """\
// A first job: lode submit hello.jdl
[
    JobName    = "hello";
    Executable = "/bin/echo";
    Arguments  = "hello from a pilot";
    CPUTime    = 60;
]
"""


def sites_file(root: Path = Path("/")) -> str:
    """With the platform of this machine, and for each pilot a part of its memory."""
    from lodesman.pilot.node import describe_node

    node = describe_node(cores=1, root=root)
    part = node.memory_total_mb // SLOTS
    unknown = '# Memory = "2 GB"             # for each pilot'
    memory = f"Memory = {part:<22} # MB for each pilot" if part else unknown
    return _SITES.format(slots=SLOTS, platform=json.dumps(node.platform), memory=memory)
