r"""Regular expressions that cannot take long: all alternatives are followed at once, so the work is text times pattern.
Steps that were made before are remembered: the texts of a thousand queues have most of them in common.

    pattern = branch { "|" branch }        branch = { atom [ * | + | ? | {n} | {n,} | {n,m} ] }
    atom    = character | . | ^ | $ | [classes] | ( pattern ) | (?: pattern ) | \d \w \s \D \W \S | \character

That is what Perl's, which HTCondor takes, and these have in common but for looking around, references and word borders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lodesman.classad.values import lower
from lodesman.errors import InvalidRequest

MOST_STATES: Final = 2_000
MOST_REPEATS: Final = 255
_MOST_DEPTH: Final = 32
_RANGES_OF_A_STEP: Final = 4
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    "d": lambda one: one.isascii() and one.isdigit(),
    "w": lambda one: one == "_" or (one.isascii() and one.isalnum()),
    "s": lambda one: one in " \t\n\r\f\v",
}
_Test = Callable[[str], bool]
_BITS: Final = {"^": 1, "$": 2}
_Now = frozenset[int]
"""The states where matches may be that have begun."""
_NOWHERE: Final[_Now] = frozenset()
# What a pattern remembers: steps, and states in all.
_MOST_STEPS: Final = 512
_MOST_KEPT: Final = 4_096


@dataclass(slots=True, eq=False)
class _State:
    """`test`: a character is needed; `at`: ^ or $; else a fork, or the end if nothing follows."""

    test: _Test | None = None
    at: str = ""
    after: tuple[int, ...] = ()


_Piece = Callable[[int], int]
"""Adds its states before the one that follows, whose number it is given; answers the number of its first."""


class Regexp:
    """A pattern that was read; `read_regexp` makes it."""

    def __init__(self, pattern: str, options: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._fold = "i" in options
        self._lines = "m" in options
        self._dot_takes_all = "s" in options
        self._skips_blanks = "x" in options
        self._repeats = 0
        self._ranges = 0
        self._states: list[_State] = [_State()]
        self._start = self._alternatives()(0)
        self._asks_where = any(state.at for state in self._states)
        self._steps: dict[tuple[_Now, str, int], _Now] = {}
        self._nows: dict[_Now, _Now] = {}
        self._kept = 0
        if self._at < len(pattern):
            raise self._bad("there is a ) too many")

    @property
    def size(self) -> int:
        """The steps that a character of a text may cost: the states, and long lists of ranges in brackets."""
        return len(self._states) + self._ranges

    # --- matching --------------------------------------------------------------------------------------------

    def is_found(self, text: str) -> bool:
        """Whether it matches somewhere in the text. It takes at most `size` steps for each of its characters."""
        if self._fold:
            text = lower(text)
        where, asks = self._where, self._asks_where
        now, steps = self._step(_NOWHERE, "", where(text, 0)), self._steps
        for at, one in enumerate(text, start=1):
            if 0 in now:
                return True
            here = where(text, at) if asks else 0
            after = steps.get((now, one, here))
            now = self._remember(now, one, here) if after is None else after
        return 0 in now

    def _remember(self, now: _Now, one: str, where: int) -> _Now:
        """One step, which is the same in all texts: what is known of them is forgotten before it is too much."""
        found = self._step(now, one, where)
        known = self._nows.get(found)
        if known is None:
            self._kept += len(found)
        if len(self._steps) >= _MOST_STEPS or self._kept > _MOST_KEPT:
            self._steps.clear()
            self._nows.clear()
            known, self._kept = None, len(found)
        if known is None:
            known = self._nows[found] = found
        self._steps[now, one, where] = known
        return known

    def _step(self, now: _Now, one: str, where: int) -> _Now:
        """The states after a character; a match may also begin there."""
        found: set[int] = set()
        for number in now:
            state = self._states[number]
            if state.test is not None and state.test(one):
                self._reach(state.after[0], where, found)
        self._reach(self._start, where, found)
        return frozenset(found)

    def _reach(self, number: int, where: int, found: set[int]) -> None:
        todo = [number]
        while todo:
            number = todo.pop()
            if number in found:
                continue
            state = self._states[number]
            if state.at and not where & _BITS[state.at]:
                continue
            found.add(number)
            if state.test is None:
                todo.extend(state.after)

    def _where(self, text: str, at: int) -> int:
        """Which of ^ and $ hold there."""
        begins = at == 0 or (self._lines and text[at - 1] == "\n")
        last = len(text) - 1
        ends = at > last or (text[at] == "\n" and (self._lines or at == last))
        return begins * _BITS["^"] | ends * _BITS["$"]

    # --- reading ---------------------------------------------------------------------------------------------

    def _bad(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"The regular expression {self._pattern!r} cannot be read: {why}.", hint="")

    def _add(self, state: _State) -> int:
        if self.size >= MOST_STATES:
            raise self._bad("it is too long")
        self._states.append(state)
        return len(self._states) - 1

    def _peek(self) -> str:
        while self._skips_blanks and self._pattern[self._at : self._at + 1].isspace():
            self._at += 1
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        one = self._peek()
        self._at += 1
        return one

    def _alternatives(self) -> _Piece:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._bad("its parentheses are too deep")
        branches = [self._branch()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._branch())
        self._depth -= 1
        if len(branches) == 1:
            return branches[0]
        return lambda after: self._add(_State(after=tuple([branch(after) for branch in branches])))

    def _branch(self) -> _Piece:
        pieces: list[_Piece] = []
        while (one := self._peek()) and one not in "|)":
            pieces.append(self._repeated(self._atom()))

        def branch(after: int) -> int:
            for piece in reversed(pieces):
                after = piece(after)
            return after

        return branch

    def _repeated(self, piece: _Piece) -> _Piece:
        one = self._peek()
        if not one or one not in "*+?{":
            return piece
        least, most = self._bounds()
        if self._peek() == "?":
            self._at += 1  # whether it prefers few or many changes no answer
        if self._peek() and self._peek() in "*+?":
            raise self._bad("two repetitions follow each other")

        def repeated(after: int) -> int:
            self._repeats += max(1, most or least)  # of what is empty, too
            if self._repeats > MOST_STATES:
                raise self._bad("it repeats too much")
            if most is None:
                loop = self._add(_State())
                self._states[loop].after = (piece(loop), after)
                after = loop
            else:
                end = after
                for _ in range(most - least):
                    after = self._add(_State(after=(piece(after), end)))
            for _ in range(least):
                after = piece(after)
            return after

        return repeated

    def _bounds(self) -> tuple[int, int | None]:
        one = self._take()
        if one != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
        end = self._pattern.find("}", self._at)
        first, comma, last = self._pattern[self._at : end].partition(",")
        digits = [part for part in (first, last) if part]
        if (
            end < 0
            or not first
            or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in digits)
        ):
            raise self._bad("{ begins no repetition; a plain one is written \\{")
        self._at = end + 1
        least = int(first)
        most = (int(last) if last else None) if comma else least
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise self._bad(f"{{{first}{comma}{last}}} is no number of repetitions")
        return least, most

    def _atom(self) -> _Piece:
        one = self._take()
        match one:
            case "(":
                return self._group()
            case "[":
                return self._character(*self._set())
            case "^" | "$":
                return lambda after: self._add(_State(at=one, after=(after,)))
            case ".":
                return self._character(
                    (lambda _: True) if self._dot_takes_all else (lambda mark: mark != "\n")
                )
            case "*" | "+" | "?" | "{":
                raise self._bad(f"{one} repeats nothing")
            case "\\":
                return self._character(self._escape())
            case _:
                plain = lower(one) if self._fold else one
                return self._character(lambda mark: mark == plain)

    def _character(self, test: _Test, ranges: int = 0) -> _Piece:
        def character(after: int) -> int:
            self._ranges += ranges
            return self._add(_State(test=test, after=(after,)))

        return character

    def _group(self) -> _Piece:
        if self._pattern.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._bad("of groups with ? only (?: is known")
        piece = self._alternatives()
        if self._take() != ")":
            raise self._bad("a ( is never closed")
        return piece

    def _escape(self) -> _Test:
        one = self._pattern[self._at : self._at + 1]
        self._at += 1
        if not one:
            raise self._bad("it ends in a backslash")
        if lower(one) in _CLASSES and one.isascii():
            holds = _CLASSES[lower(one)]
            return holds if one.islower() else lambda mark: not holds(mark)
        if one.isalnum() and one not in _LETTERS:
            raise self._bad(f"\\{one} is not known")
        plain = _LETTERS.get(one, one)
        return lambda mark: mark == plain

    def _set(self) -> tuple[_Test, int]:
        """With the steps that its ranges cost."""
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        singles: set[str] = set()
        tests: list[_Test] = []
        first = True
        while first or not self._pattern.startswith("]", self._at):
            first = False
            self._set_member(singles, tests)
        self._at += 1
        if self._fold:
            singles = {lower(mark) for mark in singles}

        def within(mark: str) -> bool:
            return (mark in singles or any(test(mark) for test in tests)) is not negated

        return within, len(tests) // _RANGES_OF_A_STEP

    def _set_member(self, singles: set[str], tests: list[_Test]) -> None:
        one = self._pattern[self._at : self._at + 1]
        self._at += 1
        if not one:
            raise self._bad("a [ is never closed")
        if one == "\\":
            tests.append(self._escape())
            return
        last = self._pattern[self._at + 1 : self._at + 2]
        if self._pattern.startswith("-", self._at) and last and last not in "]\\":
            self._at += 2
            if last < one:
                raise self._bad(f"{one}-{last} runs backwards")
            low, high = (
                (lower(one), lower(last)) if self._fold and one.isalpha() and last.isalpha() else (one, last)
            )
            tests.append(lambda mark: low <= mark <= high)
        else:
            singles.add(one)


def read_regexp(pattern: str, options: str = "") -> Regexp:
    """Read a pattern. Raises InvalidRequest.

    `options`: i case does not matter, m ^ and $ stand at lines, s . takes newlines, x blanks do not count.
    """
    return Regexp(pattern, options)
