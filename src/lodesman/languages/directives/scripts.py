"""A script's lines of batch systems, and what its job needs to run unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from posixpath import normpath
from typing import Any, Final, NamedTuple

from lodesman.languages.directives import gridengine, lsf, pbs, slurm
from lodesman.languages.directives.script_request import LineRefusal, ScriptOption, ScriptRequest
from lodesman.languages.directives.variables import (
    GRID_ENGINE,
    LSF,
    PBS,
    SLURM,
    ScriptFacts,
    Tasks,
    Words,
    escape_percents,
    file_name,
    path_of,
)
from lodesman.languages.jobs.attributes import overlay
from lodesman.languages.jobs.members import has_placeholder
from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.values import Mistake, environment

Lines = list[tuple[int, str]]
_DAY: Final = 86_400
_SHOWN: Final = 120
# Dashes of text programs are not read, but are meant.
_OPTION: Final = re.compile(r"-|[\u2013\u2014\u2212]{1,2}\w")
_PADDED: Final = re.compile(r"%[0-9]+[A-Za-z]")


class _System(NamedTuple):
    """How its lines begin, whether they count behind the first command, and their reader."""

    name: str
    mark: str
    begins: re.Pattern[str]
    reads_all: bool
    read: Callable[[ScriptRequest, Lines], None]
    words: Words


_SYSTEMS: Final = (
    _System("Slurm", "#SBATCH", re.compile(r"#SBATCH(?!\w)\s*(.*)"), False, slurm.read, SLURM),
    _System(
        "Grid Engine",
        "#$",
        re.compile(r"#\$(?:\s+(?=\S)|(?=[-\u2013\u2014\u2212]))(.*)"),
        True,
        gridengine.read,
        GRID_ENGINE,
    ),
    _System("PBS", "#PBS", re.compile(r"\s*#PBS(?!\w)\s*(.*)"), False, pbs.read, PBS),
    _System("LSF", "#BSUB", re.compile(r"#BSUB(?!\w)\s*(.*)"), True, lsf.read, LSF),
)
_OTHERS: Final = re.compile(
    r"(#(?:COBALT|OAR|PJM|MSUB|QSUB|BB|DW|HQ|XBATCH)|#\s?(?i:flux):)\s+\S|#(?:SLURM|MOAB|NQS|CCS|JSUB|DSUB|RSUB)\s+-|(#\s?@)\s*\w+\s*="
)
_INTERPRETER: Final = re.compile(r"#!\s*(\S+)(?:\s+(\S+))?")


class Translation(NamedTuple):
    """What a script's lines ask for."""

    attributes: Mapping[str, Any]  # Of its description.
    refusals: tuple[LineRefusal, ...] = ()
    notes: tuple[str, ...] = ()
    hold: bool = False
    job_class: str = ""
    interpreter: str = ""  # Reads the script; '' if it names its own.
    # Percent signs of the command stand for themselves, since the command line asks for no array.
    literal: bool = False


def translate_script(
    text: str,
    name: str,
    options: Mapping[str, Any],
    *,
    job_class: str = "",
    is_folder: Callable[[str], bool] = lambda _path: False,
) -> Translation | None:
    """None without any lines. `options` and `job_class` go first.

    `is_folder`: whether a path is a folder where the user is; files of streams are in it there.
    """
    systems = [(system, lines) for system in _SYSTEMS if (lines := _lines_of(text, system))]
    others = _other_lines(text)
    if not systems:
        return Translation(options, refusals=tuple(others)) if others else None
    cores = options.get("NumberOfProcessors")
    requests = [_read_request(system, lines, cores if type(cores) is int else 0) for system, lines in systems]
    first, (system, lines) = requests[0], systems[0]
    first.files = {
        stream: f"{path}/" if is_folder(path_of(path)) else path for stream, path in first.files.items()
    }
    first.job_class = job_class or first.job_class if first.job_class else ""
    refusals = [
        refusal
        for request in requests
        for refusal in request.refusals
        if not any(attribute in options for attribute in refusal.unless)
    ]
    for request, (other, others_lines) in zip(requests[1:], systems[1:], strict=True):
        if _meaning(request, other) != _meaning(first, system):
            reason = (
                f"and the other lines of {other.name} ask for something else than those of {system.name}."
            )
            refusals.append(LineRefusal(ScriptOption(*others_lines[0]), reason, "Leave one kind out.", ()))
    done = _complete(first, system, text, name, options)
    unset = sorted({variable for other, _ in systems[1:] for variable in other.words.variables.findall(text)})
    notes = (*done.notes, *_left_out(requests, options), *_unset(unset), *_calls(text))
    return done._replace(refusals=(*refusals, *others), notes=notes)


