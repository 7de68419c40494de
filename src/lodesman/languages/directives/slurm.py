"""Lines #SBATCH of Slurm (sbatch(1))."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lodesman.languages.directives.amounts import indexes, megabytes, slurm_seconds
from lodesman.languages.directives.script_request import (
    ALONE,
    ATTENDED,
    COUNTS,
    FOLDER,
    GPU,
    HOSTS,
    IDS,
    LATER,
    MAIL,
    NO_VALUE,
    NODES,
    PLACES,
    PROPERTY,
    RESOURCE,
    RIGHTS,
    SHELL,
    SIGNAL,
    STAGED,
    UNKNOWN,
    UNREAD,
    WEIGHT,
    WHERE,
    Obstacle,
    ScriptOption,
    ScriptRequest,
    again,
    gives,
    holds,
    keeps,
    lasts,
    notes,
    refuses,
    sets,
    stream,
    table,
    words_of,
)

_ALL_MEMORY: Final = Obstacle("asks for all memory of a node.", "Say how much: --memory 4G.")
_DISK: Final = Obstacle("asks for room on the node's disk.", "If sites declare it: --set Requirements=...")
_NO_RUN: Final = Obstacle("asks for a test alone.", "lode plan job SCRIPT shows what would become of it.")
_STDIN: Final = Obstacle("is a file to read from.", "Take it along: --files FILE --set StdInput=FILE.")
_PARTS: Final = Obstacle(
    "begins the next part of a heterogeneous job; it and all lines behind it are not read.",
    "Submit each part apart, if they can run so.",
)
_PARENTS: Final = "--on-parent-failure says what becomes of a job whose parent fails"
_CONTAINER: Final = Obstacle("asks for a container.", "Let the script start it.")


def _array(request: ScriptRequest, text: str) -> None:
    steps, _, at_once = text.partition("%")
    request.array(indexes(steps if at_once else text), at_once)


def _dependency(request: ScriptRequest, text: str) -> None:
    if text == "singleton":
        reason = Obstacle("lets one job of its name run at a time.", "Of one array: --at-most 1.")
        request.refuse(reason, "After", "AfterOk", "AtMost")
    else:
        request.refuse(IDS, "After", "AfterOk")


def _gres(request: ScriptRequest, text: str) -> None:
    if text.lower() not in ("none", "gpu:0"):
        request.refuse(GPU if "gpu" in text.lower() else RESOURCE)


def _gpus(request: ScriptRequest, text: str) -> None:
    if text.rpartition(":")[2] != "0":
        request.refuse(GPU)


def _begin(request: ScriptRequest, text: str) -> None:
    request.note(COUNTS) if text.lower() == "now" else request.refuse(LATER)


def _licenses(request: ScriptRequest, _text: str) -> None:
    request.refuse(RESOURCE)


def _export(request: ScriptRequest, text: str) -> None:
    request.environment.clear()  # the last one counts
    request.variables(text or "ALL")


# How many words follow: 1 also after `=`, -1 only after `=`.
OPTIONS: Final = table({
    (1, "--job-name -J"): gives("JobName"),
    (1, "--cpus-per-task -c"): keeps("cores"),
    (1, "--ntasks -n"): keeps("tasks"),
    (1, "--ntasks-per-node"): keeps("tasks-per-node"),
    (1, "--tasks-per-node"): keeps("tasks-per-node"),
    (1, "--nodes -N"): keeps("nodes"),
    (1, "--mincpus"): keeps("least"),
    (1, "--mem"): keeps("memory"),
    (1, "--mem-per-cpu"): keeps("memory-per-core"),
    (1, "--time -t"): lasts("WallTime", slurm_seconds),
    (1, "--array -a"): _array,
    (1, "--output -o"): stream("StdOutput"),
    (1, "--error -e"): stream("StdError"),
    (1, "--dependency -d"): _dependency,
    (1, "--gres"): _gres,
    (1, "--gpus -G --gpus-per-node --gpus-per-task --gpus-per-socket"): _gpus,
    (1, "--ntasks-per-gpu --cpus-per-gpu --mem-per-gpu --gpu-bind --gpu-freq"):
        refuses(GPU),
    (1, "--export"): _export,
    (1, "--constraint -C --prefer"): refuses(PROPERTY),
    (1, "--licenses -L"): _licenses,
    (1, "--begin -b"): _begin,
    (1, "--deadline"): refuses(LATER),
    (1, "--signal"): refuses(SIGNAL),
    (1, "--input -i"): refuses(_STDIN, "StdInput"),
    (1, "--tmp"): refuses(_DISK, "Requirements"),
    (1, "--container --container-id"): refuses(_CONTAINER),
    (1, "--export-file"): refuses(Obstacle(UNREAD, "Say each variable: --env NAME."), "Environment"),
    (1, "--bb --bbf"): refuses(STAGED),
    (-1, "--exclusive"): refuses(ALONE),
    (0, "--test-only"): refuses(_NO_RUN),
    (0, "--pty"): refuses(ATTENDED),
    (0, "--hold -H"): holds,
    (0, "--no-requeue"): sets("MaxAttempts", 1),
    (0, "--requeue"): again,
    (1, "--partition -p --account -A --qos -q --clusters -M --cluster --reservation"): notes(WHERE),
    (1, "--nodelist -w --exclude -x --nodefile -F"): refuses(HOSTS),
    (1, "--wckey --uid --gid"): notes(WHERE),
    (1, "--mail-type --mail-user"): notes(MAIL),
    (1, "--chdir -D"): notes(FOLDER),
    (-1, "--get-user-env"): notes(SHELL),
    (-1, "--nice"): notes(WEIGHT),
    (1, "--priority"): notes(WEIGHT),
    (1, "--ntasks-per-socket --ntasks-per-core --threads-per-core --cores-per-socket"): notes(PLACES),
    (1, "--sockets-per-node --extra-node-info -B --hint --distribution -m --mem-bind --core-spec -S"): notes(PLACES),
    (1, "--thread-spec --switches --network --cpu-freq"): notes(PLACES),
    (0, "--contiguous --overcommit -O --spread-job --use-min-nodes --no-kill -k"): notes(PLACES),
    (-1, "--oversubscribe --propagate"): notes(PLACES),
    (0, "-s"): notes(PLACES),
    (1, "--comment --open-mode --time-min --acctg-freq --profile --power --delay-boot"): notes(COUNTS),
    (1, "--admin-comment --extra"): notes(COUNTS),
    (1, "--kill-on-invalid-dep"): notes(_PARENTS),
    (1, "--umask"): notes(RIGHTS),
    (0, "--parsable --quiet -Q --verbose -v --wait -W --reboot --ignore-pbs"): notes(COUNTS),
})  # fmt: skip
_TASKS: Final = "SLURM_NTASKS"
_EACH: Final = "SLURM_CPUS_PER_TASK"
_COMMENT: Final = re.compile(r"\s*#")


def read(request: ScriptRequest, lines: list[tuple[int, str]]) -> None:
    """All lines, and what they mean together."""
    for number, line in lines:
        if line.split()[:1] in (["hetjob"], ["packjob"]):
            request.refuse(_PARTS, option=ScriptOption(number, line.strip()))
            break
        words = words_of(request, number, line, cuts_words=True)
        while words:
            words = _read_one(request, number, words)
    _cores_and_memory(request)
    request.join_alone()


def _read_one(request: ScriptRequest, number: int, words: list[str]) -> list[str]:
    """Returns the words behind the first option."""
    word, *rest = words
    name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
    name = _whole_name(name)
    if name not in OPTIONS:
        request.option = ScriptOption(number, word)
        request.refuse(UNKNOWN)
        return rest
    follow, handler = OPTIONS[name]
    is_short = follow == 1 and not equals and not rest
    if follow == 1 and not equals:
        value, rest = " ".join(rest[:1]), rest[1:]
    elif not follow and word[1] != "-" and value:
        value, rest = "", [f"-{value}", *rest]  # flags behind one dash
    request.option = ScriptOption(
        number, f"{name}={value}" if value and name[:2] == "--" else f"{name} {value}".rstrip()
    )
    request.refuse(NO_VALUE) if is_short else handler(request, value)
    return rest


def _whole_name(name: str) -> str:
    """An option may be shortened while it is unique."""
    meant = (
        [option for option in OPTIONS if option.startswith(name)]
        if len(name) > 3 and name not in OPTIONS
        else []
    )
    return meant[0] if len(meant) == 1 else name


def recount_tasks(variables: Mapping[str, str], cores: int) -> dict[str, str]:
    """The variables of tasks, where the user's option sets the cores."""
    counted = dict(variables)
    each = cores
    if _TASKS in counted:
        tasks = max(1, cores // int(counted.get(_EACH, 1)))
        counted[_TASKS], each = str(tasks), cores // tasks
    if _EACH in counted:
        counted[_EACH] = str(each)
    return counted


def _cores_and_memory(request: ScriptRequest) -> None:
    nodes, text = request.kept.get("nodes", (request.option, "1"))
    if text.partition("-")[0] != "1":
        request.refuse(NODES, option=nodes)
    tasks = request.count("tasks") or request.count("tasks-per-node")
    per_task = request.count("cores")
    cores = max((tasks or 1) * (per_task or 1), request.count("least"))
    if tasks or per_task or cores > 1:
        request.attributes["NumberOfProcessors"] = cores
    if tasks:
        request.environment[_TASKS] = str(tasks)
    if tasks or per_task:
        request.environment[_EACH] = str(per_task or 1)
    each = request.count("tasks-per-node")
    if each and tasks > each:
        request.refuse(NODES, option=request.kept["tasks-per-node"][0])
    for name, times in (("memory", 1), ("memory-per-core", request.slots(cores))):
        if name in request.kept:
            request.option, text = request.kept[name]
            if text == "0":
                request.refuse(_ALL_MEMORY, "Memory")
            else:
                request.memory(megabytes(text, times=times), text)
    if {"memory", "memory-per-core"} <= request.kept.keys():
        request.refuse(Obstacle("excludes --mem in Slurm, too.", "Leave out one of the two."), "Memory")
