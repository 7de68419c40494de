"""`lode pilot file`: files of pilots that people start themselves, one for each pilot, with all that it needs in it."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import click

from lodesman.user.cli.arguments import named
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say
from lodesman.user.cli.words import counted, path_of
from lodesman.wire import calls
from lodesman.wire.nodes import utc
from lodesman.wire.pilots import MOST_FILES, PilotFilesBody

# As `lodesman.pilot` finds it in its own archive.
_MEMBER = "pilot.json"


@click.command("file")
@click.option("--queue", required=True, metavar="SITE/CE/QUEUE", help="The queue, whose Backend is manual.")
@click.option(
    "--count", type=click.IntRange(1, MOST_FILES), default=1, help="How many pilots, each with its file (1)."
)
@click.option(
    "--hours", type=click.FloatRange(0.01, 720), default=12.0, help="Until when they may start (12)."
)
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="DIR",
    help="Where to write the files (here).",
)  # fmt: skip
@click.option("--vo", default="", metavar="NAME", help="The VO whose jobs they run; else yours.")
@with_session
def make_files(
    session: Session, /, *, queue: str, count: int, hours: float, directory: Path, vo: str
) -> None:
    """Write files of pilots that you start yourself on other machines (administrators).

    Each file is one pilot with all that it needs, Python 3.9 excepted. It joins once, within --hours, and gets jobs of the
    VO; so does whoever else has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _refuse_unwritable(directory)
    body = PilotFilesBody(**named((queue,)), count=count, hours=hours, vo=vo)
    made = session.call(calls.PILOT_FILES, body=body)
    files = {pilot.id: directory / f"lodesman-pilot-{pilot.id}.pyz" for pilot in made.pilots}
    for pilot in made.pilots:
        _write(files[pilot.id], made.program, pilot.content)
    session.exit_if_json(
        {
            "queue": path_of(made), "vo": made.vo, "expires_at": made.expires_at, "servers": made.servers,
            "files": {str(number): str(file) for number, file in files.items()}, "notices": made.notices,
        }
    )  # fmt: skip
    until = utc(made.expires_at)
    say(f"{counted(len(files), 'pilot')} of VO {made.vo} for {path_of(made)}, to be started until {until}:")
    for file in files.values():
        click.echo(f"  {file}")
    say(
        "Copy each file to a machine (scp -p FILE NODE:), and start it there, once, under an account without rights:"
    )
    click.echo(f"  python3 -I {next(iter(files.values())).name}")
    for text in made.notices:
        note(text)


def _refuse_unwritable(directory: Path) -> None:
    """Before pilots are stored whose files cannot be written. Raises OSError."""
    probe = directory / f".lodesman-{os.getpid()}"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    probe.unlink()


def _write(file: Path, program: bytes, content: str) -> None:
    """The program with the pilot's own file in it; only its owner can read it. Raises OSError."""
    whole = io.BytesIO(program)
    with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(_MEMBER, content)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        target.write(whole.getvalue())
