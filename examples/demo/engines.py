"""The batch systems of a demo: what the environment names, or private ones of `tests/services` that end with the demo."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.interrupts import Interrupts
from examples.demo.workload import EXAMPLES

from lodesman.base.errors import Unavailable
from lodesman.server.engines.backend import Backend, NativeState
from lodesman.server.main.backends import END_SECONDS
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import ended_natives, live_natives

# With a site on each, a site where most jobs can run is on the one that starts pilots fastest.
KINDS = ("gridengine", "arc", "htcondor", "slurm")
SITES = EXAMPLES / "three-sites.toml"
SERVICES = EXAMPLES.parent / "tests" / "services"
# The first HTCondor of a machine has to be installed, in one or two minutes.
START_SECONDS = 600.0
ASK_SECONDS = 30.0
# A start that was interrupted is ended in order if that does not take long.
ORDERLY_SECONDS = 20.0
POLL_SECONDS = 0.05
FORGET_POLL_SECONDS = 1.0

# What names a batch system in the environment, and what else its commands need of it.
_NAMED = {
    "slurm": "SLURM_CONF",
    "gridengine": "SGE_ROOT",
    "htcondor": "CONDOR_CONFIG",
    "arc": "LODE_TEST_ARC",
}
_SGE = ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_CLUSTER_NAME")
_VARIABLES = {"slurm": ("SLURM_CONF",), "gridengine": _SGE, "htcondor": ("PATH", "CONDOR_CONFIG"), "arc": ()}
_QUEUES = {
    "slurm": ("sinfo", "-h", "-o", "%P"),
    "gridengine": ("qconf", "-sql"),
    "htcondor": ("condor_q", "-totals"),
}
# Pilots are small, so that they fit wherever they are sent; `Memory` stays what jobs ask for.
_OF_QUEUES = {"NumberOfProcessors": 1, "MaxRAM": 1_000, "MaxWaitingJobs": 2, "MaxTotalJobs": 4}
_LIVE = (NativeState.WAITING, NativeState.HELD, NativeState.RUNNING)
# Like another site, but for its system: so each of the others still has jobs that only it can run.
_FOURTH, _LIKE, _SYSTEM = "LCG.West.local", "LCG.North.local", "x86_64-el10"

# In a process of its own, which ends the batch system when the demo has ended, however that was. $1: its folder. What its
# commands need goes into a file for this account alone: there may be secrets in an environment.
_GUARD = """trap : TERM
"$0" start "$1" </dev/null && (umask 077 && set -a && eval "$("$0" env "$1")" && env -0 >"$1.part") &&
    mv "$1.part" "$1.env" && cat
trap '' INT TERM HUP
exec "$0" "$2" "$1" </dev/null"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A batch system: its section of the configuration, its queue for all pilots, and whether it ends with the demo."""

    kind: str
    queue: str
    section: Mapping[str, Any]
    is_ours: bool


def find_engines(backend: str, note: Callable[[str], object]) -> dict[str, str]:
    """The kinds to use, each with its queue; '' if it has to be started. `all` takes those that there are, and notes the
    others. Raises Unavailable if there is none.
    """
    found, missing = {}, {}
    for kind in KINDS if backend == "all" else (backend,):
        queue = _queue_of(kind, os.environ)
        why = "" if queue else _why_missing(kind)
        if why:
            missing[kind] = why
        else:
            found[kind] = queue
    if not found:
        words = f"There is no batch system for the demo here: {', '.join(missing)}."
        raise Unavailable(words, hint="\n".join(missing.values()))
    for kind, why in missing.items():
        note(f"Left out: {kind}. {why}")
    return found


def _why_missing(kind: str) -> str:
    """Why a private one cannot be started here; '' if it can."""
    there = subprocess.run([SERVICES / kind, "there"], capture_output=True, text=True, check=False)
    return there.stderr.strip() or "it cannot be started here" if there.returncode else ""


def _queue_of(kind: str, environment: Mapping[str, str]) -> str:
    """The queue to use in the batch system of an environment; '' if there is none. Raises Unavailable if it is silent."""
    named = _NAMED[kind] in environment
    if kind == "arc":
        return "pilots" if named else ""
    said = _said(_QUEUES[kind], _with_path(kind, environment))
    if said is None and named:
        raise Unavailable(
            f"The {kind} that {_NAMED[kind]} names does not answer to {_QUEUES[kind][0]}.",
            hint=f"Unset {_NAMED[kind]}, and the demo starts one of its own.",
        )
    if said is None or kind == "htcondor":
        return "" if said is None else "default"
    queues = sorted(said.split(), key=lambda queue: not queue.endswith("*") and queue != "all.q")
    return queues[0].removesuffix("*") if queues else ""


def _with_path(kind: str, environment: Mapping[str, str]) -> dict[str, str]:
    """With the commands of a private HTCondor, which are for nothing else: a shell is among them."""
    folder = environment.get("LODE_TEST_HTCONDOR", "") if kind == "htcondor" else ""
    path = {"PATH": f"{folder}/bin:{environment.get('PATH', '')}"} if folder else {}
    return {**environment, **path}


