"""Regular expressions that cannot take long: all alternatives are followed at once, so the work is text times pattern.

Steps are remembered: a thousand queues' texts have most in common. Where the order of alternatives matters (groups are
asked for, a pattern has lookaround or is atomic), they are tried in order, none twice at one place; each try is a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from lodesman.base.errors import InvalidRequest
from lodesman.languages.classad.ads import Run
from lodesman.languages.classad.characters import is_word
from lodesman.languages.classad.patterns import InnerPattern, PatternReader, PatternState

# Steps of a search in order: to begin it, of a state that is tried, of what it looks at around, and slots of one.
_SEARCH: Final = 20
_TRY: Final = 6
_LOOK: Final = 12
_SLOTS: Final = 16
_Now = frozenset[int]
"""The states where matches may be that have begun."""
_NOWHERE: Final[_Now] = frozenset()
# What a pattern remembers: steps, and states in all.
_MOST_STEPS: Final = 512
_MOST_KEPT: Final = 4_096
Slots = tuple[int, ...]
"""Ends of the match and its groups, -1 for a group that took no part."""


def _begins_word(text: str, at: int) -> bool:
    return is_word(text[at : at + 1]) and not is_word(text[max(0, at - 1) : at])


def _ends_word(text: str, at: int) -> bool:
    return is_word(text[max(0, at - 1) : at]) and not is_word(text[at : at + 1])


PLACES: Final[Mapping[str, Callable[[str, int], bool]]] = {
    "A": lambda _, at: at == 0,
    "G": lambda _, at: at == 0,
    "z": lambda text, at: at == len(text),
    "Z": lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n"),
    "^": lambda text, at: at == 0 or (at < len(text) and text[at - 1] == "\n"),
    "$": lambda text, at: at == len(text) or text[at] == "\n",
    "<": _begins_word,
    ">": _ends_word,
    "b": lambda text, at: _begins_word(text, at) or _ends_word(text, at),
    "B": lambda text, at: not _begins_word(text, at) and not _ends_word(text, at),
}
"""Places that take no character: as escapes name them; ^ and $ of lines, < and > of words."""
_BITS: Final = {name: 1 << at for at, name in enumerate(PLACES)}


class Regexp:
    """A pattern that was read; `read_regexp` makes it."""

    def __init__(self, reader: PatternReader) -> None:
        self._states = reader.states
        self._start = reader.start
        self._ranges = reader.ranges
        self.groups = reader.groups
        self._places = sorted({state.at for state in self._states if state.at})
        self._looks = any(state.inner is not None for state in self._states)
        self._steps: dict[tuple[_Now, str, int], _Now] = {}
        self._nows: dict[_Now, _Now] = {}
        self._kept = 0

    @property
    def size(self) -> int:
        """The most steps for a character: the states, and long lists of ranges in brackets."""
        return len(self._states) + self._ranges

    @property
    def spends(self) -> bool:
        """Whether `is_found` spends its steps itself."""
        return self._looks

    # --- whether it is there -----------------------------------------------------------------------------------

    def is_found(self, text: str, run: Run | None = None) -> bool:
        """Whether it matches somewhere. Raises TooDear.

        It takes at most `size` steps for each character; one with lookaround spends its steps itself.
        """
        if self._looks:
            return self.search(text, run or Run()) is not None
        where, asks = self._where, bool(self._places)
        now, steps = self._step(_NOWHERE, "", where(text, 0)), self._steps
        for at, character in enumerate(text, start=1):
            if 0 in now:
                return True
            here = where(text, at) if asks else 0
            after = steps.get((now, character, here))
            now = self._remember(now, character, here) if after is None else after
        return 0 in now

    def _remember(self, now: _Now, character: str, where: int) -> _Now:
        """Remember a step, the same in all texts; forget all before it is too much."""
        after = self._step(now, character, where)
        remembered = self._nows.get(after)
        if remembered is None:
            self._kept += len(after)
        if len(self._steps) >= _MOST_STEPS or self._kept > _MOST_KEPT:
            self._steps.clear()
            self._nows.clear()
            remembered, self._kept = None, len(after)
        if remembered is None:
            remembered = self._nows[after] = after
        self._steps[now, character, where] = remembered
        return remembered

    def _step(self, now: _Now, character: str, where: int) -> _Now:
        """The states after a character; a match may also begin there."""
        states: set[int] = set()
        for number in now:
            state = self._states[number]
            if state.test is not None and state.test(character):
                self._reach(state.after[0], where, states)
        self._reach(self._start, where, states)
        return frozenset(states)

    def _reach(self, number: int, where: int, states: set[int]) -> None:
        todo = [number]
        while todo:
            number = todo.pop()
            if number in states:
                continue
            state = self._states[number]
            if state.at and not where & _BITS[state.at]:
                continue
            states.add(number)
            if state.test is None:
                todo.extend(state.after)

    def _where(self, text: str, at: int) -> int:
        return sum([_BITS[name] for name in self._places if PLACES[name](text, at)])

    # --- where it is -------------------------------------------------------------------------------------------

    def search(self, text: str, run: Run, start: int = 0, *, here: bool = False) -> Slots | None:
        """The first match from `start`. Raises TooDear.

        `here`: only one that begins there and is not empty.
        """
        walk = _Walk(self._states, text, start, run)
        none = (-1,) * (2 * self.groups + 2)
        run.spend(_SEARCH)
        for at in (start,) if here else range(start, len(text) + 1):
            run.spend(_TRY + len(none) // _SLOTS)
            match = walk.match(self._start, at, (at, *none[1:]), at if here else -1)
            if match is not None:
                return (match[1][0], match[0], *match[1][2:])
        return None


class _Walk:
    """The states on their way through one text. `seen`: where no match is."""

    def __init__(self, states: list[PatternState], text: str, start: int, run: Run) -> None:
        self._states, self._text, self._start, self._run = states, text, start, run
        self._seen: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], tuple[int, Slots] | None] = {}

    def match(self, number: int, at: int, slots: Slots, empty: int = -1) -> tuple[int, Slots] | None:
        """The end of the best match from there, with its slots; `empty`: where it must not end."""
        todo, seen, run = [(number, at, slots)], self._seen, self._run
        while todo:
            number, at, slots = todo.pop()
            if (number, at) in seen:
                continue
            seen.add((number, at))
            run.spend(_TRY + self._states[number].steps)
            if number == 0:
                if at == empty:
                    seen.discard((number, at))
                    continue
                return at, slots
            todo += reversed(self._after(self._states[number], at, slots))
        return None

    def _after(self, state: PatternState, at: int, slots: Slots) -> list[tuple[int, int, Slots]]:
        if state.test is not None:
            if at < len(self._text) and state.test(self._text[at]):
                return [(state.after[0], at + 1, slots)]
            return []
        if state.at and not self._is_place(state.at, at):
            return []
        if state.slot >= 0:
            self._run.spend(len(slots) // _SLOTS)
            slots = (*slots[: state.slot], at, *slots[state.slot + 1 :])
        if state.inner is not None:
            return self._inside(state.inner, state.after[0], at, slots)
        return [(number, at, slots) for number in state.after]

    def _is_place(self, name: str, at: int) -> bool:
        return at == self._start if name == "G" else PLACES[name](self._text, at)

    def _inside(self, inner: InnerPattern, after: int, at: int, slots: Slots) -> list[tuple[int, int, Slots]]:
        match = None
        for start, length in inner.starts:
            self._run.spend(_TRY)
            begin = at - length if inner.way < 0 else at
            match = self._alone(start, begin, slots) if begin >= 0 else None
            if match is not None:
                break
        if (match is None) is not inner.negated:
            return []
        if match is None:
            return [(after, at, slots)]
        self._run.spend(len(slots) // _SLOTS)
        noted = tuple([new if new >= 0 else old for new, old in zip(match[1], slots, strict=True)])
        return [(after, match[0] if inner.way == 0 else at, noted)]

    def _alone(self, start: int, at: int, slots: Slots) -> tuple[int, Slots] | None:
        """Lookaround has its own tries."""
        if (start, at) not in self._known:
            self._run.spend(_LOOK + len(slots) // _SLOTS)
            outside, self._seen = self._seen, set()
            self._known[start, at] = self.match(start, at, (-1,) * len(slots))
            self._seen = outside
        return self._known[start, at]


class PatternReading(NamedTuple):
    """What reading a pattern gave."""

    regexp: Regexp | None
    mistake: str  # Why there is no regexp.
    steps: int  # What it takes to read it.


@lru_cache(maxsize=256)
def reading_of(pattern: str, options: str = "", *, notes_groups: bool = False) -> PatternReading:
    """`notes_groups`: `search` says where its groups are.

    `options`: i case does not matter, m ^ and $ stand at lines, s . takes newlines, x blanks do not count.
    """
    reader = PatternReader(pattern, options, notes_groups=notes_groups)
    try:
        reader.read()
    except InvalidRequest as wrong:
        return PatternReading(None, wrong.message, reader.work)
    return PatternReading(Regexp(reader), "", reader.work)


def read_regexp(pattern: str, options: str = "") -> Regexp:
    """As `reading_of` does. Raises InvalidRequest."""
    reading = reading_of(pattern, options)
    if reading.regexp is None:
        raise InvalidRequest(reading.mistake, hint="")
    return reading.regexp
