"""The attributes of Grid Engine's jobs: each one's place in a description (docs/how-to/gridengine.md), and its texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from lodesman.base.errors import InvalidConfig
from lodesman.languages.gridengine.complexes import Complex
from lodesman.languages.gridengine.values import ComplexType, Value, is_numeric, read_value, write_value
from lodesman.languages.jobclass.attributes import truth
from lodesman.languages.jobs.attributes import KEPT
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, text_of
from lodesman.languages.jobs.values import Mistake, whole

_KEPT_WORD: Final = "kept, no meaning"


class Meaning(Struct, frozen=True, kw_only=True):
    """What an attribute is here."""

    name: str  # an attribute, or `l_hard` and a resource behind a blank
    here: str  # attributes of a description, or `kept, no meaning`
    remark: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether it has no meaning here."""
        return self.here == _KEPT_WORD


def _table(text: str) -> tuple[Meaning, ...]:
    rows = ([cell.strip() for cell in line.split("|")] for line in text.strip().splitlines())
    return tuple(Meaning(name=name, here=here or _KEPT_WORD, remark=remark) for name, here, remark in rows)


# In the order in which a class prints them; an empty second column: kept.
MEANINGS: Final = _table("""
A | | Usage is booked to the owner and the group.
a | | Submit it when it shall run, with at or cron.
ar | | There are no advance reservations.
b | | Executable is always a program or script that the job can start.
binding | | A pilot gives its cores to jobs as they come.
c_interval | | There are no checkpoints.
c_occasion | | There are no checkpoints.
CMDNAME | Executable |
CMDARG | Arguments |
ckpt | | There are no checkpoints.
ac | any attribute of your own | One whose name means something here stays in GridEngine.
cwd | | Each job has a directory of its own.
dl | | There are no deadlines: kill it by then.
e | StdError | A host in front of the path is dropped.
h | Held | It is stored Held until it is released, whatever the letter but n: lode release JOB.
hold_jid | | After, or AfterOk, names jobs of this server by their ids.
hold_jid_ad | | AfterOk = "12-511:index" names the jobs of an array by their ids.
i | StdInput | A host in front of the path is dropped.
j | | The same name for StdOutput and StdError joins the two.
js | | Priority is the only order among your own jobs.
l_hard | Consumables | name=amount of each resource but the following.
l_hard h_rt | WallTime | In seconds; INFINITY and 0 are no limit.
l_hard h_cpu | CPUTime | In seconds; INFINITY is 1000000000.
l_hard h_vmem | Memory | For each core, rounded up to MB, where Memory is for all: see below. INFINITY is 0.
l_hard mem_free | Consumables, Memory | Memory, too, if a class, verifier or option gives it to a job without h_vmem.
l_hard virtual_free | Consumables, Memory | Memory, too, if a class, verifier or option gives it to a job without h_vmem.
l_hard slots | NumberOfProcessors | One with pe_range, which wins.
l_soft | | Requests are hard, or they are left out.
m | | No mail is sent: lode status.
mbind | | A pilot gives its memory to jobs as they come.
M | | No mail is sent: lode status.
masterq | | A job runs on one node.
N | JobName |
notify | | No signal comes before the end.
now | | A job waits until it can run.
o | StdOutput | A host in front of the path is dropped.
P | JobGroup | One of the projects of the server, if it has any.
p | Priority | Below 0 is Priority 0, 0 is 1, and 1 to 1024 are 2 to 10 in nine equal steps.
pe_name | PE |
pe_range | NumberOfProcessors | Of a range the smallest number.
q_hard | Requirements.QueueName | Names alone; with a host or a pattern it is kept.
q_soft | | Queues are not ranked.
R | | Nothing is reserved for a single job.
r | MaxAttempts | n is 1, y is 3.
S | | Executable names its own interpreter.
shell | | No shell starts the job.
t | Parameters, ParameterStart, ParameterStep |
V | | The variables of the shell stay where they are: name each one with v.
v | Environment | One without a value is empty.
masterl | | A job runs on one node.
rou | | Usage is reported at the end of each attempt.
tc | | AtMost says it in a description.
xd | | Let the Executable start the container.
par | | A job runs on one node.
rdi | | There are no detailed scheduling messages to ask for: lode why JOB.
umask | | Files of a job have the umask of its pilot.
""")

