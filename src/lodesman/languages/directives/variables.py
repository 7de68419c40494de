"""What a job of each batch system knows of itself: environment, and words in file names.

Values hold placeholders of an array: `%s` its index, `%j` the job, `%(FirstJob)s` the first of the submission.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

FIRST: Final = "%(FirstJob)s"
NAME: Final = "NAME"
_HERE: Final = "."


class Tasks(NamedTuple):
    """The indexes of an array."""

    first: int
    last: int
    step: int
    jobs: int


class ScriptFacts(NamedTuple):
    """A job before it runs; `name` with doubled percent signs."""

    name: str
    cores: int
    pe: str
    tasks: Tasks | None


Values = dict[str, str]


def slurm(job: ScriptFacts) -> tuple[Values, Values]:
    """The variables of every job, and those that a script gets by naming them."""
    always = {"SLURM_CPUS_ON_NODE": str(job.cores)}
    if job.tasks:
        parts = {
            "ID": "%s",
            "MIN": job.tasks.first,
            "MAX": job.tasks.last,
            "STEP": job.tasks.step,
            "COUNT": job.tasks.jobs,
        }
        always |= {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in parts.items()}
        always["SLURM_ARRAY_JOB_ID"] = FIRST
    named = {
        "SLURM_JOB_ID": "%j", "SLURM_JOBID": "%j", "SLURM_JOB_NAME": job.name, "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1", "SLURM_SUBMIT_DIR": _HERE, "SLURM_JOB_CPUS_PER_NODE": str(job.cores), "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_RESTART_COUNT": "0",
    }  # fmt: skip
    return always, named | {"SLURM_NTASKS": "1", "SLURM_CPUS_PER_TASK": str(job.cores)}


def gridengine(job: ScriptFacts) -> tuple[Values, Values]:
    """As for Slurm."""
    always = {"NSLOTS": str(job.cores), "NHOSTS": "1", "SGE_TASK_ID": "undefined"}
    if job.tasks:
        parts = {"ID": "%s", "FIRST": job.tasks.first, "LAST": job.tasks.last, "STEPSIZE": job.tasks.step}
        always |= {f"SGE_TASK_{name}": str(value) for name, value in parts.items()}
    else:
        always |= {f"SGE_TASK_{name}": "undefined" for name in ("FIRST", "LAST", "STEPSIZE")}
    named = {
        "JOB_ID": FIRST,
        "JOB_NAME": job.name,
        "REQUEST": job.name,
        "SGE_O_WORKDIR": _HERE,
        "RESTARTED": "0",
    }
    return always, named | ({"PE": job.pe} if job.pe else {})


def pbs(job: ScriptFacts) -> tuple[Values, Values]:
    """As for Slurm."""
    cores = str(job.cores)
    always = {"NCPUS": cores, "PBS_NUM_PPN": cores, "PBS_NP": cores, "PBS_NUM_NODES": "1"}
    if job.tasks:
        always |= {"PBS_ARRAY_INDEX": "%s", "PBS_ARRAYID": "%s"}
    number = f"{FIRST}[%s]" if job.tasks else FIRST
    named = {
        "PBS_JOBID": number,
        "PBS_JOBNAME": job.name,
        "PBS_O_WORKDIR": _HERE,
        "PBS_ARRAY_ID": f"{FIRST}[]",
    }
    return always, named


def lsf(job: ScriptFacts) -> tuple[Values, Values]:
    """As for Slurm."""
    always = {"LSB_JOBINDEX": "%s" if job.tasks else "0", "LSB_DJOB_NUMPROC": str(job.cores)}
    if job.tasks:
        always |= {"LSB_JOBINDEX_STEP": str(job.tasks.step), "LSB_JOBINDEX_END": str(job.tasks.last)}
    named = {
        "LSB_JOBID": FIRST,
        "LSB_JOBNAME": job.name,
        "LS_SUBCWD": _HERE,
        "LSB_MAX_NUM_PROCESSORS": str(job.cores),
    }
    return always, named


class Words(NamedTuple):
    """The words replaced in file names, what they are here, and names of variables."""

    in_names: re.Pattern[str]
    meaning: Mapping[str, str]
    of_arrays: Mapping[str, str]
    values: Callable[[ScriptFacts], tuple[Values, Values]]
    variables: re.Pattern[str]


SLURM: Final = Words(
    re.compile(r"%[0-9]*([A-Za-z%])"),
    {"j": "%j", "J": "%j", "A": FIRST, "x": NAME},
    {"a": "%s"},
    slurm,
    re.compile(r"\bSLURMD?_[A-Z_]+\b"),
)
GRID_ENGINE: Final = Words(
    re.compile(r"\$(JOB_ID|TASK_ID|JOB_NAME|[A-Z_]+)"),
    {"JOB_ID": FIRST, "JOB_NAME": NAME},
    {"TASK_ID": "%s"},
    gridengine,
    re.compile(
        r"""\bSGE_[A-Z_]+\b|(?<=[${"'])(?:JOB_ID|JOB_NAME|NSLOTS|NHOSTS|NQUEUES|PE|PE_HOSTFILE|QUEUE|REQUEST|RESTARTED)\b"""
    ),
)
PBS: Final = Words(
    re.compile(r"\^(array_index)\^|\$\{?([A-Z_]+)\}?"),
    {"PBS_JOBID": FIRST, "PBS_JOBNAME": NAME},
    {"array_index": "%s", "PBS_ARRAYID": "%s", "PBS_ARRAY_INDEX": "%s"},
    pbs,
    re.compile(r"\bPBS_[A-Z_]+\b"),
)
LSF: Final = Words(
    re.compile(r"%([A-Za-z%])"),
    {"J": FIRST},
    {"I": "%s"},
    lsf,
    re.compile(r"\bLS[BF]?_[A-Z_]+\b"),
)


def escape_percents(value: Any) -> Any:
    """For a value whose percent signs stand for themselves in an array."""
    if isinstance(value, dict):
        return {name: escape_percents(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_percents(item) for item in value]
    return value.replace("%", "%%") if isinstance(value, str) else value


def path_of(pattern: str) -> str:
    """A stream's file without its host."""
    host, colon, path = pattern.partition(":")
    return path if colon and "/" not in host else pattern


def file_name(pattern: str, words: Words, name: str, *, is_array: bool) -> str | None:
    """A stream's file below the job's folder, escaped; None if a word in it has no meaning here."""
    pattern = path_of(pattern)
    folder, _, last = pattern.rpartition("/")
    if pattern.startswith(("/", "~")) or folder.startswith("$") or ".." in folder.split("/"):
        pattern = last  # it is not below the folder where the job begins
    if last in ("", ".", "..", "null"):
        return None
    meaning = {**words.meaning, **(words.of_arrays if is_array else {}), "%": "%%"}
    parts, end = [""], 0
    for replaced in words.in_names.finditer(pattern):
        word = meaning.get(next(filter(None, replaced.groups()), ""))
        if word is None:
            return None
        parts += [escape_percents(pattern[end : replaced.start()]), name if word == NAME else word]
        end = replaced.end()
    return "".join([*parts, escape_percents(pattern[end:])]).removeprefix("./")
