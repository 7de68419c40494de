"""What users submit in Python, and the options beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lodesman.base.errors import InvalidRequest, SyntaxFault
from lodesman.languages.directives.scripts import translate_script
from lodesman.languages.jobs import (
    ARRAY_LIMITS,
    Record,
    by_name,
    input_names,
    list_programs,
    read_description,
    read_job,
)
from lodesman.languages.jobs.attributes import overlay
from lodesman.languages.jobs.record import tidy
from lodesman.user.access.files import FilePicker, Taken, check_programs, joined_inputs, program_left

_HEAD_BYTES: Final = 256 << 10
_A_COMMAND: Final = "A text names a description; a command is a list of words: ['/bin/echo', 'hello']."
# Words of Python for what a description calls otherwise.
_WORDS: Final = {
    "cores": "NumberOfProcessors", "memory": "Memory", "time": "WallTime", "cpu_time": "CPUTime", "site": "Site",
    "tags": "Tag", "name": "JobName", "environment": "Environment", "keep": "OutputSandbox",
    "at_most": "AtMost",
}  # fmt: skip
# What is said of jobs beside their descriptions.
_OWN: Final = ("group", "python", "hold", "hold_if_impossible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `Client.using` says."""

    attributes: Mapping[str, Any] = field(default_factory=dict)  # of the description
    files: tuple[str, ...] = ()
    group: str = ""
    python: str = ""  # runs functions on the node
    hold: bool = False
    hold_if_impossible: bool = False

    def more(self, words: Mapping[str, Any]) -> Options:
        """These, and others that win. Raises InvalidRequest."""
        options = dict(words)
        files = options.pop("files", self.files)
        own = {name: options.pop(name) for name in _OWN if name in options}
        attributes = {_WORDS.get(name, name): _plain(value) for name, value in options.items()}
        wrong = [name for name in attributes if name[:1].islower()]
        if wrong:
            names = ", ".join(sorted((*_WORDS, "files", *_OWN)))
            words_ = f"There is no option {wrong[0]!r}."
            raise InvalidRequest(words_, hint=f"There are {names}; any attribute by its name, as CPUTime.")
        return Options(
            attributes=dict(overlay(dict(self.attributes), attributes)),
            files=(files,) if isinstance(files, str) else tuple(map(str, files)),
            group=str(own.get("group", self.group)),
            python=str(own.get("python", self.python)),
            hold=bool(own.get("hold", self.hold)),
            hold_if_impossible=bool(own.get("hold_if_impossible", self.hold_if_impossible)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A checked description and its input files."""

    record: Record
    inputs: Mapping[str, Taken]  # by their names in InputSandbox
    usual_name: bool = False  # its user gave it no name
    notices: tuple[str, ...] = ()  # what is odd about its files here


def draft_of(what: object, options: Options, base: Path | None = None) -> Draft:
    """A command, or a description as text, path or dict, with files below `base`. Raises SyntaxFault, InvalidJob,
    InvalidRequest.
    """
    if isinstance(what, Mapping):
        record, folder = {str(name): _plain(value) for name, value in what.items()}, Path()
    elif isinstance(what, (str, Path)):
        record, folder = _described(what)
    elif isinstance(what, Sequence) and what and all(isinstance(word, (str, Path)) for word in what):
        return checked(_command([str(word) for word in what]), options, base or Path(), usual_name=True)
    else:
        kind = type(what).__name__
        raise InvalidRequest(
            f"A {kind} is no job.",
            hint="Give a list of words, a description (text, path or dict) or a function.",
        )
    return checked(record, options, base or folder)


def checked(
    record: Record, options: Options, base: Path, taken: Mapping[str, Taken] | None = None, *,
    usual_name: bool = False,
) -> Draft:  # fmt: skip
    """A record with options and `taken` files. Raises InvalidJob, InvalidRequest."""
    picker = FilePicker()
    for word in options.files:
        picker.add_word(word)
    added = {**(taken or {}), **picker.inputs()}
    record = overlay(record, options.attributes)
    if added:
        entries: Any = next((value for name, value in record.items() if name.lower() == "inputsandbox"), [])
        others = entries if isinstance(entries, list) else [entries]
        record = overlay(record, {"InputSandbox": joined_inputs(others, added, base)})
    description = read_job(record, whole=False)
    inputs: dict[str, Taken] = {}
    for name in input_names(description.spec, description.members):
        inputs[name] = added[name] if name in added else base / name
        if name not in added and not (base / name).is_file():
            raise InvalidRequest(f"InputSandbox: there is no file {base / name}.")
    programs = list_programs(description.spec, description.members)
    check_programs(programs, inputs)
    is_named = any(
        attribute is not None and attribute.name == "JobName"
        for attribute in map(by_name, options.attributes)
    )
    notices = (program_left(programs, inputs, base), _unread(record, inputs) if usual_name else "")
    return Draft(
        record=record,
        inputs=inputs,
        usual_name=usual_name and not is_named,
        notices=tuple(filter(None, notices)),
    )


def _unread(record: Record, inputs: Mapping[str, Taken]) -> str:
    words = [record["Executable"], *record.get("Arguments", [])[:1]]
    for path in (inputs.get(tidy(word)) for word in words):
        if isinstance(path, Path):
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
            if translate_script(head, path.name, {}) is not None:
                return f"{path}: its lines of batch systems are not read here: lode submit {path} reads them."
    return ""


def _command(words: list[str]) -> Record:
    record: Record = {"JobName": PurePosixPath(words[0]).name, "Executable": words[0]}
    return record | {"Arguments": words[1:]} if words[1:] else record


def _described(what: str | Path) -> tuple[Record, Path]:
    is_path = isinstance(what, Path) or _is_path(what)
    try:
        data = Path(what).read_bytes() if is_path else str(what).encode()
        record = read_description(data, limits=ARRAY_LIMITS).record
    except OSError as wrong:
        raise InvalidRequest(f"{what} cannot be read: {wrong.strerror}.", hint=_A_COMMAND) from wrong
    except SyntaxFault as wrong:
        if is_path:
            wrong.hint = f"{wrong.hint} {_A_COMMAND}".lstrip()
        raise
    return record, Path(what).parent if is_path else Path()


def _is_path(text: str) -> bool:
    """A description has a line break, a brace or a bracket."""
    return not any(mark in text for mark in "\n[{=") and len(text) < 4_096


def _plain(value: Any) -> Any:
    """Tuples, sets and paths as a description has them."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