REMARKS: Final[Mapping[str, str]] = {meaning.name: meaning.remark for meaning in MEANINGS}
IS_KEPT: Final = frozenset(meaning.name for meaning in MEANINGS if meaning.is_kept)
# What may also stand in GridEngine: values that the attributes here cannot hold; Held is a state.
PARTLY_KEPT: Final = frozenset({"ac", "h", "q_hard"})
HERE: Final[Mapping[str, str]] = {meaning.name: meaning.here for meaning in MEANINGS if not meaning.is_kept}

MEMORY: Final = "h_vmem"
# that a host must have, beside the limit `h_vmem` of the job
FREE_MEMORY: Final = ("mem_free", "virtual_free")

SLOTS: Final = "slots"
HOLD, BY_USER = "h", "u"  # the attribute of a hold, and the letter of a user's
FIELDS: Final = ("h_rt", "h_cpu", MEMORY)  # resources that have an attribute of their own

FILES: Final = ("e", "i", "o")
SCALARS: Final = ("CMDNAME", "N", "P", "p", "pe_name", "pe_range", "r")


def path_of(attribute: str, key: str | None) -> str:
    """The attribute of a description (a part of it behind a dot)."""
    if attribute == "l_hard" and key in (*FIELDS, SLOTS):
        return HERE[f"l_hard {key}"]
    if attribute not in HERE:
        return f"{KEPT}.{attribute}"
    if attribute == "ac" and key:
        return key
    here = HERE[attribute].partition(",")[0]
    return f"{here}.{key}" if key and attribute in ("l_hard", "v") else here


# --- the canonical text of each value ---------------------------------------------------------------------------------

_MB: Final = 1 << 20
_MOST_CPU: Final = 10**9
_LOWEST, _HIGHEST, _LEVELS = -1023, 1024, 9  # of Grid Engine's priorities; levels above the usual one
_LONGEST: Final = 160  # no number that can be read has more characters
_INFINITY: Final = "INFINITY"
_WHOLE: Final = whole(INT_MIN, INT_MAX)
_RANGE: Final = re.compile(r"(\d{1,9})?(?:(-)(\d{1,9})?(?::(\d{1,9}))?)?", re.ASCII)
_TASKS: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)


