r"""Patterns of regular expressions as states, in the grammar of PCRE2, which HTCondor takes. What is not known here is
refused by its name, and so is what one version of PCRE2 reads otherwise than another.

    pattern = branch { "|" branch }        branch = { atom [ times [ ? | + ] ] }        times = * | + | ? | {n} {n,} {n,m}
    atom    = character | . | ^ | $ | [classes] | \escape | ( pattern ) | (?<name> pattern ) | (?flags: pattern ) | (?flags)
            | (?= pattern ) | (?! pattern ) | (?<= pattern ) | (?<! pattern ) | (?> pattern ) | (?# remark )
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NoReturn

from lodesman.languages.classad.characters import CLASSES, CharacterTest, literal
from lodesman.languages.classad.marks import BOUNDS, MarkReader

MOST_STATES: Final = 2_000
_MOST_DEPTH: Final = 32
_RANGES_OF_A_STEP: Final = 4
_WAYS_OF_A_STEP: Final = 2
# Steps that reading takes: of a letter, an atom, what is around others, and of making a state.
_LETTER: Final = 1
_ATOM: Final = 20
_AROUND: Final = 40
_STATE: Final = 4
_PLACES: Final = frozenset("AZzGbB")
_LOOKS: Final = {"?=": (1, False), "?!": (1, True), "?<=": (-1, False), "?<!": (-1, True)}
_NAMED: Final = re.compile(r"\?P?<([A-Za-z_]\w{0,31})>|\?'([A-Za-z_]\w{0,31})'", re.ASCII)
_FLAGS: Final = re.compile(r"\?(\^?)([imsxnU]*)(?:-([imsxnU]*))?([:)])")
_LETTERS: Final = re.compile(r"[0-9A-Za-z_/@,:;=&%~'\"!<>-]{3,}")
"""Characters that only stand for themselves; the last may be repeated."""
_NOT_HERE: Final = {
    "(*": "verbs (*...)", "(?|": "groups that share their numbers (?|...)", "(?(": "conditions (?(...)...)",
    "(?R": "recursion (?R)", "(?&": "recursion (?&name)", "(?P": "recursion and references (?P...)", "(?C": "callouts (?C)",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class InnerPattern:
    """A pattern in a state."""

    starts: tuple[tuple[int, int], ...]  # (where it starts, its length) of each branch.
    way: int  # 1 lookahead, -1 lookbehind, 0 takes what it matches first and nothing else (atomic).
    negated: bool


@dataclass(slots=True, eq=False)
class PatternState:
    """A character, a place, a slot, an inner pattern; else a fork, or the end if nothing follows."""

    test: CharacterTest | None = None  # A character is needed.
    at: str = ""  # A place, by its name in `regexp.PLACES`.
    after: tuple[int, ...] = ()  # The best way first.
    slot: int = -1  # It is noted there where a group begins or ends.
    inner: InnerPattern | None = None  # It must be there.
    steps: int = 0  # Of a test.


@dataclass(slots=True, frozen=True)
class _Piece:
    # Adds its states before the one with this number; returns the number of its first.
    build: Callable[[int], int]
    least: int = 0  # Characters that it takes, like `most`.
    most: int | None = 0
    repeats: bool = True


@dataclass(slots=True, frozen=True)
class _Flags:
    """As PCRE2 calls them."""

    i: bool  # Case does not matter.
    m: bool  # ^ and $ stand at lines.
    s: bool  # A dot takes newlines.
    x: bool  # Blanks do not count.
    n: bool = False  # ( ) take no note.
    U: bool = False  # Repetitions prefer few.


class PatternReader(MarkReader):
    """Reads a pattern into `states`, the first of which is the end; matches begin at `start`."""

    def __init__(self, pattern: str, options: str, *, notes_groups: bool) -> None:
        super().__init__(pattern)
        self._depth = self._repeats = 0
        self._flags = _Flags(*[flag in options for flag in "imsx"])
        self._notes_groups = notes_groups
        self._is_looking = False
        self._names: set[str] = set()
        self.groups = self.ranges = 0
        self.states: list[PatternState] = [PatternState()]
        self.start = 0

    def read(self) -> None:
        """Read all of it. Raises InvalidRequest."""
        self.unquote()
        self.start = self._join_branches(self._alternatives()).build(0)
        if self._at < len(self._pattern):
            self.bad("there is a ) too many")

    def _add(self, state: PatternState) -> int:
        if len(self.states) + self.ranges >= MOST_STATES:
            self.bad("it is too long")
        self.spend(_STATE)
        self.states.append(state)
        return len(self.states) - 1

    def _peek(self) -> str:
        while True:
            character = self._pattern[self._at : self._at + 1]
            if character != "(" and not self._flags.x:
                return character
            self.spend(_LETTER)
            if self.here("(?#"):
                end = self._pattern.find(")", self._at)
                if end < 0:
                    self.bad("a (?# is never closed")
                self._at = end + 1
            elif self._flags.x and character == "#":
                end = self._pattern.find("\n", self._at)
                self._at = end + 1 if end >= 0 else len(self._pattern)
            elif self._flags.x and character and character in " \t\n\r\f\v":
                self._at += 1
            else:
                return character

    # --- branches --------------------------------------------------------------------------------------------

    def _alternatives(self) -> list[_Piece]:
        self.spend(_AROUND)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            self.bad("its parentheses are too deep")
        branches = [self._branch()]
        while self._peek() == "|":
            self._at += 1
            self.spend(_ATOM)
            branches.append(self._branch())
        self._depth -= 1
        return branches

    def _join_branches(self, branches: list[_Piece]) -> _Piece:
        if len(branches) == 1:
            return branches[0]
        longest = [branch.most for branch in branches]

        def build(after: int) -> int:
            # Empty branches are one.
            starts = tuple(dict.fromkeys([branch.build(after) for branch in branches]))
            self.ranges += len(starts) // _WAYS_OF_A_STEP
            return self._add(PatternState(after=starts))

        return _Piece(
            build,
            min(branch.least for branch in branches),
            None if None in longest else max(branch for branch in longest if branch is not None),
        )

    def _branch(self) -> _Piece:
        pieces: list[_Piece] = []
        while (character := self._peek()) and character not in "|)":
            letters = _LETTERS.match(self._pattern, self._at)
            if letters:
                pieces.append(self._letters(letters[0][:-1]))
            elif piece := self._atom():
                pieces.append(self._repeat(piece))

        def build(after: int) -> int:
            for piece in reversed(pieces):
                after = piece.build(after)
            return after

        most = 0
        for piece in pieces:
            if piece.most is None:
                return _Piece(build, sum(character.least for character in pieces), None)
            most += piece.most
        return _Piece(build, sum(character.least for character in pieces), most)

    def _repeat(self, piece: _Piece) -> _Piece:
        bounds = self.bounds(self._peek())
        if bounds is None:
            return piece
        if not piece.repeats:
            self.bad("a repetition repeats a place, not a character")
        self.spend(_AROUND)
        least, most = bounds
        end = self._peek()
        self._at += bool(end) and end in "?+"
        if self.bounds(self._peek()) is not None:
            self.bad("two repetitions follow each other")
        repeated = self._times(piece, least, most, greedy=(end == "?") is self._flags.U)
        return self._atomic([repeated]) if end == "+" else repeated

    def _times(self, piece: _Piece, least: int, most: int | None, *, greedy: bool) -> _Piece:
        def fork(first: int, after: int) -> PatternState:
            return PatternState(after=(first, after) if greedy else (after, first))

        def build(after: int) -> int:
            repeats = max(1, most or least)
            self.spend(repeats * _STATE)
            self._repeats += repeats  # of what is empty, too
            if self._repeats > MOST_STATES:
                self.bad("it repeats too much")
            if most is None:
                loop = self._add(PatternState())
                first = piece.build(loop)
                self.states[loop] = fork(first, after)
                # What took no character is not tried again there, and what it noted counts.
                after = self._add(fork(first, after)) if piece.least == 0 else loop
            else:
                end = after
                for _ in range(most - least):
                    after = self._add(fork(piece.build(after), end))
            for _ in range(least):
                after = piece.build(after)
            return after

        longest = None if most != least or piece.most is None else most * piece.most
        return _Piece(build, least * piece.least, longest)

    # --- atoms -----------------------------------------------------------------------------------------------

    def _atom(self) -> _Piece | None:
        """None: it only sets flags."""
        self.spend(_ATOM)
        if self.here("[[:<:]]") or self.here("[[:>:]]"):
            self._at += 7
            return self._place(self._pattern[self._at - 4])
        character = self.next()
        match character:
            case "(":
                return self._group()
            case "[":
                test, ranges = self.read_set(fold=self._flags.i)
                return self._character(test, ranges // _RANGES_OF_A_STEP)
            case "^":
                return self._place("^" if self._flags.m else "A")
            case "$":
                return self._place("$" if self._flags.m else "Z")
            case ".":
                return self._character(CLASSES["."] if self._flags.s else CLASSES["N"])
            case "\\":
                return self._read_escape()
            case _:
                if character in "*+?" or BOUNDS.match(self._pattern, self._at - 1):
                    self.bad(f"{character} repeats nothing")
                return self._character(literal(character, fold=self._flags.i))

    def _letters(self, letters: str) -> _Piece:
        self.spend(len(letters) * _LETTER)
        self._at += len(letters)
        tests = [literal(letter, fold=self._flags.i) for letter in reversed(letters)]

        def build(after: int) -> int:
            for test in tests:
                after = self._add(PatternState(test=test, after=(after,)))
            return after

        return _Piece(build, len(letters), len(letters))

    def _character(self, test: CharacterTest, ranges: int = 0) -> _Piece:
        def build(after: int) -> int:
            self.ranges += ranges
            return self._add(PatternState(test=test, after=(after,), steps=ranges))

        return _Piece(build, 1, 1)

    def _place(self, name: str) -> _Piece:
        return _Piece(lambda after: self._add(PatternState(at=name, after=(after,))), repeats=False)

    def _read_escape(self) -> _Piece:
        character = self._pattern[self._at : self._at + 1]
        if character and character in _PLACES:
            self._at += 1
            return self._place(character)
        if character == "N" and self.here("N{") and not BOUNDS.match(self._pattern, self._at + 1):
            self.bad("\\N{...} is not known")
        if character == "K":
            self._at += 1
            if self._is_looking:
                self.bad("\\K stands in a lookahead or lookbehind")
            return replace(self._note_group(0), repeats=False)
        if character == "R":
            self._at += 1
            both = [self._character(literal(mark, fold=False)) for mark in "\r\n"]
            pair = _Piece(lambda after: both[0].build(both[1].build(after)), 2, 2)
            return self._atomic([pair, self._character(CLASSES["v"])])
        test = self.escape()
        return self._character(literal(test, fold=self._flags.i) if isinstance(test, str) else test)

    # --- groups ----------------------------------------------------------------------------------------------

    def _group(self) -> _Piece | None:
        before, around = self._flags, self._is_looking
        take = self._kind_of_group()
        if take is None:
            return None
        branches = self._alternatives()
        if self._peek() != ")":
            self.bad("a ( is never closed")
        self._at += 1
        self._flags, self._is_looking = before, around
        return take(branches)

    def _kind_of_group(self) -> Callable[[list[_Piece]], _Piece] | None:
        """What becomes of its branches; None: it only sets flags until the group around it ends."""
        if not self.here("?") and not self.here("*"):
            return self._join_branches if self._flags.n else self._numbered()
        for mark, (way, negated) in _LOOKS.items():
            if self.here(mark):
                self._at += len(mark)
                self._is_looking = True
                return partial(self._look, way, negated)
        if self.here("?>"):
            self._at += 2
            return self._atomic
        named = _NAMED.match(self._pattern, self._at)
        if named:
            self._at = named.end()
            name = named[1] or named[2]
            if name in self._names:
                self.bad(f"two groups have the name {name}")
            self._names.add(name)
            return self._numbered()
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is None or "xx" in flags[0]:
            return self._unknown_group()
        self._at = flags.end()
        self._set_flags(*flags.groups())
        return self._join_branches if flags[4] == ":" else None

    def _unknown_group(self) -> NoReturn:
        mark = self._pattern[self._at - 1 : self._at + 2]
        feature = _NOT_HERE.get(mark[:2]) or _NOT_HERE.get(mark)
        if feature:
            self.lacks(feature)
        self.lacks(
            "recursion (?1)"
            if mark[2:].isdigit() or mark[2:] in {"+", "-"}
            else f"groups that begin with {mark}"
        )

    def _set_flags(self, clean: str, on: str, off: str | None, _: str) -> None:
        if clean:
            self._flags = _Flags(i=False, m=False, s=False, x=False, U=self._flags.U)
        self.spend(_ATOM)
        changes = dict.fromkeys(on, True) | dict.fromkeys(off or "", False)
        self._flags = replace(self._flags, **changes)

    def _numbered(self) -> Callable[[list[_Piece]], _Piece]:
        self.groups += 1
        first = 2 * self.groups

        def take(branches: list[_Piece]) -> _Piece:
            inner = self._join_branches(branches)
            begin, end = self._note_group(first), self._note_group(first + 1)
            return replace(inner, build=lambda after: begin.build(inner.build(end.build(after))))

        return take

    def _note_group(self, slot: int) -> _Piece:
        if not self._notes_groups:
            return _Piece(lambda after: after)
        return _Piece(lambda after: self._add(PatternState(slot=slot, after=(after,))))

    def _atomic(self, branches: list[_Piece]) -> _Piece:
        self.spend(_AROUND)
        inner = self._join_branches(branches)

        def build(after: int) -> int:
            atomic = InnerPattern(((inner.build(0), 0),), 0, negated=False)
            return self._add(PatternState(inner=atomic, after=(after,)))

        return replace(inner, build=build)

    def _look(self, way: int, negated: bool, branches: list[_Piece]) -> _Piece:
        if way > 0:
            branches = [self._join_branches(branches)]
        elif any(branch.least != branch.most for branch in branches):
            self.bad("a lookbehind needs branches of one length each")

        def build(after: int) -> int:
            starts = tuple([(branch.build(0), branch.least) for branch in branches])
            return self._add(PatternState(inner=InnerPattern(starts, way, negated), after=(after,)))

        return _Piece(build)
