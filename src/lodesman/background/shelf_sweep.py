"""Files that nothing knows: what a process left that was killed between a commit and the removal of files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from lodesman.commands.sandboxes import Shelf
from lodesman.store import inputs, views
from lodesman.store.engine import Reader
from lodesman.store.forget import keys_of

OUTPUT = re.compile(r"([0-9]{1,18})\.[0-9]{1,9}\.tar\.gz")
INPUT = re.compile(r"[0-9a-f]{64}")
PORTION = 500


def sweep_shelf(db: Reader, shelf: Shelf, before: float) -> Iterator[int]:
    """Remove files that no row knows; yields how many after each portion.

    Input files and parts of uploads only if they are older than that time: they may be on their way. The output of a
    job was stored while the job was known, and a job that is not known any more never is again.
    """
    owners = {shelf.input_path(str(row[0]), "x").parent.name: row[0] for row in db.execute(inputs.OWNERS)}
    for folder in _folders(shelf.root / "out"):
        for names in _portions(folder):
            known = _known_jobs(db, names)
            unknown = [n for n in names if (found := OUTPUT.fullmatch(n)) and int(found[1]) not in known]
            for name in unknown:
                (folder / name).unlink(missing_ok=True)
            yield len(unknown) + _remove_parts(shelf, folder, names, before)
        _remove_if_over(db, folder)
    for folder in _folders(shelf.root / "in"):
        for names in _portions(folder):
            files = keys_of([name for name in names if INPUT.fullmatch(name)])
            known_files = {
                row[0] for row in db.execute(inputs.KNOWN_FILES, (owners.get(folder.name, ""), files))
            }
            lost = [folder / n for n in names if INPUT.fullmatch(n) and n not in known_files]
            gone = sum(shelf.remove_older(path, before) for path in lost)
            yield gone + _remove_parts(shelf, folder, names, before)


def _remove_if_over(db: Reader, folder: Path) -> None:
    """Remove an empty folder of outputs if none can come any more: all its ids were given out, and no job is left."""
    if not folder.name.isdecimal() or len(folder.name) > 15:
        return
    first, last = int(folder.name) * 1_000, int(folder.name) * 1_000 + 999
    if views.was_given_out(db, last) and not db.execute(inputs.ANY_JOB, (first, last)).fetchone():
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _known_jobs(db: Reader, names: list[str]) -> set[int]:
    ids = {int(found[1]) for name in names if (found := OUTPUT.fullmatch(name))}
    return {row[0] for row in db.execute(inputs.KNOWN_JOBS, (keys_of(sorted(ids)),))}


def _remove_parts(shelf: Shelf, folder: Path, names: list[str], before: float) -> int:
    """What is left of uploads that broke off with the process that took them."""
    return sum(shelf.remove_older(folder / name, before) for name in names if name.startswith("."))


def _folders(root: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _portions(folder: Path) -> Iterator[list[str]]:
    names = os.listdir(folder)
    for begun in range(0, len(names), PORTION):
        yield names[begun : begun + PORTION]
