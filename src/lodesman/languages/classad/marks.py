r"""The smallest parts of regular expressions: `\escape`, and the members of `[classes]`."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from lodesman.base.errors import InvalidRequest
from lodesman.languages.classad.characters import CLASSES, POSIX, CharacterTest, either_case
from lodesman.languages.classad.tokens import MOST_SHOWN

MOST_REPEATS: Final = 255
BOUNDS: Final = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_UNSURE: Final = re.compile(r"\{[ \t]*(?:[0-9]+[ \t]*(?:,[ \t]*[0-9]*[ \t]*)?|,[ \t]*[0-9]+[ \t]*)\}")
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "e": "\x1b", "a": "\a"}
_CODE: Final = re.compile(
    r"x\{(?P<wide>[0-9A-Fa-f]{1,6})\}|x(?!\{)(?P<hex>[0-9A-Fa-f]{0,2})|o\{(?P<octal>[0-7]{1,7})\}|(?P<plain>0[0-7]{0,2}|[1-3][0-7]{2})"
)
_CODE_IN_SET: Final = re.compile(r"(?P<plain>[0-7]{1,3})")
_NAMED_SET: Final = re.compile(r"\[([:.=])([^\]\\]*?)\1\]")
_LETTERS_NOT_HERE: Final = {
    "p": "properties \\p{...}", "P": "properties \\P{...}", "X": "characters of several codes \\X", "C": "single bytes \\C",
    "k": "references to groups \\k", "g": "references to groups \\g",
}  # fmt: skip
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_PLAIN: Final = re.compile(r"[^0-9A-Za-z_]")
# Steps of an evaluation.
MOST_WORK: Final = 30_000
_TO_READ_A_MEMBER: Final = 20


class MarkReader:
    """A pattern that is being read; `work` is what that took, in steps of an evaluation. Raises InvalidRequest."""

    def __init__(self, pattern: str) -> None:
        self._text = self._pattern = pattern
        self._at = self.work = 0

    def unquote(self) -> None:
        r"""Put a backslash before each mark between \Q and \E, before the first is read."""
        self.spend(len(self._text))
        if "\\" in self._text:
            self._pattern = _QUOTED.sub(_unquoted, self._text)

    def spend(self, steps: int) -> None:
        """Pay for steps before they are made."""
        self.work += steps
        if self.work > MOST_WORK:
            self.bad("it is too long")

    def bad(self, why: str) -> NoReturn:
        """Refuse the pattern."""
        text = self._text if len(self._text) <= MOST_SHOWN else f"{self._text[:MOST_SHOWN]}..."
        raise InvalidRequest(f"The regular expression {text!r} cannot be read: {why}.", hint="")

    def lacks(self, what: str) -> NoReturn:
        """Refuse the pattern for what is not known here."""
        self.bad(f"{what} are not known here")

    def here(self, mark: str) -> bool:
        """Whether the mark comes next."""
        return self._pattern.startswith(mark, self._at)

    def next(self) -> str:
        """The next character, "" at the end."""
        one = self._pattern[self._at : self._at + 1]
        self._at += 1
        return one

    # --- escapes ---------------------------------------------------------------------------------------------

    def escape(self, *, in_set: bool = False) -> str | CharacterTest:
        """The character, or its test, after a backslash."""
        code = _CODE.match(self._pattern, self._at)
        code = code or (_CODE_IN_SET.match(self._pattern, self._at) if in_set else None)
        if code:
            self._at = code.end()
            return self._coded(code)
        one = self.next()
        if not one:
            self.bad("it ends in a backslash")
        if one == "b" and in_set:
            return "\b"
        if one in CLASSES and one != "." and not (in_set and one == "N"):
            return CLASSES[one]
        if one in _LETTERS:
            return _LETTERS[one]
        if one == "c" and " " <= self._pattern[self._at : self._at + 1] <= "~":
            return chr(ord(self.next().upper()) ^ 64)
        return self._plain(one)

    def _plain(self, one: str) -> str:
        if one in _LETTERS_NOT_HERE:
            self.lacks(_LETTERS_NOT_HERE[one])
        if one.isascii() and one.isdigit():
            self.lacks(f"references to groups \\{one}")
        if one.isascii() and one.isalnum():
            self.bad(f"\\{one} is not known")
        return one

    def _coded(self, code: re.Match[str]) -> str:
        kind = code.lastgroup or ""
        value = int(code[kind] or "0", 16 if kind in {"wide", "hex"} else 8)
        if value > 0x7F:
            self.bad(f"\\{code[0]} is beyond ASCII: write the character itself")
        return chr(value)

    # --- repetitions -----------------------------------------------------------------------------------------

    def bounds(self, one: str) -> tuple[int, int | None] | None:
        """How often, if a repetition begins with the next character."""
        if one and one in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
        found = BOUNDS.match(self._pattern, self._at) if one == "{" else None
        if found is None:
            unsure = _UNSURE.match(self._pattern, self._at) if one == "{" else None
            if unsure:
                self.bad(
                    f"{unsure[0]} is a repetition in PCRE2 10.43 and no repetition before it: write {{0,n}} or \\{{"
                )
            return None
        self._at = found.end()
        first, comma, last = found.groups()
        if len(first) > 5 or len(last) > 5:
            self.bad(f"{found[0]} is no number of repetitions")
        least = int(first)
        most = (int(last) if last else None) if comma else least
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            self.bad(f"{found[0]} is no number of repetitions: from few to many, at most {MOST_REPEATS}")
        return least, most

    # --- sets ------------------------------------------------------------------------------------------------

    def read_set(self, *, fold: bool) -> tuple[CharacterTest, int]:
        """What passes a set, after its [, and how many ranges and classes are in it."""
        if _NAMED_SET.match(self._pattern, self._at - 1):
            self.bad("[:name:] stands only within brackets: [[:name:]]")
        negated = self.here("^")
        self._at += negated
        singles: set[str] = set()
        tests: list[CharacterTest] = []
        first = True
        while first or not self.here("]"):
            first = False
            self._member(singles, tests, fold=fold)
        self._at += 1

        def within(mark: str) -> bool:
            return mark in singles or any(test(mark) for test in tests)

        test = either_case(within) if fold else within
        return (lambda mark: not test(mark)) if negated else test, len(tests)

    def _member(self, singles: set[str], tests: list[CharacterTest], *, fold: bool) -> None:
        self.spend(_TO_READ_A_MEMBER)
        one = self._item(fold=fold)
        if not self.here("-") or self.here("-]") or self._at + 1 >= len(self._pattern):
            if isinstance(one, str):
                singles.add(one)
            else:
                tests.append(one)
            return
        self._at += 1
        last = self._item(fold=fold)
        if not isinstance(one, str) or not isinstance(last, str):
            self.bad("a class of characters begins or ends a range; a plain - is written \\-")
        if last < one:
            self.bad(f"{one}-{last} runs backwards")
        tests.append(lambda mark: one <= mark <= last)

    def _item(self, *, fold: bool) -> str | CharacterTest:
        found = _NAMED_SET.match(self._pattern, self._at)
        if found:
            self._at = found.end()
            name = found[2].removeprefix("^")
            if fold and name in {"upper", "lower"}:
                name = "alpha"
            if found[1] != ":" or name not in POSIX:
                self.bad(f"there is no class {found[0]}")
            test = POSIX[name]
            return (lambda mark: not test(mark)) if found[2].startswith("^") else test
        one = self.next()
        if not one:
            self.bad("a [ is never closed")
        return self.escape(in_set=True) if one == "\\" else one


def _unquoted(found: re.Match[str]) -> str:
    if found[1] is not None:
        return _PLAIN.sub(lambda mark: f"\\{mark[0]}", found[1])
    return "" if found[0] == "\\E" else found[0]
