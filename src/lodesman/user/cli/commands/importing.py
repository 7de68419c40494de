"""`lode import` and `lode convert`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import click
from msgspec import to_builtins

from lodesman.base.errors import Conflict, LodesmanError, SyntaxFault
from lodesman.user.cli.drafts import label_of, read_text, warn
from lodesman.user.cli.faults import exit_code, placed
from lodesman.user.cli.native_files import read_native
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import emit_json, note, say, show_table
from lodesman.wire.vocabulary import FORMS, Form

_COLUMNS = ("dump", "setting", "no place here, but")
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

import_ = click.Group("import", help="Make configuration files of those of another system.")


@import_.command("gridengine")
@click.argument("dumps", metavar="DIR", type=_FOLDER)
@click.option(
    "--to", "target", default="imported", show_default=True, metavar="FOLDER", type=click.Path(path_type=Path),
    help="Where the files are written; nothing is written over another file.",
)  # fmt: skip
@click.option("--site", default="GridEngine", show_default=True, metavar="NAME", help="The name of the site.")
@click.option(
    "--dry-run", is_flag=True, help="Write nothing; show the names of the files and what has no place."
)
@with_session
def _gridengine(session: Session, /, *, dumps: Path, target: Path, site: str, dry_run: bool) -> None:
    """Make files of what qconf prints; it needs no server.

    DIR has a file for each object, named for the option of qconf: sc, sconf, srqs, sul, sq.QUEUE, shgrp.@GROUP, su.LIST,
    sprj.PROJECT, sp.PE, sjc.CLASS. What has no place here is listed, with what does the same.
    """
    from lodesman.languages.gridengine.dumps import convert_dumps

    names = sorted(path for path in dumps.iterdir() if path.is_file() and not path.name.startswith("."))
    try:
        carried = convert_dumps({path.name: read_native(path).text for path in names}, site)
        _check_quotas(carried.files)
    except SyntaxFault as fault:
        if session.as_json:
            raise
        note(placed(str(dumps / fault.data.get("source", "")), fault))
        raise click.exceptions.Exit(exit_code(fault)) from None
    existing = [target / name for name in carried.files if (target / name).exists()]
    if existing:
        raise Conflict(
            f"{existing[0]} exists; nothing was written.", hint="Name another folder: --to FOLDER."
        )
    for name, text in carried.files.items() if not dry_run else ():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with (target / name).open("x", encoding="utf-8") as file:
            file.write(text)
    if session.as_json:
        emit_json(
            {
                "files": [str(target / name) for name in carried.files],
                "left_out": to_builtins(carried.left_out),
            }
        )
        return
    for name in carried.files:
        say(str(target / name))
    show_table(_COLUMNS, ((row.file, row.setting, row.reason) for row in carried.left_out), apart=True)
    for line in ["Nothing was written."] if dry_run else _next(carried.files, target):
        note(line)


def _check_quotas(files: Mapping[str, str]) -> None:
    from lodesman.languages.gridengine.files import read_vocabulary
    from lodesman.languages.quota.reading import read_quota_sets

    faults: list[SyntaxFault] = []
    complexes = {name: text for name, text in files.items() if name == "gridengine/sc"}
    words = read_vocabulary(complexes, faults=faults)
    read_quota_sets(files.get("quotas.rqs", ""), words.complexes, faults=faults, source="srqs")
    if faults:
        raise faults[0]


def _next(files: Collection[str], target: Path) -> list[str]:
    lines = [
        f"Check them: lode config check {target / 'lode.toml'}; then take its sections into your configuration."
    ]
    if "quotas.rqs" in files:
        lines.append(f"Then, with the server running: lode quota add {target / 'quotas.rqs'}")
    if any(name.startswith("classes/") for name in files):
        lines.append(f"Then, with the server running: lode class add {target / 'classes'}/")
    return lines


@click.command()
@click.argument("file")
@click.option("--to", "target", required=True, type=click.Choice(FORMS), help="The language to write.")
@click.option(
    "--from", "form", type=click.Choice(FORMS), help="The language of FILE. [default: found from the text]"
)
@click.option("--check", "checked", is_flag=True, help="Also check that it is a job that can be submitted.")
def convert(*, file: str, target: Form, form: Form | None, checked: bool) -> int:
    """Write a description in another language, losing nothing.

    FILE is '-' for standard input.
    """
    from lodesman.languages.jobs import ARRAY_LIMITS, read_description, read_job, write_description

    label = label_of(file)
    try:
        parsed = read_description(read_text(file), form=form, limits=ARRAY_LIMITS)
        warnings = read_job(parsed.record, parsed.positions).warnings if checked else ()
        text = write_description(parsed.record, target)
    except LodesmanError as fault:
        note(placed(label, fault))
        return exit_code(fault)
    warn(label, warnings)
    # As it is, since it is read again by programs.
    click.echo(text if text.endswith("\n") else text + "\n", nl=False)
    return 0