def _left_out(requests: Iterable[ScriptRequest], options: Mapping[str, Any]) -> Iterable[str]:
    """Lists of variables that cannot be read, where options set some: maybe not all."""
    for refusal in (refusal for request in requests for refusal in request.refusals):
        if refusal.unless == ("Environment",) and "Environment" in options:
            words = f"{refusal.option.words} {refusal.reason.removesuffix('.')}"
            yield f"{words}: --env says its variables, the job may lack others."


def _meaning(request: ScriptRequest, system: _System) -> object:
    """What two systems must agree in: all but names of files and each system's own words."""
    variables = {
        name: value
        for name, value in request.environment.items()
        if not system.words.variables.fullmatch(name)
    }
    return request.attributes, variables, request.hold, request.job_class


def _read_request(system: _System, lines: Lines, cores: int) -> ScriptRequest:
    request = ScriptRequest()
    request.given_cores = cores
    system.read(request, lines)
    return request


def _lines_of(text: str, system: _System) -> Lines:
    lines: Lines = []
    for number, line in enumerate(text.splitlines(), 1):
        match = system.begins.match(line)
        if match:
            lines.append((number, match[1]))
        elif line.strip() and not line.lstrip().startswith("#") and not system.reads_all:
            break
    is_comment = system.mark == "#$" and not any(_OPTION.match(line) for _, line in lines)
    return [] if is_comment else lines


def _other_lines(text: str) -> list[LineRefusal]:
    refusals: list[LineRefusal] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        match = _OTHERS.match(line)
        if match:
            reason = "is a line of a batch system that is not read here."
            refusals.append(
                LineRefusal(ScriptOption(number, line.strip()), reason, "Say it in #LODE lines.", ())
            )
    return refusals


def unread_lines(text: str) -> list[int]:
    """Lines of Slurm or PBS behind the first command, where they do not count."""
    numbers: list[int] = []
    for system in _SYSTEMS:
        if not system.reads_all:
            read = {number for number, _ in _lines_of(text, system)}
            lines = enumerate(text.splitlines(), 1)
            numbers += [number for number, line in lines if system.begins.match(line) and number not in read]
    return sorted(numbers)


# --- what the job gets -------------------------------------------------------------------------------


