"""Job submission verifiers: scripts that accept, correct or reject a submission, written for Grid Engine.

`parameters`, `protocol` and `chain` are pure; `process` and `runner` run scripts. `lib` has the libraries that scripts
source, for sh, Perl, Tcl and Python.

Decisions: docs/adr/README.md, Processes and loops.
"""

from lodesman.server.jsv.chain import (
    JsvLogLine,
    JsvOutcome,
    JsvUrl,
    JsvVerdict,
    ParameterChange,
    check_modification,
    client_order,
    parse_url,
)
from lodesman.server.jsv.parameters import JsvContext, Parameters
from lodesman.server.jsv.process import OWN_LIBRARIES, ScriptLimits, ScriptSettings, check_script
from lodesman.server.jsv.protocol import Dialogue
from lodesman.server.jsv.runner import JsvPool, JsvStep, server_script, verify_at_client

__all__ = [
    "OWN_LIBRARIES",
    "Dialogue",
    "JsvContext",
    "JsvLogLine",
    "JsvOutcome",
    "JsvPool",
    "JsvStep",
    "JsvUrl",
    "JsvVerdict",
    "ParameterChange",
    "Parameters",
    "ScriptLimits",
    "ScriptSettings",
    "check_modification",
    "check_script",
    "client_order",
    "parse_url",
    "server_script",
    "verify_at_client",
]
