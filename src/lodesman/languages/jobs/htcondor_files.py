"""Submit files and DAGs of HTCondor, which are no descriptions and are named as what they are."""

from __future__ import annotations

import re
from typing import Final

from lodesman.base.errors import InvalidRequest

_HEAD: Final = 256 << 10
_FIRST_LINE: Final = re.compile(r"#![^\n]*\bcondor_submit(_dag)?\b")
_QUEUE: Final = re.compile(r"^[ \t]*queue\b(?![ \t]*=)", re.MULTILINE | re.IGNORECASE)
_SETTING: Final = re.compile(
    r"^[ \t]*(?:executable|universe|arguments|batch_name|log|output|error|requirements|"
    r"(?:[+]|my\.)\w+|(?:transfer|request)_\w+)[ \t]*=",
    re.MULTILINE | re.IGNORECASE,
)
_NODE: Final = re.compile(
    r"^[ \t]*(?:JOB|SUBDAG|SPLICE)[ \t]+\S+[ \t]+\S+|^[ \t]*PARENT[ \t].*\bCHILD\b",
    re.MULTILINE | re.IGNORECASE,
)
# A DAG may have no such line: then each line is one of these.
_IN_DAGS: Final = re.compile(
    r"(?:FINAL|SERVICE|PROVISIONER)[ \t]+\S+[ \t]+\S|"
    r"(?:INCLUDE|CONFIG|DOT|ENV|VARS|RETRY|SCRIPT|SET_JOB_ATTR|CATEGORY|MAXJOBS|PRIORITY|PRE_SKIP|NODE_STATUS_FILE|"
    r"JOBSTATE_LOG|SAVE_POINT_FILE|ABORT-DAG-ON|CONNECT)[ \t]+\S|REJECT$",
    re.IGNORECASE,
)
_SUBMIT_FILE: Final = "a submit file of HTCondor"
_DAG: Final = "a DAG of HTCondor (DAGMan)"
_HINTS: Final = {
    _SUBMIT_FILE: "Describe the job in JDL, or give its program: lode submit --array 0-9 --files in.txt -- ./prog %s.",
    _DAG: "Submit its nodes one after the other, each with the ids of its parents: lode submit --after-ok 12-20.",
}


def kind_of_file(text: str) -> str:
    """What a file of HTCondor is: a submit file or a DAG; '' for any other text."""
    text = text[:_HEAD]
    if text.startswith("#!"):
        first = _FIRST_LINE.match(text)
        return (_DAG if first[1] else _SUBMIT_FILE) if first else ""
    if _QUEUE.search(text) and _SETTING.search(text):
        return _SUBMIT_FILE
    return _DAG if _NODE.search(text) or _is_rest_of_dag(text) else ""


def _is_rest_of_dag(text: str) -> bool:
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    return bool(lines) and all(map(_IN_DAGS.match, lines))


def fault_of_file(text: str) -> InvalidRequest | None:
    """What to say of a file of HTCondor; None for any other text."""
    kind = kind_of_file(text)
    return InvalidRequest(f"This is {kind}, which is not read here.", hint=_HINTS[kind]) if kind else None
