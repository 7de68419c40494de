"""The command line's parser: its faults are one plain sentence that says what to do."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Callable, NoReturn

_FAULTS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"argument COMMAND: invalid choice: (.+) \(choose from (.+)\)", r"\1 is no command: write \2."),
        (
            r"argument \[?(\w+)\]?: invalid choice: (.+) \(choose from (.+)\)",
            r"\2 is not known here; only \3 is.",
        ),
        (r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)", r"\1: \2 is none of \3."),
        (r"argument (\S+): expected (?:one|at least one) argument", r"\1: its value is missing."),
        (r"argument (\S+): ignored explicit argument .*", r"\1 takes no value."),
        (r"argument (\S+): (.+?)\.?", r"\1: \2."),
        (r"unrecognized arguments: (.+)", r"\1: there is no such option or argument."),
        (r"the following arguments are required: (.+)", r"\1 is missing."),
    )
)

_CHOICE = re.compile(r"argument \[?\w+\]?: invalid choice: '(.*)' \(choose")
_OPTION = re.compile(r"--?[A-Za-z]")

# A word of a list of them, as `'kill', 'drain'`.
_QUOTED = re.compile(r"(?:(?<=: write )|(?<=only )|(?<=none of )|(?<=, ))'([\w-]+)'")

_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZE = re.compile(r"([0-9]{1,9})([MGT]?)")
_SIZES = {"": 1, "M": 1, "G": 1 << 10, "T": 1 << 20}


def in_plain_words(fault: str) -> str:
    """What argparse says, as a sentence."""
    for pattern, words in _FAULTS:
        if match := pattern.fullmatch(fault):
            return _QUOTED.sub(r"\1", match.expand(words))
    return f"{fault.rstrip('.')}."


class PlainParser(argparse.ArgumentParser):
    """Says what is wrong, and leaves the usage to --help."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; the words are kept for `error`."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._given, namespace)

    def error(self, message: str) -> NoReturn:
        """Names the unknown option before an unknown word. Raises SystemExit 2."""
        match = _CHOICE.match(message)
        if match and match[1] in self._given:
            last = len(self._given) - 1 - self._given[::-1].index(match[1])
            names = [word.partition("=")[0] for word in self._given[:last] if _OPTION.match(word)]
            unknown = [name for name in names if name not in self._option_string_actions]
            message = f"unrecognized arguments: {unknown[0]}" if unknown else message
        self.exit(2, f"{self.prog}: {in_plain_words(message)} See: {self.prog} --help\n")


def whole_number(least: int) -> Callable[[str], int]:
    """Of `least` or more. Raises ArgumentTypeError."""

    def read(word: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 9 and int(word) >= least):
            raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of {least} or more")
        return int(word)

    return read


def read_fraction(word: str) -> float:
    """A number of 0 or more. Raises ArgumentTypeError."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of 0 or more")
    return value


def read_span(word: str) -> float:
    """Seconds, of 90s, 30m, 4h or 1d. Raises ArgumentTypeError."""
    match = _SPAN.fullmatch(word)
    if not match:
        raise argparse.ArgumentTypeError(f"{word!r} is not a time: write 90s, 30m, 4h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def read_megabytes(word: str) -> int:
    """MB, of 4000, 64G or 1T. Raises ArgumentTypeError."""
    match = _SIZE.fullmatch(word)
    if not match:
        raise argparse.ArgumentTypeError(f"{word!r} is not an amount of memory: write 4000 (MB), 64G or 1T")
    return int(match[1]) * _SIZES[match[2]]
