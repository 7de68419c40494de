"""A call of a function on a node: what it raises arrives, whatever it is."""

from __future__ import annotations

import pickle
import subprocess
import sys

import cloudpickle
import pytest

from lodesman.user.python import call_runner


def unreadable():
    """Can travel and not be read again."""

    class Fault(Exception):
        def __reduce__(self):
            return int, ("x",)

    raise Fault("of the user")


def wordless():
    class Fault(Exception):
        def __reduce__(self):
            return int, ("x",)

        def __str__(self):
            raise KeyError("x")

    raise Fault


@pytest.mark.parametrize(("function", "words"), [(unreadable, "of the user"), (wordless, "Fault")])
def test_what_cannot_travel_arrives_as_its_words(tmp_path, monkeypatch, function, words):
    monkeypatch.setattr(function, "__module__", "__main__")  # the node has no module of these tests
    call = {
        "python": sys.version_info[:2], "function": cloudpickle.dumps(function),
        "arguments": [pickle.dumps(((), {}))],
    }  # fmt: skip
    (tmp_path / "call.pkl").write_bytes(pickle.dumps(call))
    done = subprocess.run(
        [sys.executable, call_runner.__file__], cwd=tmp_path, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 1, done.stderr
    is_good, fault, _ = cloudpickle.loads((tmp_path / "result.pkl").read_bytes())
    assert (is_good, type(fault)) == (False, RuntimeError)
    assert words in str(fault)
