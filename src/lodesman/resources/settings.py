"""The parameters of a queue that the program itself works with, checked and in fixed units (`RULES`).

Any other parameter is the users' affair. Where `CPUTime` (seconds) is missing, DIRAC's `maxCPUTime` (minutes)
stands in for it, and then `SI00` / 250 for a missing `CPUScalingFactor`; `CEType` stands in for `Backend`.
`MaxRAM` is what a job may use; without it, the `Memory` of the node. A memory, a time or a number of processors of 0
is, as in DIRAC, none that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lodesman.answers.vocabulary import Kind
from lodesman.resources.inherit import Effective
from lodesman.resources.kinds import ParameterType, TypeTable
from lodesman.resources.model import BadValue, Value, as_scalars, as_text, fold
from lodesman.resources.units import Number, convert

SI00_OF_REFERENCE = 250  # DIRAC: SpecInt2000 of the machine that normalised CPU time refers to


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What an operational number must be: at least `least` (`above`: more), whole, in which unit."""

    least: Number = 0
    above: bool = False
    whole: bool = False
    unit: str = ""


RULES: Mapping[str, Rule] = {
    fold(name): rule
    for name, rule in {
        "CPUTime": Rule(unit="s"),
        "maxCPUTime": Rule(unit="min"),
        "WallTime": Rule(unit="s"),
        "CPUScalingFactor": Rule(above=True),
        "SI00": Rule(),
        "MaxWaitingJobs": Rule(whole=True),
        "MaxTotalJobs": Rule(whole=True),
        "Slots": Rule(whole=True),
        "NumberOfProcessors": Rule(whole=True),
        "Memory": Rule(unit="MB"),
        "MaxRAM": Rule(unit="MB"),
        "WaitingToRunningRatio": Rule(),
    }.items()
}

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(RULES, Kind.NUMBER),
    **{fold(name): Kind.LIST for name in ("Tag", "RequiredTag", "Platform", "VO")},
    **{fold(name): Kind.STRING for name in ("Backend", "CEType")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """A queue as director, backends and pilots see it; None is "not configured".

    `cpu_seconds` is the limit of the queue on its own machines; on the reference machine it is
    `norm_cpu_seconds` = cpu_seconds x cpu_scaling_factor. `wall_seconds`: after so long the batch system ends a pilot.
    `slots`: pilots that run there at once.
    """

    backend: str = ""
    cpu_seconds: Number | None = None
    cpu_scaling_factor: Number = 1
    wall_seconds: int | None = None
    max_waiting_jobs: int | None = None
    max_total_jobs: int | None = None
    slots: int | None = None
    waiting_to_running_ratio: Number | None = None
    processors: int | None = None
    memory_mb: int | None = None
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    vos: tuple[str, ...] = ()

    @property
    def norm_cpu_seconds(self) -> int | None:
        """CPU time of the queue on the reference machine, rounded down."""
        return None if self.cpu_seconds is None else int(self.cpu_seconds * self.cpu_scaling_factor)

    def life_seconds(self, habit: int = 0) -> int:
        """How long a pilot lives there at most: `WallTime`, or the `habit` of all pilots if that is less; 0: no limit."""
        limits = [seconds for seconds in (self.wall_seconds, habit) if seconds]
        return min(limits, default=0)


def check_type(declared: ParameterType) -> None:
    """Raises BadValue if a declaration would change what kind an operational parameter is."""
    wanted = KINDS.get(fold(declared.name))
    if wanted is not None and declared.kind is not wanted:
        raise BadValue(f"the program itself needs a {wanted.value}")
    rule = RULES.get(fold(declared.name))
    if rule is not None and declared.unit:
        convert(1, unit=declared.unit, to=rule.unit)


def with_unit(declared: ParameterType) -> ParameterType:
    """The declaration; one of an operational parameter without unit gets the unit the program counts in."""
    rule = RULES.get(fold(declared.name))
    return replace(declared, unit=declared.unit or rule.unit) if rule else declared


def check_value(folded: str, value: Value) -> None:
    """Raises BadValue if an operational parameter has a value that nothing can be done with."""
    if folded in KINDS and KINDS[folded] is not Kind.LIST and isinstance(value, tuple):
        raise BadValue("one value is expected, not a list")
    rule = RULES.get(folded)
    if rule is None or not isinstance(value, int | float):
        return
    if value < rule.least or (rule.above and value == rule.least):
        raise BadValue(f"it must be {'more than' if rule.above else 'at least'} {rule.least}")
    if rule.whole and not isinstance(value, int):
        raise BadValue("it must be a whole number")


def queue_settings(params: Mapping[str, Effective], types: TypeTable) -> QueueSettings:
    """The settings of a queue from its effective parameters (`inherit.effective_params`)."""
    reader = _Reader(params, types)
    return QueueSettings(
        backend=reader.text("Backend") or reader.text("CEType"),
        cpu_seconds=reader.cpu_seconds(),
        cpu_scaling_factor=reader.scaling(),
        wall_seconds=reader.wall_seconds(),
        max_waiting_jobs=reader.whole("MaxWaitingJobs"),
        max_total_jobs=reader.whole("MaxTotalJobs"),
        slots=reader.whole("Slots"),
        waiting_to_running_ratio=reader.number("WaitingToRunningRatio"),
        processors=reader.first_whole("NumberOfProcessors"),
        memory_mb=reader.first_whole("MaxRAM", "Memory"),
        platforms=reader.texts("Platform"),
        tags=reader.texts("Tag"),
        required_tags=reader.texts("RequiredTag"),
        vos=reader.texts("VO"),
    )


class _Reader:
    """Reads effective values in the units of the rules; ANY counts as not configured."""

    def __init__(self, params: Mapping[str, Effective], types: TypeTable) -> None:
        self._params = params
        self._types = types

    def number(self, name: str) -> Number | None:
        folded = fold(name)
        found = self._params.get(folded)
        if found is None or isinstance(found.value, str | tuple):
            return None
        declared = self._types.get_folded(folded)
        unit = declared.unit if declared else RULES[folded].unit
        return convert(found.value, unit=unit, to=RULES[folded].unit)

    def whole(self, name: str) -> int | None:
        number = self.number(name)
        return None if number is None else int(number)

    def first_whole(self, *names: str) -> int | None:
        return next((found for name in names if (found := self.whole(name))), None)

    def text(self, name: str) -> str:
        found = self._params.get(fold(name))
        scalars = () if found is None else as_scalars(found.value)
        return as_text(scalars[0]) if scalars else ""

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._params.get(fold(name))
        return () if found is None else tuple(as_text(item) for item in as_scalars(found.value))

    def cpu_seconds(self) -> Number | None:
        seconds = self.number("CPUTime") or None
        minutes = self.number("maxCPUTime") or None
        return minutes * 60 if seconds is None and minutes is not None else seconds

    def wall_seconds(self) -> int | None:
        seconds = self.number("WallTime")
        return max(1, int(seconds)) if seconds else None

    def scaling(self) -> Number:
        factor = self.number("CPUScalingFactor")
        if factor is not None:
            return factor
        si00 = self.number("SI00")
        limited_by_minutes = not self.number("CPUTime") and bool(self.number("maxCPUTime"))
        return si00 / SI00_OF_REFERENCE if si00 and limited_by_minutes else 1
