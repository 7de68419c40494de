"""Options of submit commands that administrators cannot give: pilots would not be found again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

_OTHER_CLUSTER: Final = (
    "pilots would be on another cluster than the one that is asked about them; give that cluster a submit host of its own, "
    "as by Backend = slurm@HOST"
)
_OTHER_SCHEDD: Final = (
    "pilots would be at a schedd that is not asked about them; name it in a section [backend.NAME]"
)
_ACCOUNT: Final = (
    "pilots would be of an account that is not asked about them; name it in a section [backend.NAME]"
)
_OWN: Final = "this server gives it itself; leave it out"
_WAITS: Final = "the command would answer only when the pilots have ended; leave it out"
_NOTHING: Final = "nothing would be submitted; leave it out"
_HELD: Final = "no pilot would start until a person releases it; leave it out"
_LATER: Final = "pilots would wait for an hour or for other jobs of the batch system; leave it out"
_ANSWER: Final = "the answer would not say what was submitted; leave it out"
_PROGRAM: Final = "another program would run instead of the pilot; leave it out"
_OUTPUT: Final = "what pilots write would not be where it is read; leave it out"
_VARIABLES: Final = "pilots would get the variables of the server; leave it out"


def _table(of: Mapping[str, str]) -> Mapping[str, str]:
    return {word: why for why, words in of.items() for word in words.split()}


_SLURM: Final = _table(
    {
        _OTHER_CLUSTER: "clusters cluster M",
        _ACCOUNT: "uid",
        _OWN: "parsable array a job-name J partition p requeue export propagate signal nodes N ntasks n cpus-per-task c",
        _WAITS: "wait W",
        _NOTHING: "test-only help h usage u version V",
        _HELD: "hold H",
        _LATER: "begin b dependency d",
        _ANSWER: "quiet Q",
        _PROGRAM: "wrap",
        _OUTPUT: "output o error e chdir D",
    }
)
_SLURM_FLAGS: Final = "hHIkOQsuvVW"
_SLURM_VARIABLES: Final = re.compile(r"(SLURM|SBATCH)_CLUSTERS|SBATCH_WAIT|(SQUEUE|SACCT)_\w+")

_GRID_ENGINE: Final = _table(
    {
        _OWN: "terse t N S C r q pe b",
        _WAITS: "sync now",
        _NOTHING: "verify help",
        _HELD: "h",
        _LATER: "a hold_jid hold_jid_ad",
        _ANSWER: "clear @",
        _OUTPUT: "o e j",
        _VARIABLES: "V",
    }
)
_HTCONDOR: Final = _table(
    {
        _OTHER_SCHEDD: "name remote pool address",
        _OWN: "terse single-cluster spool queue file",
        _WAITS: "interactive",
        _NOTHING: "dry-run dump help capabilities version",
        _ANSWER: "verbose factory generator digest",
    }
)
# These have the short words that would fit others, too: -a is -append, -d is -disable.
_HTCONDOR_HAS: Final = ("append", "batch-name", "batch-id", "disable", "debug", "unused", "allow-crlf-script")
_ARC: Final = _table(
    {
        _OWN: "executable arguments queue count countpernode jobname executables inputfiles",
        _NOTHING: "dryrun action",
        _LATER: "starttime",
        _OUTPUT: "stdout stderr join outputfiles",
    }
)
_RELATION: Final = re.compile(r"\(\s*([A-Za-z_]\w*)\s*[<>!]?=")


def refused_options(kind: str, words: Sequence[str]) -> Iterator[str]:
    """Why these words cannot be options of a submit command; sentences without a full stop."""
    refused: Iterator[tuple[str, str]] = iter(())
    if kind == "slurm":
        refused = _of_slurm(words)
    elif kind == "gridengine":
        refused = _of_grid_engine(words)
    elif kind == "htcondor":
        refused = _of_htcondor(words)
    elif kind == "arc":
        names = (match[1] for match in _RELATION.finditer(" ".join(words)))
        refused = ((name, _ARC.get(name.lower().replace("_", ""), "")) for name in names)
    for word, why in refused:
        if why:
            yield f"{word[:80]}: {why}"


def refused_variables(kind: str, environment: Mapping[str, str]) -> Iterator[str]:
    """The same of variables for its commands."""
    for name in environment if kind == "slurm" else ():
        if _SLURM_VARIABLES.fullmatch(name):
            yield f"{name[:80]}: the commands would answer for others than the pilots of this server; leave it out"


def _why_not(name: str, refused: Mapping[str, str]) -> str:
    """A long option is refused however it is shortened: its command refuses what would fit several."""
    return refused.get(name) or next(
        (why for option, why in refused.items() if name and len(option) > 1 and option.startswith(name)), ""
    )


def _of_slurm(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each refused option with the reason. Several letters may share a word; the value of a letter is the rest of
    its word or the next one.
    """
    is_value = False
    for word in words:
        if is_value or not word.startswith("-"):
            is_value = False
        elif word.startswith("--"):
            yield word, _why_not(word[2:].partition("=")[0], _SLURM)
        else:
            for at, letter in enumerate(word[1:], 2):
                yield word, _SLURM.get(letter, "")
                if letter not in _SLURM_FLAGS:
                    is_value = at == len(word)
                    break


def _of_htcondor(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """An option may have qualifiers behind a colon."""
    for word in words:
        name = word.lstrip("-").partition(":")[0]
        if word.startswith("-") and not any(option.startswith(name) for option in _HTCONDOR_HAS):
            yield word, _why_not(name, _HTCONDOR)


def _of_grid_engine(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, after in pairwise([*words, ""]):
        if word == "-w" and after in ("v", "p"):
            yield f"-w {after}", _NOTHING
        elif word.startswith("-"):
            yield word, _GRID_ENGINE.get(word[1:], "")
