"""Lines #$ of Grid Engine (qsub(1))."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from lodesman.base.errors import InvalidConfig
from lodesman.languages.directives.amounts import indexes, whole
from lodesman.languages.directives.script_request import (
    ALONE,
    CHECKPOINT,
    COUNTS,
    FOLDER,
    GPU,
    HOSTS,
    IDS,
    LATER,
    MAIL,
    PLACES,
    PROPERTY,
    RESOURCE,
    RIGHTS,
    SHELL,
    SIGNAL,
    UNREAD,
    VIRTUAL,
    WEIGHT,
    WHERE,
    Obstacle,
    ScriptOption,
    ScriptRequest,
    gives,
    holds,
    keeps,
    notes,
    read_short,
    refuses,
    shell,
    stream,
    table,
)
from lodesman.languages.gridengine.values import ComplexType, read_value

_SOFT: Final = "soft requests are wishes, and are left out"
_NO_OPTION: Final = "no option begins so, and Grid Engine does not read it either: options begin with -"
_SOFTLY, _HARD = re.compile(r"(?<!\S)-soft(?!\S)"), re.compile(r"(?<!\S)-hard(?!\S)")
_BINDING: Final = re.compile(r"(?<!\S)-binding\s+(?:env|pe|set)\s+")
_LIMIT: Final = "limits of one process, or before the end, are not set here"
_STDIN: Final = Obstacle("is a file to read from.", "Take it along: --files FILE --set StdInput=FILE.")
_FREE: Final = ("mem_free", "virtual_free")
_MEMORY: Final = {name: name for name in ("h_vmem", *_FREE, "h_rss")} | {
    "mf": "mem_free",
    "vf": "virtual_free",
}
_LIMITS: Final = frozenset(
    [
        "s_rt",
        "s_cpu",
        "s_rss",
        "s_stack",
        "s_core",
        "s_fsize",
        "s_vmem",
        "s_data",
        "h_stack",
        "h_core",
        "h_fsize",
    ]
)
_ALONE: Final = Obstacle("exclusive", "excl")


def _tasks(request: ScriptRequest, text: str) -> None:
    request.array(indexes(text, least=1) if "," not in text else None, None)


def _at_once(request: ScriptRequest, text: str) -> None:
    request.put("AtMost", whole(text) or None)


def _parallel(request: ScriptRequest, text: str) -> None:
    name, _, slots = text.partition(" ")
    request.put("NumberOfProcessors", whole(slots.partition("-")[0]) or None)
    request.attributes["PE"] = name


def _again(request: ScriptRequest, text: str) -> None:
    request.put("MaxAttempts", {"y": 3, "yes": 3, "n": 1, "no": 1}.get(text.lower()))


def _job_class(request: ScriptRequest, text: str) -> None:
    request.job_class = text


def _variables(request: ScriptRequest, text: str) -> None:
    request.variables(text, has_quotes=False)


def _queues(request: ScriptRequest, text: str) -> None:
    """One may be of a host: `short.q@n1`; groups of hosts (`@@big`) and all (`@*`) are places."""
    if re.search(r"@[^@*]", re.sub(r"@@[^,|]*", "", text)):
        request.refuse(HOSTS)
    else:
        request.note(WHERE)


def _requests(request: ScriptRequest, text: str) -> None:
    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        request.option = request.option._replace(words=f"-l {part.strip()}")
        _request(request, name.strip(), amount.strip())


def _request(request: ScriptRequest, name: str, amount: str) -> None:
    if name == "h_rt":
        _time(request, "WallTime", amount)
    elif name == "h_cpu":
        request.kept[name] = request.option, amount
    elif name in _MEMORY:
        request.kept[_MEMORY[name]] = request.option, amount
    elif name in _LIMITS:
        request.note(_LIMIT)
    elif name in ("arch", "a"):
        request.refuse(PROPERTY, "Tag", "Platform", "Requirements")
    elif name in ("h", "hostname"):
        request.refuse(HOSTS)
    elif name in ("q", "qname"):
        _queues(request, amount)
    elif "gpu" in name.lower() or "cuda" in name.lower():
        request.refuse(GPU)
    elif name in _ALONE:
        request.refuse(ALONE)
    else:
        request.refuse(VIRTUAL if name == "h_data" else RESOURCE)


def _time(request: ScriptRequest, attribute: str, text: str, times: int = 1) -> None:
    seconds = _number(ComplexType.TIME, text)
    request.time(
        attribute, 0 if seconds == math.inf else seconds * times if seconds and seconds > 0 else None
    )


def _number(kind: ComplexType, text: str) -> Any:
    try:
        return read_value(kind, text)
    except InvalidConfig:
        return None


OPTIONS: Final = table({
    (1, "-N"): gives("JobName"),
    (1, "-P"): gives("JobGroup"),
    (1, "-t"): _tasks,
    (1, "-tc"): _at_once,
    (2, "-pe"): _parallel,
    (1, "-l"): _requests,
    (1, "-r"): _again,
    (1, "-jc"): _job_class,
    (0, "-h"): holds,
    (1, "-v"): _variables,
    (1, "-S"): shell,
    (1, "-o"): stream("StdOutput"),
    (1, "-e"): stream("StdError"),
    (1, "-j"): keeps("join"),
    (1, "-hold_jid -hold_jid_ad"): refuses(IDS, "After", "AfterOk"),
    (1, "-i"): refuses(_STDIN, "StdInput"),
    (1, "-a -dl"): refuses(LATER),
    (1, "-ckpt -c"): refuses(CHECKPOINT),
    (0, "-notify"): refuses(SIGNAL),
    (1, "-@ -C -jsv"): refuses(Obstacle(UNREAD, "Say it in options of lode submit.")),
    (1, "-xd -xdv"): refuses(Obstacle("asks for a container.", "Let the script start it.")),
    (1, "-q -masterq"): _queues,
    (1, "-A -ar"): notes(WHERE),
    (1, "-m -M"): notes(MAIL),
    (0, "-cwd"): notes(FOLDER),
    (1, "-wd"): notes(FOLDER),
    (0, "-V"): notes(SHELL),
    (0, "-hard"): lambda _asked, _text: None,
    (1, "-p -js -R"): notes(WEIGHT),
    (1, "-binding -mbind -par"): notes(PLACES),
    (1, "-b -shell -w -sync -now -ac -sc -dc -rou -rdi -display"): notes(COUNTS),
    (1, "-umask"): notes(RIGHTS),
    (0, "-terse -verbose"): notes(COUNTS),
})  # fmt: skip


def read(request: ScriptRequest, lines: list[tuple[int, str]]) -> None:
    """`-soft` holds for the rest of its line, as `-hard` and `-q` do."""
    for number, line in lines:
        if not line.startswith("-"):
            request.option = ScriptOption(number, f"#$ {line.strip()}")
            request.note(_NO_OPTION)
            continue
        hard, *wishes = _SOFTLY.split(line, maxsplit=1)
        read_short(request, OPTIONS, number, _BINDING.sub("-binding ", hard), joined=False, cuts_words=True)
        for wish in wishes:
            left_out, *others = _HARD.split(wish, maxsplit=1)
            request.option = ScriptOption(number, f"-soft {left_out.strip()}".rstrip())
            request.note(_SOFT)
            read_short(request, OPTIONS, number, " ".join(others), joined=False, cuts_words=True)
    slots = request.slots(request.attributes.get("NumberOfProcessors", 1))
    _memory(request, slots)
    if "h_cpu" in request.kept:
        request.option, text = request.kept["h_cpu"]
        _time(request, "CPUTime", text, slots)  # as memory, it is asked for each slot
    option, join = request.kept.get("join", (request.option, "n"))
    if join.lower() not in ("y", "yes", "n", "no"):
        request.refuse(Obstacle(UNREAD, "Say it as --set StdError=std.out."), "StdError", option=option)
    elif join.lower().startswith("y"):
        request.join("StdOutput", "StdError", "std.out")


def _memory(request: ScriptRequest, slots: int) -> None:
    """Requests for each slot.

    h_vmem is Memory, without it the largest request of free memory, as of job classes; differing others stay requests.
    Without any it is h_rss.
    """
    amounts: dict[str, float | None] = {
        name: _amount(request, name) for name in _MEMORY.values() if name in request.kept
    }
    limit = "h_vmem" if "h_vmem" in amounts else max(_FREE, key=lambda name: amounts.get(name) or -1)
    if limit not in amounts:
        limit = "h_rss"
    elif "h_rss" in amounts:
        request.option = request.kept["h_rss"][0]
        request.note(_LIMIT)
    amount = amounts.get(limit, math.inf)
    request.option, text = request.kept.get(limit, (request.option, ""))
    if amount is not None and amount < math.inf:
        request.memory(math.ceil(amount * slots / 2**20), text, usual="")
    elif amount and text:
        request.note("no memory is asked for then")
    others = [name for name in _FREE if amounts.get(name, amount) not in (amount, None, math.inf)]
    if others:
        request.put("Consumables", [f"{name}={request.kept[name][1]}" for name in others])


def _amount(request: ScriptRequest, name: str) -> float | None:
    """Bytes; None if they cannot be read, which is refused."""
    request.option, text = request.kept[name]
    amount: float | None = _number(ComplexType.MEMORY, text)
    if amount is None:
        request.put("Memory", None)
    return amount
