"""Queue settings that the program itself uses, in fixed units, and checks of values.

Where `CPUTime` (seconds) is missing, DIRAC's `maxCPUTime` (minutes) stands in, and then `SI00` / 250 for a missing
`CPUScalingFactor`; `CEType` for `Backend`; `Memory` for `MaxRAM`. A memory, a time or a number of processors of 0 is
unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from lodesman.decide.resources.backends import backend_name
from lodesman.decide.resources.inherit import EffectiveParam
from lodesman.decide.resources.kinds import WELL_KNOWN_BY_NAME, TypeTable
from lodesman.decide.resources.model import (
    BadValue,
    FilePosition,
    ResourceTree,
    Value,
    as_scalars,
    as_text,
    fold,
)
from lodesman.decide.resources.units import Number, convert
from lodesman.languages.gridengine.jclist import QueueJcLists, read_jc_list
from lodesman.wire.vocabulary import GateMode, Kind

_SI00_OF_REFERENCE = 250  # DIRAC: SpecInt2000 of the machine that normalised CPU time refers to
_CAPS = ("MaxWaitingJobs", "MaxTotalJobs", "MaxRunningJobs", "MaxHeldJobs")
_WHOLE = frozenset(map(fold, (*_CAPS, "Slots", "NumberOfProcessors")))
_ABOVE_ZERO = fold("CPUScalingFactor")
_WORDS = fold("SubmitOptions")
_GATE_MODE = fold("GateMode")
_JC_LIST = fold("JcList")
_MODE = fold("Mode")
_MODES = ("pull", "push")
_MULTI_PROCESSOR: Final = "MultiProcessor"
_PROCESSORS: Final = re.compile(r"[1-9][0-9]*Processors")
_MOST_PROCESSORS: Final = 1024  # as DIRAC
_OF_BACKEND = frozenset(map(fold, ("Backend", "CEType", "CEName", "SSHHost", "BatchSystem")))


class QueueSettings(Struct, frozen=True, kw_only=True):
    """A queue for director, backends and pilots; None is "not configured"."""

    backend: str = ""
    submit_options: tuple[str, ...] = ()  # words for the submit command of the batch system
    cpu_seconds: Number | None = None  # the limit on its own machines
    cpu_scaling_factor: Number = 1
    wall_seconds: int | None = None  # when the batch system ends a pilot
    max_waiting_jobs: int | None = None
    max_total_jobs: int | None = None
    max_running_jobs: int | None = None
    max_held_jobs: int | None = None
    slots: int | None = None  # pilots that run there at once
    generic_pilots: bool = True  # it takes them, not private ones alone
    waiting_to_running_ratio: Number | None = None
    processors: int | None = None
    memory_mb: int | None = None
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    vos: tuple[str, ...] = ()
    jc_lists: QueueJcLists | None = None  # the job classes that may enter; None: all, and jobs without one
    push: bool = False  # each pilot is sent for one job and runs that alone
    forwards: bool = False  # what is behind the queue chooses where pilots run

    @property
    def norm_cpu_seconds(self) -> int | None:
        """CPU time on the reference machine, rounded down."""
        return None if self.cpu_seconds is None else int(self.cpu_seconds * self.cpu_scaling_factor)

    def life_seconds(self, habit: int = 0) -> int:
        """The longest life of a pilot, with all pilots' `habit`; 0: no limit."""
        return min(filter(None, (self.wall_seconds, habit)), default=0)


def check_value(folded: str, value: Value) -> tuple[str, ...]:
    """What is odd about a value, in sentences. Raises BadValue."""
    declared = WELL_KNOWN_BY_NAME.get(folded)
    if declared is None:
        if folded == _WORDS:
            _check_words(value)
        if folded == _GATE_MODE:
            _gate_mode(value)
        return ()
    if declared.kind is not Kind.LIST and isinstance(value, tuple):
        raise BadValue("one value is expected, not a list")
    if folded == _JC_LIST:
        return _check_jc_list(as_text(as_scalars(value)[0]))
    if folded == _MODE and (mode := as_text(as_scalars(value)[0])).lower() not in _MODES:
        raise BadValue(f"{mode!r} is none of {', '.join(_MODES)}")
    if declared.kind is not Kind.NUMBER or not isinstance(value, int | float):
        return ()
    if value < 0 or (value == 0 and folded == _ABOVE_ZERO):
        raise BadValue(f"it must be {'more than' if folded == _ABOVE_ZERO else 'at least'} 0")
    if folded in _WHOLE and not isinstance(value, int):
        raise BadValue("it must be a whole number")
    return ()


def _check_jc_list(text: str) -> tuple[str, ...]:
    lists = read_jc_list(text)
    if lists.lists is None:
        raise BadValue(" ".join(lists.faults).rstrip("."))
    return tuple(warning.rstrip(".") for warning in lists.warnings)


def _gate_mode(value: Value) -> GateMode:
    try:
        return GateMode(as_text(as_scalars(value)[0]).lower())
    except (IndexError, ValueError):
        raise BadValue(f"it must be {' or '.join(GateMode)}") from None


def gate_modes(tree: ResourceTree) -> dict[str, GateMode]:
    """By site, where it is configured."""
    return {
        name: _gate_mode(value)
        for name, site in tree.sites.items()
        for parameter, value in site.params.items()
        if fold(parameter) == _GATE_MODE
    }