def _complete(
    request: ScriptRequest, system: _System, text: str, name: str, options: Mapping[str, Any]
) -> Translation:
    """A job that asks for its own number is the only member of an array."""
    merged = overlay(dict(request.attributes), options)
    facts = ScriptFacts(
        name=escape_percents(merged.get("JobName", name)), cores=merged.get("NumberOfProcessors", 1),
        pe=request.attributes.get("PE", ""), tasks=_tasks(merged),
    )  # fmt: skip
    if "NumberOfProcessors" in options:
        request.environment = slurm.recount_tasks(request.environment, facts.cores)
    named = set(system.words.variables.findall(text))
    variables, files = _variables(request, system, facts, named), _files(request, system, facts)
    own: dict[str, Any] = request.attributes | _cpu_time(request, merged)
    needs_number = _has_number([*variables.values(), *files.values()])
    literal = "Parameters" not in options and ("Parameters" in own or needs_number)
    if literal:
        options = escape_percents(dict(options))
    if "Parameters" in merged or needs_number:
        own = escape_percents(own)
    else:
        variables, files = _plain(variables), _plain(files)
    others = _given_variables(options)
    unset = sorted(named - variables.keys() - (others or {}).keys())
    named_attributes = own.keys() | files.keys()
    if needs_number and "Parameters" not in merged:
        own |= {"Parameters": 1, "ParameterStart": 1, "ParameterStep": 1}
    attributes = dict(overlay(own | files, options))
    if others is not None:
        attributes["Environment"] = variables | others
    beside = _said_beside(request, system, attributes)
    values = {
        attribute: value
        for attribute, value in attributes.items()
        if attribute in named_attributes or attribute in options
    } | beside
    values.pop("Environment", None)
    if "Parameters" in attributes:
        values = {attribute: _as_read(value) for attribute, value in values.items()}
    notes = tuple(_notes(request, system, values if named_attributes or beside else {}, options, unset))
    interpreter = _interpreter(request, text)
    return Translation(attributes, (), notes, request.hold, request.job_class, interpreter, literal)


def _variables(
    request: ScriptRequest, system: _System, facts: ScriptFacts, named: set[str]
) -> dict[str, str]:
    always, others = system.words.values(facts)
    needed = {name: value for name, value in others.items() if name in named}
    own: dict[str, str] = escape_percents(request.environment)
    return needed | always | own


def _given_variables(options: Mapping[str, Any]) -> dict[str, str] | None:
    """Variables of options; None if they cannot be read, which is said where jobs are."""
    try:
        variables: dict[str, str] = environment(options.get("Environment", {}))
    except Mistake:
        return None
    return variables


def _tasks(attributes: Mapping[str, Any]) -> Tasks | None:
    count = attributes.get("Parameters")
    if isinstance(count, list):
        numbers = [number for number in count if type(number) is int]
        return (
            Tasks(min(numbers), max(numbers), 1, len(count))
            if numbers and len(numbers) == len(count)
            else None
        )
    if not isinstance(count, int):
        return None
    first, step = attributes.get("ParameterStart", 0), attributes.get("ParameterStep", 1)
    return Tasks(first, first + (count - 1) * step, step, count)


def _files(request: ScriptRequest, system: _System, facts: ScriptFacts) -> dict[str, str]:
    """Of the standard streams.

    One keeps the usual name if its own has no meaning here, or is the other stream's in another folder.
    """
    names: dict[str, str] = {}
    paths = {normpath(path_of(pattern)) for pattern in request.files.values()}
    for stream, pattern in request.files.items():
        name = file_name(pattern, system.words, facts.name, is_array=facts.tasks is not None)
        if name is None or (name in names.values() and len(paths) > 1):
            request.option = ScriptOption(0, pattern)
            request.note("a job's output has the usual name where it can have no such one: std.out, std.err")
        else:
            names[stream] = name
            if system.words is SLURM and _PADDED.search(pattern):
                request.taken[stream] = f"{pattern}: numbers in names of files are not padded with zeros."
    if request.joined and not names:
        names = {"StdError": "std.out"}
    return names


def _has_number(texts: Iterable[str]) -> bool:
    return any(mark in text.replace("%%", "") for text in texts for mark in ("%j", "%(FirstJob)s"))


def _as_read(value: Any) -> Any:
    plain = isinstance(value, str) and not has_placeholder(value.replace("%%", ""))
    return value.replace("%%", "%") if plain else value


def _plain(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text.replace("%%", "%") for name, text in texts.items()}


