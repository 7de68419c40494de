"""Lines #$ of Grid Engine (qsub(1))."""

from __future__ import annotations

import math
from typing import Any, Final

from lodesman.directives.amounts import indexes
from lodesman.directives.asked import (
    ALONE,
    CHECKPOINT,
    COUNTS,
    FOLDER,
    GPU,
    IDS,
    LATER,
    MAIL,
    PLACES,
    PROPERTY,
    RESOURCE,
    SHELL,
    SIGNAL,
    UNREAD,
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
from lodesman.errors import InvalidConfig
from lodesman.gridengine.values import ComplexType, read_value

_SOFT: Final = "soft requests are wishes, and are left out"
_LIMIT: Final = "limits of one process, or before the end, are not set here"
_STDIN: Final = Obstacle("is a file to read from.", "Take it along: --files FILE --set StdInput=FILE.")
_PER_SLOT: Final = ("h_vmem", "s_vmem", "mem_free", "mf", "virtual_free", "vf", "h_rss", "s_rss")
_ALONE: Final = Obstacle("exclusive", "excl")


def _tasks(asked: ScriptRequest, text: str) -> None:
    asked.array(indexes(text) if "," not in text else None)


def _at_once(asked: ScriptRequest, text: str) -> None:
    asked.put("AtMost", int(text) if text.isdecimal() and int(text) else None)


def _parallel(asked: ScriptRequest, text: str) -> None:
    name, _, slots = text.partition(" ")
    least = slots.partition("-")[0]
    asked.put("NumberOfProcessors", int(least) if least.isdecimal() and int(least) else None)
    asked.attributes["PE"] = name


def _again(asked: ScriptRequest, text: str) -> None:
    asked.put("MaxAttempts", {"y": 3, "yes": 3, "n": 1, "no": 1}.get(text.lower()))


def _job_class(asked: ScriptRequest, text: str) -> None:
    asked.job_class = text


def _variables(asked: ScriptRequest, text: str) -> None:
    asked.variables(text)


def _requests(asked: ScriptRequest, text: str) -> None:
    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        _request(asked, name.strip(), amount.strip())


def _request(asked: ScriptRequest, name: str, amount: str) -> None:
    if name in ("h_rt", "h_cpu"):
        seconds = _number(ComplexType.TIME, amount)
        if seconds is None or seconds < math.inf:
            asked.put("WallTime" if name == "h_rt" else "CPUTime", seconds)
    elif name in _PER_SLOT:
        asked.kept[name] = asked.option, amount
    elif name.startswith(("s_", "h_")):
        asked.note(_LIMIT)
    elif name in ("q", "qname", "h", "hostname", "arch", "a"):
        if name in ("arch", "a"):
            asked.refuse(PROPERTY, "Tag", "Platform", "Requirements")
        else:
            asked.note(WHERE)
    elif "gpu" in name.lower() or "cuda" in name.lower():
        asked.refuse(GPU)
    elif name in _ALONE:
        asked.refuse(ALONE)
    else:
        asked.refuse(RESOURCE, "Consumables")


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
    (1, "-q -A -ar -masterq"): notes(WHERE),
    (1, "-m -M"): notes(MAIL),
    (0, "-cwd"): notes(FOLDER),
    (1, "-wd"): notes(FOLDER),
    (0, "-V"): notes(SHELL),
    (0, "-hard"): lambda _asked, _text: None,
    (1, "-p -js -R"): notes(WEIGHT),
    (1, "-binding -mbind -par"): notes(PLACES),
    (1, "-b -shell -w -sync -now -ac -sc -dc -rou -rdi -umask"): notes(COUNTS),
    (0, "-terse -verbose -display"): notes(COUNTS),
})  # fmt: skip


def read(asked: ScriptRequest, lines: list[tuple[int, str]]) -> None:
    """All lines, and what they mean together. `-soft` holds for the rest of its line, as `-hard` and `-q` do."""
    for number, line in lines:
        hard, soft, wishes = line.partition("-soft ")
        read_short(asked, OPTIONS, number, hard, joined=False)
        if soft:
            left_out, _, others = wishes.partition("-hard ")
            asked.option = ScriptOption(number, f"-soft {left_out}".rstrip())
            asked.note(_SOFT)
            read_short(asked, OPTIONS, number, others, joined=False)
    slots = asked.attributes.get("NumberOfProcessors", 1)
    for name in _PER_SLOT:
        if name in asked.kept:
            _memory(asked, name, slots)
    option, join = asked.kept.get("join", (asked.option, "n"))
    if join.lower() not in ("y", "yes", "n", "no"):
        asked.refuse(Obstacle(UNREAD, "Say it as --set StdError=std.out."), "StdError", option=option)
    elif join.lower().startswith("y"):
        asked.files["StdError"] = asked.files.setdefault("StdOutput", "std.out")


def _memory(asked: ScriptRequest, name: str, slots: int) -> None:
    """Bytes for each slot; the largest request counts, soft limits do not."""
    asked.option, text = asked.kept[name]
    if name.startswith("s_"):
        asked.note(_LIMIT)
        return
    amount = _number(ComplexType.MEMORY, text)
    if amount is None or amount < math.inf:
        found = None if amount is None else math.ceil(amount * slots / 2**20)
        asked.put("Memory", max(found, asked.attributes.get("Memory", 0)) if found is not None else None)
