"""What the lines of other systems in a script ask for (#SBATCH, #$, #PBS), as options of `lode submit`, where both mean the
same. Times without a unit, but for the minutes of Slurm, partitions, files and what belongs to one site alone are left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

Option = tuple[str, list[str]]

_CLOCK: Final = re.compile(r"(?:[0-9]+-)?[0-9]+:[0-9]{2}:[0-9]{2}")
_SIZE: Final = re.compile(r"([1-9][0-9]*)([KMGT]?)B?", re.IGNORECASE)
_STEPS: Final = re.compile(r"[0-9]+-[0-9]+(?::[0-9]+)?")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,3}")
_SLURM: Final = {
    "-J": "name", "--job-name": "name", "-c": "cores", "--cpus-per-task": "cores", "-n": "tasks", "--ntasks": "tasks",
    "--mem": "memory", "--mem-per-cpu": "memory-per-core", "-t": "time", "--time": "time", "-a": "array",
    "--array": "array",
}  # fmt: skip
_OTHERS: Final = {"-N": "name", "-t": "array", "-J": "array"}
_RESOURCES: Final = {
    "h_rt": "time", "walltime": "time", "ncpus": "cores", "ppn": "cores", "mem": "memory",
}  # fmt: skip
_RESOURCE: Final = re.compile(r"(?<![A-Za-z_])(h_rt|walltime|ncpus|ppn|mem)=([0-9]+(?::[0-9]+)*[a-zA-Z]*)")


def equivalent(mark: str, lines: Iterable[str]) -> str:
    """The options for all lines with that mark together; '' if none means the same."""
    asked: dict[str, str] = {}
    read: Callable[[Option], Iterator[tuple[str, str]]] = _of_slurm if mark == "#SBATCH" else _of_others
    for line in lines:
        for option in _options(line, joined=mark == "#SBATCH"):
            asked.update(read(option))
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in _meant(asked))


def _options(line: str, *, joined: bool) -> Iterator[Option]:
    """Each option with its values. `joined`: `-c4` is `-c 4`."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    found: list[Option] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append((name, [value] if equals else []))
        elif word.startswith("-"):
            found.append((word[:2], [word[2:]]) if joined and len(word) > 2 else (word, []))
        elif found:
            found[-1][1].append(word)
    yield from found


def _of_slurm(option: Option) -> Iterator[tuple[str, str]]:
    name, values = option
    if name in _SLURM and values:
        yield _SLURM[name], values[0]
        if _SLURM[name] == "time":  # a number alone is minutes
            yield "minutes", values[0]


def _of_others(option: Option) -> Iterator[tuple[str, str]]:
    """Grid Engine and PBS."""
    name, values = option
    if name == "-pe" and len(values) == 2:
        yield "cores", values[1]
    elif name == "-l":
        for found in _RESOURCE.finditer(",".join(values)):
            yield _RESOURCES[found[1]], found[2]
    elif name in _OTHERS and values:
        yield _OTHERS[name], values[0]


def _meant(asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What of it means the same here."""
    counts = [int(asked[one]) for one in ("cores", "tasks") if _COUNT.fullmatch(asked.get(one, ""))]
    cores = counts[0] * counts[-1] if len(counts) == 2 else sum(counts)
    if "name" in asked:
        yield "name", asked["name"]
    if cores:
        yield "cores", str(cores)
    if size := _SIZE.fullmatch(asked.get("memory", "")):
        yield "memory", size[0]
    elif size := _SIZE.fullmatch(asked.get("memory-per-core", "")):
        yield "memory", f"{int(size[1]) * max(1, cores)}{size[2]}"
    if _CLOCK.fullmatch(asked.get("time", "")):
        yield "time", asked["time"]
    elif "minutes" in asked and _COUNT.fullmatch(asked["minutes"]):
        yield "time", f"{asked['minutes']}m"
    array, _, at_once = asked.get("array", "").partition("%")
    if _STEPS.fullmatch(array):
        yield "array", f"{array}%{at_once}" if _COUNT.fullmatch(at_once) else array
