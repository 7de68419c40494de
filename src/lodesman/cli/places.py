"""Where something is written, for people: faults and notices of a configuration, origins of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from lodesman.cli.words import plain
from lodesman.errors import InvalidConfig, LodesmanError, Unavailable

CARRIED_OUT = "It may have been carried out: look before you ask again."


def told(fault: Mapping[str, Any]) -> str:
    """A fault or notice of a configuration as one line: file, line, section and what there is to say."""
    line = f"line {fault['line']}" if fault.get("line") else ""
    where = ", ".join(filter(None, (fault.get("source"), line, fault.get("section"))))
    return plain(f"{where}: {fault['message']}" if where else fault["message"])


def directory_of(files: Iterable[str]) -> str:
    """The directory that all files have in common, with a slash at its end; "" if they have none."""
    parts = [file.split("/")[:-1] for file in dict.fromkeys(files) if file]
    if not parts:
        return ""
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))]
    return "/".join([*common, ""]) if common else ""


def written_at(row: Mapping[str, Any], directory: str = "") -> str:
    """`FILE:LINE` of a value, the file without the directory; "" for what is written nowhere."""
    if not row.get("file"):
        return ""
    file = str(row["file"]).removeprefix(directory)
    return f"{file}:{row['line']}" if row.get("line") else file


def advise(fault: LodesmanError) -> None:
    """Say what to do when there was no answer; said again, it is said once."""
    if isinstance(fault, Unavailable):
        if fault.data.get("sent"):
            if not fault.hint.startswith(CARRIED_OUT):
                fault.hint = f"{CARRIED_OUT} {fault.hint}".rstrip()
        elif not fault.hint:
            fault.hint = "Is it running (lode server)? For another address: lode --server URL."


def refusal(error: LodesmanError) -> Iterator[str]:
    """An error as people read it: one line, or one for each fault of a configuration."""
    faults = error.data.get("faults", ())
    if not isinstance(error, InvalidConfig) or len(faults) < 2:
        yield f"lode: {plain(error)}"
        return
    yield f"lode: The configuration has {len(faults)} faults:"
    yield from (f"  {told(fault)}" for fault in faults)
    if error.hint:
        yield f"lode: {plain(error.hint)}"
