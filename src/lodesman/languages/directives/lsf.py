"""Lines #BSUB of LSF (bsub(1))."""

from __future__ import annotations

import re
from typing import Final

from lodesman.languages.directives.amounts import indexes, lsf_seconds, megabytes, whole
from lodesman.languages.directives.script_request import (
    ALONE,
    ATTENDED,
    CHECKPOINT,
    COUNTS,
    FOLDER,
    GPU,
    HOSTS,
    IDS,
    LATER,
    MAIL,
    NODES,
    PLACES,
    PROPERTY,
    RESOURCE,
    SHELL,
    SIGNAL,
    STAGED,
    UNREAD,
    WEIGHT,
    WHERE,
    Obstacle,
    ScriptRequest,
    again,
    holds,
    lasts,
    notes,
    read_short,
    refuses,
    sets,
    stream,
    table,
)

_AFFINITY: Final = Obstacle("asks for cores of each task.", "Say how many in all: --cores N.")
_UNIT: Final = Obstacle("has no unit, and each cluster has its own.", "Say how much: --memory 4G.")
# Of MB a job cannot live with less, and no node has more: the number is of another unit.
_PLAUSIBLE_MB: Final = range(100, 4 << 20)
_STDIN: Final = Obstacle("is a file to read from.", "Take it along: --files FILE --set StdInput=FILE.")
_CALLED: Final = Obstacle("has a command run before or behind it.", "Let the script call it.")
_LIMIT: Final = "limits of one process and of files are not set here"
_ARRAY: Final = re.compile(r"([^\[\]]*)\[([^\]]*)\](?:%([0-9]+))?")
_SECTION: Final = re.compile(r"(?<!\w)(\w++)\[([^\[\]]*)\]")


def _name(request: ScriptRequest, text: str) -> None:
    array = _ARRAY.fullmatch(text)
    if array:
        request.array(indexes(array[2], least=1), array[3] or "")
    elif "[" in text:
        request.array(None)
    else:
        request.no_array()
    request.put("JobName", (array[1] or "array" if array else text) or None)


def _cores(request: ScriptRequest, text: str) -> None:
    request.kept["cores"] = request.option, text.partition(",")[0]


def _memory(request: ScriptRequest, text: str) -> None:
    if text[-1:].isdecimal():
        request.refuse(_UNIT, "Memory")
    else:
        request.memory(megabytes(text), text)


def _minutes(request: ScriptRequest, text: str) -> None:
    request.time("CPUTime", lsf_seconds(text))


def _environment(request: ScriptRequest, text: str) -> None:
    request.environment.clear()  # the last one counts
    request.variables(text)


def _requirements(request: ScriptRequest, text: str) -> None:
    if _SECTION.sub("", text).strip():
        request.refuse(PROPERTY)
    for words in request.parts(section[0] for section in _SECTION.finditer(text)):
        name, _, inner = words.removesuffix("]").partition("[")
        if name == "span":
            request.kept["span"] = request.option, inner.replace(" ", "")
        elif name == "rusage":
            for part in re.split(r"[,:]", inner):
                _usage(request, *part.replace(" ", "").partition("=")[::2])
        elif name == "affinity":
            request.refuse(_AFFINITY, "NumberOfProcessors")
        elif name in ("order", "same", "cu"):
            request.note(PLACES)
        else:
            request.refuse(PROPERTY)


def _usage(request: ScriptRequest, name: str, amount: str) -> None:
    """Reserved memory is of the whole job unless a cluster says otherwise."""
    if name == "mem":
        request.kept["reserved"] = request.option, amount
    elif "gpu" in name:
        request.refuse(GPU)
    else:
        request.refuse(RESOURCE)


OPTIONS: Final = table({
    (1, "-J"): _name,
    (1, "-n"): _cores,
    (1, "-W"): lasts("WallTime", lsf_seconds),
    (1, "-c"): _minutes,
    (1, "-M"): _memory,
    (1, "-R"): _requirements,
    (1, "-env"): _environment,
    (1, "-L"): notes(SHELL),
    (1, "-o -oo"): stream("StdOutput"),
    (1, "-e -eo"): stream("StdError"),
    (0, "-H"): holds,
    (0, "-rn"): sets("MaxAttempts", 1),
    (1, "-w"): refuses(IDS, "After", "AfterOk"),
    (0, "-ti"): refuses(IDS, "After", "AfterOk"),
    (1, "-gpu"): refuses(GPU),
    (0, "-x"): refuses(ALONE),
    (1, "-i -is"): refuses(_STDIN, "StdInput"),
    (1, "-b -t"): refuses(LATER),
    (1, "-E -Ep -a"): refuses(_CALLED),
    (1, "-f -data"): refuses(STAGED),
    (1, "-k"): refuses(CHECKPOINT),
    (1, "-s -wa -wt"): refuses(SIGNAL),
    (0, "-I -Ip -Is -IS -ISp -ISs -IX -XF"): refuses(ATTENDED),
    (1, "-m"): refuses(HOSTS),
    (1, "-q -P -G -U -sla -app -Lp"): notes(WHERE),
    (1, "-u"): notes(MAIL),
    (0, "-B -N -Ne"): notes(MAIL),
    (1, "-cwd -outdir"): notes(FOLDER),
    (1, "-sp"): notes(WEIGHT),
    (1, "-C -D -F -S -T -v -p"): notes(_LIMIT),
    (0, "-ul -hl"): notes(_LIMIT),
    (1, "-g -Jd -We -eptl -ptl -notify -freq"): notes(COUNTS),
    (0, "-K"): notes(COUNTS),
    (0, "-r"): again,
    (1, "-pack"): refuses(Obstacle(UNREAD, "Submit each job apart.")),
})  # fmt: skip


def read(request: ScriptRequest, lines: list[tuple[int, str]]) -> None:
    """All lines, and what they mean together."""
    for number, line in lines:
        read_short(request, OPTIONS, number, line)
    cores = request.count("cores")
    if cores:
        request.attributes["NumberOfProcessors"] = cores
    if "span" in request.kept:
        option, span = request.kept["span"]
        each = span.removeprefix("ptile=")
        if span != "hosts=1" and (whole(each) or 0) < max(cores, 1):
            request.refuse(NODES, option=option)
    if "reserved" in request.kept:
        _read_reserved(request, cores)
    request.join_alone()


def _read_reserved(request: ScriptRequest, cores: int) -> None:
    """By default a number is in MB, and for the whole job; that is said.

    One that no job can mean is refused.
    """
    request.option, text = request.kept["reserved"]
    reserved_mb = megabytes(text)
    bare = text[-1:].isdecimal() and reserved_mb is not None
    if bare and reserved_mb not in _PLAUSIBLE_MB:
        request.refuse(_UNIT, "Memory")
        return
    request.memory(reserved_mb and max(reserved_mb, request.attributes.get("Memory", 0)), text)
    unless = ["LSF_UNIT_FOR_LIMITS"] * bare + ["RESOURCE_RESERVE_PER_TASK"] * (cores > 1)
    if reserved_mb and unless:
        amount = f"{reserved_mb} MB{' for all cores' if cores > 1 else ''}"
        request.taken["Memory"] = (
            f"{request.option.words}: mem={text} is read as {amount}, as LSF has it unless {' or '.join(unless)} is set: "
            "--memory says it."
        )
