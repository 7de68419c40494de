"""Lines #PBS of PBS Professional, OpenPBS and Torque (qsub(1B))."""

from __future__ import annotations

import re
from typing import Final

from lodesman.languages.directives.amounts import indexes, megabytes, pbs_seconds, whole
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
    RIGHTS,
    SHELL,
    STAGED,
    UNREAD,
    VIRTUAL,
    WEIGHT,
    WHERE,
    Obstacle,
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

_ATTRIBUTES: Final = {
    "umask": notes(RIGHTS), "block": notes(COUNTS), "group_list": notes(WHERE), "sandbox": notes(FOLDER),
    "depend": refuses(IDS, "After", "AfterOk"), "stagein": refuses(STAGED), "stageout": refuses(STAGED),
    "run_count": notes(COUNTS), "pwd": notes(FOLDER), "x": refuses(Obstacle(UNREAD, "Say it in options of lode submit.")),
}  # fmt: skip

# What a chunk may ask for, and the variable that says it.
_OF_CHUNKS: Final = {"ncpus": "", "mem": "", "mpiprocs": "PBS_NP", "ompthreads": "OMP_NUM_THREADS"}


def _tasks(request: ScriptRequest, text: str) -> None:
    steps, _, at_once = text.partition("%")
    request.array(indexes(steps if at_once else text), at_once)


def _again(request: ScriptRequest, text: str) -> None:
    request.put("MaxAttempts", {"y": 3, "n": 1}.get(text.lower()))


def _checkpoint(request: ScriptRequest, text: str) -> None:
    if text != "n":
        request.refuse(CHECKPOINT)


def _attributes(request: ScriptRequest, text: str) -> None:
    for part in re.split(r",(?=\s*\w+\s*=)", text):
        request.option = request.option._replace(words=f"-W {part.strip()}")
        name = part.partition("=")[0].strip()
        _ATTRIBUTES.get(name, refuses(Obstacle(UNREAD, "Say it in options of lode submit.")))(request, part)


def _variables(request: ScriptRequest, text: str) -> None:
    request.variables(text)


def _resources(request: ScriptRequest, text: str) -> None:
    for part in filter(None, text.split(",")):
        name, _, amount = part.partition("=")
        request.option = request.option._replace(words=f"-l {part.strip()}")
        amount, sharp, mark = amount.strip().partition("#")
        if sharp:
            _mark(request, name.strip(), mark)
        _resource(request, name.strip(), amount)


def _mark(request: ScriptRequest, name: str, mark: str) -> None:
    """Behind `#` of all nodes: `1:ppn=4#excl`, `#shared`, or a property that each has."""
    if name != "nodes":
        request.refuse(Obstacle(UNREAD, "A comment stands behind a blank."))
    elif mark == "shared":
        request.note(PLACES)
    else:
        request.refuse(ALONE if mark.startswith("excl") else PROPERTY)


def _resource(request: ScriptRequest, name: str, amount: str) -> None:
    if name in ("walltime", "cput"):
        request.time("WallTime" if name == "walltime" else "CPUTime", pbs_seconds(amount))
    elif name in ("mem", "pmem", "ncpus", "procs"):
        request.kept[name] = request.option, amount
    elif name in ("select", "nodes"):
        _chunk(request, amount, "ncpus" if name == "select" else "ppn")
    elif name == "place":
        request.refuse(ALONE) if "excl" in amount else request.note(PLACES)
    elif name in ("vmem", "pvmem"):
        request.refuse(VIRTUAL)
    elif name in ("pcput", "nice"):
        request.note("limits of one process, of files and of address space are not set here")
    elif name == "naccesspolicy" and amount.lower() != "shared":
        request.refuse(ALONE)
    elif name in ("qos", "naccesspolicy", "nodeset"):
        request.note(WHERE)
    else:
        _other_resource(request, name, amount)


def _other_resource(request: ScriptRequest, name: str, amount: str) -> None:
    """No GPU is no request."""
    if "gpu" in name:
        if amount != "0":
            request.refuse(GPU)
    elif name in ("host", "hosts", "hostlist", "vnode"):
        request.refuse(HOSTS)
    elif name in ("arch", "cpu_type"):
        request.refuse(PROPERTY)
    else:
        request.refuse(RESOURCE)


def _chunk(request: ScriptRequest, text: str, cores: str) -> None:
    """One node and its request: `1:ncpus=4:mem=8gb` of select, `1:ppn=4` of nodes."""
    count, *parts = text.split(":")
    if whole(count) is None:
        count, parts = "1", [count, *parts]
    if "+" in text or count != "1":
        request.refuse(NODES)
        return
    for name in _OF_CHUNKS.keys() & request.kept.keys():
        if request.kept[name][0].words.startswith(("-l select", "-l nodes")):
            del request.kept[name]  # of an earlier one; the last counts
    for part in parts:
        name, equals, amount = part.partition("=")
        if name == cores:
            request.kept["ncpus"] = request.option, amount
        elif name in _OF_CHUNKS:
            request.kept[name] = request.option, amount
        elif equals:
            _other_resource(request, name, amount)
        else:
            request.refuse(HOSTS if text.startswith(part) else PROPERTY)


OPTIONS: Final = table({
    (1, "-N"): gives("JobName"),
    (1, "-J -t"): _tasks,
    (1, "-l"): _resources,
    (1, "-r"): _again,
    (1, "-W"): _attributes,
    (1, "-v"): _variables,
    (1, "-S"): shell,
    (1, "-o"): stream("StdOutput"),
    (1, "-e"): stream("StdError"),
    (1, "-j"): keeps("join"),
    (1, "-c"): _checkpoint,
    (0, "-h"): holds,
    (1, "-a"): refuses(LATER),
    (0, "-I -X"): refuses(ATTENDED),
    (1, "-C"): refuses(Obstacle(UNREAD, "Say it in options of lode submit.")),
    (1, "-q -A -P -u"): notes(WHERE),
    (1, "-m -M"): notes(MAIL),
    (1, "-d -w -D"): notes(FOLDER),
    (0, "-V"): notes(SHELL),
    (1, "-p"): notes(WEIGHT),
    (1, "-k -R"): notes(COUNTS),
    (0, "-z -f"): notes(COUNTS),
    (0, "-n"): refuses(ALONE),
})  # fmt: skip


def read(request: ScriptRequest, lines: list[tuple[int, str]]) -> None:
    """All lines, and what they mean together."""
    for number, line in lines:
        read_short(request, OPTIONS, number, line)
    cores = max(request.count("ncpus"), request.count("procs"))
    if cores:
        request.attributes["NumberOfProcessors"] = cores
    for name, variable in _OF_CHUNKS.items():
        if variable and name in request.kept:
            request.environment.setdefault(variable, request.kept[name][1])
    for name, times in (("pmem", request.slots(cores or 1)), ("mem", 1)):
        if name in request.kept:
            request.option, text = request.kept[name]
            request.memory(megabytes(text, "", times=times), text, usual="", units=("mb", "gb"))
    option, join = request.kept.get("join", (request.option, "n"))
    if join not in ("oe", "eo", "n"):
        request.refuse(Obstacle(UNREAD, "Say it as --set StdError=std.out."), "StdError", option=option)
    elif join == "oe":
        request.join("StdOutput", "StdError", "std.out")
    elif join == "eo":
        request.join("StdError", "StdOutput", "std.err")