def _cpu_time(request: ScriptRequest, attributes: Mapping[str, Any]) -> dict[str, int]:
    """For several cores or much time, which would meet the usual day before its own limit.

    One that asks for any time keeps that limit, and it is said.
    """
    if "CPUTime" in attributes:
        return {}
    cores, wall = attributes.get("NumberOfProcessors", 1), attributes.get("WallTime") or _DAY
    needed = cores * wall if isinstance(cores, int) and isinstance(wall, int) else 0
    is_endless = bool(request.endless) and not attributes.get("WallTime")
    if is_endless:
        each = " for each core" if cores != 1 else ""
        request.taken["WallTime"] = (
            f"{request.endless}: no job is without a limit here, and this one has a day of CPU time{each}: --cpu-time or "
            "--time says how much it needs."
        )
    return {"CPUTime": needed} if is_endless or needed > _DAY else {}


def _interpreter(request: ScriptRequest, text: str) -> str:
    first = _INTERPRETER.match(text)
    own = (first[2] if first[1].endswith("/env") and first[2] else first[1]) if first else ""
    same = own.rpartition("/")[2] == request.interpreter.rpartition("/")[2]
    return "" if same else request.interpreter


def _said_beside(request: ScriptRequest, system: _System, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Beside attributes: variables as the job gets them, a hold, a job class."""
    all_variables = attributes.get("Environment")
    variables = all_variables if isinstance(all_variables, Mapping) else {}
    values: dict[str, Any] = {
        f"Environment.{name}": variables[name]
        for name in request.environment
        if name in variables and not system.words.variables.fullmatch(name)
    }
    if request.job_class:
        values["JobClass"] = request.job_class
    return values | ({"Held": "until it is released"} if request.hold else {})


def _notes(
    request: ScriptRequest,
    system: _System,
    values: Mapping[str, Any],
    options: Mapping[str, Any],
    unset: list[str],
) -> Iterable[str]:
    settings = ", ".join(f"{name}={shown(str(value), _SHOWN)}" for name, value in values.items())
    who = f"{system.mark} lines of {system.name}{' and options, which go first,' if options and settings else ''}"
    yield f"{who} say {settings or 'nothing here'}."
    yield from (text for name, text in request.taken.items() if name not in options)
    yield from request.without_effect()
    yield from _unset(unset)


def _unset(variables: list[str]) -> Iterable[str]:
    if variables:
        yield f"it names {', '.join(variables)}, which {'is' if len(variables) == 1 else 'are'} not set here."


_CALL: Final = re.compile(
    r"^[ \t]*(?:(?:exec|time|if|!)[ \t]+){0,3}(srun|sbatch|salloc|scontrol|squeue|qsub|qrsh|qstat|qalter|qdel|bsub|bjobs|"
    r"bkill|module|ml)(?=\s|$)",
    re.MULTILINE,
)
_MPI: Final = re.compile(
    r"^[ \t]*(?:(?:exec|time|if|!)[ \t]+){0,3}(mpirun|mpiexec)(?=\s|$)((?:\\\n|[^\n])*)", re.MULTILINE
)
_PROCESSES: Final = re.compile(r"\s--?(?:n|np|c|N|npernode|ppn|map-by)(?=[\s=\d])")
_SUBMITS: Final = ("sbatch", "qsub", "bsub")
_MODULES: Final = ("module", "ml")


def _calls(text: str) -> Iterable[str]:
    lines: dict[str, int] = {}
    for match in _CALL.finditer(text):
        lines.setdefault(match[1], text.count("\n", 0, match.start(1)) + 1)
    for name, line in lines.items():
        means = "knows nothing of this job" + (": start the program itself" if name == "srun" else "")
        if name in _SUBMITS:
            means = "may not be on the node, and what it submits is not followed here"
        elif name in _MODULES:
            means = "is there only where the shells of the nodes define it: try one job first"
        yield f"line {line} calls {name}, which {means}."
    for match in _MPI.finditer(text):
        if not _PROCESSES.search(match[2]):
            line = text.count("\n", 0, match.start(1)) + 1
            yield f"line {line} calls {match[1]}, which gets no number of processes from a batch system here: say it by -np."
            return
