"""The demo's workload: `examples/workload/workload.toml` and its descriptions as submissions.

Files, sandboxes and the number of jobs of each description are checked before the first job is submitted.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lodesman.errors import InvalidConfig, LodesmanError, NotFound
from lodesman.jobs import Description, JobSpec, read_description, read_job

EXAMPLES = Path(__file__).resolve().parent.parent
ENDS = ("Done", "Failed", "Held")
COMPOSERS = ("picture", "pi", "words")
_KEYS = {"file", "group", "composer", "expect", "hold_if_impossible"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One description to submit: its file and text, for which group, and what is expected of it.

    `expect` counts jobs by final state; `composer` names what joins the results, empty for nothing.
    """

    path: Path
    text: str
    group: str
    expect: Mapping[str, int]
    composer: str = ""
    hold_if_impossible: bool = False

    @property
    def jobs(self) -> int:
        """How many jobs the description stands for."""
        return sum(self.expect.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All submissions in their order, for one VO."""

    vo: str
    submissions: Sequence[Submission]

    @property
    def jobs(self) -> int:
        """How many jobs in all."""
        return sum(submission.jobs for submission in self.submissions)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that submit, in the order of their first submission."""
        return tuple(dict.fromkeys(submission.group for submission in self.submissions))

    @property
    def expected(self) -> dict[str, int]:
        """How many jobs should end in each state."""
        counts: Counter[str] = Counter()
        for submission in self.submissions:
            counts.update(submission.expect)
        return dict(counts)


def load_workload(path: Path) -> Workload:
    """Read a workload list and all its descriptions.

    Raises InvalidConfig for a wrong list or description, NotFound for a file that is missing; each names
    the file.
    """
    document = _document(path)
    entries = document.get("submission")
    if not isinstance(entries, list) or not entries or not isinstance(document.get("vo"), str):
        raise InvalidConfig(f"{path}: vo and at least one [[submission]] are needed.", source=str(path))
    submissions = tuple(_submission(path, number, entry) for number, entry in enumerate(entries, 1))
    for submission in submissions:
        _check(submission)
    return Workload(vo=document["vo"], submissions=submissions)


def input_files(submission: Submission, spec: JobSpec) -> tuple[Path, ...]:
    """The files of the input sandbox; relative names count from the description. Raises NotFound."""
    return resolve_inputs(submission.path.parent, spec.input_sandbox)


def resolve_inputs(base: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Names as files below `base`, absolute ones as they are. Raises NotFound with the first missing one."""
    files = tuple(base / name for name in names)
    for file in files:
        if not file.is_file():
            raise NotFound(f"There is no file {file} for the input sandbox.", file=str(file))
    return files


def _document(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as source:
            return tomllib.load(source)
    except OSError as error:
        raise NotFound(f"Cannot read the workload {path}: {error.strerror}.", file=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: {error}.", source=str(path)) from error


def _submission(path: Path, number: int, entry: Any) -> Submission:
    fault = _entry_fault(entry)
    if fault:
        raise InvalidConfig(f"{path}: submission {number}: {fault}.", source=str(path), submission=number)
    file = path.parent / entry["file"]
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"Cannot read the description {file}: {error.strerror}.", file=str(file)) from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{file}: it is not UTF-8 text.", source=str(file)) from error
    return Submission(path=file, text=text, **{key: entry[key] for key in entry if key != "file"})


def _entry_fault(entry: Any) -> str:
    """What is wrong with one [[submission]], empty if nothing."""
    if not isinstance(entry, dict):
        return "it is not a table"
    if unknown := sorted(entry.keys() - _KEYS):
        return f"{unknown[0]} is not known; known are {', '.join(sorted(_KEYS))}"
    for key in ("file", "group"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            return f"{key} must be a text"
    if entry.get("composer", "") not in ("", *COMPOSERS):
        return f"composer must be one of {', '.join(COMPOSERS)}"
    if not isinstance(entry.get("hold_if_impossible", False), bool):
        return "hold_if_impossible must be true or false"
    return _expect_fault(entry.get("expect"))


def _expect_fault(expect: Any) -> str:
    if not isinstance(expect, dict) or not expect:
        return "expect must count jobs by state, for instance { Done = 3 }"
    for state, count in expect.items():
        if state not in ENDS:
            return f"expect: {state} is not one of {', '.join(ENDS)}"
        if type(count) is not int or count < 1:
            return f"expect: {state} must be a whole number above 0"
    return ""


def describe(submission: Submission) -> Description:
    """The description as read. Raises InvalidConfig with the file and what the reader says."""
    try:
        read = read_description(submission.text)
        return read_job(read.record, read.positions)
    except LodesmanError as error:
        data = {**error.data, "source": str(submission.path)}
        raise InvalidConfig(f"{submission.path}: {error.message}", hint=error.hint, **data) from error


def _check(submission: Submission) -> None:
    description = describe(submission)
    jobs = description.members.count if description.members else 1
    if jobs != submission.jobs:
        raise InvalidConfig(
            f"{submission.path} describes {jobs} jobs, and {submission.jobs} are expected.",
            source=str(submission.path),
        )
    input_files(submission, description.spec)
