"""The demo's workload: `examples/workload/workload.toml` and its descriptions as submissions.

Files, sandboxes and the number of jobs of each description are checked before the first job is submitted.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from lodesman.base.errors import InvalidConfig, LodesmanError, NotFound
from lodesman.languages.jobs import Description, JobSpec, read_description, read_job

EXAMPLES = Path(__file__).resolve().parent.parent


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One description to submit, for which group, and how many of its jobs should end in each state.

    `composer` names what combines the results; empty if nothing does.
    """

    path: Path = field(name="file")
    group: Annotated[str, Meta(min_length=1)]
    expect: Annotated[dict[Literal["Done", "Failed", "Held"], Annotated[int, Meta(ge=1)]], Meta(min_length=1)]
    composer: Literal["", "picture", "pi", "words"] = ""
    hold_if_impossible: bool = False

    @property
    def jobs(self) -> int:
        """The number of jobs that the description stands for."""
        return sum(self.expect.values())


class Workload(Struct, frozen=True, kw_only=True):
    """All submissions in their order, for one VO."""

    vo: str
    submissions: Annotated[list[Submission], Meta(min_length=1)] = field(name="submission")

    @property
    def jobs(self) -> int:
        """The number of all jobs."""
        return sum(submission.jobs for submission in self.submissions)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that submit, in the order of their first submission."""
        return tuple(dict.fromkeys(submission.group for submission in self.submissions))

    @property
    def expected(self) -> dict[str, int]:
        """The number of jobs that should end in each state."""
        counts: Counter[str] = Counter()
        for submission in self.submissions:
            counts.update(submission.expect)
        return dict(counts)


def load_workload(path: Path) -> Workload:
    """Read a workload list and all its descriptions.

    Raises InvalidConfig for a wrong list or description, NotFound for a missing file; each names the file.
    """

    def below(_kind: type, name: str) -> Path:
        return path.parent / name

    try:
        with path.open("rb") as source:
            workload = msgspec.convert(tomllib.load(source), Workload, dec_hook=below)
    except OSError as error:
        raise NotFound(f"Cannot read the workload {path}: {error.strerror}.", file=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidConfig(f"{path}: {error}.", source=str(path)) from error
    for submission in workload.submissions:
        _check(submission)
    return workload


def describe(submission: Submission) -> Description:
    """The description as read. Raises InvalidConfig with the file and the fault, NotFound."""
    path = submission.path
    try:
        read = read_description(path.read_text(encoding="utf-8"))
        return read_job(read.record, read.positions)
    except OSError as error:
        raise NotFound(f"Cannot read the description {path}: {error.strerror}.", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: it is not UTF-8 text.", source=str(path)) from error
    except LodesmanError as error:
        data = {**error.data, "source": str(path)}
        raise InvalidConfig(f"{path}: {error.message}", hint=error.hint, **data) from error


def input_files(submission: Submission, spec: JobSpec) -> tuple[Path, ...]:
    """The files of the input sandbox; relative names start at the description. Raises NotFound."""
    files = tuple(submission.path.parent / name for name in spec.input_sandbox)
    for file in files:
        if not file.is_file():
            raise NotFound(f"There is no file {file} for the input sandbox.", file=str(file))
    return files


def _check(submission: Submission) -> None:
    description = describe(submission)
    jobs = description.members.count if description.members else 1
    if jobs != submission.jobs:
        raise InvalidConfig(
            f"{submission.path} describes {jobs} jobs, and {submission.jobs} are expected.",
            source=str(submission.path),
        )
    input_files(submission, description.spec)
