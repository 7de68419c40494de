"""Descriptions: text in three languages to a record and back, and from a record to a checked job.

Nothing is corrected silently: an unknown attribute is kept in `extra` with a warning; a wrong value is an InvalidJob,
and so is another system's attribute that would change the job's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from posixpath import normpath
from typing import Any, Final

from lodesman.base.errors import InvalidJob, InvalidRequest, SyntaxFault, TooLarge, fault_at
from lodesman.languages.jobs.attributes import BY_SPELLING, KEPT, PARAMETERS, invalid
from lodesman.languages.jobs.cfg_form import read_cfg, write_cfg_record
from lodesman.languages.jobs.foreign import fault_of_file, instead_of
from lodesman.languages.jobs.jdl import read_jdl, write_jdl
from lodesman.languages.jobs.json_form import read_json, write_json
from lodesman.languages.jobs.parametric import WrittenAttribute, read_members, split_fields
from lodesman.languages.jobs.record import (
    ARRAY_LIMITS,
    DEFAULT_LIMITS,
    NAME_LENGTH,
    NO_POSITIONS,
    ParsedRecord,
    PositionMap,
    Record,
    TextLimits,
    find_problem,
    shown,
    tidy,
)
from lodesman.languages.jobs.spec import Description, JobSpec, ParametricMembers
from lodesman.languages.jobs.values import Mistake
from lodesman.wire.jobs import Notice
from lodesman.wire.vocabulary import FORMS, Form

_MAX_UNKNOWN = 256
_MAX_SUGGESTED = 16
_LOWER = {spelling.lower(): spelling for spelling in (*BY_SPELLING, *PARAMETERS) if not spelling.islower()}
_PARAMETERS = frozenset(name.lower() for name in PARAMETERS)

_Reader = Callable[[str, TextLimits], ParsedRecord]
_LANGUAGES: Final[Mapping[str, tuple[_Reader, Callable[[Record], str]]]] = {
    "jdl": (read_jdl, write_jdl),
    "cfg": (read_cfg, write_cfg_record),
    "json": (read_json, write_json),
}
# What follows the comments decides; `#` comments are known to JDL and CFG alike.
_BEFORE = re.compile(r"(?:\s++|#[^\n]*+)*+")
_JDL_START = re.compile(
    r"""\[ | // | /\* | ' | ; |
    [A-Za-z_][\w.]*+ \s*+ = \s*+ (?: [{\[] | ("(?:[^"\\\n]++|\\.)*+" | [^\s"';]++) [ \t]*+ ; )""",
    re.VERBOSE,
)
# No name of JDL begins so: it is meant as a list of JSON.
_JSON_LIST = re.compile(r"\[\s*+\{")
# Fields in whose paths no shell reads anything.
_PATHS = ("executable", "std_input", "std_output", "std_error", "output_sandbox")
_STREAMS: Final = {"std_output": "StdOutput", "std_error": "StdError"}
_USUAL: Final = {"std_output": "std.out", "std_error": "std.err"}
_READ_BY_SHELLS = re.compile(r"^~|\$[A-Za-z_{(]|`")
# What `_odd_path` has words for has one of these.
_ODD = re.compile(r"[~$`\s]")
_JDL_LINE = re.compile(r";[ \t]*+(?:(?://|/\*|\#)[^\n]*+)?\r?$", re.MULTILINE)


def read_description(
    text: str | bytes, *, form: Form | None = None, limits: TextLimits = DEFAULT_LIMITS
) -> ParsedRecord:
    """Without `form` the text decides about the language.

    Raises SyntaxFault with line and column, TooLarge, or InvalidRequest for an unknown form or a file of HTCondor.
    """
    size = len(text)
    if size <= limits.text_bytes and isinstance(text, str) and not text.isascii():
        size = len(text.encode("utf-8", "replace"))
    if size > limits.text_bytes:
        raise TooLarge(
            f"The description has {size} bytes; at most {limits.text_bytes} are read.",
            hint="Send large data as an input sandbox; write many similar jobs as one with Parameters.",
            limit=limits.text_bytes,
            size=size,
        )
    text = _as_text(text)
    read, _ = _language(form or _detect_form(text))
    try:
        return read(text, limits)
    except SyntaxFault:
        if other := fault_of_file(text):
            raise other from None
        raise


def write_description(record: Record, form: Form) -> str:
    """Text that reads as exactly this record. Raises InvalidJob for what no language has."""
    _, write = _language(form)
    problem = find_problem(record, ARRAY_LIMITS)
    if problem:
        sentence = problem.sentence if problem.path else problem.sentence[:1].upper() + problem.sentence[1:]
        raise InvalidJob(sentence, hint=problem.hint, attribute=shown(problem.path, 80))
    return write(record)


def _detect_form(text: str) -> Form:
    """By the first words: `{` is JSON, `[` or a `;` at a line's end is JDL."""
    start = _BEFORE.match(text).end()  # type: ignore[union-attr]  # matches always
    if text.startswith("{", start) or _JSON_LIST.match(text, start):
        return "json"
    if _JDL_START.match(text, start) or _JDL_LINE.search(text, start):
        return "jdl"
    return "cfg"


def _language(form: str) -> tuple[_Reader, Callable[[Record], str]]:
    if form not in _LANGUAGES:
        hint = f"Known are {', '.join(FORMS)}."
        raise InvalidRequest(f"{form[:40]!r} is not a form of a description.", hint=hint)
    return _LANGUAGES[form]


def _as_text(text: str | bytes) -> str:
    """Without a byte order mark. Raises SyntaxFault for what is not UTF-8 and for NUL."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode("utf-8")
            message = f"the byte 0x{error.object[error.start]:02x} is not UTF-8"
            raise fault_at(good, len(good), message, hint="Save the file as UTF-8.") from None
    text = text.removeprefix("\ufeff")
    bad = None if text.isascii() else re.search(r"[\ud800-\udfff]", text)
    if bad:
        raise fault_at(text, bad.start(), "half of a surrogate pair", hint="Write the text as UTF-8.")
    if "\0" in text:
        raise fault_at(text, text.index("\0"), "a NUL byte", hint="A description is text; is this a program?")
    return text


def read_job(
    record: Record, places: PositionMap = NO_POSITIONS, *, ignore_unknown: bool = False, whole: bool = True
) -> Description:
    """Check a record; `places` are for its errors. Raises InvalidJob.

    `ignore_unknown`: keep attributes of other systems. `whole`: no job class adds anything, not even the Executable.
    """
    attributes, unknown, parameters = _sort_out(record, places)
    if not ignore_unknown:
        _refuse_foreign(unknown, places)
    kept = _notices_of_unknown(unknown, places) if unknown else []
    members: ParametricMembers | None = None
    fields: dict[str, Any] = {}
    warnings: Sequence[Notice] = ()
    if parameters:
        members = read_members(parameters, places)
        fields, warnings = split_fields(attributes, members, places)
    else:
        for field, (attribute, name, value) in attributes.items():
            try:
                fields[field] = attribute.read(value)
            except Mistake as mistake:
                raise invalid(name, mistake, places, right=attribute.right) from None
    if not whole and record:
        fields.setdefault("executable", "")
    if "executable" not in fields:
        hint = "Give a program's name or path."
        raise InvalidJob("Executable is missing.", hint=hint, attribute="Executable")
    kept += _notices_of_files(attributes, fields, places)
    fields["executable"] = _as_uploaded(fields["executable"], fields.get("input_sandbox", ()))
    _check_streams(attributes, fields, places)
    if unknown:
        fields["extra"] = unknown
    whose = {name: fields.pop(name, "") for name in ("group", "owner", "vo")}
    warnings = (*warnings, *kept)
    return Description(record=record, spec=JobSpec(**fields), members=members, warnings=warnings, **whose)


def _sort_out(
    record: Record, places: PositionMap
) -> tuple[dict[str, WrittenAttribute], dict[str, Any], dict[str, tuple[str, Any]]]:
    attributes: dict[str, WrittenAttribute] = {}
    unknown: dict[str, Any] = {}
    parameters: dict[str, tuple[str, Any]] = {}
    for name, value in record.items():
        attribute = BY_SPELLING.get(name)
        if attribute is None:
            if not isinstance(name, str):
                raise InvalidJob(f"An attribute name is {type(name).__name__}, not text.")
            attribute = BY_SPELLING.get(name.lower())
        if attribute is not None:
            field = attribute.field
            if field in attributes:
                _refuse_second(name, attributes[field][1], places)
            attributes[field] = (attribute, name, value)
        elif name[:9].lower() == "parameter" and name.partition(".")[0].lower() in _PARAMETERS:
            lower = name.lower()
            if lower in parameters:
                _refuse_second(name, parameters[lower][0], places)
            parameters[lower] = (name, value)
        else:
            unknown[name] = value
    return attributes, unknown, parameters


def _refuse_second(name: str, first: str, places: PositionMap) -> None:
    same = "the same attribute as" if name.lower() != first.lower() else "given twice, first as"
    raise invalid(name, f"is {same} {shown(first)}", places, right="only one of them")


def _refuse_foreign(unknown: Record, places: PositionMap) -> None:
    for name in unknown:
        if instead := instead_of(name, unknown[name]):
            wrong = invalid(name, "is an attribute of other systems, and means nothing here", places)
            wrong.hint = f"{instead} To keep it all the same: --ignore-unknown."
            raise wrong


def _notices_of_files(
    attributes: Mapping[str, WrittenAttribute], fields: Mapping[str, Any], places: PositionMap
) -> list[Notice]:
    """For paths that a shell would read. Raises InvalidJob for a file of the sandbox with arguments behind it."""
    inputs = {_flat(path) for path in fields.get("input_sandbox", ())}
    notices = []
    for field in _PATHS:
        if field not in attributes:
            continue
        name, value = attributes[field][1], fields.get(field, ())
        paths = {value} if isinstance(value, str) else set(value)
        if not any(map(_ODD.search, paths)):
            continue
        words = (_odd_path(path, field, inputs, name, places) for path in sorted(paths - inputs) if path)
        if message := next(filter(None, words), ""):
            notices.append(Notice(name[:NAME_LENGTH], message, *places.get(name, (0, 0))))
    program = fields["executable"]
    if program.startswith("/") and program in fields.get("input_sandbox", ()):
        name = attributes["executable"][1]
        message = f"{shown(name)} is {shown(program)} on the node; the file that goes along is {shown(_flat(program))}."
        notices.append(Notice(name[:NAME_LENGTH], message, *places.get(name, (0, 0))))
    return notices


def _odd_path(path: str, field: str, inputs: Collection[str], name: str, places: PositionMap) -> str:
    """What a shell would make of a path; '' if nothing. Raises as `_notices_of_files`."""
    is_program, first, *rest = field == "executable", *path.split(maxsplit=1)
    is_name = first == path or tidy(path) in inputs
    if is_program and not is_name and tidy(first) in inputs:
        message = f"is {shown(path)}, and the file of the InputSandbox is {shown(tidy(first))}"
        right = (
            f"the file alone; {shown(rest[0])} belongs in Arguments" if rest else "its name without blanks"
        )
        raise invalid(name, message, places, right=right)
    if _READ_BY_SHELLS.search(path):
        how = " /bin/sh -c reads them, in Arguments." if is_program else ""
        return f"{shown(name)} is {shown(path)}: no variable and no ~ is read in it.{how}"
    if is_program and not is_name:
        return f"{shown(name)} is {shown(path)}: all of it is the name of a program. Its words belong in Arguments."
    return ""


def _as_uploaded(program: str, inputs: Collection[str]) -> str:
    """As called on the node, if it is a file of the InputSandbox."""
    is_path = not program.startswith("/") and not program.endswith("/")
    is_uploaded = is_path and any(tidy(path) == tidy(program) for path in inputs)
    return _flat(program) if is_uploaded else program


def _check_streams(
    attributes: Mapping[str, WrittenAttribute], fields: Mapping[str, Any], places: PositionMap
) -> None:
    """Raise InvalidJob for a stream in the place of another file, of the folder of one, or of the other stream's
    folder.

    Both streams may be one file.
    """
    inputs = fields.get("input_sandbox", ())
    if not inputs and "std_output" not in fields and "std_error" not in fields:
        return
    program, source = fields["executable"], fields.get("std_input", "")
    streams = [(name, _STREAMS[name], fields.get(name) or usual) for name, usual in _USUAL.items()]
    is_apart = not inputs and not source and (program[:1] == "/" or "/" not in program)
    if is_apart and not any("/" in path for _, _, path in streams):
        return  # plain names, and no file of a user beside them
    others = [("a file of the InputSandbox", _flat(file), file[-1] == "/") for file in inputs]
    others += [("the Executable", program, False)] * ("/" in program) + [("StdInput", source, False)] * bool(
        source
    )
    for field, label, path in streams:
        place = normpath(path)
        beside = [
            (word, file, True) for other, word, file in streams if other != field and normpath(file) != place
        ]
        for role, file, is_folder in (*others, *beside):
            other = normpath(file)
            is_below = place.startswith(f"{other}/") and not is_folder
            if place == other or is_below or other.startswith(f"{place}/"):
                message = f"is {shown(path)}, and {role} is {shown(file)}: a node has room for one of them"
                raise invalid(
                    attributes[field][1] if field in attributes else label,
                    message,
                    places,
                    right="a name of its own",
                )


def _flat(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _notices_of_unknown(unknown: Record, places: PositionMap) -> list[Notice]:
    """Raises InvalidJob if they cannot be kept."""
    if len(unknown) > _MAX_UNKNOWN:
        message = f"is one of {len(unknown)} unknown attributes"
        raise invalid(next(iter(unknown)), message, places, right=f"at most {_MAX_UNKNOWN} of your own")
    problem = find_problem(unknown)
    if problem:
        name = problem.path.partition("/")[0].partition("[")[0]
        raise invalid(name, f"cannot be kept: {problem.message}", places, right="plain values")
    notices = []
    for index, name in enumerate(spelling for spelling in unknown if spelling.lower() != KEPT.lower()):
        message = f"{shown(name)} is not an attribute that the program knows; it is kept."
        if index < _MAX_SUGGESTED and (near := get_close_matches(name.lower(), _LOWER, n=1, cutoff=0.8)):
            message += f" Did you mean {_LOWER[near[0]]}?"
        notices.append(Notice(name[:NAME_LENGTH], message, *places.get(name, (0, 0))))
    return notices