class Form(Struct, frozen=True, kw_only=True):
    """A value in two languages; without functions the text is the same in both."""

    number: Callable[[str], int | None] | None = None  # reads a text of Grid Engine; None: it is no number
    text: Callable[[int], str | None] | None = None  # writes a number; None: there is no text for it

    def to_record(self, text: str) -> str | int:
        """The value of a description."""
        number = self.number(text) if self.number else None
        return text if number is None else number

    def to_native(self, value: Any) -> str:
        """The canonical text of a description's value."""
        try:
            native = self.text(_WHOLE(value)) if self.text else None
        except Mistake:
            native = None
        return text_of(value) if native is None else native

    def times(self, text: str, count: int) -> str | int:
        """The description's value for `count` times the amount."""
        amount = self.to_record(text)
        return amount * count if isinstance(amount, int) else amount

    def share(self, value: Any, count: int) -> str:
        """The canonical text of one of `count` equal parts."""
        with suppress(Mistake):
            value = -(-_WHOLE(value) // count)
        return self.to_native(value)

    def canonical(self, text: str) -> str:
        """One text for all of a meaning."""
        return self.to_native(self.to_record(text))

    def largest(self, first: str, second: str) -> str:
        """The larger amount. One that cannot be read wins, so that it is seen."""

        def size(text: str) -> float:
            number = self.number(text) if self.number else None
            return math.inf if number is None or text == _INFINITY else number

        return max(first, second, key=size)


@lru_cache(maxsize=10_000)  # of few different texts; exact numbers are slow to read
def _value(kind: ComplexType, text: str) -> Value | None:
    try:
        return read_value(kind, text)
    except InvalidConfig:
        return None


def _amount(kind: ComplexType, text: str) -> int | float | None:
    value = _value(kind, text) if len(text) < _LONGEST else None
    if value is None or isinstance(value, str) or value < 0:
        return None
    return math.inf if value == math.inf else math.ceil(value)


def _seconds(infinite: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        amount = _amount(ComplexType.TIME, text)
        return infinite if amount == math.inf else None if amount is None else int(amount)

    return read


def _megabytes(text: str) -> int | None:
    amount = _amount(ComplexType.MEMORY, text)
    return None if amount is None else 0 if amount == math.inf else -(-int(amount) // _MB)


def _memory_text(megabytes: int) -> str | None:
    return write_value(ComplexType.MEMORY, megabytes * _MB) if megabytes >= 0 else None


def number_in(text: str) -> int | None:
    """A whole number in digits."""
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else None


def smallest_slots(text: str) -> int | None:
    """The smallest number of a range as in `1-4,8`; None: it is no range."""
    firsts = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or not match[0]:
            return None
        firsts.append(int(match[1] or 1))
    return min(firsts)


def _level(text: str) -> int | None:
    """0 below the usual priority, 1 for it, and nine steps above it."""
    priority = number_in(text)
    if priority is None or not _LOWEST <= priority <= _HIGHEST:
        return None
    return 0 if priority < 0 else 1 + -(-priority * _LEVELS // _HIGHEST)


def _priority(level: int) -> str | None:
    """The highest priority of a level, but for 0 the lowest."""
    if not 0 <= level <= _LEVELS + 1:
        return None
    return str(_HIGHEST * (level - 1) // _LEVELS if level else _LOWEST)


_ATTEMPTS: Final = {"y": 3, "n": 1}
_TEXT: Final = Form()
_TIME: Final = Form(number=_seconds(0), text=lambda seconds: str(seconds) if seconds else _INFINITY)
FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("CMDNAME", "N", "P", "pe_name"), _TEXT),
    "p": Form(number=_level, text=_priority),
    "pe_range": Form(number=smallest_slots, text=str),
    "r": Form(number=lambda text: _ATTEMPTS.get(truth(text)), text=lambda most: "n" if most == 1 else "y"),
    "h_rt": _TIME,
    "h_cpu": Form(number=_seconds(_MOST_CPU), text=str),
    "h_vmem": Form(number=_megabytes, text=_memory_text),
}  # by attribute, and by resource of `l_hard`


def amount_text(resource: Complex | None, text: str | None) -> str | None:
    """The canonical text of a request; a truth value without one is TRUE."""
    if resource is None:
        return text
    if text is None:
        return "TRUE" if resource.kind is ComplexType.BOOL else None
    if not is_numeric(resource.kind) or len(text) >= _LONGEST:
        return text.lower() if resource.kind is ComplexType.HOST else text
    value = _value(resource.kind, text)
    return text if value is None else write_value(resource.kind, value)


def task_numbers(text: str) -> tuple[int, int, int] | None:
    """First, last that is met, and step of `first-last:step`."""
    match = _TASKS.fullmatch(text)
    first, last, step = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    last, step = last or first, step or 1
    if not 0 < first <= last:
        return None
    last -= (last - first) % step
    return first, last, step if last > first else 1


def canonical_tasks(text: str) -> str:
    """As `first-last:step`, if it is a range."""
    numbers = task_numbers(text)
    return "{}-{}:{}".format(*numbers) if numbers else text


def tasks_of(parameters: Mapping[str, Any]) -> str:
    """By lower-case name: the parameters' numbers if they rise from at least 1, else 1 to their count."""
    values = next(
        (value for name, value in parameters.items() if name.partition(".")[0] == "parameters"), None
    )
    plain = parameters.get("parameters")
    try:
        count = len(values) if isinstance(values, list) else _WHOLE(values)
        parts = {name: _WHOLE(parameters.get(f"parameter{name}", usual)) for name, usual in _USUAL.items()}
    except Mistake:
        return "" if values is None or isinstance(values, list) else text_of(values)
    first, step = parts["start"], parts["step"]
    if isinstance(plain, list) or plain is None or first < 1 or step < 1 or parts["factor"] != 1:
        first, step = 1, 1
    return canonical_tasks(f"{first}-{first + (count - 1) * step}:{step}") if count > 0 else text_of(values)


_USUAL: Final = {"start": 1, "step": 0, "factor": 1}
