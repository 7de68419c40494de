"""Constants of two packages that must fit: the time that a pilot has to end and what it needs, and its exit code."""

from __future__ import annotations

import inspect

from lodesman.pilot.context import PilotOptions
from lodesman.pilot.loop import EXIT_REFUSED
from lodesman.server.engines.local import GRACE_SECONDS, LocalBackend
from lodesman.server.engines.local_pilots import REFUSED_CODE
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


def test_a_refused_pilot_is_known_by_its_exit_code():
    assert REFUSED_CODE == EXIT_REFUSED