def _said(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What a command of a batch system prints; None if it fails, or does not answer."""
    program = shutil.which(words[0], path=environment.get("PATH"))
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [program or words[0], *words[1:]], env=dict(environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=ASK_SECONDS,
        )  # fmt: skip
        return None if done.returncode else done.stdout
    return None


def section_of(kind: str, environment: Mapping[str, str], *, folder: str = "") -> dict[str, Any]:
    """The section of a batch system that an environment names. `folder`: for outputs of Slurm, not the usual one."""
    if kind == "arc":
        url, ca, certificate = (
            environment.get(f"LODE_TEST_ARC{one}", "") for one in ("", "_CA", "_CERTIFICATE")
        )
        return {"type": kind, "poll_seconds": 1, "url": url, "ca": ca, "certificate": certificate}
    there = _with_path(kind, environment)
    passed = {name: there[name] for name in _VARIABLES[kind] if name in there}
    section = {"type": kind, "poll_seconds": 1, "environment": passed}
    more = {
        "account": environment.get("LODE_TEST_GRIDENGINE", "") if kind == "gridengine" else "",
        "folder": folder if kind == "slurm" else "",  # accounts of the others end with them
    }
    return section | {option: value for option, value in more.items() if value}


@contextlib.contextmanager
def engines_run(found: Mapping[str, str], home: Path, interrupts: Interrupts) -> Iterator[list[Engine]]:
    """The batch systems while they run; those that have to be started end with the demo, also when it is killed.

    Raises Unavailable if one does not start.
    """
    if found:
        home.chmod(0o711)  # accounts of jobs pass through
    guards: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for kind, queue in found.items():
            if not queue:
                with interrupts.held():
                    guards[kind] = _start(kind, home)
        environments = {kind: _started(kind, guard, home) for kind, guard in guards.items()}
        yield [
            Engine(
                kind=kind,
                queue=queue or _queue_of(kind, there),
                section=section_of(kind, there, folder=str(home / "output") if kind in guards else ""),
                is_ours=kind in guards,
            )
            for kind, queue in found.items()
            for there in [environments.get(kind, os.environ)]
        ]
    finally:
        for guard in guards.values():
            assert guard.stdin is not None  # noqa: S101
            guard.stdin.close()
        for guard in guards.values():
            _end(guard)


def _start(kind: str, home: Path) -> subprocess.Popen[bytes]:
    # HTCondor's purge would remove the root that all folders share.
    end = "stop" if kind == "htcondor" else "purge"
    with (home / f"{kind}.log").open("wb") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, SERVICES / kind, home / kind, end],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _started(kind: str, guard: subprocess.Popen[bytes], home: Path) -> dict[str, str]:
    """The environment of its commands, once it runs. Raises Unavailable."""
    end, file = time.monotonic() + START_SECONDS, home / f"{kind}.env"
    while not file.exists():
        if guard.poll() is not None or time.monotonic() > end:
            words = (home / f"{kind}.log").read_text(errors="replace")[-1_000:]
            raise Unavailable(f"{kind} did not start: {words}")
        time.sleep(POLL_SECONDS)
    pairs = file.read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def _end(guard: subprocess.Popen[bytes]) -> None:
    """Wait until it has ended its batch system; a long start is cut short."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        guard.wait(ORDERLY_SECONDS)
        return
    os.killpg(guard.pid, signal.SIGTERM)
    guard.wait()


def sites_on(engines: Sequence[Engine]) -> str:
    """The demo's sites in TOML, the CE queues of each on one of the batch systems; a fourth one gets a fourth site."""
    whole = tomllib.loads(SITES.read_text(encoding="utf-8"))
    if len(engines) > len(whole["site"]):
        whole["site"][_FOURTH] = {**whole["site"][_LIKE], "Platform": _SYSTEM}
    for place, (name, site) in enumerate(whole["site"].items()):
        engine = engines[place % len(engines)]
        ces = {}
        for ce, params in site["ce"].items():
            for queue, values in params["queue"].items():
                there = {key: value for key, value in values.items() if key != "Slots"} | _OF_QUEUES
                ces[f"{queue}.{ce}"] = {**params, "Backend": engine.kind, "queue": {engine.queue: there}}
        whole["site"][name] = {**site, "ce": ces}
    return "\n".join(_toml(whole))


def _toml(table: Mapping[str, Any], *path: str) -> Iterator[str]:
    """What JSON and TOML write alike: texts, numbers, truth and lists of them."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    if path:
        yield f"[{'.'.join(map(json.dumps, path))}]"
    yield from (
        f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items() if key not in tables
    )
    for key, value in tables.items():
        yield from _toml(value, *path, key)


def read_pilots(db: Reader, backends: Mapping[str, Backend]) -> dict[str, bytes]:
    """What pilots wrote, by stamp, as far as their batch systems say. Raises LodesmanError."""
    found = {}
    for name, backend in backends.items():
        for stamp, native_id in _pilots_at(name, backend, db).items():
            found[stamp] = backend.output(stamp, native_id) or b""
    return found


def forget_pilots(db: Reader, backends: Mapping[str, Backend]) -> list[str]:
    """Have nothing of pilots kept once they have ended, which some batch systems say late; those that have not, after a
    while. Raises LodesmanError.
    """
    left = []
    for name, backend in backends.items():
        end, pilots = time.monotonic() + END_SECONDS, _pilots_at(name, backend, db)
        while live := [one for one, seen in backend.status(pilots).items() if seen.state in _LIVE]:
            if time.monotonic() > end:
                left += [f"{name} {pilots[stamp]}" for stamp in live]
                break
            time.sleep(FORGET_POLL_SECONDS)
        backend.forget(pilots)
    return left


def _pilots_at(name: str, backend: Backend, db: Reader) -> dict[str, str]:
    """Stamp -> native id of all pilots, those included of which no answer came."""
    rows = [one for one in live_natives(db) if one.backend == name]
    rows += ended_natives(db, name, since=0.0, before=time.time())
    known = backend.census() if any(one.native_id is None for one in rows) else {}
    found = {one.stamp: one.native_id or known.get(one.stamp, "") for one in rows}
    return {stamp: native_id for stamp, native_id in found.items() if native_id}