def _check_words(value: Value) -> None:
    if isinstance(value, tuple):
        raise BadValue("one text is expected, not a list")
    try:
        shlex.split(as_text(value))
    except ValueError:
        raise BadValue("a quotation mark in it is not closed") from None


def queue_settings(params: Mapping[str, EffectiveParam], types: TypeTable) -> QueueSettings:
    """From effective parameters."""
    reader = _Reader(params, types)
    seconds, minutes = reader.number("CPUTime") or 0, reader.number("maxCPUTime") or 0
    factor, si00 = reader.number("CPUScalingFactor"), reader.number("SI00")
    if factor is None:
        factor = si00 / _SI00_OF_REFERENCE if si00 and minutes and not seconds else 1
    wall_seconds = reader.number("WallTime")
    return QueueSettings(
        backend=backend_of(params, types),
        submit_options=tuple(shlex.split(reader.text("SubmitOptions"))),
        cpu_seconds=seconds or minutes * 60 or None,
        cpu_scaling_factor=factor,
        wall_seconds=max(1, int(wall_seconds)) if wall_seconds else None,
        max_waiting_jobs=reader.whole("MaxWaitingJobs"),
        max_total_jobs=reader.whole("MaxTotalJobs"),
        max_running_jobs=reader.whole("MaxRunningJobs"),
        max_held_jobs=reader.whole("MaxHeldJobs"),
        slots=reader.whole("Slots"),
        generic_pilots=reader.value("GenericPilots") is not False,
        waiting_to_running_ratio=reader.number("WaitingToRunningRatio"),
        processors=reader.whole("NumberOfProcessors") or None,
        memory_mb=reader.whole("MaxRAM") or reader.whole("Memory") or None,
        platforms=reader.texts("Platform"),
        tags=reader.texts("Tag"),
        required_tags=reader.texts("RequiredTag"),
        vos=reader.texts("VO"),
        jc_lists=read_jc_list(reader.text("JcList")).lists if _JC_LIST in params else None,
        push=reader.text("Mode").lower() == _MODES[1],
        forwards=reader.value("Forwards") is True,
    )


def processor_tags(cores: int) -> tuple[str, ...]:
    """The tags that DIRAC's matcher gives a job with these cores."""
    return (f"{cores}Processors", _MULTI_PROCESSOR) if cores > 1 else ()


def with_processor_tags(tags: tuple[str, ...], cores: int) -> tuple[str, ...]:
    """A queue's tags, with those that DIRAC's matcher adds for its pilots' cores: MultiProcessor, 2Processors,
    3Processors ...
    """
    if cores < 2:
        return tags
    added = (f"{number}Processors" for number in range(2, min(cores, _MOST_PROCESSORS) + 1))
    return tuple(dict.fromkeys((*tags, _MULTI_PROCESSOR, *added)))


def without_processor_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags that say nothing of cores."""
    return tuple(tag for tag in tags if tag != _MULTI_PROCESSOR and not _PROCESSORS.fullmatch(tag))


def written_jc_lists(tree: ResourceTree) -> Iterator[tuple[str, FilePosition, QueueJcLists]]:
    """Each jc_list: its node, its place, its text."""
    shared = ((f"CE type {name}", node) for name, node in tree.ce_types.items())
    nodes = ((str(path), node) for path, node in tree.nodes())
    for place, node in (("CEDefaults", tree.ce_defaults), *shared, *nodes):
        for vo, params in {"": node.params, **node.overlays}.items():
            for name, value in params.items():
                if fold(name) == _JC_LIST:
                    lists = read_jc_list(as_text(as_scalars(value)[0])).lists
                    source = node.sources.get((vo, _JC_LIST), FilePosition())
                    yield place, source, lists or QueueJcLists()


def backend_of(params: Mapping[str, EffectiveParam], types: TypeTable) -> str:
    """'' if none is configured."""
    reader = _Reader(params, types)
    return backend_name(
        backend=reader.text("Backend"),
        ce_type=reader.text("CEType"),
        ce=reader.text("CEName"),
        ssh_host=reader.text("SSHHost"),
        batch_system=reader.text("BatchSystem"),
    )


def names_backend(names: Iterable[str]) -> bool:
    """Whether a parameter names a batch system."""
    return any(fold(name) in _OF_BACKEND for name in names)


class _Reader:
    """In the units of the program; ANY is not configured."""

    def __init__(self, params: Mapping[str, EffectiveParam], types: TypeTable) -> None:
        self._params = params
        self._types = types

    def number(self, name: str) -> Number | None:
        folded, value = fold(name), self.value(name)
        if value is None or isinstance(value, str | tuple):
            return None
        unit = WELL_KNOWN_BY_NAME[folded].unit
        declared = self._types.get_folded(folded)
        return convert(value, unit=declared.unit if declared else unit, to=unit)

    def value(self, name: str) -> Value | None:
        effective = self._params.get(fold(name))
        return None if effective is None else effective.value

    def whole(self, name: str) -> int | None:
        number = self.number(name)
        return None if number is None else int(number)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        return () if value is None else tuple(map(as_text, as_scalars(value)))

    def text(self, name: str) -> str:
        return (*self.texts(name), "")[0]
