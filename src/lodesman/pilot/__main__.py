"""`python3 -I pilot.pyz --file FILE [--copy NUMBER] [--dir DIRECTORY] [--remove] [--notice SECONDS]`, or `python3 -I FILE`
for one whose own file is in its archive (`lode pilot file`); exit codes stand in `loop`.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from lodesman.base import kernel
from lodesman.pilot.nursery import Nursery, can_protect
from lodesman.pilot.surroundings import is_for_all

if TYPE_CHECKING:
    from lodesman.pilot.context import Log
    from lodesman.pilot.loop import PilotProcess


# A directory on a disk that hangs is given up after this time.
_REMOVAL_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="pilot.pyz", description="A pilot of Lodesman.")
    parser.add_argument(
        "--file", type=Path, help="the pilot's own file, which is removed (default: the one in its archive)"
    )
    parser.add_argument("--copy", type=int, default=0, help="which copy of its submission this is, from 1")
    parser.add_argument("--remove", action="store_true", help="remove the directory at the end")
    parser.add_argument(
        "--dir", type=Path, help="where to work (default: here; without --file, a folder that is removed)"
    )
    parser.add_argument("--notice", type=int, default=0, help="how soon the slot ends after SIGUSR2")
    options = parser.parse_args(arguments)
    if options.file is None and options.dir is None:
        import tempfile  # noqa: PLC0415 - as below

        options.dir, options.remove = Path(tempfile.mkdtemp(prefix="lodesman-")), True
    directory = Path(options.dir or ".").resolve()
    nursery: Nursery | OSError
    try:
        nursery = _open_nursery(*(_made(directory / name) for name in ("work", "outbox")))
    except OSError as fault:
        nursery = fault
    code = 1
    try:
        # Not before: what the nursery forks has no secret.
        text = _own_text if options.file is None else lambda: _take_text(options.file)
        code = _run(text, directory, nursery, copy=options.copy, notice_s=options.notice)
    finally:
        if options.remove:
            _remove(directory, code)
    return code


def _remove(directory: Path, code: int) -> None:
    """On a node of no use the disk may hang, and what it keeps then stays."""
    import shutil  # noqa: PLC0415 - as below

    from lodesman.pilot.loop import EXIT_NODE  # noqa: PLC0415
    from lodesman.pilot.threads import run_within  # noqa: PLC0415

    os.chdir("/")
    if code != EXIT_NODE:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            run_within(_REMOVAL_S, lambda: shutil.rmtree(directory, ignore_errors=True))


def _run(
    text: Callable[[], str], directory: Path, nursery: Nursery | OSError, *, copy: int, notice_s: int
) -> int:
    """The rest of the pilot is imported here: what the nursery forks is small without it, and starts sooner."""
    from lodesman.base.errors import InvalidConfig  # noqa: PLC0415
    from lodesman.pilot.context import Log, PilotContext, parse_pilot_file  # noqa: PLC0415
    from lodesman.pilot.features import FeatureReader, reading_s  # noqa: PLC0415
    from lodesman.pilot.loop import EXIT_USAGE, PilotProcess  # noqa: PLC0415
    from lodesman.pilot.node import describe_node  # noqa: PLC0415

    log = Log(sys.stderr, time.time)
    try:
        node_fault = _fault_at_start(directory, nursery)
        pilot_file = parse_pilot_file(text(), copy)
    except (InvalidConfig, OSError) as fault:
        log("unusable", fault=str(fault))
        return EXIT_USAGE
    log = Log(sys.stderr, time.time, stamp=pilot_file.stamp)
    if not kernel.set_attribute(kernel.DUMPABLE, 0):  # payloads must not read this memory
        log("weak-isolation", hidden=False)
    chosen, reader = pilot_file.options, FeatureReader(os.environ)
    nursery = Nursery() if isinstance(nursery, OSError) else nursery
    nursery.homes = _leave_home(directory, log, writable=chosen.home_writable)
    features = reader.start(chosen.features_s or reading_s(os.environ))
    node = describe_node(
        cores=chosen.cores, memory_mb=chosen.memory_mb, platform_name=chosen.platform, features=features
    )
    context = PilotContext(
        pilot_file=pilot_file,
        node=node,
        directory=directory,
        environment=dict(os.environ),
        log=log,
        features=lambda: reader.latest,
        read_features=reader.stir,
        nursery=nursery,
    )
    pilot = PilotProcess(context, node_fault=node_fault)

    def on_fault(hook: threading.ExceptHookArgs) -> None:
        name = hook.thread.name if hook.thread is not None else ""
        log("thread-died", thread=name, fault=f"{hook.exc_type.__name__}: {hook.exc_value}")
        pilot.crash()

    threading.excepthook = on_fault
    _obey(pilot, notice_s)
    return pilot.run()


def _leave_home(directory: Path, log: Log, *, writable: bool) -> tuple[str, ...]:
    """Returns the homes in which payloads must not write. There are no threads yet."""
    home, os.environ["HOME"] = os.environ.get("HOME", ""), str(directory)
    homes = () if writable else _to_be_kept((home, _account_home()), directory)
    for folder in (*homes, str(directory)):  # that one by what hides the folders in it
        if is_for_all(folder) or not can_protect(folder):
            log("weak-isolation", writable=folder)
    return homes


def _to_be_kept(homes: Sequence[str], directory: Path) -> tuple[str, ...]:
    kept = []
    for home in dict.fromkeys(os.path.realpath(name) for name in homes if name.startswith("/")):
        with contextlib.suppress(OSError):
            if home not in ("/", str(directory)) and os.access(home, os.W_OK) and not is_for_all(home):
                kept.append(home)
    return tuple(kept)


def _account_home() -> str:
    import pwd  # noqa: PLC0415 - as in `_run`

    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_dir
    return ""


def _fault_at_start(directory: Path, nursery: Nursery | OSError) -> str:
    """Why nothing can be made there by a fault of the node. Raises OSError for a directory that cannot be used."""
    import tempfile  # noqa: PLC0415

    from lodesman.pilot.decisions import SCRATCH, StepResult, is_of_node, judge_step  # noqa: PLC0415

    try:
        if isinstance(nursery, OSError):
            raise nursery
        # Of no name that a payload of an earlier pilot can have taken.
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as fault:
        if not is_of_node(fault.errno):
            raise
        return judge_step(StepResult(SCRATCH, str(directory), fault.errno or 0))
    return ""


def _obey(pilot: PilotProcess, notice_s: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: pilot.terminate())
    if notice_s:
        signal.signal(signal.SIGUSR2, lambda *_: pilot.notice(notice_s))


def _made(folder: Path) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def _open_nursery(work: str, outbox: str) -> Nursery:
    """Before the pilot has a secret: payloads must find none in descriptors and memory."""
    os.closerange(3, 4096)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not kernel.set_attribute(kernel.CHILD_SUBREAPER, 1):
        raise OSError(errno.ENOSYS, "the kernel, or a Python without ctypes, cannot keep jobs apart")
    nursery = Nursery(work, outbox)
    nursery.open()
    return nursery


def _own_text() -> str:
    """Its join token is good once, so the file stays."""
    loader: Any = globals().get("__loader__")
    if not hasattr(loader, "archive"):
        raise OSError(errno.EINVAL, "--file is needed, for this is no pilot file")
    return str(loader.get_data(f"{loader.archive}{os.sep}pilot.json").decode("utf-8", "replace"))


def _take_text(file: Path) -> str:
    """The file holds a token: it is removed."""
    content = file.read_bytes()
    # A spool directory may be read-only; the token is good only once.
    with contextlib.suppress(OSError):
        with file.open("r+b") as target:
            target.write(b" " * len(content))
        file.unlink()
    return content.decode("utf-8", "replace")


if __name__ == "__main__":
    raise SystemExit(main())
