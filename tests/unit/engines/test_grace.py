"""The time that a pilot has to end, compared with what it needs: constants of two packages that must fit."""

from __future__ import annotations

import inspect

from lodesman.pilot.context import PilotOptions
from lodesman.server.engines.local import GRACE_SECONDS, LocalBackend
from lodesman.server.loops import launch
from lodesman.server.main import backends


def test_the_keeper_waits_longer_than_a_pilot_takes_to_end():
    """Killed earlier, a pilot would lose results that it was about to hand in."""
    options = PilotOptions()
    assert options.kill_grace_s > 0
    assert options.flush_s > 0
    assert options.kill_grace_s + options.flush_s < GRACE_SECONDS


def test_that_is_what_pilots_get():
    assert inspect.signature(LocalBackend).parameters["grace_seconds"].default == GRACE_SECONDS
    made = inspect.getsource(backends.make_local_backend)
    assert "grace_seconds" not in made.split("LocalBackend(")[1].split(")")[0]
    told = inspect.getsource(launch.common_of)
    assert "kill_grace_s" not in told
    assert "flush_s" not in told
