"""Examples of bodies in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from lodesman.wire import calls
from lodesman.wire.call import Call

_DESCRIPTION: Final = '[ Executable = "/bin/echo"; Arguments = {"%s"}; Parameters = 3; CPUTime = 60; ]'
BODIES: Final[dict[Call[Any, Any, Any], Any]] = {
    calls.SUBMIT: {"text": _DESCRIPTION, "form": "jdl", "group": "physics"},
    calls.PLAN_JOB: {"text": _DESCRIPTION, "form": "jdl"},
    calls.CONTROL: {"ranges": [[12, 40]], "action": "kill", "reason": "wrong input"},
    calls.CHANGE_JOBS: {"ranges": [[12, 12]], "attributes": {"Memory": 2000}, "dry_run": True},
    calls.CLOSE_SITE: {"path": "LCG.North/ce.north", "reason": "cooling"},
    calls.OPEN_SITE: {"path": "LCG.North/ce.north"},
    calls.DRAIN: {"pilots": [7, 8]},
    calls.BREAKER: {"path": "LCG.North/ce.north/short", "order": "close", "reason": "repaired"},
    calls.ADD_USER: {"name": "ada", "vo": "gridlab", "groups": ["physics"]},
    calls.ISSUE_TOKEN: {"account": "ada", "scopes": ["jobs:read", "jobs:write"]},
}
