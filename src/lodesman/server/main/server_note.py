"""The note by which programs of this account find a server that runs here (`base/own_servers`)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from lodesman.base.durable import write_durably
from lodesman.base.own_servers import machine_run, notes_folder, process_start

log = logging.getLogger(__name__)


def note_server(data: Path, environ: Mapping[str, str]) -> Path | None:
    """Note that this process serves from `data`. None if this account has no place for notes, which the log says."""
    folder, place = notes_folder(environ), os.path.realpath(data)
    note = folder / hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    pid = os.getpid()
    facts = {"data": place, "process": pid, "start": process_start(pid), "boot": machine_run()}
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        write_durably(note, json.dumps(facts).encode())
    except OSError as fault:
        log.info("commands in other folders do not find this server: its note cannot be written (%s)", fault)
        return None
    return note
