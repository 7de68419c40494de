"""Complexes, Grid Engine's resources: the table of `qconf -sc` (complex(5))."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from msgspec import Struct

from lodesman.base.errors import InvalidConfig, SyntaxFault
from lodesman.languages.gridengine.lines import LogicalLine, logical_lines, note
from lodesman.languages.gridengine.values import ComplexType, RelOp, Value, is_numeric, read_value

COLUMNS = ("name", "shortcut", "type", "relop", "requestable", "consumable", "default", "urgency")


class Requestable(StrEnum):
    """Whether jobs may, may not or must request it."""

    YES = "YES"
    NO = "NO"
    FORCED = "FORCED"


class Consumable(StrEnum):
    """Whether jobs use it up: per slot (YES), once per job (JOB), or not."""

    YES = "YES"
    NO = "NO"
    JOB = "JOB"


_CHOICES: dict[str, dict[str, str]] = {
    "type": {item.value: item.value for item in ComplexType},
    "relop": {item.value: item.value for item in RelOp},
    "requestable": {"Y": "YES", "N": "NO", "F": "FORCED", **{item.value: item.value for item in Requestable}},
    "consumable": {"Y": "YES", "N": "NO", "J": "JOB", **{item.value: item.value for item in Consumable}},
}


class Complex(Struct, frozen=True, kw_only=True):
    """One resource."""

    name: str
    shortcut: str
    kind: ComplexType
    relation: RelOp = RelOp.LE
    requestable: Requestable = Requestable.YES
    consumable: Consumable = Consumable.NO
    default: str = "0"  # What a job uses that does not request it, as written.
    urgency: str = "0"

    @property
    def is_consumable(self) -> bool:
        """Whether jobs use it up."""
        return self.consumable is not Consumable.NO

    def value(self, text: str) -> Value:
        """Raises InvalidConfig with the attribute `name`."""
        try:
            return read_value(self.kind, text)
        except InvalidConfig as fault:
            raise InvalidConfig(
                f"{self.name}: {fault.message}", hint=fault.hint, **fault.data, name=self.name
            ) from None

    @property
    def default_value(self) -> Value:
        """Used without a request."""
        return self.value(self.default)


@dataclass(frozen=True, slots=True)
class Complexes:
    """In order, found by name and shortcut, which depend on case."""

    entries: tuple[Complex, ...]
    _found: dict[str, Complex] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {entry.shortcut: entry for entry in self.entries} | {
            entry.name: entry for entry in self.entries
        }
        object.__setattr__(self, "_found", by_name)

    def __iter__(self) -> Iterator[Complex]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, name: str) -> Complex | None:
        """By name or shortcut."""
        return self._found.get(name)

    def near(self, name: str) -> str:
        """A hint at the resource that an unknown name may mean; "" if none."""
        folded = {entry.name.casefold(): entry.name for entry in self.entries}
        near = get_close_matches(name.casefold(), folded, 1, 0.6)
        return f"Did you mean {folded[near[0]]}?" if near else ""

    def canonical(self, name: str) -> str | None:
        """The name behind a name or shortcut; None if unknown."""
        entry = self._found.get(name)
        return entry.name if entry else None


def read_complexes(text: str, *, faults: list[SyntaxFault], source: str = "") -> Complexes:
    """What is wrong is added to `faults`, and left out. Raises TooLarge."""
    return complexes_of(logical_lines(text, faults=faults, source=source), faults)


def complexes_of(lines: Iterable[LogicalLine], faults: list[SyntaxFault]) -> Complexes:
    """One resource a line."""
    places: dict[str, str] = {}
    entries: list[Complex] = []
    for line in lines:
        try:
            entry = _complex(line)
            for name, offset in {entry.shortcut: line.words()[1][0], entry.name: 0}.items():
                if name in places:
                    raise line.fault(
                        offset, f"{name} is given twice, first {places[name]}", "Keep one of them."
                    )
        except SyntaxFault as fault:
            note(faults, fault)
            continue
        at = f"in {line.source}, line {line.line}" if line.source else f"at line {line.line}"
        places |= {entry.name: at, entry.shortcut: at}
        entries.append(entry)
    return Complexes(tuple(entries))


def is_complex(words: list[str]) -> bool:
    """Whether a line is a row of this table."""
    return len(words) == len(COLUMNS) and words[2].upper() in _CHOICES["type"]


def _complex(line: LogicalLine) -> Complex:
    words = line.words()
    if len(words) != len(COLUMNS):
        message = f"a complex has {len(COLUMNS)} columns, and this line has {len(words)} words"
        raise line.fault(0, message, f"Write: {' '.join(COLUMNS)}")
    row = {}
    for column, (offset, word) in zip(COLUMNS, words, strict=True):
        allowed = _CHOICES.get(column)
        cell = allowed.get(word.upper()) if allowed else word
        if cell is None:
            choices = " ".join(dict.fromkeys(_CHOICES[column].values()))
            raise line.fault(offset, f"the column {column} has {word[:40]}", f"It is one of: {choices}.")
        row[column] = cell
    entry = Complex(
        name=row["name"],
        shortcut=row["shortcut"],
        kind=ComplexType(row["type"]),
        relation=RelOp(row["relop"]),
        requestable=Requestable(row["requestable"]),
        consumable=Consumable(row["consumable"]),
        default=row["default"],
        urgency=row["urgency"],
    )
    offsets = {column: offset for column, (offset, _) in zip(COLUMNS, words, strict=True)}
    _check(entry, line, offsets)
    return entry


def _check(entry: Complex, line: LogicalLine, offsets: dict[str, int]) -> None:
    if entry.is_consumable and not is_numeric(entry.kind):
        message = f"{entry.name} is consumable, and {entry.kind} is no number"
        raise line.fault(offsets["consumable"], message, "Write NO, or a type of numbers.")
    if entry.relation is RelOp.EXCL and not (entry.is_consumable and entry.kind is ComplexType.BOOL):
        message = f"{entry.name} has the relation EXCL and is no consumable BOOL"
        raise line.fault(offsets["relop"], message, "Write BOOL EXCL YES YES.")
    for column, kind in (("default", entry.kind), ("urgency", ComplexType.DOUBLE)):
        try:
            read_value(kind, getattr(entry, column))
        except InvalidConfig as fault:
            raise line.fault(offsets[column], fault.message.rstrip("."), fault.hint) from None


def write_complexes(complexes: Complexes) -> str:
    """As `qconf -sc` prints it, without its last comment."""
    rows = [
        (
            entry.name,
            entry.shortcut,
            entry.kind,
            entry.relation,
            entry.requestable,
            entry.consumable,
            entry.default,
            entry.urgency,
        )
        for entry in complexes
    ]
    titles = (f"#{COLUMNS[0]}", *COLUMNS[1:])
    columns = zip(titles, *rows, strict=True)
    widths = [max(len(title) + 1, *(len(cell) + 4 for cell in cells), 0) for title, *cells in columns]
    lines = [_pad(titles, widths), f"#{'-' * (sum(widths) - 1)}"]
    return "".join(f"{line}\n" for line in [*lines, *(_pad(row, widths).rstrip() for row in rows)])


def _pad(cells: Iterable[str], widths: list[int]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


# The complexes that Grid Engine 8.1.9 starts with.
_STOCK_TABLE = """
arch a STRING == YES NO NONE 0
calendar c STRING == YES NO NONE 0
cpu cpu DOUBLE >= YES NO 0 0
display_win_gui dwg BOOL == YES NO 0 0
h_core h_core MEMORY <= YES NO 0 0
h_cpu h_cpu TIME <= YES NO 0:0:0 0
h_data h_data MEMORY <= YES NO 0 0
h_fsize h_fsize MEMORY <= YES NO 0 0
h_rss h_rss MEMORY <= YES NO 0 0
h_rt h_rt TIME <= YES NO 0:0:0 0
h_stack h_stack MEMORY <= YES NO 0 0
h_vmem h_vmem MEMORY <= YES NO 0 0
hostname h HOST == YES NO NONE 0
load_avg la DOUBLE >= NO NO 0 0
load_long ll DOUBLE >= NO NO 0 0
load_medium lm DOUBLE >= NO NO 0 0
load_short ls DOUBLE >= NO NO 0 0
m_core core INT <= YES NO 0 0
m_socket socket INT <= YES NO 0 0
m_thread thread INT <= YES NO 0 0
m_topology topo STRING == YES NO NONE 0
m_topology_inuse utopo STRING == YES NO NONE 0
mem_free mf MEMORY <= YES NO 0 0
mem_total mt MEMORY <= YES NO 0 0
mem_used mu MEMORY >= YES NO 0 0
min_cpu_interval mci TIME <= NO NO 0:0:0 0
np_load_avg nla DOUBLE >= NO NO 0 0
np_load_long nll DOUBLE >= NO NO 0 0
np_load_medium nlm DOUBLE >= NO NO 0 0
np_load_short nls DOUBLE >= NO NO 0 0
num_proc p INT == YES NO 0 0
qname q STRING == YES NO NONE 0
rerun re BOOL == NO NO 0 0
s_core s_core MEMORY <= YES NO 0 0
s_cpu s_cpu TIME <= YES NO 0:0:0 0
s_data s_data MEMORY <= YES NO 0 0
s_fsize s_fsize MEMORY <= YES NO 0 0
s_rss s_rss MEMORY <= YES NO 0 0
s_rt s_rt TIME <= YES NO 0:0:0 0
s_stack s_stack MEMORY <= YES NO 0 0
s_vmem s_vmem MEMORY <= YES NO 0 0
seq_no seq INT == NO NO 0 0
slots s INT <= YES YES 1 1000
swap_free sf MEMORY <= YES NO 0 0
swap_rate sr MEMORY >= YES NO 0 0
swap_rsvd srsv MEMORY >= YES NO 0 0
swap_total st MEMORY <= YES NO 0 0
swap_used su MEMORY >= YES NO 0 0
tmpdir tmp STRING == NO NO NONE 0
virtual_free vf MEMORY <= YES NO 0 0
virtual_total vt MEMORY <= YES NO 0 0
virtual_used vu MEMORY >= YES NO 0 0
"""

STOCK_COMPLEXES: Complexes = read_complexes(_STOCK_TABLE, faults=[])
"""What a site has that changed nothing."""
