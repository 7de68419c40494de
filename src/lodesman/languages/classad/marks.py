r"""Parts of regular expressions: `\escape`, and the members of `[classes]`."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from lodesman.base.errors import InvalidRequest
from lodesman.languages.classad.characters import CLASSES, POSIX, CharacterTest, either_case
from lodesman.languages.classad.tokens import MOST_SHOWN

_MOST_REPEATS: Final = 255
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
_MOST_WORK: Final = 30_000
_TO_READ_A_MEMBER: Final = 20


class MarkReader:
    """A pattern being read; `work`: its cost in steps. Raises InvalidRequest."""

    def __init__(self, pattern: str) -> None:
        self._text = self._pattern = pattern
        self._at = self.work = 0

    def unquote(self) -> None:
        r"""Put a backslash before each mark between \Q and \E, before the first is read."""
        self.spend(len(self._text))
        if "\\" in self._text:
            self._pattern = _QUOTED.sub(_unquote, self._text)

    def spend(self, steps: int) -> None:
        """Pay before steps are made."""
        self.work += steps
        if self.work > _MOST_WORK:
            self.bad("it is too long")

    def bad(self, why: str) -> NoReturn:
        """Refuse the pattern."""
        text = self._text if len(self._text) <= MOST_SHOWN else f"{self._text[:MOST_SHOWN]}..."
        raise InvalidRequest(f"The regular expression {text!r} cannot be read: {why}.", hint="")

    def lacks(self, feature: str) -> NoReturn:
        """Refuse a pattern for an unknown part."""
        self.bad(f"{feature} are not known here")

    def here(self, mark: str) -> bool:
        """Whether the mark comes next."""
        return self._pattern.startswith(mark, self._at)

    def next(self) -> str:
        """The next character, "" at the end."""
        character = self._pattern[self._at : self._at + 1]
        self._at += 1
        return character

    # --- escapes ---------------------------------------------------------------------------------------------

    def escape(self, *, in_set: bool = False) -> str | CharacterTest:
        """The character, or its test, after a backslash."""
        code = _CODE.match(self._pattern, self._at)
        code = code or (_CODE_IN_SET.match(self._pattern, self._at) if in_set else None)
        if code:
            self._at = code.end()
            return self._read_code(code)
        character = self.next()
        if not character:
            self.bad("it ends in a backslash")
        if character == "b" and in_set:
            return "\b"
        if character in CLASSES and character != "." and not (in_set and character == "N"):
            return CLASSES[character]
        if character in _LETTERS:
            return _LETTERS[character]
        if character == "c" and " " <= self._pattern[self._at : self._at + 1] <= "~":
            return chr(ord(self.next().upper()) ^ 64)
        return self._plain(character)

    def _plain(self, character: str) -> str:
        if character in _LETTERS_NOT_HERE:
            self.lacks(_LETTERS_NOT_HERE[character])
        if character.isascii() and character.isdigit():
            self.lacks(f"references to groups \\{character}")
        if character.isascii() and character.isalnum():
            self.bad(f"\\{character} is not known")
        return character

    def _read_code(self, code: re.Match[str]) -> str:
        kind = code.lastgroup or ""
        value = int(code[kind] or "0", 16 if kind in {"wide", "hex"} else 8)
        if value > 0x7F:
            self.bad(f"\\{code[0]} is beyond ASCII: write the character itself")
        return chr(value)

    # --- repetitions -----------------------------------------------------------------------------------------

    def bounds(self, character: str) -> tuple[int, int | None] | None:
        """How often, if the next character begins a repetition."""
        if character and character in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        match = BOUNDS.match(self._pattern, self._at) if character == "{" else None
        if match is None:
            unsure = _UNSURE.match(self._pattern, self._at) if character == "{" else None
            if unsure:
                self.bad(
                    f"{unsure[0]} is a repetition in PCRE2 10.43 and no repetition before it: write {{0,n}} or \\{{"
                )
            return None
        self._at = match.end()
        first, comma, last = match.groups()
        if len(first) > 5 or len(last) > 5:
            self.bad(f"{match[0]} is no number of repetitions")
        least = int(first)
        most = (int(last) if last else None) if comma else least
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            self.bad(f"{match[0]} is no number of repetitions: from few to many, at most {_MOST_REPEATS}")
        return least, most

    # --- sets ------------------------------------------------------------------------------------------------

    def read_set(self, *, fold: bool) -> tuple[CharacterTest, int]:
        """The test of a set, after its [, and the number of its ranges and classes."""
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
        item = self._item(fold=fold)
        if not self.here("-") or self.here("-]") or self._at + 1 >= len(self._pattern):
            if isinstance(item, str):
                singles.add(item)
            else:
                tests.append(item)
            return
        self._at += 1
        last = self._item(fold=fold)
        if not isinstance(item, str) or not isinstance(last, str):
            self.bad("a class of characters begins or ends a range; a plain - is written \\-")
        if last < item:
            self.bad(f"{item}-{last} runs backwards")
        tests.append(lambda mark: item <= mark <= last)

    def _item(self, *, fold: bool) -> str | CharacterTest:
        match = _NAMED_SET.match(self._pattern, self._at)
        if match:
            self._at = match.end()
            name = match[2].removeprefix("^")
            if fold and name in {"upper", "lower"}:
                name = "alpha"
            if match[1] != ":" or name not in POSIX:
                self.bad(f"there is no class {match[0]}")
            test = POSIX[name]
            return (lambda mark: not test(mark)) if match[2].startswith("^") else test
        character = self.next()
        if not character:
            self.bad("a [ is never closed")
        return self.escape(in_set=True) if character == "\\" else character


def _unquote(match: re.Match[str]) -> str:
    if match[1] is not None:
        return _PLAIN.sub(lambda mark: f"\\{mark[0]}", match[1])
    return "" if match[0] == "\\E" else match[0]
