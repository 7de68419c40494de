"""The names of input files: of a parametric description those of all its members, as they are uploaded and looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lodesman.errors import InvalidJob
from lodesman.jobs.placeholders import Scope
from lodesman.jobs.spec import JobSpec, ParametricMembers

MOST_VARYING_INPUTS: Final = 10_000


def input_names(
    spec: JobSpec, members: ParametricMembers | None, runs: Iterable[tuple[int, int]] | None = None
) -> tuple[str, ...]:
    """Each name once, in the order of the members; `runs` [start, stop): only of these.

    Raises InvalidJob if the names vary and there are more than 10,000 members.
    """
    names = spec.input_sandbox
    scope = None if members is None else Scope(members)
    compiled = scope.compile(names) if scope is not None else None
    if members is None or scope is None or compiled is None:
        return tuple(dict.fromkeys(names))
    if not compiled.tokens:
        return tuple(dict.fromkeys(compiled.fill({})))
    if members.count > MOST_VARYING_INPUTS:
        raise InvalidJob(
            f"InputSandbox: its names vary and there are {members.count} members.",
            hint=f"At most {MOST_VARYING_INPUTS} members can each have files of their own.",
            attribute="InputSandbox",
        )
    indexes = (index for start, stop in runs or ((0, members.count),) for index in range(start, stop))
    filled = (compiled.fill(scope.member(index, 0, compiled.tokens)) for index in indexes)
    return tuple(dict.fromkeys(name for names_of_one in filled for name in names_of_one))
