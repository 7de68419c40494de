"""Settings of all tests: how much Hypothesis tries, and that two runs of the checks agree."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# `default` looks further with each run on a developer's machine; `ci` repeats the same examples, so
# that a change is judged by what it changed; `long` is for a night.
settings.register_profile("default", _CALM, max_examples=100)
settings.register_profile("ci", _CALM, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("long", _CALM, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))
