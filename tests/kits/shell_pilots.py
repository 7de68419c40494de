"""Pilots for tests of batch systems: their program is a zipapp that becomes what the pilot's file says, a script of the
shell or a text of Python.
"""

from __future__ import annotations

import io
import json
import zipfile

from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import Backend, PilotSpec, SubmitResult

# Its own file is $1, the number of the copy $2.
_MAIN = """import json, os, sys
options = dict(zip(sys.argv[1:5:2], sys.argv[2:5:2]))
file = os.path.abspath(options["--file"])
what = json.load(open(file))
words = ["/bin/sh", "-c", what["script"], "sh"] if "script" in what else [sys.executable, "-I", "-S", "-c", what["code"]]
os.execv(words[0], [*words, file, options["--copy"]])
"""


def shell_program() -> bytes:
    """The zipapp."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
    return target.getvalue()


PROGRAM = shell_program()


def shell_spec(
    queue: QueueId, submission: str, script: str = "", *, code: str = "", count: int = 1, **more
) -> PilotSpec:
    """A submission of pilots that run a script, or a text of Python; their own file is $1, the number of the copy $2."""
    what = {"code": code} if code else {"script": script}
    file = json.dumps({**what, "submission": submission}).encode()
    return PilotSpec(
        queue=queue, submission=submission, count=count, program=PROGRAM, pilot_file=file, **more
    )


def send(backend: Backend, queue: QueueId, *stamps: str, script: str = "true", **more) -> SubmitResult:
    """Submit pilots with these stamps (SUBMISSION-1), each alone."""
    results = []
    for stamp in stamps:
        assert stamp.endswith("-1"), stamp
        results.append(backend.submit(shell_spec(queue, stamp[:-2], script, **more)))
    return SubmitResult(
        accepted={stamp: native_id for one in results for stamp, native_id in one.accepted.items()},
        refused={stamp: refusal for one in results for stamp, refusal in one.refused.items()},
    )


def same(*stamps: str) -> dict[str, str]:
    """Stamp -> native id of local pilots, which are equal."""
    return {stamp: stamp for stamp in stamps}
