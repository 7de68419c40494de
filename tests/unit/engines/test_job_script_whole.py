"""Half of a job script is never submitted: what is left of one whose server was killed while it wrote."""

from __future__ import annotations

import pytest

from lodesman.server.engines.job_script import HALF, SUBMIT_WHOLE
from lodesman.server.engines.run.here import Here

SCRIPT = "#!/bin/sh\nécho 'a  b' \\n %s \n".encode() + b"x" * 100_000 + b"\n\n\n"


def submit(script: bytes, size: int) -> tuple[int, str]:
    done = Here().run(
        ["sh", "-c", SUBMIT_WHOLE, "sh", str(size), "sh", "-c", 'cat; exit "$1"', "sh", "7"], stdin=script
    )
    return done.code, done.out


@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.rstrip(), b"", b"."])
def test_a_whole_script_is_submitted_as_it_is(script):
    assert submit(script, len(script) + 1) == (7, script.decode())


@pytest.mark.parametrize("end", [0, 1, 70_000, len(SCRIPT) - 1])
def test_half_of_one_is_not(end):
    assert submit(SCRIPT[:end], len(SCRIPT) + 1) == (HALF, "")
