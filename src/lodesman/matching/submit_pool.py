"""The SubmitPool identifier of a set of requirements (seed rfc7-job-requirements; DESIGN 3.3).

Jobs whose requirements mean the same share one SubmitPool, whatever way they were written: the identifier
is a hash of the canonical set, never of its text. The version of the type table goes in as well: when a
type changes, all pools get new identifiers. So does the VO: what a queue is, and whom it admits, may differ from one to
the other, so the queues of a pool are those of one VO. `req1:` is the version of the canonical form itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from lodesman.resources import Criterion, TypeTable, compile_requirements

PREFIX = "req1:"


def canonical_requirements(requirements: Mapping[str, object], types: TypeTable) -> str:
    """The set as canonical JSON: {"folded name": ["kind", [values]]}, names and values sorted.

    Two sets have one canonical form exactly if they ask for the same: by the parameter's type "4000", 4000,
    4000.0 and "4000 MB" are one, a list of one is its value, order, repetition and letter case of names do
    not matter. An undeclared "4000" is a text and 4000 a number. Raises InvalidJob for bad requirements.
    """
    return canonical_criteria(compile_requirements(requirements, types))


def canonical_criteria(criteria: tuple[Criterion, ...]) -> str:
    """As `canonical_requirements`, for criteria that are compiled already."""
    rows = {item.folded: [item.kind.value, list(item.wanted)] for item in criteria}
    return json.dumps(rows, sort_keys=True, separators=(",", ":"), allow_nan=False)


def spelled_requirements(requirements: Mapping[str, object], types: TypeTable) -> str:
    """As `canonical_requirements`, but with the names as they were written: for people. Read, both mean the same."""
    criteria = compile_requirements(requirements, types)
    rows = {item.parameter: [item.kind.value, list(item.wanted)] for item in criteria}
    return json.dumps(rows, separators=(",", ":"), allow_nan=False)


def submit_pool_id(requirements: Mapping[str, object], types: TypeTable, vo: str = "") -> str:
    """`req1:` and 64 hexadecimal digits; "" for an empty set, which needs no pool. Raises InvalidJob."""
    return pool_id_of(compile_requirements(requirements, types), types, vo)


def pool_id_of(criteria: tuple[Criterion, ...], types: TypeTable, vo: str = "") -> str:
    """As `submit_pool_id`, for criteria that are compiled already under the same types."""
    if not criteria:
        return ""
    text = f"{types.version}\n{json.dumps(vo)}\n{canonical_criteria(criteria)}"
    return PREFIX + hashlib.sha256(text.encode("ascii")).hexdigest()
