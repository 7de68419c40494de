"""The job script of pilots on a batch system: all that a copy needs but Python 3.9, in POSIX shell.

It unpacks zipapp and pilot's file in a private folder on the node's scratch space, and becomes the pilot, which
removes the folder. Python reads nothing of the account (`-I`): earlier jobs may have left modules in its home.
"""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
import zlib
from functools import lru_cache
from typing import Final

from lodesman.server.engines.backend import PilotSpec

_WIDTH: Final = 96
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
NO_PYTHON: Final = 69
"""The exit code of a copy that finds no Python: EX_UNAVAILABLE of sysexits.h."""
NO_SCRATCH: Final = 73
"""The exit code of a copy that cannot make its folder: EX_CANTCREAT."""

HALF: Final = 94
"""The exit code of `SUBMIT_WHOLE` if there is less on its stdin than there should be."""
# The character behind the script keeps its last lines, which `$(...)` takes away.
SUBMIT_WHOLE: Final = f"""size=$1; shift
LC_ALL=C; script=$(cat && echo .)
[ "${{#script}}" -eq "$size" ] || exit {HALF}
printf %s "${{script%.}}" | "$@"
"""
"""A script for the submit host: the size of the job script in bytes and one more, words of the command that submits it. The
job script is on stdin. A server that is killed sends half of one, and then nothing may be submitted.
"""

_SCRIPT: Final = """#!/bin/sh
{directives}
# {submission}: pilots of Lodesman
umask 077
{environment}
copy={copy}
new='import sys; sys.exit(sys.version_info < (3, 9))'
for python in {python} python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 /usr/bin/python3; do
    "$python" -I -c "$new" 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    echo "lodesman: no Python 3.9 or newer was found on $(uname -n); PATH is $PATH" >&2
    exit {no_python}
fi
for scratch in "${{TMPDIR:-/tmp}}" /tmp /var/tmp "$PWD"; do
    folder=$(mktemp -d "$scratch/lode-XXXXXXXX" 2>/dev/null) && cd "$folder" && break
    folder=
done
if [ -z "$folder" ]; then
    echo "lodesman: no folder can be made on $(uname -n) in ${{TMPDIR:-/tmp}}, /tmp or /var/tmp" >&2
    exit {no_scratch}
fi
"$python" -I -c 'import base64, sys, zlib
head, tail = sys.stdin.read().split("\\n\\n")
for name, text in ("pilot.pyz", head), ("pilot.json", tail):
    open(name, "wb").write(zlib.decompress(base64.b64decode(text)))' <<'END-OF-PILOT' || exit {no_scratch}
{program}

{pilot_file}
END-OF-PILOT
{fetch}
{run}"$python" -I pilot.pyz --file pilot.json --copy "$copy" --remove{notice}{after}
"""

# Grid Engine sends its notices to all processes of a job, some twice: only this shell takes one, once. A second order to
# end would end the pilot at once. After a signal `wait` returns 128 + SIGUSR2, and the pilot is still there. Two codes are
# commands for the engine: 99 starts a job again, 100 holds it.
_IGNORING: Final = "trap '' USR1 USR2\n"
_NOTICING: Final = """ &
pilot=$! noticed=
trap '' TERM INT HUP
trap 'trap "" USR2; noticed=1; kill -TERM "$pilot"' USR2
wait "$pilot"
code=$?
if [ -n "$noticed" ] && [ "$code" -eq 140 ]; then
    wait "$pilot"
    code=$?
fi
[ "$code" -ne 99 ] && [ "$code" -ne 100 ] || code=1
exit "$code\""""


def job_script(
    spec: PilotSpec,
    *,
    copy: str,
    directives: str = "",
    file_at: str = "",
    notices: bool = False,
    notice_s: int = 0,
) -> str:
    """The script for all copies of a submission. `copy` is the shell's expression for a copy's number, such as
    `${SLURM_ARRAY_TASK_ID}`; `directives` are comment lines for the batch system.

    `file_at`: the shell's expression for the pilot's file, where other accounts can read the script. `notices`: the
    batch system sends SIGUSR2 before it kills, which becomes SIGTERM for the pilot, and SIGUSR1 before it stops,
    which is ignored. `notice_s`: it sends SIGUSR2 to the pilot alone, this time before the slot ends.
    """
    names = () if spec.forwards else ("LODESMAN_SITE", "LODESMAN_CE", "LODESMAN_QUEUE")
    place = dict(zip(names, spec.queue, strict=False))
    exports = (
        f"export {name}={shlex.quote(value)}" for name, value in (place | dict(spec.environment)).items()
    )
    return _SCRIPT.format(
        directives=directives or "#",
        submission=spec.submission,
        environment="\n".join(exports),
        copy=copy,
        python=shlex.quote(spec.python),
        program=_pack(_portable(spec.program)),
        pilot_file=_pack(b"" if file_at else spec.pilot_file),
        fetch=f"cp {file_at} pilot.json || exit {NO_SCRATCH}" if file_at else "",
        run=_IGNORING if notices else "exec ",
        notice=f" --notice {notice_s}" if notice_s else "",
        after=_NOTICING if notices else "",
        no_python=NO_PYTHON,
        no_scratch=NO_SCRATCH,
    )


def _pack(content: bytes) -> str:
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    return "\n".join(text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH))


@lru_cache(maxsize=2)
def _portable(program: bytes) -> bytes:
    """Without what is compiled for one Python, and stored, so that it is packed as a whole."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            if not name.endswith(".pyc"):
                archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), source.read(name))
    return target.getvalue()
